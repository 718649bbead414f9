"""The pebble game in a real browser: its referee is pebbler's, its hints are optimal, links bring positions back."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chromium import BROWSER, FLAGS, UNREADABLE, watched
from naive_game import NaiveGame, RandomGame, TooBig, random_game
from pebble_games import pebble_game
from pebbler import machine, workloads
from pebbler.game.graph import Graph
from pebbler.game.moves import Move
from pebbler.game.plan import Plan, PlanFile
from pebbler.referee.judgement import check
from pebbler.show.play import play
from pebbler.show.play.hand_levels import level_of
from pebbler.show.play.level_graphs import HandGame, level_games, red_blue
from pebbler.show.report import report
from pebbler.solver import solve

sync_api = pytest.importorskip("playwright.sync_api", reason="browser tests need playwright: pip install playwright")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="browser tests need Chromium: apt-get install chromium")
READY = "html[data-ready=true]"
SIZES = ((1400, 900, False), (1400, 900, True), (390, 844, False), (390, 844, True))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def levels_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page with the levels that come with pebbler."""
    path = tmp_path_factory.mktemp("play") / "play.html"
    play(path)
    return path


@pytest.fixture
def show(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open a page; at the end nothing may have gone wrong in it."""
    opened: list[tuple[Any, list[str]]] = []

    def open_page(path: Path, fragment: str = "", size: tuple[int, int] = (1400, 900), dark: bool = False) -> Any:
        page = browser.new_page(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
        )
        opened.append((page, watched(page)))
        page.goto(path.as_uri() + fragment)
        page.wait_for_selector(READY)
        return page

    yield open_page
    for page, wrong in opened:
        page.close()
        assert wrong == []


def word(page: Any) -> str:
    return page.locator("[data-test=word]").inner_text()


def spent(page: Any) -> float:
    return float(page.locator("[data-test=costs]").get_attribute("data-spent"))


def solved(page: Any) -> float:
    """What the page says the cheapest way from here costs, once it knows."""
    page.wait_for_selector("[data-test=costs]:not([data-finish=''])")
    return float(page.locator("[data-test=costs]").get_attribute("data-finish"))


# The rules and the optimum, held against pebbler's ----------------------------------------------------------------------


def random_hand_game(seed: int) -> RandomGame | None:
    """Return a game of two levels; every other one with updates in place and sizes of all kinds."""
    rng = random.Random(seed)
    if seed % 2:
        return pebble_game(rng, 6)
    game = random_game(rng, 5, max_levels=2, operands="fastest", steady=False)
    return game if len(game.machine.level) == 2 else None


def random_tries(rng: random.Random, graph: Graph, count: int) -> list[list[int]]:
    """Return moves as [kind, subject, level, to] to be tried one after the other, most of them likely to be legal at some time."""
    tries = []
    for _ in range(count):
        if rng.random() < 0.5:
            tries.append([0, rng.randrange(len(graph.ops)), 0, -1])
        else:
            tensor, level = rng.randrange(len(graph.tensors)), rng.randrange(2)
            tries.append(rng.choice([[1, tensor, level, 1 - level], [1, tensor, 1, 0], [2, tensor, level, -1]]))
    return tries


PLAY_CASES = """(cases) => cases.map(({ level, tries }) => {
  const game = new pebbler.HandGame(level), asMove = ([kind, subject, level, to]) => ({ kind, subject, level, to });
  if (!game.judgement.steps) return null;
  const words = tries.map((one) => game.make(asMove(one)));
  const search = game.search();
  if (search) search.run();
  const made = game.moves.map(({ kind, subject, level, to }) => [kind, subject, level, to]);
  return { words, made, spent: game.spent, present: game.present, ran: game.ran, finished: game.finished,
           result: search ? search.result : "not here" };
})"""


def as_moves(game: RandomGame, rows: list[list[int]]) -> list[Move]:
    names, graph = game.machine.names, game.graph
    found: list[Any] = []
    for kind, subject, level, to in rows:
        if kind == 0:
            found.append(("compute", graph.ops[subject].name))
        elif kind == 1:
            found.append(("copy", graph.tensors[subject].name, names[level], names[to]))
        else:
            found.append(("drop", graph.tensors[subject].name, names[level]))
    return found


def hold_to_referee(show: Callable[..., Any], path: Path, seeds: range) -> tuple[int, int]:
    """Play random moves on the page and in Python; return how many words and how many optima were compared."""
    games = [
        (seed, game)
        for seed in seeds
        if (game := random_hand_game(seed)) is not None
        and (check(Plan(game.graph, game.machine, [], start=game.start, steady=False)).error or "")[:5] != "start"
    ]
    cases = []
    for seed, game in games:
        rng = random.Random(seed + 1)
        level = level_of(HandGame("random", "random", "", game.graph, game.machine, game.start))
        cases.append({"level": level, "tries": random_tries(rng, game.graph, rng.choice([0, 6, 14, 25]))})
    answers = show(path).evaluate(PLAY_CASES, msgspec.to_builtins(cases))
    words = optima = 0
    for (seed, game), case, answer in zip(games, cases, answers, strict=True):
        plan = Plan(game.graph, game.machine, [], start=game.start, steady=False)
        kept: list[Move] = []
        for row, said in zip(case["tries"], answer["words"], strict=True):
            (move,) = as_moves(game, [row])
            judged = check(replace(plan, moves=[*kept, move]))
            expected = None
            if judged.move == len(kept) + 1:
                assert judged.error is not None
                expected = judged.error.partition(": ")[2]
            else:
                kept.append(move)
            assert said == expected, (seed, move)
            words += 1
        assert [tuple(move) for move in as_moves(game, answer["made"])] == [tuple(move) for move in kept]
        final = check(replace(plan, moves=kept))
        assert answer["spent"] == pytest.approx(final.energy)
        assert answer["finished"] == final.legal
        optima += hold_optimum(game, plan, kept, answer)
    return words, optima


def hold_optimum(game: RandomGame, plan: Plan, kept: list[Move], answer: dict[str, Any]) -> int:
    """Compare the cheapest way from a position with a brute force's, and have the referee judge it; return whether it was."""
    naive = NaiveGame(game.graph, game.machine, False, game.start)
    ran = sum(done << op for op, done in enumerate(answer["ran"]))
    naive.begin = lambda: iter([(ran, tuple(answer["present"]), ())])  # type: ignore[method-assign]
    try:
        least = naive.solve(30_000)
    except TooBig:
        return 0
    if least is None:
        assert answer["result"] == "no way"
        return 1
    result = answer["result"]
    assert result["cost"] == pytest.approx(least)
    rows = [[move["kind"], move["subject"], move["level"], move["to"]] for move in result["moves"]]
    judged = check(replace(plan, moves=[*kept, *as_moves(game, rows)]))
    assert judged.legal, judged.error
    assert judged.energy == pytest.approx(answer["spent"] + least)
    return 1


def test_every_word_is_the_referees_and_every_hint_optimal(show: Callable[..., Any], levels_file: Path) -> None:
    words, optima = hold_to_referee(show, levels_file, range(50))
    assert words > 300
    assert optima > 25


@pytest.mark.slow
def test_every_word_is_the_referees_on_thousands_of_games(show: Callable[..., Any], levels_file: Path) -> None:
    words, optima = hold_to_referee(show, levels_file, range(1000, 4000))
    assert words > 20_000
    assert optima > 1500


def test_the_pages_optimum_is_that_of_the_exact_solvers(show: Callable[..., Any], levels_file: Path) -> None:
    cases = [HandGame("c", "c", "", workloads.chain(n), red_blue(red, io), {"N0": "fast"}) for n, red, io in
             ((4, 3, 2), (7, 3, 100), (8, 4, 3), (9, 3, 6), (11, 4, 100))]  # fmt: skip
    cases += level_games()[:-1]
    found = show(levels_file).evaluate(
        "(levels) => levels.map((level) => { const s = new pebbler.HandGame(level).search(); s.run(); return s.result.cost; })",
        msgspec.to_builtins([level_of(case) for case in cases]),
    )
    expected = [solve(case.graph, case.machine, steady=False, start=case.start, tile="none") for case in cases]
    assert [plan.status for plan in expected] == ["optimal"] * len(cases)
    assert found == pytest.approx([plan.energy for plan in expected])


# The page ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_levels_are_readable_and_fit_the_screen(
    show: Callable[..., Any], levels_file: Path, size: tuple[int, int, bool]
) -> None:
    page = show(levels_file, "", size[:2], size[2])
    for number, level in enumerate(level_games()):
        page.locator("select[aria-label=Puzzle]").select_option(str(number))
        page.locator(".place").first.focus()
        assert page.evaluate(UNREADABLE) == [], level.name
        if level.name == "chain-6":  # with steps done, and pebbles of both colours
            page.goto("about:blank")
            page.goto(f"{levels_file.as_uri()}#level=chain-6&moves=c0.c1.s2.d1.c2.d2.c3.d3.c4.d4.c5.c6.c7")
            page.wait_for_selector(READY)
            assert page.locator(".place.done rect.outline").count() == 2
            assert page.evaluate(UNREADABLE) == []
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth"), level.name
        assert page.locator(".place").count() == level.graph.dataflow.values


