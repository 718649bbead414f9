"""Search over tilings, fusions, recomputation and directions, each priced by simulation under the machine's own rules.

Transforms are first compared by quick schedules, from coarse moves to fine ones; then the best few get a thorough search, in
rounds from which fewer and fewer go on.
"""

from __future__ import annotations

import sys
from typing import Literal

from pebbler.game.moves import Moves
from pebbler.solver.bounds.bound import certified
from pebbler.solver.problem import Search
from pebbler.solver.tiling.cache_order import BestOrder, best_order, op_floors
from pebbler.solver.tiling.first_tiling import offer_fitting
from pebbler.solver.tiling.run_search import best_runs, fits_runs
from pebbler.solver.tiling.tiling_bound import WORK, RangeSearch
from pebbler.solver.tiling.transform_search import TransformSearch

__all__ = ["TransformSearch", "solve_orders", "solve_tiled"]

_FINALISTS = (8, 4, 2, 1)  # how many candidates get each round of thorough search
_EFFORT = (2_000, 6_000, 20_000, 100_000)
_QUICK_FINALISTS, _QUICK_EFFORT = (2,), (2_000,)
_NEST_SHARE = 0.28  # of the time, for loop nests that ops share; quick schedules have the rest of 0.4
_BOUND_SHARE, _LARGE_GAP_SHARE = 0.3, 0.6  # of the time that is left then, for telling tilings apart in the bound
_LARGE_GAP = 0.25  # from where on the bound has more to gain than the plan
_QUICK_WORK = 3_000
_PATIENT = 20  # times the work on ranges, where there is time for it
_CLOSE = 0.01  # a gap that better plans close sooner than better bounds
_ORDERS, _RUNS = 2_000_000, 4_000_000  # beginnings of orders, and of sequences of runs, without a time limit
MOST_EXACT = 40  # ops; above this there are too many orders even for the smallest graphs


def solve_tiled(search: Search, *, tile: Literal["auto", "none"] = "auto") -> None:
    """Offer the best plans over all transforms, and bounds; with `tile="none"` only orders and recomputation of the graph as it is.

    Under `recency` nothing is tiled or fused: that rule prices whole tensors. The bounds hold for every graph a plan of the
    search may have, so for all tilings and fusions unless there can be none.

    >>> from pebbler import machine, workloads
    >>> from pebbler.solver.problem import Problem
    >>> search = Search(Problem.of(workloads.mlp(n=2, hidden=8), machine("notes")))
    >>> solve_tiled(search)
    >>> search.energy < 0.7 * 3575  # program order
    True
    """
    problem = search.problem
    space = problem.space
    whole = tile == "none" or problem.machine.management == "recency" or not (space.axes or space.temps)
    if not whole:
        offer_fitting(search, space)
    ranges = RangeSearch(problem, {} if tile == "none" else None)
    half = search.elapsed + 0.5 * search.remaining
    bound = ranges.run(0, lambda: min(search.remaining, half - search.elapsed))
    search.raise_bound(bound.energy, bound.proof, bound.certificate)
    search.cut_off |= search.elapsed > half
    if problem.machine.management != "explicit":
        if search.best is None:
            search.offer(Moves.computes(problem.graph, problem.machine, range(len(problem.graph.ops))))
        if whole:
            solve_orders(search)
    if search.done:
        return
    transforms = TransformSearch(search, space, 0.4 * search.remaining)
    if problem.machine.management == "lru" and not whole and not search.quick:
        transforms.try_nests(_NEST_SHARE * search.remaining)
    transforms.explore(whole=whole)
    if search.gap is None or search.gap > _CLOSE:
        share = _BOUND_SHARE if search.gap is not None and search.gap < _LARGE_GAP else _LARGE_GAP_SHARE
        until = search.elapsed + share * search.remaining
        bound = ranges.run(_QUICK_WORK if search.quick else WORK, lambda: until - search.elapsed)
        search.raise_bound(bound.energy, bound.proof, bound.certificate)
        search.cut_off |= search.elapsed > until
    candidates = transforms.ranked()
    rounds = (_QUICK_FINALISTS, _QUICK_EFFORT) if search.quick else (_FINALISTS, _EFFORT)
    for turn, (count, effort) in enumerate(zip(*rounds, strict=True)):
        tried = candidates[:count]
        if turn == 0 and not search.quick:
            tried += transforms.others(tried)
        for candidate in tried:
            share = 1.0 if count == 1 else 0.25 / len(tried)
            limit = search.elapsed + share * search.remaining
            if search.quick:
                effort = min(effort, 600_000 // len(candidate.graph.ops))
            if not candidate.improve(lambda limit=limit: min(search.remaining, limit - search.elapsed), effort):  # type: ignore[misc]
                search.cut_off = True
            transforms.offer(candidate)
            if search.done:
                return
        candidates = sorted(tried, key=lambda candidate: candidate.energy)
    if not search.quick and (search.gap is None or search.gap > _CLOSE):  # whatever time the plans have left
        bound = ranges.run(WORK if search.time_limit is None else _PATIENT * WORK, lambda: search.remaining)
        search.raise_bound(bound.energy, bound.proof, bound.certificate)
        search.cut_off |= search.remaining == 0


def solve_orders(search: Search) -> None:
    """Search all orders of a small graph, and bound the gain from rerunning ops."""
    from pebbler.extras.reruns.rerun_search import solve_reruns

    problem, graph = search.problem, search.problem.graph
    found = certified(
        problem, "every order and recomputation: the cheapest last touch before each read", "last touches"
    )
    search.raise_bound(found.value, found.proof, found.certificate if search.as_it_is else None)
    bound = found.value
    if len(graph.ops) > MOST_EXACT:
        return
    ranked = problem.machine.management == "recency"
    # Of the time that is left: what runs again is searched after it.
    share = 0.5 if ranked or fits_runs(problem) else 1.0
    best = best_order(
        problem, enough=bound, limit=_most(search, _ORDERS), seconds_left=lambda: share * search.remaining
    )
    search.offer(Moves.computes(graph, problem.machine, best.order))
    flow, floors = graph.dataflow, op_floors(graph, problem.machine)
    rerun = floors[flow.op_can_rerun].min(initial=float("inf"))
    if best.proven and bound + float(rerun) >= best.energy:
        search.raise_bound(search.energy, "all orders searched; running any op twice costs more than it can gain")
    elif ranked and not search.done:
        solve_reruns(search, best.order)
    elif fits_runs(problem) and not search.done and search.remaining > 0:
        _solve_runs(search, best)
    search.cut_off |= not best.proven and search.remaining == 0


def _most(search: Search, prefixes: int) -> int:
    """Return the number of prefixes to search at most: with a time limit, as many as there is time for."""
    return prefixes if search.time_limit is None else sys.maxsize


def _solve_runs(search: Search, best: BestOrder) -> None:
    """Search all sequences of runs of a small graph on LRU caches, from the best order."""
    problem = search.problem
    limit = _most(search, _RUNS)
    found = best_runs(problem, best.order, best.energy, limit=limit, seconds_left=lambda: search.remaining)
    search.offer(Moves.computes(problem.graph, problem.machine, found.order))
    if found.proven:
        search.raise_bound(found.energy, f"all sequences of runs searched, {found.prefixes:,} of their beginnings")
