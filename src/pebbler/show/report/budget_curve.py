"""The memory of a captured PyTorch step without a budget, and the cost of other budgets as a curve."""

from __future__ import annotations

from dataclasses import dataclass

from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.plan import Plan
from pebbler.show.report.step_names import BudgetData, BudgetPoint, UnlimitedStep
from pebbler.solver.problem import Problem
from pebbler.solver.recompute.recompute_problem import RecomputeProblem

__all__ = ["BudgetCurve", "budget_curve", "unlimited_step"]

_SHARES = (0.0, 0.05, 0.14, 0.3, 0.52, 0.78)  # of the bytes between the least budget and no limit
_SECONDS = 0.4  # of search per point: a plan made for one budget alone may be a little cheaper
_MOST_OPS = 4_000


@dataclass(frozen=True)
class BudgetCurve:
    """The cost of budgets, from the smallest with a plan to no limit."""

    graph: int  # in ReportData.graphs
    points: list[BudgetPoint]


def unlimited_step(graph: Graph) -> UnlimitedStep:
    """Return a step in its own order, every value freed after its last use.

    >>> from pebbler.workloads import chain
    >>> unlimited_step(chain(3)).held
    [2, 3, 4, 4, 4, 3, 2]
    """
    game = RecomputeProblem.of(Problem.of(graph, Machine("memory", graph.unit, (Level("memory", 0, 0),))))
    return UnlimitedStep(game.measure(game.program).memory.tolist(), [op.cost for op in graph.ops])


def budget_curve(plan: Plan, budget: BudgetData, graph: int) -> BudgetCurve | None:
    """Return the cost of other budgets for a step, with host copies if its plan has them; None without PyTorch."""
    if budget.curve:
        return BudgetCurve(graph, sorted(budget.curve, key=lambda point: point.peak))
    try:
        from pebbler.run.torch.plan.host_link import link_of
        from pebbler.run.torch.plan.phase_search import least_units, quick_cost
    except ImportError:
        return None
    most = max(unlimited_step(plan.graph).held, default=0)
    if not most or len(plan.graph.ops) > _MOST_OPS:
        return None
    link = link_of(plan.machine, overlap=budget.overlap)
    least = least_units([plan.graph], _SECONDS, offload=link is not None)[1]
    found = [BudgetPoint(most + budget.headroom, sum(op.cost for op in plan.graph.ops))]
    for share in reversed(_SHARES):
        made = quick_cost(plan.graph, int(least + share * (most - least)), _SECONDS, link)
        # What fits into less costs no less: a cheaper plan of a smaller budget serves the larger ones too.
        if made is not None and made[0] + budget.headroom < found[-1].peak:
            while len(found) > 1 and found[-1].cost >= made[1]:
                found.pop()
            found.append(BudgetPoint(made[0] + budget.headroom, made[1]))
    return BudgetCurve(graph, found[::-1])
