"""Predicted joules of planned steps: every run of every op, launches as they run, copies both ways."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

import pebbler.torch as pt  # noqa: E402
from pebbler.run.torch.cost import op_prices  # noqa: E402
from pebbler.run.torch.plan import step_problem  # noqa: E402
from pebbler.run.torch.plan.phase_search import solve_phases  # noqa: E402


def by_hand(plan, costs, captured):
    """Return the joules of a plan without launches: its computes one by one, and its copies."""
    joules = 0.0
    for move in plan.plan.moves.words():
        if move[0] == "compute":
            joules += costs[-1][captured.phases[-1].graph.op_index(move[1])].joules
        elif move[0] == "copy":
            joules += plan.plan.graph.tensor_named(move[1]).size * costs.link.joules_per_byte
    return joules


@pytest.mark.parametrize("offload", [False, True])
def test_a_step_costs_what_its_moves_cost(deep, offload):
    _, captured, _ = deep
    costs = pt.roofline(captured, "h200")
    free = pt.plan_captured(captured, costs)
    seen = []
    for budget in (None, int(0.9 * free.peak), int(0.8 * free.peak)):
        plan = pt.plan_captured(
            captured, costs, budget=budget, offload=offload, objective="energy", time_limit=0.4, headroom=0
        )
        predicted = pt.predict_energy(plan, costs)
        assert predicted.joules == pytest.approx(by_hand(plan, costs, captured))
        assert predicted.joules == pytest.approx(plan.cost, rel=1e-3)  # which counts whole picojoules
        assert predicted.joules == predicted.op_joules + predicted.copy_joules + predicted.gap_joules
        seen.append(predicted.joules)
    assert seen[0] <= min(seen[1:])


def test_a_frontier_of_joules_falls_with_the_budget(deep):
    _, captured, _ = deep
    costs = pt.roofline(captured, "h200")
    peak = pt.plan_captured(captured, costs).peak
    points = pt.energy_frontier(captured, costs, [int(0.8 * peak), int(0.9 * peak), None], time_limit=0.4)
    joules = [point.energy.joules for point in points]
    assert all(after <= before * 1.01 for before, after in pairwise(joules))
    assert all(point.plan.budget is None or point.plan.peak <= point.plan.budget for point in points)


def test_a_step_that_is_not_replayed_waits_for_python(deep):
    _, captured, _ = deep
    costs = pt.roofline(captured, "h200")
    plan = pt.plan_captured(captured, costs)
    replayed = pt.predict_energy(plan, costs)
    for share in (0.5, 3.0):  # of the time of the ops
        costs[-1] = [replace(cost, launch=share * replayed.seconds / len(costs[-1])) for cost in costs[-1]]
        called = pt.predict_energy(plan, costs, replayed=False)
        assert called.launching == pytest.approx(share * replayed.seconds)
        assert called.seconds == pytest.approx(max(1.0, share) * replayed.seconds)
        idle = costs.static_watts * (called.seconds - replayed.seconds)
        assert (called.gap_joules, called.joules) == pytest.approx((idle, replayed.joules + idle))
        assert pt.predict_energy(plan, costs) == replayed


def test_launching_is_measured_where_python_goes_on_meanwhile(monkeypatch):
    def step(x):
        return x.t().exp()[1:] @ x

    captured = pt.capture(step, torch.ones(600, 600))
    assert [cost.launch for cost in pt.profile(captured)[0]] == [0.0] * 2
    monkeypatch.setattr(op_prices, "_beside", lambda device: True)
    monkeypatch.setattr(op_prices, "_view_seconds", lambda: 100.0)
    exp, product = pt.profile(captured)[0]
    assert 100 < exp.launch < 101  # one view
    assert 100 < product.launch < 101


def test_launches_are_counted_as_they_run():
    def step(x, y):
        return (x.exp() * y).sum(), x.cos() @ y

    captured = pt.fuse(pt.capture(step, torch.ones(60, 60), torch.ones(60, 60)))
    costs = pt.roofline(captured, "cpu")
    plan = pt.plan_captured(captured, costs)
    ran = [cost.joules for cost in costs[-1]]
    predicted = pt.predict_energy(plan, costs)
    if plan.launches:  # one kernel moves less than its parts
        assert predicted.joules < sum(ran)
    else:
        assert predicted.joules == pytest.approx(sum(ran))
    assert predicted.seconds > 0


def device(link: float, watts: float, link_joules: float = 1e-12) -> pt.Device:
    """A device on which copies cost next to nothing but the time that the step waits for them."""
    return pt.Device("slow link", 1e12, 1e11, 1e-6, link, 1e-12, 1e-11, link_joules, static_watts=watts)


def test_waiting_for_copies_is_paid_with_static_power(deep):
    """On an H200 plans for energy sent everything away, waited for it, and took 1.7 times the joules of plans for time."""
    _, captured, least = deep
    seen = {}
    for watts in (0.0, 100.0):
        costs = pt.roofline(captured, device(1e9, watts))
        budget = int(0.6 * pt.plan_captured(captured, costs).peak + 0.4 * least)
        plan = pt.plan_captured(captured, costs, budget=budget, objective="energy", time_limit=0.4, headroom=0)
        predicted = pt.predict_energy(plan, costs)
        assert predicted.joules == pytest.approx(plan.cost, rel=1e-3)
        assert predicted.gap_joules == pytest.approx(watts * (predicted.seconds - busy(plan, costs, captured)))
        seen[watts] = plan.offloaded
    assert seen[0.0] > 0
    assert seen[100.0] < seen[0.0]


def busy(plan, costs, captured):
    """Return the seconds of all ops of a plan."""
    graph = captured.phases[-1].graph
    return sum(costs[-1][graph.op_index(move[1])].seconds for move in plan.plan.moves.words() if move[0] == "compute")


@pytest.mark.parametrize("link", [1e8, 1e9, 1e10, 1e12])
@pytest.mark.parametrize("link_joules", [1e-12, 1e-9])
def test_a_plan_for_energy_is_never_worse_than_one_for_time(deep, link, link_joules, monkeypatch):
    _, captured, least = deep
    found = []

    def noted(*words):
        found.append(solve_phases(*words))
        return found[-1]

    monkeypatch.setattr(step_problem, "solve_phases", noted)
    costs = pt.roofline(captured, device(link, 50.0, link_joules))
    budget = int(0.4 * pt.plan_captured(captured, costs).peak + 0.6 * least)
    found.clear()
    plan = pt.plan_captured(captured, costs, budget=budget, objective="energy", time_limit=0.2, headroom=0)
    assert len(found) == 5  # for time, and for joules at four prices of a copy
    joules = [pt.predict_energy(replace(plan, phases=[*plan.phases[:-1], one[-1]]), costs).joules for one in found]
    assert pt.predict_energy(plan, costs).joules == pytest.approx(min(joules))
    assert plan.cost == pytest.approx(min(joules), rel=1e-3)  # in whole picojoules and nanoseconds


def test_progress_of_a_plan_for_energy_is_in_joules(deep):
    _, captured, least = deep
    costs = pt.roofline(captured, "h200")
    free = pt.plan_captured(captured, costs)
    seen = []
    plan = pt.plan_captured(
        captured, costs, budget=int(0.5 * free.peak + 0.5 * least), objective="energy", offload=False, headroom=0, time_limit=0.4,
        report=lambda search: seen.append(search.energy) if search.best is not None else None,
    )  # fmt: skip
    joules = sum(cost.joules for cost in costs[-1])
    assert seen
    assert all(joules * 0.999 <= energy / 1e12 < 10 * joules for energy in seen)
    assert plan.cost <= 1.001 * min(seen) / 1e12
