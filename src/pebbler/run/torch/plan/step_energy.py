"""Joules of a planned step, predicted from its ops: their sum, what copies take, and static power over the rest of the time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pebbler.errors import InputError
from pebbler.game.moves import Compute, Copy
from pebbler.run.torch.capture.captured import Captured
from pebbler.run.torch.cost.costs import Cost, Costs
from pebbler.run.torch.plan.host_link import waiting_time
from pebbler.run.torch.plan.launch_fusion import launch_group
from pebbler.run.torch.plan.planner import plan_captured, step_problem
from pebbler.run.torch.plan.torch_plan import SCALE, TorchPlan

__all__ = ["FrontierPoint", "StepEnergy", "energy_frontier", "predict_energy"]


@dataclass(frozen=True)
class StepEnergy:
    """The predicted energy of one step of a plan: `joules` in all, and their parts.

    `seconds` is the time of its ops, that in which it waits for copies, and, if it is not replayed, that by which Python is longer
    busy with launching its ops (`launching` seconds) than a GPU is with them. `gap_joules` are those of static power meanwhile.
    """

    joules: float
    seconds: float
    op_joules: float
    copy_joules: float
    gap_joules: float
    launching: float = 0.0


def predict_energy(plan: TorchPlan, costs: Costs, *, replayed: bool = True) -> StepEnergy:
    """Return the joules of one step of a plan made in this process, launches of several ops counted as they run.

    Steps on a GPU are `replayed` unless `print(step)` says otherwise: nothing waits for Python to launch them. With costs by an
    energy counter, launches that have not been measured yet are measured now.

    >>> import torch
    >>> from pebbler.run.torch.capture.captured import capture
    >>> from pebbler.run.torch.cost.costs import roofline
    >>> captured = capture(lambda x: (x + 1) @ x, torch.ones(500, 500))
    >>> costs = roofline(captured, "cpu")
    >>> predicted = predict_energy(plan_captured(captured, costs), costs)
    >>> predicted.joules == sum(cost.joules for cost in costs[0])
    True
    """
    if plan.captured is None:
        raise InputError("energy is predicted of a plan made in this process: one from a file does not know its ops")
    phase, moves, ran = plan.captured.phases[-1], list(plan.plan.moves), list[Cost]()
    launched = {position for launch in plan.launches for position in launch}
    for position, move in enumerate(moves):
        if isinstance(move, Compute) and position not in launched:
            ran.append(costs[-1][phase.graph.op_index(move.op)])
    groups = [launch_group(phase, moves, launch) for launch in plan.launches]
    if costs.measure is not None:
        costs.measure(phase, groups)
    for group in groups:
        assert costs.price is not None  # only a planner with prices makes launches
        ran.append(costs.price(phase, group))
    busy, spent = sum(cost.seconds for cost in ran), sum(cost.joules for cost in ran)
    copies = waiting = 0.0
    if plan.offloaded and costs.link is not None:
        timed = step_problem(plan.captured, costs, offload=True)
        waiting = waiting_time(plan.plan, timed.graphs[-1], timed.link) / SCALE["time"]
        moved = (plan.plan.graph.tensor_named(move.tensor).size for move in moves if isinstance(move, Copy))
        copies = sum(moved) * costs.link.joules_per_byte
    launching = 0.0 if replayed else sum(cost.launch for cost in ran)
    idle = waiting + max(0.0, launching - busy - waiting)
    static = costs.static_watts * idle
    return StepEnergy(spent + copies + static, busy + idle, spent, copies, static, launching)


@dataclass(frozen=True)
class FrontierPoint:
    """A plan for one budget, and the predicted time and energy of its step."""

    plan: TorchPlan
    energy: StepEnergy


def energy_frontier(
    captured: Captured, costs: Costs, budgets: Iterable[str | int | None], *, time_limit: float = 10.0
) -> list[FrontierPoint]:
    """Return a plan of least energy for every budget (bytes; None: no limit), with the joules predicted for it.

    >>> import torch
    >>> from pebbler.run.torch.capture.captured import capture
    >>> from pebbler.run.torch.cost.costs import roofline
    >>> captured = capture(lambda x: (x + 1) @ x, torch.ones(500, 500))
    >>> points = energy_frontier(captured, roofline(captured, "cpu"), ["4MiB", None], time_limit=1)
    >>> [point.plan.budget for point in points], points[0].energy.joules >= points[1].energy.joules
    ([4194304, None], True)
    """
    made: Sequence[TorchPlan] = [
        plan_captured(captured, costs, budget=budget, objective="energy", time_limit=time_limit) for budget in budgets
    ]
    return [FrontierPoint(plan, predict_energy(plan, costs)) for plan in made]
