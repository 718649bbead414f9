"""Sequences of runs of a small graph on caches in which ops run again where that is cheaper than reading from far below."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pebbler.arrays import Ints
from pebbler.game.dataflow import NONE, Rows
from pebbler.referee import pricing
from pebbler.referee.kernels.cache_price import price
from pebbler.solver.problem import Problem
from pebbler.solver.tiling.kernels.run_anneal import RunRules, anneal_runs

__all__ = ["cheapest_runs"]

_WALKS, _ROUNDS = 8, 4_000
_HOT, _COLD = 0.07, 1e-6  # how much worse a change may be at the beginning and at the end, as a part of the energy


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
    pairs = [(op, value) for op in range(flow.ops) for value in (*flow.op_reads.row(op), *flow.op_writes.row(op))]
    gone = Rows.of_pairs(
        [(op, int(flow.value_destroyer[value])) for op, value in pairs if flow.value_destroyer[value] != NONE], flow.ops
    )
    return RunRules(flow.before.start, flow.before.items, gone.start, gone.items, np.flatnonzero(flow.op_can_rerun))
