"""The best plan of a tiled graph among some orders of its ops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from pebbler.errors import PebblerError
from pebbler.game.graph import Graph
from pebbler.game.moves import Moves
from pebbler.game.plan import Plan
from pebbler.game.transform import tile
from pebbler.referee.judgement import check
from pebbler.solver.paging.sequence_search import PagingSearch
from pebbler.solver.problem import Problem

__all__ = ["least_energy", "tiled"]


def tiled(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """Return a graph cut into tiles of these sizes."""
    for axis, size in sizes.items():
        graph = tile(graph, axis, size)
    return graph


def least_energy(problem: Problem, form: Graph, orders: Iterable[Sequence[int]]) -> float:
    """Return the least energy of the legal plans of a tiled form in these orders; infinite where there is none."""
    best, own = float("inf"), problem.transformed(form)
    for order in orders:
        try:
            plan = _plan(problem, own, form, order)
        except PebblerError:
            continue  # an order that cannot be
        judgement = None if plan is None else check(plan)
        if judgement is not None and judgement.legal:
            best = min(best, judgement.energy)
    return best


def _plan(problem: Problem, own: Problem, form: Graph, order: Sequence[int]) -> Plan | None:
    machine = problem.machine
    if machine.management == "lru":
        moves = Moves.computes(form, machine, list(order))
        return Plan(form, machine, moves, steady=problem.steady, source=problem.graph)
    paging = PagingSearch(own, lambda: 1.0)
    paged = paging.page(np.array(order, np.int64))
    return None if paged is None else paging.plan(paging.improve(paged, 1))
