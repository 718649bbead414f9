"""Every sequence of runs of a small graph on LRU caches, with ops that run again as often as it pays.

A prefix of a sequence has paid for its touches; whatever follows, ops that have not run will cost at least their floors. What is
left of a prefix is a state: which ops have run, where everything lies in the stack and which of it is up to date in which level;
for the allocator `reuse` also which blocks are taken. The block of a storage is free again after the last use of its content, which
depends on what follows: the search says with each run which contents end with it, tries every way, and goes on accordingly. A
state that was met before at no higher price is left. There are only so many states, so the search ends however often ops may run.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from pebbler.arrays import Ints
from pebbler.game.dataflow import NONE, Dataflow, Rows
from pebbler.referee import pricing
from pebbler.referee.programs.order_floors import order_floors
from pebbler.referee.touches import touches_of_ops
from pebbler.solver.kernels.state_table import StatesMet
from pebbler.solver.problem import Problem
from pebbler.solver.tiling.cache_order import BestOrder, next_share, op_floors
from pebbler.solver.tiling.kernels.cache_exact import DONE, RunChoices, all_runs

__all__ = ["best_runs", "fits_runs", "last_chances"]

MOST_OPS = 12
_MOST_STORAGES = 62  # sets of them are bits of an integer
_LONGEST = 16  # runs per op, in a sequence
_MOST_BITS = 21  # of the table of states met: 48 MiB
_FIRST_SHARE = 5_000  # prefixes of the first attempt; each further one gets four times as many


def fits_runs(problem: Problem) -> bool:
    """Return whether a graph on a cache is small enough for all sequences of runs to be searched."""
    flow = problem.graph.dataflow
    small = 0 < flow.ops <= MOST_OPS and len(problem.graph.tensors) <= _MOST_STORAGES
    return small and problem.machine.management == "lru"


def best_runs(
    problem: Problem,
    order: Ints,
    energy: float,
    *,
    limit: int = 4_000_000,
    seconds_left: Callable[[], float] = lambda: float("inf"),
) -> BestOrder:
    """Return the cheapest sequence of runs, searching all of them as far as `limit` prefixes or the time allow.

    `order` is a sequence that costs `energy`, from which on others count as cheaper.

    >>> from pebbler import Graph, Level, Machine
    >>> graph = Graph("again", unit="pebble").tensor("x", 1, "input").tensor("big", 4).tensor("far", 6, "input")
    >>> graph = graph.tensor("t", 1).tensor("y", 1, "output")
    >>> graph = graph.op("grow", ["x"], ["big"]).op("other", ["far", "big"], ["t"]).op("last", ["x", "big", "t"], ["y"])
    >>> levels = (Level("near", 1, 1, capacity=6), Level("far", 50, 50))
    >>> problem = Problem.of(graph, Machine("two", "pebble", levels, "lru", "any"))
    >>> best = best_runs(problem, np.arange(3), np.inf)
    >>> best.order.tolist(), best.energy, best.proven
    ([0, 1, 2], 811.0, True)
    """
    game = pricing.cache_game(problem.graph, problem.machine, steady=problem.steady)
    choices, ops = _choices(problem), problem.graph.dataflow.ops
    best, proven, prefixes = order, False, 0
    share, most, longest = _FIRST_SHARE, 1, _LONGEST * ops
    while 0 < share <= limit and seconds_left() > 0:
        began = time.monotonic()
        met = StatesMet.room(min(_MOST_BITS, (4 * share).bit_length()))
        found = np.zeros(longest, np.int64)
        energy, reason, blocked, length, count = all_runs(
            game, choices, found, energy, problem.scale.rounding, most, share, met
        )
        prefixes += count
        if length:
            best = found[:length].copy()
        if reason == DONE and not blocked:
            proven = True
            break
        if reason == DONE and most < longest - ops:
            most = longest - ops if most > 1 else 2  # a better sequence first, then all of them
        elif reason == DONE:
            break
        else:
            most = longest - ops
            share = next_share(share, (time.monotonic() - began) / count, seconds_left())
    return BestOrder(best, float(energy), proven, prefixes)


def last_chances(flow: Dataflow) -> Rows:
    """Return, per op, the ops that overwrite its operands or results: after one of them it cannot be rerun.

    >>> from pebbler.workloads import note_mlp
    >>> last_chances(note_mlp().dataflow).row(0).tolist()  # fwd_linear1 reads W1 and b1, which are updated
    [11, 12]
    """
    pairs = [(op, value) for op in range(flow.ops) for value in (*flow.op_reads.row(op), *flow.op_writes.row(op))]
    found = [(op, int(flow.value_destroyer[value])) for op, value in pairs if flow.value_destroyer[value] != NONE]
    return Rows.of_pairs(found, flow.ops)


def _choices(problem: Problem) -> RunChoices:
    graph, flow = problem.graph, problem.graph.dataflow
    touches, gone = touches_of_ops(graph, problem.machine.allocator, problem.machine.line), last_chances(flow)
    reads, makes = np.zeros(flow.ops, np.int64), np.zeros(flow.ops, np.int64)
    for op in range(flow.ops):
        for touch in range(touches.start[op], touches.start[op + 1]):
            storage = int(touches.storage[touch])
            if touches.home[storage] < 0 and not touches.lasting[storage]:
                (makes if touches.fresh[touch] else reads)[op] |= 1 << storage
    runs = op_floors(graph, problem.machine)
    return RunChoices(
        np.diff(flow.before.start), flow.after.start, flow.after.items, gone.start, gone.items, flow.op_can_rerun,
        reads, makes, np.maximum(order_floors(problem.task), runs), runs,
    )  # fmt: skip
