"""A sequence of ops on one level, on flat arrays: the memory it needs, the runs it can do without, and its moves.

On one level a plan is just a sequence of ops, some of them more than once. Which copies to keep follows from it: a value stays
from the last time it is made before a read until that read, and nothing is gained by keeping it longer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pebbler.compiled import kernel

__all__ = ["ILLEGAL", "RecomputeArrays", "list_moves", "measure", "trim_reruns"]

ILLEGAL = np.int64(-1)


class RecomputeArrays(NamedTuple):
    """A problem as flat arrays; the lists of an op or a value are rows `items[start[i]:start[i + 1]]`, each item once."""

    capacity: np.int64
    size: npt.NDArray[np.int64]  # per value
    maker: npt.NDArray[np.int64]  # per value: op, -1 for what is there at the start
    destroyer: npt.NDArray[np.int64]  # per value: op, -1 for none
    survive: npt.NDArray[np.bool_]  # per value: needed at the end
    cost: npt.NDArray[np.float64]  # per op
    again: npt.NDArray[np.bool_]  # per op: may run more than once
    r_start: npt.NDArray[np.int64]  # values an op reads
    r_items: npt.NDArray[np.int64]
    w_start: npt.NDArray[np.int64]  # values it writes
    w_items: npt.NDArray[np.int64]
    d_start: npt.NDArray[np.int64]  # values it destroys
    d_items: npt.NDArray[np.int64]


@kernel
def measure(
    arrays: RecomputeArrays,
    sequence: npt.NDArray,
    first: int,
    last: int,
    after: npt.NDArray,
    before: npt.NDArray,
    later: npt.NDArray,
    most: int,
    memory: npt.NDArray,
    alive: npt.NDArray,
    seen: npt.NDArray,
) -> np.int64:
    """Fill `memory` with the units held at every run and return the units above capacity, summed; ILLEGAL if it cannot be.

    `sequence[first:last]` may be a stretch of a longer one: `after` are the values needed after it, `before` those it may take
    over from before, `later` the ops that run after it. On return `alive` are the values that it does take over. More than
    `most` units above capacity count as ILLEGAL too.
    """
    held = np.int64(0)
    for v in range(len(alive)):
        alive[v] = after[v]
        if after[v]:
            held += arrays.size[v]
    for op in range(len(seen)):
        seen[op] = later[op]
    over = np.int64(0)
    for p in range(last - 1, first - 1, -1):
        op = sequence[p]
        here = held
        for k in range(arrays.d_start[op], arrays.d_start[op + 1]):
            if alive[arrays.d_items[k]]:
                return ILLEGAL  # something reads it afterwards
        for k in range(arrays.w_start[op], arrays.w_start[op + 1]):
            w = arrays.w_items[k]
            if arrays.destroyer[w] >= 0 and not seen[arrays.destroyer[w]]:
                return ILLEGAL  # would bring back what is overwritten
            if alive[w]:
                alive[w] = False
                held -= arrays.size[w]
            else:
                here += arrays.size[w]
        seen[op] = True
        for k in range(arrays.r_start[op], arrays.r_start[op + 1]):
            v = arrays.r_items[k]
            if arrays.destroyer[v] >= 0 and not seen[arrays.destroyer[v]]:
                return ILLEGAL  # reads what is overwritten
            if not alive[v]:
                alive[v] = True
                held += arrays.size[v]
                if arrays.destroyer[v] != op:
                    here += arrays.size[v]
        memory[p] = here
        if here > arrays.capacity:
            over += here - arrays.capacity
            if over > most:
                return ILLEGAL
    for v in range(len(alive)):
        if alive[v] and not before[v]:
            return ILLEGAL
    return over


@kernel
def _last_seen(arrays: RecomputeArrays, sequence: npt.NDArray) -> npt.NDArray:
    """Return, per run, the earliest of the last runs before it at which its results were there; -1 if one never was."""
    seen, since = np.full(len(arrays.size), -1, np.int64), np.empty(len(sequence), np.int64)
    for p in range(len(sequence)):
        op = sequence[p]
        since[p] = p
        for k in range(arrays.w_start[op], arrays.w_start[op + 1]):
            since[p] = min(since[p], seen[arrays.w_items[k]])
            seen[arrays.w_items[k]] = p
        for k in range(arrays.r_start[op], arrays.r_start[op + 1]):
            seen[arrays.r_items[k]] = p
    return since


@kernel(nogil=True)
def trim_reruns(arrays: RecomputeArrays, sequence: npt.NDArray, memory: npt.NDArray, order: npt.NDArray) -> npt.NDArray:
    """Return the runs to keep of a sequence that fits; `memory` is what it holds at every run, and is changed.

    A run goes when all its results were there before and there is room to keep them since. Runs are looked at in `order`, of
    positions. What one removal counts on stays in the same pass.
    """
    keep, fixed = np.ones(len(sequence), np.bool_), np.zeros(len(sequence), np.bool_)
    since = _last_seen(arrays, sequence)
    for p in order:
        op, first = sequence[p], since[p]
        if first < 0 or first == p or fixed[p] or not keep[first]:
            continue
        if arrays.w_start[op + 1] - arrays.w_start[op] != 1:
            continue  # its results were last there at different times
        size = arrays.size[arrays.w_items[arrays.w_start[op]]]
        fits = True
        for q in range(first + 1, p):
            if memory[q] + size > arrays.capacity:
                fits = False
                break
        if fits:
            keep[p] = False
            fixed[first] = True
            for q in range(first + 1, p):
                memory[q] += size
    return keep


@kernel
def list_moves(
    arrays: RecomputeArrays, sequence: npt.NDArray, at_start: npt.NDArray, compute: int, drop: int
) -> tuple[npt.NDArray, npt.NDArray]:
    """Return the moves of a legal sequence: their kinds, `compute` or `drop`, and the op or value of each."""
    runs, values = len(sequence), len(arrays.size)
    alive = arrays.survive.copy()
    # The values that a run is the last to need, as a linked list per run; each run has at most its reads and writes.
    most = 0
    for p in range(runs):
        op = sequence[p]
        most += arrays.r_start[op + 1] - arrays.r_start[op] + arrays.w_start[op + 1] - arrays.w_start[op]
    ended, end_start = np.empty(most, np.int64), np.empty(runs + 1, np.int64)
    count = 0
    for p in range(runs - 1, -1, -1):
        op = sequence[p]
        end_start[p + 1] = count
        for k in range(arrays.w_start[op], arrays.w_start[op + 1]):
            w = arrays.w_items[k]
            if not alive[w]:
                ended[count] = w
                count += 1
            alive[w] = False
        for k in range(arrays.r_start[op], arrays.r_start[op + 1]):
            v = arrays.r_items[k]
            if not alive[v]:
                alive[v] = True
                if arrays.destroyer[v] != op:
                    ended[count] = v
                    count += 1
    end_start[0] = count
    kind, subject = np.empty(runs + count + values, np.int8), np.empty(runs + count + values, np.int64)
    present, length = at_start.copy(), 0
    for v in range(values):
        if at_start[v] and not alive[v]:
            present[v] = False
            kind[length], subject[length] = drop, v
            length += 1
    for p in range(runs):
        op = sequence[p]
        kind[length], subject[length] = compute, op
        length += 1
        for k in range(arrays.d_start[op], arrays.d_start[op + 1]):
            present[arrays.d_items[k]] = False
        for k in range(arrays.w_start[op], arrays.w_start[op + 1]):
            present[arrays.w_items[k]] = True
        for v in np.sort(ended[end_start[p + 1] : end_start[p]]):
            if present[v]:
                present[v] = False
                kind[length], subject[length] = drop, v
                length += 1
    return kind[:length].copy(), subject[:length].copy()
