"""Leaving out runs whose results could as well have been kept: one pass over a sequence on one level."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pebbler.compiled import kernel
from pebbler.solver.recompute.kernels.sequence_memory import RecomputeArrays

__all__ = ["trim_reruns"]


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
    """Return which runs of a sequence that fits to keep; `memory` is what it holds at every run, and is changed.

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
