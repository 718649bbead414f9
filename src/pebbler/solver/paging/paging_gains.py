"""What each further freedom of a paged plan is worth, for the table of `pebbler solve --compare`."""

from __future__ import annotations

import numpy as np

from pebbler.solver.capacity import require_capacity
from pebbler.solver.paging.demand_paging import demand_plan, program_order_plan
from pebbler.solver.paging.paging_solver import PagingSolver
from pebbler.solver.problem import Problem, Search

__all__ = ["paging_gains"]


def paging_gains(problem: Problem, time_limit: float = 20.0) -> list[tuple[str, float | None]]:
    """Return the best energy found as more is left free: nothing, residency, order, recomputation; and the bound known here.

    >>> from pebbler import machine, workloads
    >>> [name for name, _ in paging_gains(Problem.of(workloads.chain(3), machine("red-blue")), 5)]
    ['program order', 'greedy', 'best placement of program order', 'best order', '+ recomputation', 'bound']
    """
    rows: list[tuple[str, float | None]] = []
    require_capacity(problem)

    def add(name: str, search: Search) -> None:
        rows.append((name, None if search.best is None else search.energy))

    limited = Search(problem, time_limit * 0.3)
    found = program_order_plan(problem)
    if found is not None:
        limited.offer(*found)
    add("program order", limited)
    solver = PagingSolver(limited)
    solver.prepare()
    greedy = Search(problem)
    if problem.machine.operands == "fastest":
        found = demand_plan(problem, range(len(problem.graph.ops)), "farthest")
    else:
        first_come = solver.paging.page(np.arange(len(problem.graph.ops)))
        found = None if first_come is None else solver.paging.moves(first_come)
    if found is not None:
        greedy.offer(*found)
        limited.offer(*found)
    add("greedy", greedy)
    solver.page_start_orders(only_program_order=True)
    if solver.best is not None:
        solver.refine()
    add("best placement of program order", limited)
    limited.time_limit = time_limit * 0.6
    if solver.best is not None:
        solver.page_start_orders()
        solver.anneal(reruns=False)
    add("best order", limited)
    limited.time_limit = time_limit
    if solver.best is not None:
        solver.anneal(reruns=True)
    add("+ recomputation", limited)
    return [*rows, ("bound", limited.bound)]
