"""The `lru` price rule on flat arrays: how deep each touch goes, and what is read, written and written back where.

An *item* is a run of lines that is always touched whole and in the same order. All its lines then have the same depth at
every touch (the depth of the first one, which is the run's own length plus everything touched since: each line that
has moved to the top makes up for the one that is no longer above), so a run costs as much work as a single line.
"""

from __future__ import annotations

import numpy as np

from pebbler.compiled import kernel

__all__ = ["count_units", "depths", "flush", "levels", "window"]


@kernel
def depths(items, sizes, out, last):  # type: ignore[no-untyped-def]
    """Write the 1-based depth in lines at which each touch finds its item, 0 where it never was touched.

    `sizes` are the lines of each touched item. A Fenwick tree over the touches holds each item's lines at its last touch,
    whose index `last` keeps.
    """
    n = items.size
    tree = np.zeros(n + 1, np.int64)
    last[:] = -1
    total = 0
    for i in range(n):
        item = items[i]
        size = sizes[i]
        before = last[item]
        if before < 0:
            out[i] = 0
            total += size
        else:
            below = 0
            j = before
            while j > 0:
                below += tree[j]
                j &= j - 1
            out[i] = total - below
            j = before + 1
            while j <= n:
                tree[j] -= size
                j += j & -j
        j = i + 1
        while j <= n:
            tree[j] += size
            j += j & -j
        last[item] = i


@kernel
def levels(distances, reach, out):  # type: ignore[no-untyped-def]
    """Write each touch's level: the first whose `reach` (lines down to its end) holds the depth; the one after for 0."""
    bottom = reach.size
    for i in range(distances.size):
        level = bottom
        if distances[i] > 0:
            level = 0
            while level < bottom and distances[i] > reach[level]:
                level += 1
        out[i] = level


@kernel
def count_units(items, writes, units, moved, level, current, writer, amounts, fresh, author):  # type: ignore[no-untyped-def]
    """Add the units read, written and written back at each level to the three rows of `amounts`.

    `current[item]` is the deepest level with an up-to-date copy, `writer[item]` the touch that made those below it stale
    (-1: none); both are carried from call to call. A touch that finds its item at `level` has sunk it there: every level
    below `current` down to it takes the item's `moved` units. `fresh` and `author` keep both as each touch found them.
    """
    for i in range(items.size):
        item = items[i]
        at = level[i]
        fresh[i] = current[item]
        author[i] = writer[item]
        for k in range(current[item] + 1, at + 1):
            amounts[2, k] += moved[i]
        if writes[i]:
            amounts[1, 0] += units[i]
            current[item] = 0
            writer[item] = i
        else:
            amounts[0, at] += units[i]
            current[item] = max(current[item], at)


@kernel
def flush(items, sizes, moved, reach, last, current, writer, amounts, owed):  # type: ignore[no-untyped-def]
    """Write back, at the end of the window, what has sunk below its up-to-date copy by now.

    A run lies in the stack with its first line deepest, so it can span levels: level k takes the lines deeper than the
    reach of level k - 1. `owed[writer, k]` receives the units too, unless empty.
    """
    n = items.size
    above = 0
    for behind in range(n):
        i = n - 1 - behind
        item = items[i]
        if last[item] != i:
            continue
        for k in range(current[item] + 1, reach.size + 1):
            deeper = min(sizes[i], above + sizes[i] - reach[k - 1])
            if deeper > 0:
                amount = deeper * (moved[i] // sizes[i])
                amounts[2, k] += amount
                if owed.size > 0:
                    owed[writer[item], k] += amount
        above += sizes[i]


@kernel
def window(items, writes, sizes, units, moved, count, reach, steady):  # type: ignore[no-untyped-def]
    """Return the units read, written and written back at each level: the whole rule in one call, for a schedule search.

    `items` are ids below `count`, `reach` the lines down to the end of each level but the last.
    """
    n = items.size
    path = np.empty(n + count, np.int64)
    length = np.empty(n + count, np.int64)
    seen = np.zeros(count, np.bool_)
    path[:n] = items
    length[:n] = sizes
    end = n
    if steady:
        # A first touch of the next repetition finds above it whatever the other first touches left there: touches in
        # between only reorder lines that are above it anyway. So the first touches alone, appended, suffice.
        for i in range(n):
            if not seen[items[i]]:
                seen[items[i]] = True
                path[end] = items[i]
                length[end] = sizes[i]
                end += 1
    depth = np.empty(end, np.int64)
    last = np.empty(count, np.int64)
    depths(path[:end], length[:end], depth, last)
    place = n
    if steady:
        for i in range(n):
            if seen[items[i]]:
                seen[items[i]] = False
                depth[i] = depth[place]
                place += 1
    level = np.empty(n, np.int8)
    levels(depth[:n], reach, level)
    current = np.full(count, reach.size, np.int64)
    writer = np.full(count, -1, np.int64)
    amounts = np.zeros((3, reach.size + 1), np.int64)
    fresh = np.empty(n, np.int8)
    author = np.empty(n, np.int64)
    if steady:
        # Depths repeat from the second repetition on, and what a line's last write in a step leaves behind does not
        # depend on how the step began: one repetition sets the state, and every later one costs the same.
        count_units(items, writes, units, moved, level, current, writer, amounts, fresh, author)
        amounts[:] = 0
    count_units(items, writes, units, moved, level, current, writer, amounts, fresh, author)
    if not steady:
        flush(items, sizes, moved, reach, last, current, writer, amounts, np.zeros((0, 1), np.int64))
    return amounts
