"""The ops that are reachable from an op, in one sweep."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pebbler.compiled import kernel

__all__ = ["mark_common", "mark_from", "mark_reachable"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@kernel
def mark_reachable(start: Ints, items: Ints, op: int, step: int) -> Bools:
    """Return the ops that can be reached from one through rows of neighbours, all of them in the direction of `step` (1 or -1)."""
    ops = len(start) - 1
    found = np.zeros(ops, np.bool_)
    found[op] = True
    at = op
    while 0 <= at < ops:
        if found[at]:
            for k in range(start[at], start[at + 1]):
                found[items[k]] = True
        at += step
    found[op] = False
    return found


@kernel
def mark_from(start: Ints, items: Ints, first: Bools, step: int) -> Bools:
    """Return some ops and all that can be reached from them, in the direction of `step`."""
    found = first.copy()
    at = 0 if step > 0 else len(first) - 1
    while 0 <= at < len(first):
        if found[at]:
            for k in range(start[at], start[at + 1]):
                found[items[k]] = True
        at += step
    return found


@kernel
def mark_common(
    start: Ints, items: Ints, members: Ints, r_start: Ints, r_items: Ints, values: int
) -> tuple[Bools, Bools]:
    """Return the ops that come before every one of some ops, and the values that have a reader before each of these ops.

    Rows of `start` and `items` have the ops before an op, those of `r_start` and `r_items` the values that it reads.
    """
    ops = len(start) - 1
    common, read = np.ones(ops, np.bool_), np.ones(values, np.bool_)
    for low in range(0, len(members), 62):
        some = members[low : low + 62]
        every = (np.int64(1) << len(some)) - 1
        seen, touched, own = np.zeros(ops, np.int64), np.zeros(values, np.int64), np.zeros(ops, np.int64)
        for bit in range(len(some)):
            own[some[bit]] |= np.int64(1) << bit
        for op in range(ops - 1, -1, -1):  # what comes after it is known
            after = seen[op]
            seen[op] |= own[op]
            if seen[op] == 0:
                continue
            for k in range(start[op], start[op + 1]):
                seen[items[k]] |= seen[op]
            for k in range(r_start[op], r_start[op + 1]):
                touched[r_items[k]] |= after
            seen[op] = after
        common &= seen == every
        read &= touched == every
    return common, read
