"""Where values live on many levels: reads and energies are the referee's, no two values share a lane, keys reach it."""

from __future__ import annotations

import csv
import random
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from chromium import UNREADABLE
from opened_pages import Opened, needs_browser
from pebbler.extras.layout.layout_search import Layout
from pebbler.game.machine import Level, Machine, machine
from pebbler.game.moves import Drop
from pebbler.game.plan import Plan
from pebbler.referee.judgement import check
from pebbler.referee.pricing import capacities
from pebbler.show.report.page_data import GraphData
from pebbler.solver.paging.demand_paging import program_order_plan
from pebbler.solver.problem import Problem
from pebbler.workloads import matmul, mlp
from report_plans import MAKERS

pytestmark = needs_browser


def product_plan(levels: Machine, m: int = 2, n: int = 2, k: int = 2) -> Plan:
    """Return a layout of a product in program order."""
    problem = Problem.of(matmul(m, n, k), levels)
    return Layout.of(problem, np.arange(len(problem.graph.ops)), rounds=2).plan()


def many_levels(rng: random.Random, count: int) -> Machine:
    """Return a machine of levels of one or two elements, whose last and endless one may be cheap enough to be used."""
    levels = [
        Level(f"l{i}", rng.randint(0, 4) + i / 4, rng.choice([0, 0.5]), rng.randint(1, 2)) for i in range(count - 1)
    ]
    last = Level("last", rng.choice([0.5, 9]), 0)
    return Machine("many", "element", (*levels, last), operands="any", results=rng.choice(["over", "apart"]))  # type: ignore[arg-type]


def reads_by_level(plan: Plan) -> list[int]:
    """Return units read from each level, from the replay."""
    found = [0] * len(plan.machine.level)
    for step in plan.replay():
        for value, level in step.reads:
            found[level] += int(plan.graph.dataflow.value_size[value])
    return found


def damaged(plan: Plan, rng: random.Random) -> Plan:
    """Return a plan with a few moves elsewhere, or gone."""
    moves = list(plan.moves)
    for _ in range(rng.randint(0, 2)):
        moved = moves.pop(rng.randrange(len(moves)))
        if rng.random() < 0.7:
            moves.insert(rng.randrange(len(moves)), moved)
    return replace(plan, moves=moves)


def as_data(plan: Plan) -> dict[str, Any]:
    """Return what the page's rules need of a plan; the rest of `PlanData` takes a search for bounds."""
    levels, moves = plan.machine.in_unit(plan.graph.unit), plan.moves
    start = [0] * plan.graph.dataflow.values
    for value, level in plan.replay().start:
        start[value] |= 1 << level
    columns = {name: getattr(moves, name).tolist() for name in ("kind", "subject", "level", "to")}
    more = {"machine": levels, "capacity": capacities(levels).tolist(), "steady": bool(plan.steady), "start": start}
    return msgspec.to_builtins({"graph": GraphData.of(plan.graph, "units"), "plan": columns | more})


@pytest.fixture(scope="module")
def laid_out() -> Plan:
    plan = product_plan(machine("grid"), 3, 3, 3)
    assert check(plan).legal
    return plan


@pytest.fixture(scope="module")
def layouts() -> list[Plan]:
    return [
        product_plan(many_levels(random.Random(seed), count)) for seed, count in enumerate((5, 8, 32, 5, 7, 32, 6, 32))
    ]


def test_results_that_take_the_room_of_operands_are_judged_as_the_referee_judges_them(
    show: Callable[..., Opened], laid_out: Plan, layouts: list[Plan]
) -> None:
    rng = random.Random(0)
    plans = [laid_out, *layouts, *(damaged(plan, rng) for plan in [laid_out, *layouts] for _ in range(8))]
    judged = show(laid_out).page.evaluate(
        """(cases) => cases.map(({ graph, plan }) => pebbler.judge(graph, pebbler.arenaOf(plan), plan))""",
        [as_data(plan) for plan in plans],
    )
    crowded = 0
    for seed, (plan, found) in enumerate(zip(plans, judged, strict=True)):
        wanted = check(plan)
        assert (found["legal"], found["move"], found["error"]) == (wanted.legal, wanted.move, wanted.error), seed
        assert found["energy"] == pytest.approx(wanted.energy), seed
        assert found["peak"] == list(wanted.peak.values()), seed
        assert found["levels"] == pytest.approx(list(wanted.levels.values())), seed
        apart = replace(plan, machine=msgspec.structs.replace(plan.machine, results="apart"))
        crowded += wanted.legal and not check(apart).legal
    assert crowded > 5
    assert sum(not check(plan).legal for plan in plans) > 15