def test_a_level_is_played_by_mouse(show: Callable[..., Any], levels_file: Path) -> None:
    page = show(levels_file)
    node = {name: page.locator(f".place[aria-label^='{name}:']") for name in "abs"}
    node["s"].click()
    assert word(page) == "Not allowed: s needs a red pebble on a."
    assert spent(page) == 0
    for name in "ab":
        node[name].click()
        page.locator("[data-action=load]").click()
    assert (spent(page), solved(page)) == (20, 1)
    node["s"].click()
    assert "Finished at 21 units: nobody can do better." in word(page)
    page.get_by_role("button", name="Next puzzle").click()
    assert page.locator("select[aria-label=Puzzle] option:checked").inner_text() == "2. A line"
    assert page.locator("select[aria-label=Puzzle] option").first.inner_text() == "1. A sum ✓"
    page.reload()
    page.wait_for_selector(READY)
    assert page.locator("select[aria-label=Puzzle] option").first.inner_text() == "1. A sum ✓"


def test_a_level_is_played_by_keys_alone(show: Callable[..., Any], levels_file: Path) -> None:
    page = show(levels_file, "#level=line")
    for _ in range(30):  # from the top of the page, as somebody without a mouse comes
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.classList.contains('place')"):
            break
    page.keyboard.press("l")
    for key in ("ArrowRight", "Enter", "ArrowRight", "c"):
        page.keyboard.press(key)
    assert word(page) == "Not allowed: all 2 red pebbles are in use; remove one first."
    for key in ("ArrowLeft", "ArrowLeft", "d", "ArrowRight", "ArrowRight", " "):
        page.keyboard.press(key)
    assert spent(page) == 12
    page.keyboard.press("Control+z")
    assert spent(page) == 11
    page.keyboard.press("Control+Shift+Z")
    assert spent(page) == 12
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+y")
    assert spent(page) == 12
    page.keyboard.press("s")
    assert spent(page) == 22
    page.keyboard.press("x")
    assert "Remove blue from c: free." in word(page)
    page.keyboard.press("Delete")
    page.keyboard.press("h")
    page.wait_for_selector("[data-hint]")
    while not page.evaluate("pebbler.view.game.finished"):
        solved(page)
        page.keyboard.press("h")
    assert "Finished at 24 units; the optimum is 13 units." in word(page)


