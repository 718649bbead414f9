"""Sequences of runs of a small graph in which ops run again where that is cheaper than reading from far below, and a bound.

Runs beyond the first ones can only bring tensors up in the ranking, and each of them is paid. So an order of first runs is
priced with the cheapest runs in between that can explain each read, and the cheapest of all orders bounds every plan.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from pebbler.arrays import Ints
from pebbler.extras.reruns.kernels.rerun_prices import FirstRunWalk, RerunGame, walk_first_orders
from pebbler.extras.reruns.kernels.run_anneal import RunRules, anneal_runs
from pebbler.game.dataflow import NONE, Dataflow, Rows
from pebbler.game.moves import Moves
from pebbler.referee import pricing
from pebbler.referee.kernels.cache_price import price
from pebbler.referee.programs.order_floors import order_floors
from pebbler.solver.kernels.state_table import StatesMet
from pebbler.solver.problem import Problem, Search
from pebbler.solver.tiling.kernels.order_walk import begin_walk
from pebbler.solver.tiling.run_search import last_chances

__all__ = ["cheapest_runs", "rerun_bound", "rerun_game", "solve_reruns"]

_WALKS, _ROUNDS = 8, 4_000
_HOT, _COLD = 0.07, 1e-6  # how much worse a change may be at the beginning and at the end, as a part of the energy


def solve_reruns(search: Search, order: Ints) -> None:
    """Look for cheaper sequences in which ops run again, from the best order, and bound them all; for ranks by recency."""
    problem = search.problem
    runs, _ = cheapest_runs(problem, order, seconds_left=lambda: search.remaining)
    search.offer(Moves.computes(problem.graph, problem.machine, runs))
    bound = rerun_bound(problem, search.energy, seconds_left=lambda: search.remaining)
    search.raise_bound(bound, "all orders of first runs, each with the cheapest runs in between that explain its reads")


def cheapest_runs(
    problem: Problem, order: Ints, *, walks: int = _WALKS, seconds_left: Callable[[], float] = lambda: float("inf")
) -> tuple[Ints, float]:
    """Return the cheapest sequence of runs that some random walks from an order find, and its energy.

    >>> from pebbler import machine, workloads
    >>> sequence, energy = cheapest_runs(Problem.of(workloads.note_mlp(), machine("notes-recency")), np.arange(15))
    >>> energy  # the optimum
    10764315.0
    """
    game = pricing.cache_game(problem.graph, problem.machine, steady=problem.steady)
    rules, best = _rules(problem), order
    first = energy = float(price(game, order))
    for walk in range(walks):
        if seconds_left() <= 0 or not first:
            break
        rng = np.array([(problem.seed * walks + walk + 1) * 0x9E3779B97F4A7C15 % 2**64], np.uint64)
        sequence, cost = anneal_runs(game, rules, order, _ROUNDS, _HOT * first, _COLD * first, rng)
        if cost < energy:
            best, energy = sequence, float(cost)
    return best, energy


def _rules(problem: Problem) -> RunRules:
    flow = problem.graph.dataflow
    gone = last_chances(flow)
    return RunRules(flow.before.start, flow.before.items, gone.start, gone.items, np.flatnonzero(flow.op_can_rerun))


_MOST_BITS = 20  # of the table of states met: 24 MiB
_SHARE = 10_000  # prefixes between two looks at the clock
_MOST = 3_000_000  # prefixes altogether


def rerun_bound(
    problem: Problem, below: float, *, most: int = _MOST, seconds_left: Callable[[], float] = lambda: float("inf")
) -> float:
    """Return an energy, `below` at most, that no plan falls below, however often ops run; 0 if there was no time to find one.

    >>> from pebbler import machine, workloads
    >>> rerun_bound(Problem.of(workloads.note_mlp(), machine("notes-recency")), 2e7)
    10764315.0
    """
    flow = problem.graph.dataflow
    if not flow.ops:
        return 0.0
    game = rerun_game(problem)
    walk = _begin(game, flow, below)
    met = StatesMet.room(min(_MOST_BITS, flow.ops + 8))
    for _ in range(0, most, _SHARE):
        if seconds_left() <= 0:
            break
        if walk_first_orders(game, walk, problem.scale.rounding, _SHARE, met):
            found = float(walk.below[0])
            return found if found == below else problem.scale.lowered(found)
    return 0.0


def _begin(game: RerunGame, flow: Dataflow, below: float) -> FirstRunWalk:
    """Return a walk at its beginning, in which orders that cost `below` or more do not count."""
    kept = np.zeros((flow.ops + 1, 4, len(game.size)), np.int64)
    kept[0, 1] = np.where(game.initial, np.cumsum(game.initial), 0)
    kept[0, 2] = -1
    kept[0, 3] = game.readers
    orders = begin_walk(np.diff(flow.before.start), flow.after.start, flow.after.items, game.floor)
    return FirstRunWalk(orders, np.zeros(flow.ops + 1), kept, np.array([below]))


def rerun_game(problem: Problem) -> RerunGame:
    """Return a graph on a machine that ranks by recency as the kernel sees it."""
    flow, machine = problem.graph.dataflow, problem.machine
    read, store = pricing.prices(machine, "read"), pricing.prices(machine, "write")
    capacity = pricing.capacities(machine)
    size = flow.tensor_size.astype(np.int64)
    fits = np.minimum(np.argmax(size[:, None] <= capacity[None, :], axis=1), len(capacity) - 1)
    fits[size > capacity.max()] = len(capacity) - 1
    reads = [flow.value_tensor[row].tolist() for row in flow.op_reads]
    writes = [flow.value_tensor[row].tolist() for row in flow.op_writes]
    touched = Rows.of([list(dict.fromkeys([*one, *other])) for one, other in zip(reads, writes, strict=True)])
    toucher = touched.transposed(len(size))
    readers = Rows.of([sorted(set(row)) for row in reads]).transposed(len(size))
    wanted = _wanted(flow, touched, readers)
    return RerunGame(
        flow.op_cost.astype(np.float64), order_floors(problem.task), flow.op_can_rerun, size, flow.start_value != NONE,
        np.diff(readers.start), size * store[fits], np.cumsum(capacity[:-1]), np.minimum.accumulate(read[::-1])[::-1].copy(),
        flow.op_reads.start, flow.value_tensor[flow.op_reads.items], flow.value_destroyer[flow.op_reads.items],
        flow.op_writes.start, flow.value_tensor[flow.op_writes.items], touched.start, touched.items, toucher.start,
        toucher.items, wanted, (wanted * size).sum(axis=2),
    )  # fmt: skip


def _wanted(flow: Dataflow, touched: Rows, readers: Rows) -> np.ndarray:
    """Return, for two ops that have run and a tensor that the second touches, whether some op may read it for the first time."""
    earlier = [flow.ancestors[op] | 1 << op for op in range(flow.ops)]
    reading = [sum(1 << op for op in row.tolist()) for row in readers]
    found = np.zeros((flow.ops, flow.ops, len(reading)), np.bool_)
    for known, op in product(range(flow.ops), repeat=2):
        for tensor in touched.row(op).tolist():
            found[known, op, tensor] = bool(reading[tensor] & ~(earlier[known] | earlier[op]))
    return found