def test_reads_and_energy_of_every_level_are_the_referees(
    show: Callable[..., Opened], laid_out: Plan, layouts: list[Plan]
) -> None:
    plans = [laid_out, *layouts]
    step = mlp(n=3, hidden=4)
    six = Machine("six", "float32", (*(Level(f"l{i}", i, i, 40) for i in range(5)), Level("last", 9, 9)))
    paged = program_order_plan(Problem.of(step, six))
    assert paged is not None
    plans.append(paged)
    found = show(laid_out).page.evaluate(
        """(cases) => cases.map(({ graph, plan }) => pebbler.shelvesOf(new pebbler.Timeline(graph, plan, plan)))""",
        [as_data(plan) for plan in plans],
    )
    far = 0
    for seed, (plan, shelves) in enumerate(zip(plans, found, strict=True)):
        judged = check(plan)
        assert judged.legal
        assert [shelf["energy"] for shelf in shelves] == pytest.approx(list(judged.levels.values())), seed
        assert [shelf["units"] for shelf in shelves] == reads_by_level(plan), seed
        if plan is laid_out:  # where reads are all there is to pay for
            assert [sum(read["cost"] for read in shelf["reads"]) for shelf in shelves] == list(judged.levels.values())
        for shelf in shelves:
            if plan.machine.unit == "element":  # bands of one lane never need more than the level holds
                assert shelf["lanes"] <= judged.peak[shelf["name"]], (seed, shelf["name"])
            apart_in_lanes(shelf["bands"])
        far += len(shelves) == 32 and shelves[31]["lanes"] > 0
    assert far > 1


def apart_in_lanes(bands: list[dict[str, Any]]) -> None:
    for i, one in enumerate(bands):
        for other in bands[:i]:
            together = one["from"] < other["to"] and other["from"] < one["to"]
            shared = one["low"] < other["low"] + other["units"] and other["low"] < one["low"] + one["units"]
            assert not (together and shared), (one, other)