def test_hints_lead_to_the_end_for_what_was_said(show: Callable[..., Any], levels_file: Path, tmp_path: Path) -> None:
    page = show(levels_file, "#level=pyramid&moves=l0.l1.c0.d0.l2.d1")  # b has gone too early
    promised = spent(page) + solved(page)
    assert promised > 13
    for _ in range(40):
        if page.evaluate("pebbler.view.game.finished"):
            break
        solved(page)
        page.get_by_role("button", name="Hint").click()
    assert spent(page) == promised
    assert f"the optimum is {13} units" in word(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="Save the game").click()
    download.value.save_as(tmp_path / "hand.json")
    judged = check(Plan.load(tmp_path / "hand.json"))
    assert (judged.legal, judged.energy) == (True, promised)


def test_note_001s_chain_is_played_to_its_optimum(show: Callable[..., Any], levels_file: Path) -> None:
    page = show(levels_file, "#level=note-001")
    assert solved(page) == 336
    page.evaluate(
        "() => { const { view } = pebbler, { game } = view;"
        " while (!game.finished) game.make(game.finish().moves[0]); view.update(); }"
    )
    assert spent(page) == 336
    assert "nobody can do better" in word(page)


FOLLOW = """(seed) => {
  const { game } = pebbler.view, level = game.level;
  let state = seed;
  const random = (n) => { state = (Math.imul(state, 1103515245) + 12345) >>> 0; return Math.floor((state / 2 ** 32) * n); };
  game.restart();
  for (let i = random(250); i > 0 && !game.finished; i--) game.make(game.finish().moves[0]);
  for (let i = 0; i < 4; i++) {  // off the plan: any moves that are allowed
    const [kind, n] = [random(3), random(101)];
    game.make(kind === 0 ? { kind: 0, subject: n, level: 0, to: -1 } : kind === 1 ? { kind: 1, subject: n, level: 0, to: 1 }
      : { kind: 2, subject: n, level: 0, to: -1 });
  }
  const first = game.finish();
  if (!first) return null;
  const promised = game.spent + first.cost;
  for (let i = 0; i < 3000 && !game.finished; i++) {
    const next = game.finish();
    if (!next || game.spent + next.cost > promised + 1e-9 || game.make(next.moves[0]) !== null) return "lost the way";
  }
  return { promised, spent: game.spent, finished: game.finished, proven: first.proven, plan: game.planFile() };
}"""


