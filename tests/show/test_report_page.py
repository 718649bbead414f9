"""The report page in a real browser: every view draws, and what is reordered there costs what the referee says."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pebbler import machine, workloads
from pebbler.game.graph import Graph
from pebbler.game.moves import Compute, Copy
from pebbler.game.plan import Plan
from pebbler.game.transform import tile
from pebbler.notes.reference_orders import marked_orders, note_order
from pebbler.referee.judgement import check
from pebbler.show.report import report
from pebbler.show.report.page_data import GraphData, PlanData, program_order
from strategies import random_cache_machine, random_graph, random_machine, random_order, random_plan

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
sync_api = pytest.importorskip("playwright.sync_api", reason="browser tests need playwright: pip install playwright")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="browser tests need Chromium: apt-get install chromium")

# Without the networking flags Chromium looks for hosts of its own at every start.
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
VIEWS = ("summary", "player", "lifetimes", "reuse", "misses", "diff", "landscape")
READY = "html[data-ready=true]"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield chromium
        chromium.close()


@dataclass
class Opened:
    """A page and what went wrong in it."""

    page: Any
    errors: list[str]

    def value(self, name: str) -> Any:
        """Return what the page says of the order shown: energy or legal."""
        return self.page.locator("[data-test=live]").get_attribute(f"data-{name}")

    def select(self, index: int) -> None:
        self.page.evaluate(f"pebbler.player().goTo({index + 1})")
        self.page.locator(".moves").focus()

    def order(self) -> list[str]:
        script = "() => { const p = pebbler.player(); return Array.from(p.timeline.moves.subject, (o) => p.graph.op_name[o]); }"
        return self.page.evaluate(script)


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Write the report of some plans and open it; at the end nothing may have gone wrong in it."""
    opened: list[Opened] = []

    def open_page(plans: Plan | list[Plan], *, width: int = 1280, dark: bool = False, **more: Any) -> Opened:
        report(plans, tmp_path / "report.html", **more)
        scheme = "dark" if dark else "light"
        page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme, reduced_motion="reduce")
        found = Opened(page, [])
        page.on(
            "console",
            lambda message: found.errors.append(message.text) if message.type in ("error", "warning") else None,
        )
        page.on("pageerror", lambda error: found.errors.append(str(error)))
        page.on("dialog", lambda dialog: found.errors.append(f"dialog {dialog.message}"))
        page.on(
            "request",
            lambda request: None if request.url.startswith(("file:", "blob:")) else found.errors.append(request.url),
        )
        page.goto((tmp_path / "report.html").as_uri())
        page.wait_for_selector(READY)
        opened.append(found)
        return found

    yield open_page
    for one in opened:
        one.page.close()
        assert one.errors == []


def note_plan(machine_name: str = "notes-recency", order: str = "optimal") -> Plan:
    return Plan.in_order(workloads.note_mlp(), machine(machine_name), note_order(order))


def chain_plan(length: int) -> Plan:
    plan = program_order(Plan.in_order(workloads.chain(length), machine("red-blue"), start={"N0": "fast"}))
    assert plan is not None
    return plan


def moved(plan: Plan, source: int, target: int) -> Plan:
    moves = list(plan.moves)
    moves.insert(target, moves.pop(source))
    return replace(plan, moves=moves)


def test_every_view_draws_light_and_dark_wide_and_narrow(show: Callable[..., Opened]) -> None:
    for width, dark in ((1280, False), (400, True)):
        page = show(note_plan(), width=width, dark=dark, references=marked_orders()).page
        assert page.locator("#summary-view .tile").count() >= 3
        assert page.locator("#player-view .node").count() == 15 + 6
        assert page.locator("#player-view .edge.war").count() > 0
        assert page.locator("#lifetimes-view canvas").count() == 1
        for view, least in (("reuse", 2), ("misses", 2), ("diff", 3), ("landscape", 2)):
            assert page.locator(f"#{view}-view figure svg").count() >= least, view
        text = page.locator("body").inner_text()
        for words in (
            "10.764 µJ",
            "2.2 % less",
            "7,290 orders",
            "W1 is still there when upd_W1 reads it",
            "note: standard",
        ):
            assert words in text
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
        assert (page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)") is not dark
        labels = page.locator("[role=img]").evaluate_all("all => all.map((one) => one.getAttribute('aria-label'))")
        assert all(labels)


def test_tiles_of_two_axes_are_added_up(show: Callable[..., Opened]) -> None:
    step = workloads.mlp(n=4, hidden=6, batch=4)
    tiled = tile(tile(step, "hidden", 3), "batch", 2)
    plan = Plan.in_order(tiled, machine("notes"), source=step)
    text = show(plan).page.locator("#summary-view").inner_text()
    assert "h_pre (4 tiles)" in text
    assert "[0]" not in text


