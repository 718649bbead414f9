"""List scheduling by liveness: legal orders built one ready op at a time, by what an op touched last or leaves alive."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pebbler.compiled import kernel
from pebbler.solver.kernels.ready_nodes import first_ready, run_ready

__all__ = ["LEAST_LIVE", "RECENT", "schedule_by_liveness"]

Array = npt.NDArray[Any]
RECENT = 0  # the op whose operands were all touched most recently: goes back the way it came, like a stack
_SCANNED = 512  # ready ops that are compared: of more, those that became ready last
LEAST_LIVE = 1  # the op that leaves the least alive, by size; then as above


@kernel
def schedule_by_liveness(
    rule: int, waits: Array, next_start: Array, next_items: Array,
    r_start: Array, r_items: Array, w_start: Array, w_items: Array, readers: Array, size: Array, keep: Array,
) -> Array:  # fmt: skip
    """Return an order of the ops that respects the hazards: `waits` counts each op's predecessors, `next_*` are its successors.

    `readers` counts the distinct readers of every value; values marked `keep` never free their room.
    """
    ops = len(waits)
    waits, left = waits.copy(), readers.copy()
    touched = np.full(len(size), -1, np.int64)
    ready = np.empty(ops, np.int64)
    order = np.empty(ops, np.int64)
    count = first_ready(waits, ready)
    for t in range(ops):
        best, best_live, best_recent = -1, 0, 0
        for i in range(max(0, count - _SCANNED), count):
            op = ready[i]
            recent, live = ops, 0
            for k in range(r_start[op], r_start[op + 1]):
                v = r_items[k]
                recent = min(recent, touched[v])
                if left[v] == 1 and not keep[v]:
                    live -= size[v]
            if r_start[op] == r_start[op + 1]:
                recent = -1
            for k in range(w_start[op], w_start[op + 1]):
                live += size[w_items[k]]
            if rule == 0:
                live = 0
            if best < 0 or (live, -recent, op) < (best_live, -best_recent, ready[best]):
                best, best_live, best_recent = i, live, recent
        op = ready[best]
        count = run_ready(best, ready, count, waits, next_start, next_items)
        order[t] = op
        for k in range(r_start[op], r_start[op + 1]):
            touched[r_items[k]] = t
            again = False
            for j in range(r_start[op], k):
                again |= r_items[j] == r_items[k]
            if not again:
                left[r_items[k]] -= 1
        for k in range(w_start[op], w_start[op + 1]):
            touched[w_items[k]] = t
    return order