@pytest.mark.parametrize("seeds", [range(1, 5), pytest.param(range(5, 25), marks=pytest.mark.slow)])
def test_hints_on_note_001s_chain_keep_their_word_off_the_plan(
    show: Callable[..., Any], levels_file: Path, seeds: range
) -> None:
    page = show(levels_file, "#level=note-001")
    followed = 0
    for seed in seeds:
        found = page.evaluate(FOLLOW, seed)
        if found is None:
            continue
        assert found != "lost the way", seed
        assert found["finished"]
        assert found["spent"] <= found["promised"]
        assert found["spent"] >= 336
        assert not found["proven"] or found["spent"] == found["promised"]
        plan = msgspec.convert(found["plan"], PlanFile)
        graph = Graph.from_file(plan.graph)
        judged = check(Plan(graph, plan.machine, plan.moves, start=plan.start, steady=False))
        assert (judged.legal, judged.energy) == (True, found["spent"])
        followed += 1
    assert followed > len(seeds) / 3


# Links ------------------------------------------------------------------------------------------------------------------


def test_a_link_brings_a_position_back(show: Callable[..., Any], levels_file: Path) -> None:
    page = show(levels_file, "#level=again")
    page.locator(".place[aria-label^='x:']").click()
    page.keyboard.press("l")
    page.locator(".place[aria-label^='a:']").click()
    page.locator(".place[aria-label^='a:']").press("s")
    address = page.evaluate("location.href")
    other = show(levels_file, "#" + address.partition("#")[2])
    assert spent(other) == spent(page) == 21
    assert other.locator(".log li").all_inner_texts() == page.locator(".log li").all_inner_texts()
    other.keyboard.press("Control+z")
    assert spent(other) == 11


DAMAGED = {
    "#level=sum&moves=l0.l1.c0.c9": (3, 'move 4: "c9" is no move of this game'),
    "#level=sum&moves=l0.zz.l1": (1, 'move 2: "zz" is no move of this game'),
    "#level=sum&moves=l0.l77": (1, "is no move of this game"),
    "#level=sum&moves=l0.c0.l1": (1, "s needs a red pebble on b"),
    "#level=sum&moves=....": (0, "is no move of this game"),
    "#level=sum&moves=%00%FF<script>": (0, "is no move of this game"),
    "#level=sum&check=abc&moves=l0": (0, "another game"),
    "#level=<b>nowhere</b>&moves=l0": (0, "which this page does not have"),
    "#%E0%A4%A": (0, "Click an empty node"),
    "#moves=l0": (0, "Click an empty node"),
}


def test_damaged_links_keep_what_is_sound(show: Callable[..., Any], levels_file: Path) -> None:
    page = show(levels_file)
    for fragment, (kept, says) in DAMAGED.items():
        page.goto("about:blank")
        page.goto(levels_file.as_uri() + fragment)
        page.wait_for_selector(READY)
        assert page.locator(".log li").count() == kept, fragment
        assert says in word(page), fragment
    page.evaluate("location.hash = 'level=line&moves=l0.c0'")  # a link pasted into the page that is open
    page.wait_for_selector(".log li:nth-child(2)")
    assert spent(page) == 11


# Games of one's own -----------------------------------------------------------------------------------------------------


