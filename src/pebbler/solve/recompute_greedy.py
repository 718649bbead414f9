"""Sequences to start from: orders that need little memory, fitted by making values again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pebbler.kernels.shaving import shave
from pebbler.solve.recompute_game import Game

__all__ = ["fit", "frugal_order"]

Ints = npt.NDArray[np.int64]
_LARGE = 3000  # ops from which on fewer values are tried per peak
_SCANNED = 64  # ready ops compared per step


def fit(game: Game, sequence: Sequence[int] | Ints, *, noise: float = 0.0, seed: int = 0) -> Ints:
    """Return the sequence with runs added until it fits, or as near to that as they brought it.

    >>> from pebbler.machine import Level, Machine
    >>> from pebbler.solve.problem import Problem
    >>> from pebbler.workloads import chain
    >>> one = Machine("one", "pebble", (Level("fast", 0, 0, capacity=4),))
    >>> game = Game.of(Problem.of(chain(6), one))
    >>> game.measure(game.program).over, game.measure(fit(game, game.program)).over
    (16, 0)
    """
    start = np.ascontiguousarray(sequence, np.int64)
    wanted = 24 if game.ops < _LARGE else 8
    fitted, _ = shave(game.arrays, start, game.at_start, wanted, 20 * len(start) + 100, noise, seed)
    return np.asarray(fitted, np.int64)


def frugal_order(game: Game) -> Ints:
    """Return every op once, each time the ready one that leaves the least memory in use; ties go to program order.

    >>> from pebbler.graph import Graph
    >>> from pebbler.machine import Level, Machine
    >>> from pebbler.solve.problem import Problem
    >>> g = Graph("two", unit="pebble")
    >>> _ = [g.tensor(n, s) for n, s in (("a", 9), ("b", 9), ("a2", 1), ("b2", 1))]
    >>> _ = g.op("fa", [], ["a"]), g.op("fb", [], ["b"]), g.op("ga", ["a"], ["a2"]), g.op("gb", ["b"], ["b2"])
    >>> one = Machine("one", "pebble", (Level("fast", 0, 0, capacity=20),))
    >>> frugal_order(Game.of(Problem.of(g, one))).tolist()
    [0, 2, 1, 3]
    """
    flow = game.flow
    size, survive = flow.value_size.tolist(), flow.value_must_survive.tolist()
    reads = [row.tolist() for row in game.reads]
    writes = [row.tolist() for row in flow.op_writes]
    destroys = [row.tolist() for row in flow.op_destroys]
    readers_left = [len(row) for row in flow.value_readers]
    waiting = [len(before) for before in game.predecessors]
    followers: list[list[int]] = [[] for _ in range(game.ops)]
    for op, before in enumerate(game.predecessors):
        for other in before:
            followers[other].append(op)

    def growth(op: int) -> int:
        kept = sum(size[w] for w in writes[op] if readers_left[w] or survive[w])
        gone = set(destroys[op])
        freed = sum(size[v] for v in reads[op] if v not in gone and readers_left[v] == 1 and not survive[v])
        return kept - freed - sum(size[v] for v in gone)

    ready = [op for op in range(game.ops) if not waiting[op]]
    order: list[int] = []
    while ready:
        # The newest ready ops continue what is in memory; far older ones hardly ever do better.
        op = min(ready[-_SCANNED:], key=lambda op: (growth(op), op))
        ready.remove(op)
        order.append(op)
        for v in reads[op]:
            readers_left[v] -= 1
        for other in followers[op]:
            waiting[other] -= 1
            if not waiting[other]:
                ready.append(other)
    return np.array(order, np.int64)
