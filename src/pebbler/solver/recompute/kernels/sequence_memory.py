"""The memory that a sequence of ops needs on one level, on flat arrays.

On one level a plan is just a sequence of ops, some of them more than once. Which copies to keep follows from it: a value stays
from the last time it is made before a read until that read, and nothing is gained by keeping it longer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pebbler.compiled import kernel

__all__ = ["ILLEGAL", "RecomputeArrays", "measure"]

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
