"""Start sequences: an order that needs little memory, and any order made to fit by recomputation.

The driver is plain Python around one kernel: what it does is a few measurements per peak, and compiling it would take longer
than it saves on a graph of any size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from pebbler.game.dataflow import NONE
from pebbler.game.ready_list import ReadyList, schedule_by_key
from pebbler.solver.recompute.kernels.sequence_memory import trim_reruns
from pebbler.solver.recompute.recompute_problem import RecomputeProblem

__all__ = ["early_ends_order", "fit", "low_memory_order", "trim"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_TRIED = 24  # values tried per peak
_LARGE = 2000  # runs from which on several values are taken per peak
_DEPTHS = (1, 4, 16, 64)  # how many makers deep a value is made again from
_FAILURES = 40  # peaks in a row that nothing lowers
_SCANNED = 64  # ready ops compared per step
_FEW = 64  # ops after one that is near an end


def fit(
    problem: RecomputeProblem, sequence: Sequence[int] | Ints, *, is_over: Callable[[], bool] | None = None
) -> Ints:
    """Return the sequence with runs added until it fits, or as near to that as they brought it when time `is_over`.

    Every round takes the highest peak, tries to make the values that only lie there again right before their next use, and
    takes what frees most room for its cost.

    >>> from pebbler.game.machine import Level, Machine
    >>> from pebbler.solver.problem import Problem
    >>> from pebbler.workloads import chain
    >>> one = Machine("one", "pebble", (Level("fast", 0, 0, capacity=4),))
    >>> problem = RecomputeProblem.of(Problem.of(chain(6), one))
    >>> problem.measure(problem.program).over, problem.measure(fit(problem, problem.program)).over
    (15, 0)
    """
    here = _Fitting(problem, np.ascontiguousarray(sequence, np.int64))
    rng = np.random.default_rng(0)
    failures = 0
    while here.over > 0 and failures < _FAILURES and not (is_over is not None and is_over()):
        above = np.flatnonzero(here.memory > problem.capacity)
        peak = int(np.argmax(here.memory)) if failures == 0 else int(rng.choice(above))
        failures = 0 if here.lower(peak) else failures + 1
    return here.sequence


class _Fitting:
    """A sequence while runs are added to make it fit."""

    def __init__(self, problem: RecomputeProblem, sequence: Ints) -> None:
        self.problem = problem
        self.tiny = max(1e-9 * problem.base_cost, 1e-300)
        self._set(sequence)

    def _set(self, sequence: Ints) -> None:
        measured = self.problem.measure(sequence)
        self.sequence, self.memory, self.over = sequence, measured.memory, measured.over

    def lower(self, peak: int) -> bool:
        """Lower the memory held at run `peak`; return whether that worked."""
        problem, gains = self.problem, []
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
                if self.memory[peak] <= problem.capacity:
                    break
                now, trial = self._again(value, peak)
                if trial is not None and now >= 0.5 * gain:
                    self._set(trial)
        return True

    def _lying(self, peak: int) -> list[int]:
        """Return the values held but not used at run `peak` that can be recomputed, the most bytes per cost first."""
        problem, arrays = self.problem, self.problem.arrays
        alive = problem.measure_rest(self.sequence, peak + 1).needed
        op = self.sequence[peak]
        alive[problem.reads.row(op)] = False
        alive[problem.flow.op_writes.row(op)] = False
        values = np.flatnonzero(alive & (arrays.maker != NONE) & (arrays.size > 0))
        values = values[arrays.again[arrays.maker[values]]]
        score = arrays.size[values] / (arrays.cost[arrays.maker[values]] + self.tiny)
        return [int(value) for value in values[np.argsort(-score, kind="stable")]]

    def _next_use(self, value: int, peak: int) -> int:
        readers = self.problem.flow.value_readers.row(value)
        rest = self.sequence[peak + 1 :]
        found = np.flatnonzero(np.isin(rest, readers))
        return peak + 1 + int(found[0]) if len(found) else len(self.sequence)

    def _again(self, value: int, peak: int) -> tuple[float, Ints | None]:
        """Return the room freed per cost by recomputing a value before its next use, and the sequence with that rerun."""
        problem, arrays, sequence = self.problem, self.problem.arrays, self.sequence
        at = self._next_use(value, peak)
        rest = problem.measure_rest(sequence, at)
        there = rest.needed.copy()
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
            left = problem.measure_part(trial, 0, at + tried, rest.needed, problem.at_start, rest.later, self.over).over
            gain = (self.over - rest.over - left) / (float(arrays.cost[runs].sum()) + self.tiny)
            if left >= 0 and gain > best[0]:
                best = gain, trial
        return best

    def _makers(self, value: int, there: Bools, depth: int) -> list[int]:
        """Return the runs that recompute a value from the values in memory, at most `depth` makers deep, in program order.

        Deeper makers do not run again: what they made must then live on until here.
        """
        arrays, reads = self.problem.arrays, self.problem.reads
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


def early_ends_order(problem: RecomputeProblem) -> Ints:
    """Return every op once, in program order, but ops that few others come after as soon as they can run.

    So a parameter is updated as soon as nothing reads it any more, and its gradient does not wait for all the others.

    >>> from pebbler.game.graph import Graph
    >>> from pebbler.game.machine import Level, Machine
    >>> from pebbler.solver.problem import Problem
    >>> g = Graph("two").tensor("A", 1, kind="param").tensor("B", 1, kind="param").tensor("dA", 1).tensor("dB", 1)
    >>> _ = g.op("grad A", ["A"], ["dA"]), g.op("grad B", ["B"], ["dB"])
    >>> _ = g.op("step A", ["A", "dA"], ["A"]), g.op("step B", ["B", "dB"], ["B"])
    >>> problem = RecomputeProblem.of(Problem.of(g, Machine("one", "float32", (Level("fast", 0, 0, capacity=4),))))
    >>> early_ends_order(problem).tolist()
    [0, 2, 1, 3]
    """
    flow = problem.flow
    after = flow.after.lists()
    ends: list[set[int] | None] = [None] * len(after)  # what comes after an op, None for too many
    for op in reversed(range(len(after))):
        found: set[int] | None = set(after[op])
        for other in after[op]:
            beyond = ends[other]
            found = None if found is None or beyond is None else found | beyond
            if found is None or len(found) > _FEW:
                found = None
                break
        ends[op] = found

    def key(op: int) -> tuple[int, int]:
        beyond = ends[op]
        return (_FEW + 1 if beyond is None else len(beyond)), op

    return np.array(schedule_by_key(ReadyList.of(flow), key), np.int64)


def low_memory_order(problem: RecomputeProblem) -> Ints:
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
    flow = problem.flow
    size: list[int] = flow.value_size.tolist()
    survive: list[bool] = flow.value_must_survive.tolist()
    reads, writes = problem.reads.lists(), flow.op_writes.lists()
    destroys = [set(row) for row in flow.op_destroys.lists()]
    readers_left = [len(row) for row in flow.value_readers]

    def growth(op: int) -> int:
        kept = sum(size[w] for w in writes[op] if readers_left[w] or survive[w])
        gone = destroys[op]
        freed = sum(size[v] for v in reads[op] if v not in gone and readers_left[v] == 1 and not survive[v])
        return kept - freed - sum(size[v] for v in gone)

    ready = ReadyList.of(flow)
    choices, order = ready.first, list[int]()
    while choices:
        # The newest ready ops continue what is in memory; far older ones hardly ever do better.
        op = min(choices[-_SCANNED:], key=lambda op: (growth(op), op))
        choices.remove(op)
        order.append(op)
        for v in reads[op]:
            readers_left[v] -= 1
        choices += ready.run(op)
    return np.array(order, np.int64)


def trim(problem: RecomputeProblem, sequence: Ints) -> Ints:
    """Return a fitting sequence without the reruns whose results can be kept, the most expensive reruns removed first.

    >>> from pebbler.game.machine import Level, Machine
    >>> from pebbler.solver.problem import Problem
    >>> from pebbler.workloads import chain
    >>> one = Machine("one", "pebble", (Level("fast", 0, 0, capacity=40),))
    >>> problem = RecomputeProblem.of(Problem.of(chain(3), one))
    >>> trim(problem, np.array([0, 1, 2, 3, 1, 4, 5, 6])).tolist()
    [0, 1, 2, 3, 4, 5, 6]
    """
    while True:
        measured = problem.measure(sequence)
        order = np.argsort(-problem.arrays.cost[sequence], kind="stable")
        keep = trim_reruns(problem.arrays, sequence, measured.memory.copy(), order)
        shorter = sequence[keep]
        if keep.all() or not problem.measure(shorter).fits:
            return sequence
        sequence = shorter
