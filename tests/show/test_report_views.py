"""Every view of the report on every kind of plan: it can be read, it is the referee's, and it answers to keys, links and clicks."""

from __future__ import annotations

import csv
import random
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chromium import UNREADABLE
from opened_pages import READY, Opened, needs_browser, open_report
from pebbler.game.plan import Plan
from pebbler.referee.judgement import check
from pebbler.show.report import report
from pebbler.show.report.page_data import GraphData, PlanData
from report_plans import MAKERS, QUOTED, SCRIPT, strange, two_axes
from strategies import random_cache_machine, random_graph, random_machine, random_order, random_plan

pytestmark = needs_browser

# Whatever a canvas writes: the size of its letters, and its contrast with the two grounds that text stands on.
WATCH_CANVAS = """(() => {
  window.canvasText = [];
  const draw = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
    window.canvasText.push({ text, size: parseFloat(/([\\d.]+)px/.exec(this.font)[1]), x, y, colour: this.fillStyle });
    return draw.call(this, text, x, y);
  };
})()"""


# Text of a drawing that is zoomed: its letters are as large as the zoom leaves them.
SCALED_DOWN = """() => [...document.querySelectorAll(".stage svg text")]
  .filter((one) => one.textContent && one.checkVisibility())
  .map((one) => [one.textContent, parseFloat(getComputedStyle(one).fontSize) * one.getScreenCTM().a])
  .filter(([, size]) => size < 9.99).map(([text, size]) => `${text}: ${size} px`)"""


class Pages:
    """One page per plan, opened once for all tests of the module."""

    def __init__(self, browser: Any, folder: Path) -> None:
        self.browser, self.folder = browser, folder
        self.opened: dict[str, Opened] = {}

    def __call__(self, name: str, plan: Plan | None = None) -> Any:
        """Return the page of a plan at 1400x900, at its start."""
        if name not in self.opened:
            file = self.folder / f"{name.replace(' ', '-')}.html"
            report(plan if plan is not None else MAKERS[name](), file, names=[name])
            self.opened[name] = open_report(self.browser, file, 1400, 900)
            page = self.opened[name].page
            page.add_init_script(WATCH_CANVAS)
            page.reload()
            page.wait_for_selector(READY)
        page = self.opened[name].page
        page.evaluate("pebbler.player().goTo(0)")
        return page


