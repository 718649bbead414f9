"""The report page in a real browser: every view draws, and what is reordered there costs what the referee says."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from opened_pages import READY, Opened, needs_browser
from pebbler import machine, workloads
from pebbler.game.graph import Graph
from pebbler.game.moves import Compute, Copy
from pebbler.game.plan import Plan
from pebbler.game.transform import tile
from pebbler.notes.reference_orders import marked_orders, note_order
from pebbler.referee.judgement import check
from pebbler.referee.touches import touch
from pebbler.show.report.page_data import GraphData, PlanData, program_order
from pebbler.solver import solve
from strategies import random_cache_machine, random_graph, random_machine, random_order, random_plan

pytestmark = needs_browser


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
        assert page.locator("#memory-view canvas").count() == 1
        for view, least in (("reuse", 2), ("misses", 2), ("diff", 2), ("energy", 1), ("landscape", 2)):
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
    text = show(plan).page.locator("#energy-view").text_content()
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


def test_what_a_move_spends_and_reads_in_each_level_is_the_referees(show: Callable[..., Opened]) -> None:
    plans = [plan for seed in range(400, 520) if (plan := random_schedule(seed)) is not None and check(plan).legal]
    cases = [(GraphData.of(plan.graph, "units"), PlanData.of(plan, "random", 0, baseline=True)) for plan in plans]
    judged = show(note_plan()).page.evaluate(
        "(cases) => cases.map(({ graph, plan }) => {"
        "const { spent, served } = pebbler.judge(graph, pebbler.arenaOf(plan), plan); return { spent, served }; })",
        [msgspec.to_builtins({"graph": graph, "plan": plan}) for graph, plan in cases],
    )
    assert {plan.machine.management for plan in plans} == {"explicit", "lru", "recency"}
    assert any(len(plan.moves.order) > len(plan.graph.ops) for plan in plans)  # something is recomputed
    for plan, found in zip(plans, judged, strict=True):
        levels = len(plan.machine.level)
        for k in range(levels):
            assert found["spent"][k::levels] == pytest.approx(priced_alone(plan, k) + at_results(plan, k)), k
            if plan.machine.operands == "any" or plan.machine.management != "explicit":
                assert found["served"][k::levels] == pytest.approx(priced_alone(plan, k, read=1, write=0)), k


def priced_alone(plan: Plan, level: int, **prices: float) -> np.ndarray:
    """Return what the referee charges each move where only one level has a price (its own, or those given), and no op costs."""
    machine = plan.machine
    free = [msgspec.structs.replace(one, read=0, write=0) for one in machine.level]
    free[level] = msgspec.structs.replace(machine.level[level], **prices)
    ops = [msgspec.structs.replace(op, cost=0) for op in plan.graph.ops]
    graph = Graph(plan.graph.name, plan.graph.unit, plan.graph.tensors, ops, plan.graph.meta)
    alone = Plan(graph, msgspec.structs.replace(machine, level=tuple(free)), list(plan.moves), plan.start, plan.steady)
    judgement = check(alone)
    assert judgement.legal
    return judgement.step_energy


def at_results(plan: Plan, level: int) -> np.ndarray:
    """Return the cost of every op that a move runs with its results in a level; on caches results are in the first."""
    moves = plan.moves
    where = moves.level if plan.machine.management == "explicit" else np.zeros(len(moves), np.int8)
    own = (moves.kind == 0) & (where == level)
    return np.where(own, plan.graph.dataflow.op_cost[np.where(own, moves.subject, 0)], 0.0)


def random_case(seed: int) -> tuple[GraphData, PlanData] | None:
    """Return a plan, legal or not, on one of the three kinds of machine, with the referee's judgement."""
    plan = random_schedule(seed)
    return plan and (GraphData.of(plan.graph, plan.energy_unit), PlanData.of(plan, "random", 0, baseline=True))


