"""List scheduling for caches: run next what finds its operands nearest.

Going back the way one came is then no special case: after a sweep over tiles the most recent tile is the nearest.
"""

from __future__ import annotations

import numpy as np

from pebbler.arrays import Array
from pebbler.compiled import kernel
from pebbler.solver.kernels.ready_nodes import first_ready, run_ready

__all__ = ["BY_PRICE", "BY_RECENCY", "nearest_order"]

BY_RECENCY = 0  # the node whose least recent operand is the most recent
BY_PRICE = 1  # the node that reads at the lowest price per unit, then as above


@kernel
def nearest_order(
    rule: int, before: Array, after_start: Array, after: Array,
    t_start: Array, t_storage: Array, t_outside: Array,
    size: Array, touched: Array, by_touch: Array, reach: Array, price: Array,
) -> Array:  # fmt: skip
    """Return an order of the nodes; `before` counts what each waits for, `touched` is each storage's last touch.

    Node i touches `t_storage[t_start[i]:t_start[i + 1]]`; `t_outside` marks operands that it does not make itself.
    Touches are numbered from 1, and those before the schedule are not above 0 (their order counts, not their size);
    `by_touch` are the storages, latest first, and is kept so.
    """
    n = len(before)
    waits = before.copy()
    ready = np.empty(n, np.int64)
    order = np.empty(n, np.int64)
    count = first_ready(waits, ready)
    depth = np.zeros(len(size), np.int64)
    latest = 0
    for step in range(n):
        if rule == 1:
            total = 0
            for root in by_touch:
                total += size[root]
                depth[root] = total
        best = -1
        best_price = 0.0
        best_recent = 0
        for i in range(count):
            node = ready[i]
            recent = latest + 1
            paid, units = 0.0, 0
            for k in range(t_start[node], t_start[node + 1]):
                if not t_outside[k]:
                    continue
                root = t_storage[k]
                recent = min(recent, touched[root])
                if rule == 1:
                    level = 0
                    while level < len(reach) and depth[root] > reach[level]:
                        level += 1
                    paid += price[level] * size[root]
                    units += size[root]
            if units > 0:
                paid /= units
            if best < 0 or (paid, -recent, node) < (best_price, -best_recent, ready[best]):
                best, best_price, best_recent = i, paid, recent
        node = ready[best]
        count = run_ready(best, ready, count, waits, after_start, after)
        order[step] = node
        for k in range(t_start[node], t_start[node + 1]):
            latest += 1
            root = t_storage[k]
            touched[root] = latest
            if rule == 1:
                j = 0
                while by_touch[j] != root:
                    j += 1
                for m in range(j, 0, -1):
                    by_touch[m] = by_touch[m - 1]
                by_touch[0] = root
    return order
