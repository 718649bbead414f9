"""Checkpointing: values held at the peak of an order are recomputed, segment by segment, right before their use.

Fitting takes one value at a time and asks what each is worth; on thousands of ops that takes long. Here all that a segment of the
order has left lying is made again together, from what lay at the segment's start, as people do by hand on a stack of layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from pebbler.game.dataflow import NONE
from pebbler.solver.recompute.recompute_problem import RecomputeProblem

__all__ = ["checkpointed", "checkpointings"]

Ints = npt.NDArray[np.int64]
_SEGMENTS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


def checkpointings(problem: RecomputeProblem, order: Ints) -> Iterator[Ints]:
    """Yield an order with more and more segments, as long as they can help."""
    lying = np.count_nonzero(_lying(problem, order, _peak(problem, order)))
    for segments in _SEGMENTS:
        if segments <= 2 * lying:
            yield checkpointed(problem, order, segments)


def checkpointed(problem: RecomputeProblem, order: Ints, segments: int) -> Ints:
    """Return an order of all ops with recomputed values at its peak; the ops before the peak are cut into `segments` segments.

    >>> from pebbler.game.machine import Level, Machine
    >>> from pebbler.solver.problem import Problem
    >>> from pebbler.workloads import chain
    >>> problem = RecomputeProblem.of(Problem.of(chain(25), Machine("one", "pebble", (Level("fast", 0, 0, capacity=9),))))
    >>> orders = [problem.program, checkpointed(problem, problem.program, 5)]
    >>> [(problem.measure(order).legal, int(problem.measure(order).memory.max())) for order in orders]
    [(True, 26), (True, 9)]
    """
    peak = _peak(problem, order)
    position = np.empty(problem.ops, np.int64)
    position[order] = np.arange(len(order))
    values = np.flatnonzero(_lying(problem, order, peak))
    if not len(values):
        return order
    made = position[problem.arrays.maker[values]]
    values, made = values[np.argsort(made, kind="stable")], np.sort(made)
    weight = np.cumsum(problem.arrays.size[values])
    segment = np.minimum(segments - 1, (weight - 1) * segments // max(1, int(weight[-1])))
    inserted: dict[int, set[int]] = {}
    first = 0
    for number in np.unique(segment).tolist():
        chosen = values[segment == number].tolist()
        last = int(made[segment == number].max())
        at = min(_next_use(problem, position, value, peak) for value in chosen)
        inserted.setdefault(at, set()).update(_runs(problem, position, chosen, first, last, at))
        first = last + 1
    parts: list[Sequence[int]] = []
    before = 0
    for at in sorted(inserted):
        parts += [order[before:at].tolist(), sorted(inserted[at], key=position.__getitem__)]
        before = at
    return np.array([op for part in (*parts, order[before:].tolist()) for op in part], np.int64)


def _peak(problem: RecomputeProblem, order: Ints) -> int:
    return int(np.argmax(problem.measure(order).memory))


def _lying(problem: RecomputeProblem, order: Ints, peak: int) -> npt.NDArray[np.bool_]:
    """Return per value whether it is held at a run, made before and needed only after it, and can be recomputed."""
    arrays = problem.arrays
    lying = problem.measure_rest(order, peak + 1).needed & (arrays.maker != NONE) & (arrays.size > 0)
    lying &= np.isin(arrays.maker, order[:peak])
    lying[problem.reads.row(order[peak])] = False
    values = np.flatnonzero(lying)
    lying[values[~arrays.again[arrays.maker[values]]]] = False
    return np.asarray(lying)


def _runs(problem: RecomputeProblem, position: Ints, values: list[int], first: int, last: int, at: int) -> list[int]:
    """Return the ops that values come from, back to what lies at the start of the segment `first` to `last`.

    What reads or makes a value that has been overwritten before run `at` cannot run again; what it has made stays.
    """
    maker, again, destroyer = problem.arrays.maker, problem.arrays.again, problem.arrays.destroyer
    reads, writes = problem.reads, problem.flow.op_writes

    def makers(op: int) -> list[int]:
        ops = (int(maker[value]) for value in reads.row(op) if maker[value] != NONE)
        return [other for other in ops if first <= position[other] <= last]

    def is_stuck(op: int) -> bool:
        touched = np.concatenate([reads.row(op), writes.row(op)])
        ends = destroyer[touched]
        return not again[op] or bool(np.any(position[ends[ends != NONE]] < at))

    rest = [op for op in {int(maker[value]) for value in values} if not is_stuck(op)]
    chosen = set(rest)
    while rest:
        fresh = {op for op in makers(rest.pop()) if op not in chosen and not is_stuck(op)}
        chosen |= fresh
        rest += fresh
    return sorted(chosen, key=position.__getitem__)


def _next_use(problem: RecomputeProblem, position: Ints, value: int, peak: int) -> int:
    uses = position[problem.flow.value_readers.row(value)]
    later = uses[uses > peak]
    return int(later.min()) if len(later) else len(position)
