"""The ops that are reachable from an op, in one sweep."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pebbler.compiled import kernel

__all__ = ["mark_reachable"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@kernel
def mark_reachable(start: Ints, items: Ints, op: int, step: int) -> Bools:
    """Return which ops can be reached from one through rows of neighbours, all of them in the direction of `step` (1 or -1)."""
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
