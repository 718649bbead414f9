"""Searches of explicit games that take turns until time is up: for orders of the graph's structure, and for paged sequences.

Each goes on from where it was in its last turn. The one that has gained more for its time lately gets more of what is left.
"""

from __future__ import annotations

from collections.abc import Callable

from pebbler.solver.large_games import GreedyTurns
from pebbler.solver.paging.paging_solver import PagingTurns
from pebbler.solver.problem import Search
from pebbler.solver.structure.order_search import Way, try_next

__all__ = ["search_in_turns"]

_TURNS = 12  # in the time that there is, and at least a quarter of a second each
_SHORTEST = 0.25


def search_in_turns(search: Search) -> None:
    """Offer better plans of an explicit machine until a plan is proven or time is up; nothing happens without a time limit.

    >>> from pebbler import machine, workloads
    >>> from pebbler.solver.problem import Problem
    >>> search = Search(Problem.of(workloads.chain(20), machine("red-blue")), 0.6)
    >>> search_in_turns(search)
    >>> search.best is not None and search.cut_off
    True
    """
    if search.time_limit is None:
        return
    length = max(_SHORTEST, search.remaining / _TURNS)

    ways: list[Way] = []

    def add(turn: Callable[[Callable[[], float]], bool]) -> None:
        def run() -> float:
            began = search.elapsed
            if not turn(lambda: min(search.remaining, began + length - search.elapsed)):
                ways.remove(way)
            return search.elapsed - began

        way = Way(run)
        ways.append(way)

    add(GreedyTurns(search).take)
    add(PagingTurns(search).take)
    while ways and not search.done and search.remaining > 0:
        # Before there is a plan, its energy is no number to take gains from.
        try_next(ways, lambda: search.energy if search.best is not None else 0.0)
    search.cut_off |= search.remaining <= 0 and not search.done
