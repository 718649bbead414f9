"""What a captured PyTorch step holds without a budget, and what other budgets would cost: behind its plan, and as a curve."""

from __future__ import annotations

from dataclasses import dataclass

from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.plan import Plan
from pebbler.show.report.step_names import BudgetData
from pebbler.solver.problem import Problem
from pebbler.solver.recompute.recompute_problem import RecomputeProblem

__all__ = ["BudgetCurve", "BudgetPoint", "budget_curve", "held_unlimited"]

_SHARES = (0.0, 0.05, 0.14, 0.3, 0.52, 0.78)  # of the bytes between the least budget and no limit
_SECONDS = 0.4  # of search per point: a plan made for one budget alone may be a little cheaper
_MOST_OPS = 4_000


@dataclass(frozen=True)
class BudgetPoint:
    """A plan made quickly for one budget: its peak in bytes, headroom included, and the cost of a step in the graph's unit."""

    peak: int
    cost: float


@dataclass(frozen=True)
class BudgetCurve:
    """What budgets cost, from the least for which a plan was found to no limit."""

    graph: int  # in ReportData.graphs
    points: list[BudgetPoint]


def held_unlimited(graph: Graph) -> list[int]:
    """Return the bytes held while each op of a step runs in its own order, every value freed after its last use.

    >>> from pebbler.workloads import chain
    >>> held_unlimited(chain(3))
    [2, 3, 4, 4, 3, 2, 1]
    """
    game = RecomputeProblem.of(Problem.of(graph, Machine("memory", graph.unit, (Level("memory", 0, 0),))))
    held: list[int] = game.measure(game.program).memory.tolist()
    return held


def budget_curve(plan: Plan, budget: BudgetData, graph: int) -> BudgetCurve | None:
    """Return what other budgets would cost a step; copies to the host are used where its plan has them. None without PyTorch."""
    try:
        from pebbler.run.torch.plan.host_link import link_of
        from pebbler.run.torch.plan.phase_search import least_units, quick_cost
    except ImportError:
        return None
    most = max(held_unlimited(plan.graph), default=0)
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
