"""A sequence of ops on one level as moves: every value is dropped as soon as no run reads it before it is made again."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pebbler.compiled import kernel
from pebbler.solver.recompute.kernels.sequence_memory import RecomputeArrays

__all__ = ["list_moves"]


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