def test_the_picture_can_be_read_saved_pointed_at_and_reached_by_keys(
    show: Callable[..., Opened], laid_out: Plan, tmp_path: Path
) -> None:
    opened = show(laid_out)
    page, judged = opened.page, check(laid_out)
    assert opened.value("legal") == "true"
    assert page.locator(".banner:visible").count() == 0
    section = page.locator("section[aria-labelledby=places]")
    assert page.locator("nav.contents a[href='#places']").is_visible()
    for size, scheme in (((1280, 800), "light"), ((390, 844), "dark")):
        page.set_viewport_size({"width": size[0], "height": size[1]})
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        page.evaluate("document.dispatchEvent(new Event('themechange'))")
        assert page.evaluate(UNREADABLE, "section[aria-labelledby=places]") == []
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
    page.set_viewport_size({"width": 1280, "height": 800})
    with page.expect_download() as download:
        section.get_by_role("button", name="CSV").click()
    download.value.save_as(tmp_path / "levels.csv")
    with (tmp_path / "levels.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    reads = dict(zip(judged.levels, reads_by_level(laid_out), strict=True))
    assert {row["level"]: float(row["energy (units)"]) for row in rows} == {k: v for k, v in judged.levels.items() if v}
    assert {row["level"]: int(row["reads (element)"]) for row in rows} == {k: v for k, v in reads.items() if v}
    with page.expect_download() as download:
        section.get_by_role("button", name="SVG").click()
    download.value.save_as(tmp_path / "levels.svg")
    drawn = list(ElementTree.parse(tmp_path / "levels.svg").getroot().iter("{http://www.w3.org/2000/svg}text"))
    assert {"d1", "reads", "moves done"} <= {one.text for one in drawn}
    assert all(float(one.attrib["font-size"].removesuffix("px")) >= 10 for one in drawn)
    picture = section.locator(".memory")
    x, y = page.evaluate(
        """() => { const { plotted } = pebbler.distances(), level = plotted.levels.at(-1), band = level.bands[0];
          const middle = (band.low + band.units / 2) / level.lanes;
          return [plotted.x(band.from + 0.5), level.bottom + (level.top - level.bottom) * middle]; }"""
    )
    picture.hover(position={"x": x, "y": y})
    assert "there from the start" in page.locator(".tooltip").inner_text()
    picture.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Shift+ArrowRight")
    assert page.locator("[data-test=now]").get_attribute("data-step") == "10"
    assert "d2: reads for" in section.get_by_role("status").inner_text()
    assert f"{reads['d2']} reads, {judged.levels['d2']} units" in section.get_by_role("status").inner_text()


def test_few_levels_caches_and_plans_that_never_begin_have_no_such_picture(
    show: Callable[..., Opened], laid_out: Plan
) -> None:
    nowhere = replace(laid_out, moves=[Drop("A_0_0", "d32"), *laid_out.moves])
    for plan in (MAKERS["note-mlp"](), MAKERS["chain"](), nowhere):
        page = show(plan).page
        assert page.locator("section[aria-labelledby=places]").is_hidden()
        assert page.locator("nav.contents a[href='#places']").is_hidden()


@pytest.mark.slow
def test_no_level_is_shown_to_hold_more_than_it_can(show: Callable[..., Opened], laid_out: Plan) -> None:
    """Memory over time showed two values in a level of one: a result, and the operand whose room it takes."""
    page = show(laid_out).page
    most = page.evaluate(
        """({ graph, plan }) => {
          const timeline = new pebbler.Timeline(graph, plan, plan), most = timeline.arena.names.map(() => 0),
            steps = [...Array(timeline.length + 1).keys()];
          pebbler.sweepHeld(timeline, most.map(() => steps), (step, level, held) => {
            most[level] = Math.max(most[level], held.reduce((sum, [, units]) => sum + units, 0));
          });
          return most;
        }""",
        as_data(laid_out),
    )
    for level, held in zip(laid_out.machine.level, most, strict=True):
        assert level.capacity is None or held <= level.capacity, level.name
    assert most[0] == 1
    named = page.locator("#player-view .legend").inner_text()
    assert "d1" in named
    assert "d32" not in named
    assert page.locator("#player-view .meter").count() < 10


# Pairs of labels in a section's charts of which one lies on the other.
OVERLAPS = """(section) => [...document.querySelectorAll(`${section} figure svg`)].flatMap((svg) => {
  const boxes = [...svg.querySelectorAll("text")].map((one) => [one.textContent, one.getBoundingClientRect()])
    .filter(([text, box]) => text && box.width);
  return boxes.flatMap(([text, a], i) => boxes.slice(i + 1).filter(([, b]) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4,
  ).map(([other]) => `${text} on ${other}`));
})"""


def test_labels_of_many_levels_do_not_lie_on_one_another(show: Callable[..., Opened], laid_out: Plan) -> None:
    page = show(laid_out, width=400).page
    for section in ("#reuse-view", "#misses-view", "#landscape-view"):
        assert page.evaluate(OVERLAPS, section) == [], section
    page.locator("#player-view").get_by_role("button", name="Order").click()
    beside = page.evaluate(
        """() => [...pebbler.player().stage.picture().querySelectorAll("text")]
          .filter((one) => one.getAttribute("text-anchor") === "end" && one.textContent !== "moves done")
          .map((one) => Number(one.getAttribute("y"))).sort((a, b) => a - b)"""
    )
    assert len(beside) > 5
    assert min(np.diff(beside)) >= 11


@pytest.mark.slow
def test_levels_beyond_the_last_in_use_price_nothing(show: Callable[..., Opened], laid_out: Plan) -> None:
    """A miss was priced at d32 where d6 was the farthest in use, which made every cache cost five times the plan."""
    used = [name for name, peak in check(laid_out).peak.items() if peak]
    page = show(laid_out).page
    assert f"in front of {used[-1]}." in page.locator("#misses-view").inner_text()
    page.locator("#energy-view summary").first.click()
    heads = page.locator("#energy-view table").first.locator("th").all_inner_texts()
    assert used[-1] in heads
    assert "d32" not in heads
