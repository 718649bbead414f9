"""Sequences to start from: an order that needs little memory, and fitting any order by making values again.

The driver is plain Python around one kernel: what it does is a few measurements per peak, and compiling it would take longer
than it saves on a graph of any size.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pebbler.game.dataflow import NONE
from pebbler.solver.recompute import kernels as kernel
from pebbler.solver.recompute.recompute_problem import ENDLESS, RecomputeProblem

__all__ = ["fit", "low_memory_order"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_TRIED = 24  # values tried per peak
_LARGE = 2000  # runs from which on several values are taken per peak
_DEPTHS = (1, 4, 16, 64)  # how many makers deep a value is made again from
_FAILURES = 40  # peaks in a row that nothing lowers
_SCANNED = 64  # ready ops compared per step


def fit(game: RecomputeProblem, sequence: Sequence[int] | Ints, *, ends: float = math.inf) -> Ints:
    """Return the sequence with runs added until it fits, or as near to that as they brought it by `ends` (monotonic time).

    Every round takes the highest peak, tries to make the values that only lie there again right before their next use, and
    takes what frees most room for its cost.

    >>> from pebbler.game.machine import Level, Machine
    >>> from pebbler.solver.problem import Problem
    >>> from pebbler.workloads import chain
    >>> one = Machine("one", "pebble", (Level("fast", 0, 0, capacity=4),))
    >>> game = RecomputeProblem.of(Problem.of(chain(6), one))
    >>> game.measure(game.program).over, game.measure(fit(game, game.program)).over
    (15, 0)
    """
    here = _Fitting(game, np.ascontiguousarray(sequence, np.int64))
    rng = np.random.default_rng(0)
    failures = 0
    while here.over > 0 and failures < _FAILURES and time.monotonic() < ends:
        above = np.flatnonzero(here.memory > game.capacity)
        peak = int(np.argmax(here.memory)) if failures == 0 else int(rng.choice(above))
        failures = 0 if here.lower(peak) else failures + 1
    return here.sequence


class _Fitting:
    """A sequence on its way into memory."""

    def __init__(self, game: RecomputeProblem, sequence: Ints) -> None:
        self.game = game
        self.always, self.never = np.ones(game.flow.values, np.bool_), np.zeros(game.ops, np.bool_)
        self.tiny = max(1e-9 * game.base_cost, 1e-300)
        self._set(sequence)

    def _set(self, sequence: Ints) -> None:
        measured = self.game.measure(sequence)
        self.sequence, self.memory, self.over = sequence, measured.memory, measured.over

    def _stretch(
        self, sequence: Ints, first: int, last: int, after: Bools, before: Bools, later: Bools, most: int
    ) -> tuple[int, Bools, Bools]:
        """Return the excess of a stretch, the values that it takes over, and the ops that run from its start on."""
        alive, seen = np.empty(self.game.flow.values, np.bool_), np.empty(self.game.ops, np.bool_)
        memory = np.empty(last, np.int64)
        over = kernel.measure(
            self.game.arrays, sequence, first, last, after, before, later, most, memory, alive, seen
        )  # fmt: skip
        return int(over), alive, seen

    def lower(self, peak: int) -> bool:
        """Lower the memory held at run `peak`; return whether that worked."""
        game, gains = self.game, []
        candidates = self._lying(peak)
        for value in candidates[:_TRIED]:
            gain, trial = self._again(value, peak)
            if trial is not None:
                gains.append((gain, value, trial))
        gains.sort(key=lambda item: (-item[0], item[1]))
        if not gains:
            return False
        self._set(gains[0][2])
        if len(self.sequence) >= _LARGE:
            # What else frees nearly as much for its cost is taken as well, while it still does.
            for gain, value, _ in gains[1:]:
                if self.memory[peak] <= game.capacity:
                    break
                now, trial = self._again(value, peak)
                if trial is not None and now >= 0.5 * gain:
                    self._set(trial)
        return True

    def _lying(self, peak: int) -> list[int]:
        """Return the values that lie at run `peak` untouched and can be made again, the largest for their cost first."""
        game, arrays = self.game, self.game.arrays
        last = len(self.sequence)
        _, alive, _ = self._stretch(self.sequence, peak + 1, last, arrays.survive, self.always, self.never, ENDLESS)
        op = self.sequence[peak]
        alive[game.reads.row(op)] = False
        alive[game.flow.op_writes.row(op)] = False
        values = np.flatnonzero(alive & (arrays.maker != NONE) & (arrays.size > 0))
        values = values[arrays.again[arrays.maker[values]]]
        score = arrays.size[values] / (arrays.cost[arrays.maker[values]] + self.tiny)
        return [int(value) for value in values[np.argsort(-score, kind="stable")]]

    def _next_use(self, value: int, peak: int) -> int:
        readers = self.game.flow.value_readers.row(value)
        rest = self.sequence[peak + 1 :]
        found = np.flatnonzero(np.isin(rest, readers))
        return peak + 1 + int(found[0]) if len(found) else len(self.sequence)

    def _again(self, value: int, peak: int) -> tuple[float, Ints | None]:
        """Return the room freed per cost by making a value again before its next use, and the sequence that does."""
        game, arrays, sequence = self.game, self.game.arrays, self.sequence
        at = self._next_use(value, peak)
        over_after, needed, later = self._stretch(
            sequence, at, len(sequence), arrays.survive, self.always, self.never, ENDLESS
        )
        there = needed.copy()
        there[value] = False
        best: tuple[float, Ints | None] = (0.0, None)
        tried = 0
        for depth in _DEPTHS:
            runs = self._makers(value, there, depth)
            if len(runs) == tried:
                break
            tried = len(runs)
            trial = np.concatenate([sequence[:at], np.array(runs, np.int64), sequence[at:]])
            # What comes after stays as it is.
            left, _, _ = self._stretch(trial, 0, at + tried, needed, game.at_start, later, self.over)
            gain = (self.over - over_after - left) / (float(arrays.cost[runs].sum()) + self.tiny)
            if left >= 0 and gain > best[0]:
                best = gain, trial
        return best

    def _makers(self, value: int, there: Bools, depth: int) -> list[int]:
        """Return the runs that make a value from what is there, at most `depth` makers deep, in program order.

        Deeper makers do not run again: what they made must then live on until here.
        """
        arrays, reads = self.game.arrays, self.game.reads
        chosen = {int(arrays.maker[value])}
        layer = list(chosen)
        for _ in range(depth - 1):
            fresh = set()
            for op in layer:
                for read in reads.row(op).tolist():
                    maker = int(arrays.maker[read])
                    if not there[read] and maker != NONE and arrays.again[maker] and maker not in chosen:
                        fresh.add(maker)
            if not fresh:
                break
            chosen |= fresh
            layer = sorted(fresh)
        return sorted(chosen)


def low_memory_order(game: RecomputeProblem) -> Ints:
    """Return every op once, each time the ready one that leaves the least memory in use; ties go to program order.

    >>> from pebbler.game.graph import Graph
    >>> from pebbler.game.machine import Level, Machine
    >>> from pebbler.solver.problem import Problem
    >>> g = Graph("two", unit="pebble")
    >>> _ = [g.tensor(n, s) for n, s in (("a", 9), ("b", 9), ("a2", 1), ("b2", 1))]
    >>> _ = g.op("fa", [], ["a"]), g.op("fb", [], ["b"]), g.op("ga", ["a"], ["a2"]), g.op("gb", ["b"], ["b2"])
    >>> one = Machine("one", "pebble", (Level("fast", 0, 0, capacity=20),))
    >>> low_memory_order(RecomputeProblem.of(Problem.of(g, one))).tolist()
    [0, 2, 1, 3]
    """
    flow = game.flow
    size: list[int] = flow.value_size.tolist()
    survive: list[bool] = flow.value_must_survive.tolist()
    reads: list[list[int]] = [row.tolist() for row in game.reads]
    writes: list[list[int]] = [row.tolist() for row in flow.op_writes]
    destroys: list[set[int]] = [set(row.tolist()) for row in flow.op_destroys]
    readers_left = [len(row) for row in flow.value_readers]
    waiting = [len(before) for before in game.predecessors]
    followers: list[list[int]] = [[] for _ in range(game.ops)]
    for op, before in enumerate(game.predecessors):
        for other in before:
            followers[other].append(op)

    def growth(op: int) -> int:
        kept = sum(size[w] for w in writes[op] if readers_left[w] or survive[w])
        gone = destroys[op]
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
