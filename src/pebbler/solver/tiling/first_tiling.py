"""A first plan where nothing fits uncut: tiles that do, whatever number of pieces that takes."""

from __future__ import annotations

from pebbler.solver.greedy_plans import GreedyPlanner
from pebbler.solver.problem import Search
from pebbler.solver.tiling.loop_nests import LoopNests
from pebbler.solver.tiling.transform_space import Transform, TransformSpace

__all__ = ["offer_fitting"]

_LEAST_OPS, _MOST_OPS = 20_000, 200_000  # how finely the graph may be cut where coarser tiles do as well,
_OPS_PER_SECOND = 5_000  # and by the time given: building so many and running them takes about a third of it
_KEEN = (1.0, 0.5)  # how much the distance of the next use counts when something must leave


def offer_fitting(search: Search, space: TransformSpace) -> bool:
    """Offer a plan in tiles that fit, op by op, where no other plan is known; return whether there is one.

    Only where operands must be in the fastest level: elsewhere everything fits somewhere.

    >>> from pebbler import machine, workloads
    >>> from pebbler.solver.problem import Problem
    >>> problem = Problem.of(workloads.mlp(n=300, hidden=400, batch=500), machine("cortex-m").in_unit("float32"))
    >>> search = Search(problem)
    >>> offer_fitting(search, TransformSpace(problem.graph)), search.best.graph.name
    (True, 'mlp:n=300,hidden=400,batch=500 tiled batch=125, hidden=25, n=150')
    """
    problem = search.problem
    machine = problem.machine
    wanted = machine.management == "explicit" and machine.operands == "fastest" and len(machine.level) > 1
    if search.best is not None or not wanted or not space.axes:
        return False
    nests, seconds = LoopNests(problem, space), float("inf") if search.time_limit is None else search.time_limit
    sizes = nests.fitting_sizes(int(min(_MOST_OPS, max(_LEAST_OPS, _OPS_PER_SECOND * seconds))))
    graph = None if sizes is None else space.transformed(Transform().with_sizes(**sizes))
    if sizes is None or graph is None:
        return False
    graph = graph if sizes else problem.graph
    planner = GreedyPlanner.of(problem.transformed(graph))
    order, best, least = nests.order(graph, sizes), None, float("inf")
    for keen in _KEEN:
        if best is not None and search.remaining == 0:
            break
        rows = planner.run(order, keen=keen, remake=False, seed=problem.seed)
        if rows is not None and (energy := planner.price(rows)) < least:
            best, least = rows, energy
    if best is not None:
        plan = planner.plan_of(best)
        search.offer(plan.moves, plan.start, graph)
    return search.best is not None
