"""Times between two first runs that touch one value, and what else is touched then for the first time at the latest.

Ops are placed beside one path through the graph: `low` is the last op of the path that comes before an op, `high` the first one
that comes after it, as places on the path. So an op comes after another where its `low` is not before the other's `high`.
"""

from __future__ import annotations

import numpy as np

from pebbler.arrays import Floats, Ints
from pebbler.compiled import kernel

__all__ = ["sum_in_windows", "touch_windows"]


@kernel
def touch_windows(
    maker: Ints, start: Ints, readers: Ints, low: Ints, high: Ints, own: Floats
) -> tuple[Ints, Ints, Floats]:
    """Return windows: the value, the ops that begin and end them; how many first reads may be in each; and what its readers own.

    Windows of a value follow one another: each begins with an op that touches it, and ends with a reader that comes after that
    op. First reads count where the reader may run in the window, that of its end too; `own` is summed up for all but its end.
    """
    windows, number = np.empty((len(readers), 3), np.int64), 0
    reads, owned = np.empty(len(readers), np.int64), np.empty(len(readers))
    for v in range(len(start) - 1):
        row = readers[start[v] : start[v + 1]]
        if len(row) == 0:
            continue
        ends, begins = row[np.argsort(high[row])], row[np.argsort(low[row])]
        last, gone, still = maker[v], 0, 0  # how many readers come before the window, and how many begin before its end
        over, open_ = 0.0, 0.0  # what they own
        for k in range(len(row)):
            op = row[k]
            if last < 0:
                last = op
                continue
            if high[last] > low[op]:
                continue
            while gone < len(row) and high[ends[gone]] <= low[last]:
                over += own[ends[gone]]
                gone += 1
            while still < len(row) and low[begins[still]] < high[op]:
                open_ += own[begins[still]]
                still += 1
            count, total = still - gone, open_ - over - own[op]
            if last != maker[v]:
                count, total = count - 1, total - own[last]
            windows[number, 0], windows[number, 1], windows[number, 2] = v, last, op
            reads[number], owned[number] = count, total
            number += 1
            last = op
    return windows[:number], reads[:number], owned[:number]


@kernel
def sum_in_windows(thing: Ints, low: Ints, high: Ints, size: Floats, first: Ints, last: Ints, length: int) -> Floats:
    """Return per window from `first` to `last` the sizes of all things that are touched from `low` to `high` within it.

    Touches come in ascending order of `high`, windows of `last`; a thing counts once, however often it is touched.
    """
    latest = np.full(len(size), -1, np.int64)
    tree, found = np.zeros(length + 2), np.zeros(len(first))
    total, at = 0.0, 0
    for w in range(len(first)):
        while at < len(thing) and high[at] <= last[w]:
            t = thing[at]
            if low[at] > latest[t]:
                if latest[t] >= 0:
                    total -= size[t]
                    j = latest[t] + 1
                    while j <= length:
                        tree[j] -= size[t]
                        j += j & -j
                latest[t] = low[at]
                total += size[t]
                j = low[at] + 1
                while j <= length:
                    tree[j] += size[t]
                    j += j & -j
            at += 1
        before, j = 0.0, first[w]  # those whose latest touch begins before the window
        while j > 0:
            before += tree[j]
            j &= j - 1
        found[w] = total - before
    return found