@pytest.fixture(scope="module")
def pages(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    found = Pages(browser, tmp_path_factory.mktemp("pages"))
    yield found
    for name, one in found.opened.items():
        assert one.errors == [], name
        one.page.close()


def settle(page: Any) -> None:
    """Wait until what follows a change of size has been drawn."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def until(page: Any, condition: str) -> None:
    """Wait for a condition; the page's policy forbids the browser's own way of waiting for one."""
    for _ in range(100):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise AssertionError(condition)


def unreadable(page: Any) -> list[str]:
    """Return text on the page, canvases included, that is too small or too faint."""
    small = [f"{one['text']}: {one['size']} px" for one in page.evaluate("canvasText.splice(0)") if one["size"] < 10]
    return small + page.evaluate(UNREADABLE) + page.evaluate(SCALED_DOWN)


# Numbered circles on the knees of a curve that lie on one another.
KNEES_IN_TOUCH = """() => [...document.querySelectorAll("svg")].flatMap((svg) => {
  const at = [...svg.querySelectorAll("circle[r='9']")].map((one) => one.getBoundingClientRect());
  return at.flatMap((a, i) => at.slice(i + 1).map((b) => Math.hypot(a.x - b.x, a.y - b.y)));
}).filter((apart) => apart < 18)"""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "explicit")) for name in MAKERS]
)
def test_every_view_can_be_read_wide_and_narrow_light_and_dark(pages: Pages, name: str) -> None:
    page = pages(name)
    moves = page.evaluate("pebbler.player().timeline.length")
    for size, scheme in (((1400, 900), "light"), ((390, 844), "dark")):
        page.set_viewport_size({"width": size[0], "height": size[1]})
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        page.evaluate("document.dispatchEvent(new Event('themechange'))")
        for mode in page.locator(".modes button:visible").all():
            mode.click()
            page.evaluate(f"pebbler.player().goTo({moves // 2})")
            page.evaluate("pebbler.player().stage.view.fit()")
            settle(page)
            assert page.evaluate(SCALED_DOWN) == [], size
        settle(page)
        assert unreadable(page) == [], size
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth"), size
        assert page.evaluate(KNEES_IN_TOUCH) == [], size
    page.set_viewport_size({"width": 1400, "height": 900})
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    settle(page)
    nameless = page.locator("button:visible, select:visible, input:visible, a:visible").evaluate_all(
        "all => all.filter((one) => !(one.innerText || one.labels?.length || one.getAttribute('aria-label'))"
        " || one.tabIndex < 0).map((one) => one.outerHTML)"
    )
    assert nameless == []


def test_names_stay_names_everywhere(pages: Pages, tmp_path: Path) -> None:
    page = pages("odd names")
    page.keyboard.press("/")
    page.keyboard.type("quoted")
    assert QUOTED in page.locator("dialog.search li").first.inner_text()
    page.keyboard.press("Enter")
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main i").count() == 0
    rows = saved_csv(page, "#memory-view", tmp_path)
    assert any(SCRIPT in row[1] for row in rows)
    assert not any(cell.startswith("=") for row in rows for cell in row)


def saved_csv(page: Any, view: str, folder: Path) -> list[list[str]]:
    with page.expect_download() as download:
        page.locator(f"{view} button", has_text="CSV").first.click()
    download.value.save_as(folder / "table.csv")
    with (folder / "table.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def test_a_plan_of_tiles_opens_on_them_and_in_order_its_sweeps_go_there_and_back(pages: Pages, flagship: Plan) -> None:
    page = pages("flagship", flagship)
    assert page.locator("[data-mode=graph]").is_hidden()
    assert page.locator("[data-mode=tiles]").get_attribute("aria-pressed") == "true"
    page.locator("[data-mode=order]").click()
    spots = page.evaluate(
        """() => { const view = pebbler.player().stage.view, t = view.state.timeline, found = {};
          t.moves.subject.forEach((o, i) => {
            const box = view.mark(view.last, t, i), name = t.graph.op_origin[o];
            (found[name] ||= []).push([box.x, box.y]);
          });
          return found; }"""
    )
    slope = {name: (places[-1][1] - places[0][1]) * (len(places) > 1) for name, places in spots.items()}
    assert slope["fwd_linear1"] > 20  # down: from the first tile to the last
    assert slope["bwd_dh+bwd_relu"] < -20  # and up again
    for places in spots.values():
        assert [x for x, _ in places] == sorted(x for x, _ in places)
    # The move shown stays in sight, however near one looks.
    for _ in range(5):
        page.get_by_role("button", name="Zoom in").first.click()
    for step in (1, 100, len(flagship.moves)):
        page.evaluate(f"pebbler.player().goTo({step})")
        left, right, at = page.evaluate(
            "() => { const { last: f, state } = pebbler.player().stage.view; return [f.left, f.right, f.x(state.move)]; }"
        )
        assert left - 1 <= at <= right
    page.get_by_role("button", name="Show all of it").first.click()


def test_the_grid_has_a_place_for_every_tile_and_goes_to_what_is_clicked(pages: Pages) -> None:
    page = pages("two axes")
    page.locator("[data-mode=tiles]").click()
    settle(page)  # a cell must not move between being looked up and being clicked
    found = page.evaluate(
        """() => { const view = pebbler.player().stage.view, { last: f, state } = view, { graph } = state.timeline;
          const cells = graph.op_name.map((_, o) => view.cell(f, graph, o));
          const apart = new Set(cells.map((c) => `${Math.round(100 * c.x)} ${Math.round(100 * c.y)}`)).size;
          return { apart, ops: cells.length, lanes: f.lanes.map((lane) => [lane.name, lane.axes, lane.tiles]) }; }"""
    )
    assert found["apart"] == found["ops"] > 500
    assert ["fwd_linear1", ["batch", "hidden1"], [6, 12]] in found["lanes"]
    x, y = page.evaluate(
        """() => { const view = pebbler.player().stage.view, { graph } = view.state.timeline;
          const o = graph.op_name.indexOf('fwd_linear1[3][7]'), c = view.cell(view.last, graph, o);
          const b = view.holder.getBoundingClientRect();
          return [b.left + c.x + c.width / 2, b.top + c.y + c.height / 2]; }"""
    )
    page.mouse.click(x, y)
    until(page, "document.querySelector('[data-test=now]').innerText.includes('fwd_linear1[3][7]')")
    page.mouse.move(x, y + 1)
    until(page, "document.querySelector('.tooltip').innerText.includes('fwd_linear1[3][7]')")
    page.locator("[data-mode=order]").click()


def test_keys_play_search_undo_and_links_lead_to_a_move(pages: Pages, flagship: Plan) -> None:
    page = pages("flagship", flagship)
    now = page.locator("[data-test=now]")
    page.locator("body").click(position={"x": 3, "y": 3})
    page.evaluate("document.getElementById('player').scrollIntoView()")
    for key, step in (("ArrowRight", 1), ("Shift+ArrowRight", 11), ("ArrowLeft", 10), ("End", 258), ("Home", 0)):
        page.keyboard.press(key)
        assert now.get_attribute("data-step") == str(step), key
    page.locator("select[aria-label=Speed]").select_option("20")
    page.locator("body").click(position={"x": 3, "y": 3})
    page.evaluate("document.getElementById('player').scrollIntoView()")
    page.keyboard.press(" ")
    page.wait_for_selector("[data-test=now]:not([data-step='0'])")
    page.keyboard.press(" ")
    page.evaluate("pebbler.player().goTo(4)")
    page.evaluate("pebbler.player().reorder(3, 1)")
    assert page.locator("[data-test=live]").get_attribute("data-energy") != str(check(flagship).energy)
    page.keyboard.press("Control+z")
    assert page.locator("[data-test=live]").get_attribute("data-energy") == str(check(flagship).energy)
    page.keyboard.press("/")
    page.keyboard.type("upd_w1[7]")
    page.keyboard.press("Enter")
    assert "bwd_dW1+upd_W1[7]" in now.inner_text()
    step = now.get_attribute("data-step")
    until(page, f"location.hash === '#plan=flagship&move={step}'")
    link = page.url
    page.keyboard.press("Home")
    page.goto("about:blank")
    page.goto(link)
    page.wait_for_selector(READY)
    assert now.get_attribute("data-step") == step
    page.evaluate("location.hash = '#plan=program+order&move=3'")
    page.wait_for_selector("[data-test=now][data-step='3']")
    assert "of 15" in now.inner_text()
    for damaged in ("#plan=nobody&move=1e9", "#move=-4", "#move=x", "#plan=", "#%E0%A4%A", "#bound"):
        page.evaluate(f"location.hash = {damaged!r}")
    page.keyboard.press("?")
    assert "search an op or tensor" in page.locator("dialog[open]").inner_text()
    page.keyboard.press("Escape")
    page.evaluate("location.hash = '#plan=flagship&move=0'")
    page.wait_for_selector("[data-test=now][data-step='0']")


def test_the_theme_is_remembered_and_a_wheel_scrolls_the_page(pages: Pages) -> None:
    page = pages("note-mlp")
    page.get_by_role("button", name="Switch between light and dark").click()
    page.reload()
    page.wait_for_selector(READY)
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.get_by_role("button", name="Switch between light and dark").click()
    page.evaluate("scrollTo(0, 0)")
    box = page.locator(".stage").bounding_box()
    page.mouse.move(box["x"] + 200, box["y"] + 100)
    before = page.evaluate("document.querySelector('.stage .lanes:not([hidden]) g').getAttribute('transform')")
    page.mouse.wheel(0, 200)
    until(page, "scrollY > 100")
    assert page.evaluate("document.querySelector('.stage .lanes:not([hidden]) g').getAttribute('transform')") == before


def test_meters_are_in_sight_while_playing_on_a_screen_of_900_pixels(pages: Pages, flagship: Plan) -> None:
    page = pages("flagship", flagship)
    page.evaluate("document.getElementById('player').scrollIntoView({ behavior: 'instant' })")
    bottom = page.locator(".meters").evaluate("(one) => one.getBoundingClientRect().bottom")
    assert bottom <= 900
    assert page.locator(".stage").evaluate("(one) => one.getBoundingClientRect().top") >= 0


def test_charts_are_saved_as_svg_and_their_figures_as_csv(pages: Pages, flagship: Plan, tmp_path: Path) -> None:
    page = pages("flagship", flagship)
    for view in (
        ".stage",
        "#energy-view",
        "#memory-view",
        "#reuse-view",
        "#misses-view",
        "#diff-view",
        "#landscape-view",
    ):
        with page.expect_download() as download:
            page.locator(f"{view} button", has_text="SVG").first.click()
        download.value.save_as(tmp_path / "chart.svg")
        root = ElementTree.parse(tmp_path / "chart.svg").getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert len(list(root.iter())) > 10, view
        assert "var(--" not in (tmp_path / "chart.svg").read_text(), view
    rows = saved_csv(page, "#energy-view", tmp_path)
    assert rows[1][:2] == ["program order", "12743390"]
    assert float(rows[-1][1]) == check(flagship).energy


def test_the_waterfall_ends_at_the_plan_with_the_bound_as_its_floor(pages: Pages, flagship: Plan) -> None:
    text = pages("flagship", flagship).locator("#energy-view").inner_text()
    for words in (
        "12.743",
        "+ reversed sweeps",
        f"{check(flagship).energy / 1e6:.3f}",
    ):
        assert words in text
    # The page proves its own bound, with more time than the plan's search had.
    proven = re.search(r"no plan costs less than (\d\.\d{3})", text)
    assert proven is not None
    assert round(flagship.bound / 1e6, 3) <= float(proven[1]) <= flagship.energy / 1e6
    text = pages("flagship", flagship).locator("#diff-view").inner_text()
    assert "Energy by source op and level" in text
    assert "bwd_dW1 + upd_W1" in text
    assert "only in" not in text


@pytest.mark.slow
def test_memory_draws_nothing_above_the_capacity_and_tells_a_values_story(pages: Pages) -> None:
    page = pages("explicit")
    found = page.evaluate(
        """() => pebbler.memory().plotted.levels.flatMap((level) => level.strips.map((strip) => ({
          bounded: level.bounded, most: Math.max(...[...strip.stacks.values()].map((held) => held.reduce((s, h) => s + h[1], 0))),
          plan: strip.plan.name, level: level.level })))"""
    )
    assert all(one["bounded"] is None or one["most"] <= one["bounded"] for one in found)
    assert {one["plan"] for one in found} == {"explicit", "program order"}
    words = page.evaluate(
        """() => { const memory = pebbler.memory(), told = new Set();
          for (const level of memory.plotted.levels) for (const strip of level.strips) for (const column of strip.columns)
            for (const [value, size] of strip.stacks.get(column.step))
              told.add(memory.story({ level, strip, step: column.step, value, size }).map((n) => n.textContent ?? n).join(' '));
          return [...told].join('\\n'); }"""
    )
    for part in (
        "made in move",
        "there from the start",
        "read next in move",
        "computed again in move",
        "stays in",
        "writes over it",
    ):
        assert part in words
    x, y, step = page.evaluate(
        """() => { const memory = pebbler.memory(), strip = memory.plotted.levels[1].strips.at(-1), column = strip.columns.at(-9);
          memory.holder.scrollIntoView({ block: 'start', behavior: 'instant' });
          const box = memory.holder.getBoundingClientRect();
          return [box.left + (column.x0 + column.x1) / 2, box.top + strip.bottom - 2, column.step]; }"""
    )
    page.mouse.move(x, y)
    assert f"after move {step:,} of" in page.locator(".tooltip").inner_text()
    page.mouse.click(x, y)
    assert page.locator("[data-test=now]").get_attribute("data-step") == str(step)


def schedule(seed: int) -> Plan | None:
    """Return a random plan on one of the three kinds of machine, legal or not."""
    rng = random.Random(seed)
    graph = random_graph(rng, 8)
    if seed % 3 == 0:
        return random_plan(rng, graph, random_machine(rng, graph, whole=False))
    cached = random_cache_machine(rng, "lru" if seed % 3 == 1 else "recency")
    cached = msgspec.structs.replace(cached, allocator=rng.choice(["own", "reuse"]), line=rng.choice([1, 1, 2, 3]))
    order = random_order(rng, graph, war=True)
    return Plan.in_order(graph, cached, [graph.ops[op].name for op in order], steady=rng.random() < 0.5)


def test_what_memory_over_time_shows_is_what_the_player_shows_at_every_move(pages: Pages, flagship: Plan) -> None:
    # The player's places are held to the referee's peaks and to the LRU stack in test_report_page.
    plans = [plan for seed in range(600, 780) if (plan := schedule(seed)) is not None and check(plan).legal]
    plans.append(flagship)
    cases = [(GraphData.of(plan.graph, "units"), PlanData.of(plan, "random", 0, baseline=True)) for plan in plans]
    wrong = pages("note-mlp").evaluate(
        """(cases) => { const wrong = [];
          cases.forEach(({ graph, plan }, number) => {
            const line = new pebbler.Timeline(graph, plan, plan), n = line.length;
            const steps = Array.from({ length: n + 1 }, (_, i) => i).filter((i) => n < 40 || i % 7 === 0);
            pebbler.sweepHeld(line, line.arena.names.map(() => steps), (step, level, held) => {
              const places = line.places(step), seen = new Map(held.filter(([v, units]) => v >= 0 && units > 0));
              places.forEach((place, v) => {
                if ((place ? place[level] : 0) !== (seen.get(v) || 0)) wrong.push([number, step, level, v]);
              });
              if (places.used && held.reduce((s, h) => s + h[1], 0) !== places.used[level]) wrong.push([number, step, level]);
            });
          });
          return wrong.slice(0, 5); }""",
        [msgspec.to_builtins({"graph": graph, "plan": plan}) for graph, plan in cases],
    )
    assert len({plan.machine.management for plan in plans}) == 3
    assert len(plans) > 60
    assert wrong == []


def test_explicit_levels_hold_what_the_plan_replays(pages: Pages) -> None:
    plans = [plan for seed in range(900, 1020, 3) if (plan := schedule(seed)) is not None and check(plan).legal]
    cases = [(GraphData.of(plan.graph, "units"), PlanData.of(plan, "random", 0, baseline=True)) for plan in plans]
    found = pages("note-mlp").evaluate(
        """(cases) => cases.map(({ graph, plan }) => {
          const line = new pebbler.Timeline(graph, plan, plan), rows = [];
          const steps = Array.from({ length: line.length + 1 }, (_, i) => i);
          pebbler.sweepHeld(line, line.arena.names.map(() => steps), (step, level, held) => {
            (rows[step] ||= [])[level] = held.map(([v]) => v).sort((a, b) => a - b);
          });
          return rows; })""",
        [msgspec.to_builtins({"graph": graph, "plan": plan}) for graph, plan in cases],
    )
    assert len(plans) > 15
    for plan, rows in zip(plans, found, strict=True):
        replay = plan.replay()
        assert rows[0] == [sorted(level.values()) for level in replay.held]
        for step, _ in enumerate(replay, start=1):
            assert rows[step] == [sorted(level.values()) for level in replay.held], step


@pytest.mark.slow
def test_twenty_thousand_moves_are_painted_within_two_seconds_and_fit_three_megabytes(
    pages: Pages, tmp_path: Path
) -> None:
    plan = two_axes(4, 40, 64)
    assert len(plan.moves) > 20_000
    page = pages("twenty thousand", plan)
    assert (pages.folder / "twenty-thousand.html").stat().st_size < 3_000_000
    times = []
    for _ in range(3):
        page.reload()
        page.wait_for_selector(READY)
        times.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
    assert min(times) < 2000
    for mode in ("tiles", "order"):
        page.locator(f"[data-mode={mode}]").click()
        seconds = page.evaluate(
            "() => { const p = pebbler.player(), t = performance.now();"
            "for (let i = 0; i < 5; i++) p.goTo(4000 * i + 7); return (performance.now() - t) / 5000; }"
        )
        assert seconds < 1, mode
    for size in ((1400, 900), (390, 844)):
        page.set_viewport_size({"width": size[0], "height": size[1]})
        settle(page)
        assert unreadable(page) == []


def test_pages_of_several_plans_switch_between_them(show: Callable[..., Opened]) -> None:
    one, other = MAKERS["note-mlp"](), MAKERS["illegal"]()
    page = show([one, other], names=["fine", "broken"]).page
    page.get_by_label("Plan shown:").select_option(label="broken")
    assert "upd_W2 overwrites W2" in page.locator("#summary-view").inner_text()
    assert page.locator("#energy-view").inner_text() != ""
    page.get_by_label("Plan shown:").select_option(label="fine")
    assert "2.2 % less" in page.locator("#summary-view").inner_text()


@pytest.mark.slow
def test_strange_plans_are_shown_without_a_fault(show: Callable[..., Opened]) -> None:
    for name, plan in strange().items():
        for width in (1400, 390):
            page = show(plan, width=width, dark=width == 390).page
            moves = page.evaluate("pebbler.player().timeline.length")
            for mode in page.locator(".modes button:visible").all():
                mode.click()
                for step in (0, moves // 2, moves):
                    page.evaluate(f"pebbler.player().goTo({step})")
                page.evaluate("pebbler.player().stage.view.zoomBy(3); pebbler.player().stage.picture()")
            page.evaluate("pebbler.memory().zoomBy(2)")
            for button in page.locator("button.save:visible").all():
                button.click()
            page.locator("details").evaluate_all("all => all.forEach((one) => { one.open = true; })")
            settle(page)
            text = page.locator("main").inner_text()
            assert not [word for word in ("NaN", "undefined", "Infinity", "null", "[object") if word in text], name
            assert not page.evaluate("document.documentElement.scrollWidth > innerWidth"), name


@pytest.mark.slow
def test_zooming_into_memory_keeps_the_scale_and_the_move_shown(pages: Pages) -> None:
    page = pages("explicit")
    page.evaluate("pebbler.player().goTo(400)")
    heights = "pebbler.memory().plotted.levels.map((level) => [level.name, level.most])"
    before = page.evaluate(heights)
    for _ in range(3):
        page.locator("#memory-view").get_by_role("button", name="Zoom in").click()
    assert page.evaluate(heights) == before
    assert page.locator(".cursors div").count() == len(before)
    page.locator("#memory-view").get_by_role("button", name="Show all of it").click()


def test_the_reason_comes_first_then_memory_then_the_player(pages: Pages, flagship: Plan) -> None:
    page = pages("flagship", flagship)
    shown = page.evaluate("[...document.querySelectorAll('main section:not([hidden]) h2')].map((one) => one.id)")
    assert shown[:4] == ["energy", "memory", "player", "diff"]
    assert page.locator("#energy").inner_text() == "Why it is cheaper"
    ladder = page.locator("#energy-view svg.waterfall").evaluate(
        "(one) => one.getBoundingClientRect().bottom + scrollY"
    )
    assert ladder <= 900  # before and after, on the first screen
    above = page.evaluate("document.querySelector('.transport').getBoundingClientRect().bottom")
    assert above <= page.evaluate("document.querySelector('.stage').getBoundingClientRect().top")
    assert page.locator("select[aria-label=Speed] option:checked").inner_text() == "all in 20 s"


def test_levels_without_use_are_not_named(pages: Pages, flagship: Plan) -> None:
    page = pages("flagship", flagship)
    assert "HBM" not in page.locator("#energy-view .legend").first.inner_text()  # nothing is paid there in a loop
    assert "HBM" not in page.locator("#player-view .legend").inner_text()


LABELS_OUTSIDE = """() => {
  const { plan } = pebbler.player(), own = plan.bound, found = [];
  const most = Math.max(...plan.savings.map((step) => step.energy ?? 0));
  const draw = (bound) => { plan.bound = bound; document.dispatchEvent(new Event("themechange")); };
  for (let share = 0.05; share < 1; share += 0.05) {
    draw(share * most);
    const chart = document.querySelector("#energy-view svg.waterfall");
    const [box, text] = [chart, chart.querySelector("text.floor")].map((one) => one.getBoundingClientRect());
    if (text.left < box.left - 1 || text.right > box.right + 1) found.push(share.toFixed(2));
  }
  draw(own);
  return found;
}"""


@pytest.mark.slow
def test_the_bounds_label_stays_on_a_narrow_chart_wherever_the_bound_is(pages: Pages, flagship: Plan) -> None:
    page = pages("flagship", flagship)
    page.set_viewport_size({"width": 400, "height": 900})
    settle(page)
    outside = page.evaluate(LABELS_OUTSIDE)
    page.set_viewport_size({"width": 1400, "height": 900})
    assert outside == []