def test_names_with_markup_are_shown_and_not_run(show: Callable[..., Any], tmp_path: Path) -> None:
    script, image, breakout = "<script>window.hacked=1</script>", "<img src=x onerror=window.hacked=2>", "</script><b>x"
    graph = Graph("<i>g</i>", unit="pebble")
    graph.tensor(script, 1, kind="input")
    graph.tensor(image, 1, kind="output")
    graph.op(breakout, [script], [image], cost=1)
    play(tmp_path / "own.html", graph)
    page = show(tmp_path / "own.html")
    page.locator(".place").first.click()
    page.keyboard.press("l")
    page.keyboard.press("h")
    assert breakout in word(page)
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main i, main b").count() == 0


def test_what_is_too_large_for_the_page_says_so_and_knows_the_plan(show: Callable[..., Any], tmp_path: Path) -> None:
    made = play(tmp_path / "own.html", "chain:length=40", red=5)
    page = show(tmp_path / "own.html")
    assert solved(page) == made.levels[0].optimum
    page.keyboard.press("Tab")
    page.locator(".place").first.focus()
    page.keyboard.press("s")  # no optimal plan stores N0
    costs = page.locator("[data-test=costs]")
    assert f"From here {made.levels[0].optimum} units more at most" in costs.inner_text()
    page.keyboard.press("h")
    assert "there may be a cheaper way" in word(page)
    page.locator(".place").first.focus()
    page.keyboard.press("d")  # the plan never does without N0
    assert "too large to be solved on the page" in costs.inner_text()
    page.keyboard.press("h")
    assert "Undo leads back" in word(page)
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    assert solved(page) == made.levels[0].optimum
    assert "at the least" in costs.inner_text()


def test_a_plans_own_game_is_played_with_its_machine(show: Callable[..., Any], tmp_path: Path) -> None:
    graph = workloads.chain(4)
    plan = solve(graph, red_blue(3, 7), start={"N0": ["fast", "slow"]})
    plan.save(tmp_path / "plan.json")
    made = play(tmp_path / "own.html", tmp_path / "plan.json")
    assert made.levels[0].optimum == plan.energy
    page = show(tmp_path / "own.html")
    assert solved(page) == plan.energy
    assert "red pebble and blue pebble" in (page.locator(".place").first.get_attribute("aria-label") or "")
    assert machine("red-blue").level[0].capacity != made.levels[0].capacity[0] == 3


@pytest.mark.slow
def test_reports_of_small_games_end_with_the_board(show: Callable[..., Any], tmp_path: Path) -> None:
    plan = solve(workloads.chain(5), red_blue(3, 5), start={"N0": "fast"})
    report([plan, Plan.in_order(workloads.note_mlp(), machine("notes"))], tmp_path / "report.html")
    page = show(tmp_path / "report.html")
    page.locator("nav.contents a[href='#play']").click()
    assert solved(page) == plan.energy
    page.locator("#play-view .place[aria-label^='N1:']").click()
    assert spent(page) == 1
    page.keyboard.press("Control+z")
    assert spent(page) == 0
    report(Plan.in_order(workloads.note_mlp(), machine("notes")), tmp_path / "cache.html")
    assert show(tmp_path / "cache.html").locator("#play-view, a[href='#play']").count() == 0


@pytest.mark.slow
def test_a_chain_there_and_back_stands_in_two_rows_and_the_board_follows(
    show: Callable[..., Any], levels_file: Path
) -> None:
    page = show(levels_file)
    page.goto(f"{levels_file.as_uri()}#level=chain-3")
    page.wait_for_selector(READY)
    rows = page.evaluate(
        "new Set([...document.querySelectorAll('.place')].map((one) => one.getBoundingClientRect().y)).size"
    )
    assert rows == 2
    assert "red pebble" in page.locator("p.sentence").first.inner_text()
    page.set_viewport_size({"width": 400, "height": 700})
    page.goto("about:blank")
    page.goto(f"{levels_file.as_uri()}#level=note-001")
    page.wait_for_selector(READY)
    for _ in range(36):
        page.keyboard.press("h")
        page.keyboard.press("h")
    seen = page.evaluate(
        """() => { const view = document.querySelector('.board').getBoundingClientRect();
          return [...document.querySelectorAll('.place.done')].pop().getBoundingClientRect().bottom <= view.bottom + 40; }"""
    )
    assert seen
