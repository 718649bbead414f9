"""End times of a plan's moves, on flat arrays: one stream computes, one engine copies out to the host and one copies in."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pebbler.arrays import Array, Floats, Ints
from pebbler.compiled import kernel

__all__ = ["OpArrays", "time_moves"]


class OpArrays(NamedTuple):
    """Costs of ops, the tensors that they read and write as rows, and per tensor its size and its storage."""

    cost: Floats
    r_start: Ints
    r_items: Ints
    w_start: Ints
    w_items: Ints
    size: Ints
    storage: Ints


@kernel
def time_moves(
    kind: Array, subject: Array, level: Array, ops: OpArrays, out: float, into: float, overlap: bool
) -> float:
    """Return the time at which the last move of a plan on two levels ends.

    Moves are encoded as in a plan; a unit that is copied takes `out` or `into`. Memory is free again only when what was copied
    out of it is out, and an op waits for what it reads to be in. Without overlap everything takes its turn.
    """
    now = 0.0
    out_free, in_free = 0.0, 0.0
    saved, loaded = np.zeros(len(ops.size)), np.zeros(len(ops.size))
    for i in range(len(kind)):
        s = subject[i]
        if kind[i] == 0:
            for k in range(ops.r_start[s], ops.r_start[s + 1]):
                now = max(now, loaded[ops.storage[ops.r_items[k]]])
            for k in range(ops.w_start[s], ops.w_start[s + 1]):
                home = ops.storage[ops.w_items[k]]
                now = max(now, saved[home], loaded[home])
            now += ops.cost[s]
        elif kind[i] == 1:
            home = ops.storage[s]
            if level[i] == 0:
                out_free = saved[home] = max(now, out_free, loaded[home]) + ops.size[s] * out
            else:
                in_free = loaded[home] = max(now, in_free, saved[home]) + ops.size[s] * into
            if not overlap:
                now = out_free if level[i] == 0 else in_free
        elif level[i] == 0:
            now = max(now, saved[ops.storage[s]], loaded[ops.storage[s]])
    return max(now, out_free, in_free)
