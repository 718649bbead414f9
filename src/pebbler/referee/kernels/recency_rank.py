"""Note 000's pricing by recency rank, on flat arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pebbler.compiled import kernel

__all__ = ["price"]

Array = npt.NDArray[Any]


@kernel
def price(
    order: Array, r_start: Array, r_items: Array, w_start: Array, w_items: Array,
    size: Array, initial: Array, op_cost: Array,
    capacity: Array, read_price: Array, write_price: Array,
    by_level: Array, by_tensor: Array, by_op: Array, step_energy: Array,
) -> float:  # fmt: skip
    """Return the energy of running `order` (ops); reads and writes are tensors. The `by_*` arrays are added to.

    `capacity` has a bound for every level, the last one larger than everything together.
    """
    tensors, steps, levels = len(size), len(order), len(capacity)
    last_read = np.full(tensors, -1, np.int64)
    for s in range(steps):
        for k in range(r_start[order[s]], r_start[order[s] + 1]):
            last_read[r_items[k]] = s
    live = np.empty(tensors, np.int64)  # in order of first insertion
    is_live = np.zeros(tensors, np.bool_)
    accessed = np.zeros(tensors, np.int64)
    count = 0
    for t in range(tensors):
        if initial[t]:
            live[count] = t
            is_live[t] = True
            count += 1
    total = 0.0
    for s in range(steps):
        op, step = order[s], s + 1
        energy = op_cost[op]
        by_level[0] += op_cost[op]
        if w_start[op] < w_start[op + 1]:
            by_tensor[w_items[w_start[op]]] += op_cost[op]
        else:
            by_tensor[r_items[r_start[op]]] += op_cost[op]
        for k in range(r_start[op], r_start[op + 1]):
            t = r_items[k]
            depth = size[t]
            seen = False
            for j in range(count):
                u = live[j]
                if u == t:
                    seen = True
                elif accessed[u] > accessed[t] or (accessed[u] == accessed[t] and not seen):
                    depth += size[u]
            at = 0
            room = capacity[0]
            while depth > room and at < levels - 1:
                at += 1
                room += capacity[at]
            paid = size[t] * read_price[at]
            energy += paid
            by_level[at] += paid
            by_tensor[t] += paid
            accessed[t] = step
        for k in range(w_start[op], w_start[op + 1]):
            t = w_items[k]
            at = 0
            while size[t] > capacity[at] and at < levels - 1:
                at += 1
            paid = size[t] * write_price[at]
            energy += paid
            by_level[at] += paid
            by_tensor[t] += paid
            accessed[t] = step
            if not is_live[t]:
                is_live[t] = True
                live[count] = t
                count += 1
        kept = 0
        for j in range(count):
            t = live[j]
            stays = initial[t] or last_read[t] > s
            for k in range(w_start[op], w_start[op + 1]):
                stays = stays or w_items[k] == t
            if stays:
                live[kept] = t
                kept += 1
            else:
                is_live[t] = False
        count = kept
        by_op[op] += energy
        if len(step_energy):
            step_energy[s] = energy
        total += energy
    return total
