"""The `lru` price rule on flat arrays: how deep each touch goes, and what is read, written and written back where.

A touch is of a *run* of lines that is always touched whole and in the same order. All its lines then have the same depth at
every touch (the depth of the first one, which is the run's own length plus everything touched since: each line that
has moved to the top makes up for the one that is no longer above), so a run costs as much work as a single line.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pebbler.arrays import Array
from pebbler.compiled import inner_kernel, kernel

__all__ = ["Charges", "Runs", "charge", "count_units", "cut_runs", "depths", "levels", "window"]


class Runs(NamedTuple):
    """Touches of runs in order; any two touches are of the same lines, or share none."""

    item: Array  # which run, ids from 0
    write: Array
    lines: Array
    units: Array  # that the touch is priced for
    items: int  # how many ids there are, at most
    line: int  # units of a line: what writing it back moves


class Charges(NamedTuple):
    """The movement in a window; without detail the last four arrays are empty."""

    units: Array  # three rows, a column per level: read, written, written back
    level: Array  # per touch: where it finds its run
    fresh: Array  # per touch: the deepest level with an up-to-date copy just before
    author: Array  # per touch: the touch that wrote the run last, -1: none
    owed: Array  # per touch and level: units of it that are written back when the window ends


@kernel
def cut_runs(where, lines, units, write, line):  # type: ignore[no-untyped-def]
    """Return touches of lines `where` to `where + lines` cut into `Runs`, the touch of each, and the first line of each id."""
    count = len(where)
    edges = np.empty(2 * count, np.int64)
    for i in range(count):
        edges[2 * i] = where[i]
        edges[2 * i + 1] = where[i] + lines[i]
    edges = np.sort(edges)
    bounds = 0
    for i in range(2 * count):
        if bounds == 0 or edges[i] != edges[bounds - 1]:
            edges[bounds] = edges[i]
            bounds += 1
    edges = edges[:bounds]
    low = np.empty(count, np.int64)
    pieces = 0
    for i in range(count):
        j = _index(edges, where[i])
        low[i] = j
        while edges[j] < where[i] + lines[i]:
            j += 1
        pieces += j - low[i]
    item, touch = np.empty(pieces, np.int64), np.empty(pieces, np.int64)
    length, priced = np.empty(pieces, np.int64), np.empty(pieces, np.int64)
    wrote = np.empty(pieces, np.bool_)
    p = 0
    for i in range(count):
        j = low[i]
        while edges[j] < where[i] + lines[i]:
            item[p] = j
            touch[p] = i
            wrote[p] = write[i]
            length[p] = edges[j + 1] - edges[j]
            priced[p] = min(units[i] - (edges[j] - where[i]) * line, length[p] * line)
            p += 1
            j += 1
    return Runs(item, wrote, length, priced, bounds, line), touch, edges


@inner_kernel
def _index(numbers, number):  # type: ignore[no-untyped-def]
    """Return the index of a number in a rising array that contains it."""
    low, high = 0, len(numbers) - 1
    while low < high:
        middle = (low + high) >> 1
        if numbers[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def window(runs, reach, steady, detail):  # type: ignore[no-untyped-def]
    """Return the charges of a window that starts cold, or of one repetition of an endless loop (`steady`).

    `reach` are the lines down to the end of each level but the last.
    """
    item, lines = runs.item, runs.lines
    n = len(item)
    last = np.empty(runs.items, np.int64)
    if not steady:
        depth = np.empty(n, np.int64)
        depths(item, lines, depth, last)
        return charge(runs, depth, last, reach, steady, detail)
    # A first touch of the next repetition finds above it whatever the other first touches left there: touches in
    # between only reorder lines that are above it anyway. So the first touches alone, appended, suffice.
    path = np.empty(n + runs.items, np.int64)
    length = np.empty(n + runs.items, np.int64)
    seen = np.zeros(runs.items, np.bool_)
    end = n
    for i in range(n):
        path[i] = item[i]
        length[i] = lines[i]
        if not seen[item[i]]:
            seen[item[i]] = True
            path[end] = item[i]
            length[end] = lines[i]
            end += 1
    depth = np.empty(end, np.int64)
    depths(path[:end], length[:end], depth, last)
    again = n
    for i in range(n):
        if seen[item[i]]:
            seen[item[i]] = False
            depth[i] = depth[again]
            again += 1
    return charge(runs, depth[:n], last, reach, steady, detail)


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


@inner_kernel
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
def charge(runs, depth, last, reach, steady, detail):  # type: ignore[no-untyped-def]
    """Return the charges of a window whose depths are known; `last` is the last touch of each item."""
    n = len(runs.item)
    level = np.empty(n, np.int8)
    levels(depth, reach, level)
    current = np.full(runs.items, reach.size, np.int64)
    writer = np.full(runs.items, -1, np.int64)
    noted = n if detail else 0
    fresh, author = np.empty(noted, np.int8), np.empty(noted, np.int64)
    owed = np.zeros((noted, reach.size + 1), np.int64)
    units = np.zeros((3, reach.size + 1), np.int64)
    if steady:
        # Depths repeat from the second repetition on, and what a line's last write in a step leaves behind does not
        # depend on how the step began: one repetition sets the state, and every later one costs the same.
        count_units(runs, level, current, writer, units, fresh, author)
        units[:] = 0
    count_units(runs, level, current, writer, units, fresh, author)
    if not steady:
        _flush(runs, reach, last, current, writer, units, owed)
    return Charges(units, level, fresh, author, owed)


@inner_kernel
def count_units(runs, level, current, writer, units, fresh, author):  # type: ignore[no-untyped-def]
    """Add the units read, written and written back at each level to the three rows of `units`.

    `current[item]` is the deepest level with an up-to-date copy, `writer[item]` the touch that made those below it stale
    (-1: none); both are carried from call to call. A touch that finds its item at `level` has sunk it there: every level
    below `current` down to it takes the whole run. `fresh` and `author` keep both as each touch found them, unless empty.
    """
    noted = len(fresh) > 0
    for i in range(len(runs.item)):
        item = runs.item[i]
        at = level[i]
        if noted:
            fresh[i] = current[item]
            author[i] = writer[item]
        for k in range(current[item] + 1, at + 1):
            units[2, k] += runs.lines[i] * runs.line
        if runs.write[i]:
            units[1, 0] += runs.units[i]
            current[item] = 0
            writer[item] = i
        else:
            units[0, at] += runs.units[i]
            current[item] = max(current[item], at)


@inner_kernel
def _flush(runs, reach, last, current, writer, units, owed):  # type: ignore[no-untyped-def]
    """Write back, at the end of the window, what has sunk below its up-to-date copy by now.

    A run lies in the stack with its first line deepest, so it can span levels: level k takes the lines deeper than the
    reach of level k - 1. `owed[writer, k]` receives the units too, unless empty.
    """
    n = len(runs.item)
    above = 0
    for behind in range(n):
        i = n - 1 - behind
        item = runs.item[i]
        if last[item] != i:
            continue
        for k in range(current[item] + 1, reach.size + 1):
            deeper = min(runs.lines[i], above + runs.lines[i] - reach[k - 1])
            if deeper > 0:
                units[2, k] += deeper * runs.line
                if owed.size > 0:
                    owed[writer[item], k] += deeper * runs.line
        above += runs.lines[i]