def test_the_page_opens_quickly(show: Callable[..., Opened]) -> None:
    page, times = show(note_plan()).page, []
    for _ in range(3):
        page.reload()
        page.wait_for_selector(READY)
        times.append(page.evaluate("performance.getEntriesByName('player')[0].startTime"))
    assert min(times) < 2000  # milliseconds until the summary and the player are drawn


def test_the_player_steps_by_button_slider_and_key(show: Callable[..., Opened]) -> None:
    opened = show(note_plan())
    page, now = opened.page, opened.page.locator("[data-test=now]")
    page.locator("[data-test=next]").click()
    assert "Move 1 of 15: fwd_linear1" in now.inner_text()
    assert "2.122 µJ of 10.764 µJ" in now.inner_text()
    page.locator(".moves").press("ArrowDown")
    assert now.get_attribute("data-step") == "2"
    page.locator(".transport input[type=range]").fill("15")
    assert "10.764 µJ of 10.764 µJ" in now.inner_text()
    page.locator(".moves").press("Home")
    page.locator("select[aria-label=Speed]").select_option("200")
    page.locator(".moves").press(" ")
    page.wait_for_selector("[data-test=now][data-step='15']")


@pytest.mark.parametrize("management", ["notes-recency", "notes"])
def test_reordering_by_key_and_drag_costs_what_the_referee_says(show: Callable[..., Opened], management: str) -> None:
    plan = note_plan(management)
    opened = show(plan)
    opened.select(14)
    opened.page.keyboard.press("Alt+ArrowUp")  # upd_W1 before bwd_dW1, whose result it reads
    assert opened.value("legal") == "false"
    assert check(moved(plan, 14, 13)).error in opened.page.locator("[data-test=live]").inner_text()
    opened.page.get_by_role("button", name="Undo").click()
    assert float(opened.value("energy")) == check(plan).energy

    opened.select(7)  # upd_b2
    for _ in range(3):
        opened.page.keyboard.press("Alt+ArrowDown")
    expected = moved(plan, 7, 10)
    assert opened.order() == [move.op for move in expected.moves]
    assert float(opened.value("energy")) == check(expected).energy != check(plan).energy
    assert opened.value("legal") == "true"

    opened.page.get_by_role("button", name="Back to the plan").click()
    drag(opened.page, 12, 8)  # upd_b1 before bwd_dh is illegal, upd_W2 later is not
    assert opened.value("legal") == "false"
    assert check(moved(plan, 12, 8)).error in opened.page.locator("[data-test=live]").inner_text()
    opened.page.get_by_role("button", name="Back to the plan").click()
    drag(opened.page, 10, 14)
    expected = moved(plan, 10, 14)
    assert opened.order() == [move.op for move in expected.moves]
    assert float(opened.value("energy")) == check(expected).energy


def drag(page: Any, source: int, target: int) -> None:
    """Drag the move in one place so that it stands in another."""
    page.locator(".moves").evaluate(
        "(list) => { list.scrollTop = 0; list.scrollIntoView({ block: 'center', behavior: 'instant' }); }"
    )
    grip = page.locator(f"#move-{source} .grip").bounding_box()
    goal = page.locator(f"#move-{target}").bounding_box()
    page.mouse.move(grip["x"] + 5, grip["y"] + grip["height"] / 2)
    page.mouse.down()
    edge = goal["y"] + (goal["height"] if target > source else 0)
    page.mouse.move(grip["x"] + 8, (grip["y"] + edge) / 2, steps=3)
    page.mouse.move(grip["x"] + 8, edge, steps=3)
    page.mouse.up()


def test_reordering_an_explicit_plan_is_judged_by_the_full_rules(show: Callable[..., Opened], tmp_path: Path) -> None:
    plan = chain_plan(12)
    opened = show(plan)
    computes = [i for i, move in enumerate(plan.moves) if isinstance(move, Compute)]
    opened.page.locator("#along").uncheck()
    opened.select(computes[5])
    opened.page.keyboard.press("Alt+ArrowUp")
    assert opened.value("legal") == str(check(moved(plan, computes[5], computes[5] - 1)).legal).lower()
    opened.page.get_by_role("button", name="Back to the plan").click()
    copy = next(i for i, move in enumerate(plan.moves) if isinstance(move, Copy))
    opened.select(copy)
    opened.page.keyboard.press("Alt+ArrowUp")
    expected = moved(plan, copy, copy - 1)
    assert float(opened.value("energy")) == check(expected).energy
    with opened.page.expect_download() as download:
        opened.page.get_by_role("button", name="Save as a plan").click()
    download.value.save_as(tmp_path / "hand.json")
    saved = Plan.load(tmp_path / "hand.json")
    assert list(saved.moves) == list(expected.moves)
    assert check(saved).energy == check(expected).energy