def random_schedule(seed: int) -> Plan | None:
    """Return a plan, legal or not, on one of the three kinds of machine: `explicit`, `lru`, `recency` by the seed."""
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
    return replace(plan, steady=rng.random() < 0.5)


def units_in_stack(plan: Plan) -> list[list[int]]:
    """Return how many units each level holds after every number of moves, line by line from the rules of the LRU stack."""
    machine, flow = plan.machine.in_unit(plan.graph.unit), plan.graph.dataflow
    line, touches = machine.line, touch(plan.graph, plan.moves.order, machine.allocator, machine.line)
    touched = {int(flow.storage[tensor]) for tensor in touches.tensor}
    starts = {int(flow.storage[flow.value_tensor[value]]) for value in np.flatnonzero(flow.value_maker < 0)}
    ends = [*np.cumsum([level.capacity for level in machine.level[:-1]]) // line, 2**60]
    stack: OrderedDict[int, None] = OrderedDict()  # lines, the most recent last
    found = []
    for counted in (False, True) if plan.steady else (True,):
        seen = set(touched) if plan.steady else set[int]()
        for step in range(len(plan.moves) + 1):
            if counted:
                # What starts and was never touched lies in the last level.
                idle = sum(-(-int(flow.tensor_size[root]) // line) for root in starts - seen)
                reached = [min(len(stack), int(end)) for end in ends]
                held = [(after - before) * line for before, after in zip([0, *reached], reached, strict=False)]
                found.append([*held[:-1], held[-1] + idle * line])
            for i in np.flatnonzero(touches.step == step).tolist():
                seen.add(int(flow.storage[touches.tensor[i]]))
                first, units = int(touches.address[i]) // line, int(touches.units[i])
                for number in range(first, first + -(-units // line)):
                    stack[number] = None
                    stack.move_to_end(number)
    return found


def test_the_player_holds_what_the_lru_stack_holds(show: Callable[..., Opened], flagship: Plan) -> None:
    count, stack = len(flagship.moves), units_in_stack(flagship)
    assert count > len(flagship.graph.ops)  # something is recomputed
    opened = show(flagship)
    for step in (0, 1, 40, 100, 150, 200, count - 1, count):
        opened.page.evaluate(f"pebbler.player().goTo({step})")
        meters = opened.page.locator("#player-view .meter")
        assert [int(meters.nth(i).get_attribute("data-units")) for i in range(4)] == stack[step], step
        drawn = [int(meters.nth(i).get_attribute("data-needed")) for i in range(4)]
        assert all(needed <= held for needed, held in zip(drawn, stack[step], strict=True)), step


def test_the_pages_lru_stack_is_that_of_the_rules(show: Callable[..., Opened]) -> None:
    plans = [plan for seed in range(1, 90, 3) if check(plan := random_schedule(seed)).legal]
    cases = [(GraphData.of(plan.graph, "units"), PlanData.of(plan, "random", 0, baseline=True)) for plan in plans]
    found = show(note_plan()).page.evaluate(
        """(cases) => cases.map(({ graph, plan }) => {
          const line = new pebbler.Timeline(graph, plan, plan);
          return Array.from({ length: line.length + 1 }, (_, step) => line.used(step));
        })""",
        [msgspec.to_builtins({"graph": graph, "plan": plan}) for graph, plan in cases],
    )
    assert len(plans) > 10
    for plan, used in zip(plans, found, strict=True):
        assert used == units_in_stack(plan)


def test_what_nothing_needs_before_it_is_made_again_is_not_drawn(show: Callable[..., Opened], flagship: Plan) -> None:
    opened, moves = show(flagship), flagship.moves.order.tolist()
    flow = flagship.graph.dataflow
    again = next(op for op in moves if moves.count(op) > 1)
    value = int(flow.op_writes.row(again)[0])
    first, second = [at + 1 for at, op in enumerate(moves) if op == again][:2]
    uses = [at + 1 for at, op in enumerate(moves) if value in flow.op_reads.row(op).tolist()]
    dead = max((at for at in uses if at < second), default=first)
    held = f"(step) => pebbler.player().given.places(step)[{value}] !== null"
    for step, expected in ((first, True), (dead, False), (second - 1, False), (second, True)):
        assert opened.page.evaluate(held, step) is (expected or step == first), step  # what was just made is drawn


def test_the_peak_of_the_lifetimes_is_room_that_is_really_touched(show: Callable[..., Opened], flagship: Plan) -> None:
    found = show(flagship).page.evaluate(
        "() => { const line = pebbler.player().given, lives = pebbler.livesOf(line);"
        "return { peak: pebbler.roomOf(lives, line.graph.value_size).peak.units,"
        "lives: lives.map(({ value, from, to, low }) => [value, from, to, low]) }; }"
    )
    touches = touch(flagship.graph, flagship.moves.order, flagship.machine.allocator, flagship.machine.line)
    blocks = zip(touches.address.tolist(), touches.units.tolist(), strict=True)
    distinct = len({unit for low, units in blocks for unit in range(low, low + units)})
    assert 0 < found["peak"] <= distinct
    sizes = flagship.graph.dataflow.value_size.tolist()
    lives = sorted(found["lives"], key=lambda life: life[1])
    for i, (value, _, to, low) in enumerate(lives):  # no unit belongs to two at once
        for other, start, _, base in lives[i + 1 :]:
            if start >= to:
                break
            assert low + sizes[value] <= base or base + sizes[other] <= low


def test_the_page_believes_no_claim(show: Callable[..., Opened], tmp_path: Path) -> None:
    honest = solve("note-mlp", "notes-recency")
    assert honest.status == "optimal"
    worse = replace(honest, moves=Plan.in_order(honest.graph, honest.machine).moves)
    text = show([honest, worse], names=["honest", "worse"]).page.locator("#summary-view").inner_text()
    assert "It is proven optimal" in text
    opened = show(worse)
    text = opened.page.locator("#summary-view").inner_text()
    assert "optimal: no legal plan" not in text
    assert "at most 2.2 % above the proven lower bound" in text
    assert "What its file says of it does not hold" in opened.page.locator("[data-test=void]").inner_text()
    illegal = replace(honest, moves=list(honest.moves)[::-1])
    text = show(illegal).page.locator("#summary-view").inner_text()
    assert "This plan is illegal" in text
    assert "no gap" not in text
    assert "optimal" not in text


def test_a_claim_that_cannot_be_proven_quickly_is_called_one(show: Callable[..., Opened], flagship: Plan) -> None:
    boast = replace(flagship, bound=flagship.energy, status="optimal")
    text = show(boast).page.locator("#summary-view").inner_text()
    assert "Claimed by the file, not verified: that it is optimal, and a bound of 4.0" in text
    assert "It is proven optimal" not in text


def test_plans_under_different_rules_get_no_ratio(show: Callable[..., Opened]) -> None:
    page = show([note_plan(), note_plan("notes")], names=["ranks", "caches"]).page
    page.locator("#diff-view select").nth(0).select_option(label="caches")
    page.locator("#diff-view select").nth(1).select_option(label="ranks")
    text = page.locator("#diff-view").inner_text()
    assert "no ratio, because they are priced under different rules" in text
    assert "hardware LRU caches" in text
    assert " than caches" not in text
    assert "Energy by op" not in text
    assert "so their energies cannot be compared" in page.locator("#summary-view").inner_text()


@pytest.mark.slow
def test_a_time_is_called_a_time(show: Callable[..., Opened]) -> None:
    plan = replace(chain_plan(6), meta={"cost_unit": "ns"})
    text = show(plan).page.locator("main").inner_text().lower()
    assert "where the time goes" in text
    assert "time against memory" in text
    assert "energy" not in text