def test_an_illegal_plan_opens_at_its_illegal_move(show: Callable[..., Opened]) -> None:
    page = show(note_plan(order="fused")).page
    reason = "upd_W2 overwrites W2 (version 0) before bwd_dh reads it"
    assert reason in page.locator("#player-view .banner").inner_text()
    assert "Move 7 of 15, upd_W2, is illegal" in page.locator("[data-test=now]").inner_text()
    assert page.locator("#move-6").evaluate("(row) => row.classList.contains('illegal')")
    assert page.locator(".node.illegal").count() == 1


def test_names_with_markup_are_shown_and_not_run(show: Callable[..., Opened]) -> None:
    script, image, breakout = "<script>window.hacked=1</script>", "<img src=x onerror=window.hacked=2>", "</script><b>x"
    graph = Graph("<i>g</i>", unit="pebble")
    graph.tensor(script, 1, kind="input")
    graph.tensor(image, 1, kind="output")
    graph.op(breakout, [script], [image], cost=1)
    page = show(Plan.in_order(graph, machine("red-blue"), start={script: "fast"}), names=["<u>plan</u>"]).page
    page.evaluate("pebbler.player().goTo(1)")
    text = page.locator("main").text_content()
    assert script in text
    assert image in text
    assert breakout in text
    assert "<u>plan</u>" in text
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main i, main b:not(.sentence b)").count() == 0


def test_ten_thousand_moves_stay_quick(show: Callable[..., Opened]) -> None:
    plan = chain_plan(1400)
    assert len(plan.moves) > 10_000
    page = show(plan).page
    assert page.locator(".moves .move").count() < 80
    seconds = page.evaluate(
        "() => { const p = pebbler.player(), t = performance.now();"
        "for (let i = 0; i < 10; i++) p.goTo(1000 * i); p.reorder(0, 1); return (performance.now() - t) / 11000; }"
    )
    assert seconds < 1
    assert page.locator("[data-test=live]").get_attribute("data-legal") == "false"


def test_the_pages_rules_are_the_referees(show: Callable[..., Opened]) -> None:
    cases = [case for seed in range(240) if (case := random_case(seed)) is not None]
    judged = show(note_plan()).page.evaluate(
        """(cases) => cases.map(({ graph, plan }) => {
          const judgement = pebbler.judge(graph, pebbler.arenaOf(plan), plan);
          const line = new pebbler.Timeline(graph, plan, plan, judgement);
          let most = null;
          for (let step = 0; step <= judgement.played; step++) {
            const used = line.used(step);
            most = most ? most.map((units, i) => Math.max(units, used[i])) : used;
          }
          return { ...judgement, most };
        })""",
        [msgspec.to_builtins({"graph": graph, "plan": plan}) for graph, plan in cases],
    )
    legal = 0
    for (_, plan), found in zip(cases, judged, strict=True):
        expected = plan.judgement
        legal += expected.legal
        assert (found["legal"], found["move"], found["error"]) == (expected.legal, expected.move, expected.error)
        for key in ("levels", "tensors", "ops", "kinds"):
            assert found[key] == pytest.approx(getattr(expected, key)), key
        assert found["steps"] == pytest.approx(expected.steps[: len(found["steps"])])
        if plan.machine.management == "explicit":
            assert found["peak"] == expected.peak == found["most"]
    assert 80 < legal < len(cases)


def random_case(seed: int) -> tuple[GraphData, PlanData] | None:
    """Return a plan, legal or not, on one of the three kinds of machine, with the referee's judgement."""
    rng = random.Random(seed)
    graph = random_graph(rng, 8)
    if seed % 3 == 0:
        plan = random_plan(rng, graph, random_machine(rng, graph, whole=False))
        if plan is None:
            return None
        for _ in range(rng.randint(0, 2)):
            plan = moved(plan, rng.randrange(len(plan.moves)), rng.randrange(len(plan.moves)))
    else:
        cached = random_cache_machine(rng, "lru" if seed % 3 == 1 else "recency")
        cached = msgspec.structs.replace(cached, allocator=rng.choice(["own", "reuse"]), line=rng.choice([1, 1, 2, 3]))
        order = random_order(rng, graph, war=rng.random() < 0.8)
        plan = Plan.in_order(graph, cached, [graph.ops[op].name for op in order])
    plan = replace(plan, steady=rng.random() < 0.5)
    return GraphData.of(graph, plan.energy_unit), PlanData.of(plan, "random", 0, baseline=True)
