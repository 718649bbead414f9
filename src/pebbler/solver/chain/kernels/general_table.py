"""Schedules of chains whose nodes differ: sizes, forward costs, load and store costs.

The recurrences are those of `uniform_table`, over segments (s, t) instead of lengths and over units of fast memory
instead of pebbles. Tables over segments are triangles: entry (s, t) is at `t (t + 1) / 2 + s`, so that all bases of one top lie
together. Only as many levels of values are held as the largest node has units; the splits of all levels are kept.

With nodes of equal size the splits are monotone in s and in t, because the tables satisfy the quadrangle inequality (proved in
`docs/chains.md` for the adjoint convention and checked here, level by level, for both; a level that fails is computed again
from all splits). With different sizes the same narrow search is used as a heuristic.

Nodes here may also be *some* nodes of a longer chain, those that may be left red between long sweeps. What lies between is then
told by `Leaves`: how much room a sweep to the next node takes, and what short segments cost by units of memory.
`plain_leaves` gives them where nothing lies between, `band_leaves` where something does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pebbler.arrays import Floats, Int32s, Ints, Shorts
from pebbler.compiled import kernel

__all__ = ["Leaves", "band_leaves", "general_levels", "least_split", "plain_leaves", "reach_table", "stored_bases"]

# How many splits the heuristic search tries from either end of a window.
SPAN = 8


class Leaves(NamedTuple):
    """Figures of the stretches between nodes: the room of sweeps, and the cost of short segments."""

    first: Ints  # per node: the room of a sweep to the next one beside its base
    width: Ints  # per node: the room of that sweep otherwise
    near: Ints  # per base: the highest top of a short segment
    begin: Ints  # per base: the column of its first short segment
    drop: Floats  # by units of memory and column, the node above made again
    keep: Floats  # the same with the node above kept


class SegmentTables(NamedTuple):
    """Costs of segments. Of `drop` and `keep` the levels of the last few units of memory are held, in a ring."""

    drop: Floats
    keep: Floats
    best: Floats  # the cheaper of the two, by base and top
    below: Floats  # the same as a triangle


@kernel
def reach_table(size: Ints, first: Ints, width: Ints, memory: int, with_base: bool) -> Int32s:
    """Return the node that a sweep from each node reaches in each amount of memory, the base kept (`with_base`) or given up."""
    n = size.size - 1
    reach = np.zeros((n + 1, memory + 1), np.int32)
    for s in range(n + 1):
        for m in range(memory + 1):
            z = reach[s, m - 1] if m > 0 else s
            while z < n:
                room = width[z] if not with_base else first[s] if z == s else size[s] + width[z]
                if room > m:
                    break
                z += 1
            reach[s, m] = z
    return reach


@kernel
def plain_leaves(size: Ints, prefix: Floats, memory: int, adjoint: bool) -> Leaves:
    """Return the figures that `general_levels` needs of a chain of which all nodes are there: only single steps are leaves."""
    n = size.size - 1
    width = size[:-1] + size[1:]
    drop, keep = np.full((memory + 1, n), np.inf), np.full((memory + 1, n), np.inf)
    for s in range(n):
        if adjoint:
            keep[:, s] = 0.0
        elif width[s] <= memory:
            drop[width[s] :, s] = prefix[s + 1] - prefix[s]
            keep[width[s] :, s] = 0.0
    return Leaves(width, width, np.arange(n), np.arange(n), drop, keep)


@kernel
def band_leaves(
    size: Ints, prefix: Floats, memory: int, adjoint: bool, nodes: Ints, band: int
) -> tuple[Leaves, Shorts, Shorts]:
    """Return the same for chosen `nodes` (the first and the last among them), at most `band` apart, and the splits of the band.

    Segments of at most `band` steps are solved over all nodes: entry (s, t) of the splits is at `s * band + t - s`.
    """
    n, gaps = size.size - 1, nodes.size - 1
    first, width = np.zeros(gaps, np.int64), np.zeros(gaps, np.int64)
    near, begin = np.zeros(gaps, np.int64), np.zeros(gaps, np.int64)
    leaves = 0
    for a in range(gaps):
        for k in range(nodes[a], nodes[a + 1]):
            pair = size[k] + size[k + 1]
            width[a] = max(width[a], pair)
            first[a] = max(first[a], pair + (size[nodes[a]] if k > nodes[a] else 0))
        near[a] = a
        while near[a] + 1 < gaps and nodes[near[a] + 2] - nodes[a] <= band:
            near[a] += 1
        begin[a] = leaves
        leaves += near[a] - a + 1
    leaf_drop, leaf_keep = np.full((memory + 1, leaves), np.inf), np.full((memory + 1, leaves), np.inf)
    single = plain_leaves(size, prefix, memory, adjoint)
    reach = reach_table(size, single.first, single.width, memory, True)
    ring = np.max(size[:n]) + 1
    drops, keeps = np.full((ring, n * band), np.inf), np.full((ring, n * band), np.inf)
    best = np.full(n * band, np.inf)
    drop_split = np.zeros((memory + 1, n * band), np.int16)
    keep_split = np.zeros((memory + 1, n * band), np.int16)
    for m in range(memory + 1):
        drop, keep = drops[m % ring], keeps[m % ring]
        for t in range(n):
            for s in range(t, max(-1, t - band), -1):
                at = s * band + t - s
                drop[at], keep[at] = np.inf, np.inf
                if s == t:
                    drop[at], keep[at] = single.drop[m, s], single.keep[m, s]
                elif size[s] <= m:
                    inner = (m - size[s]) % ring
                    if not adjoint:
                        for z in range(s + 1, min(t, reach[s, m]) + 1):
                            cost = prefix[z] - prefix[s] + drops[inner, z * band + t - z] + best[s * band + z - 1 - s]
                            if cost < drop[at]:
                                drop[at], drop_split[m, at] = cost, z
                    room = m if adjoint else m - size[t + 1]
                    if room >= 0:
                        for z in range(s + 1, (t if adjoint else min(t, reach[s, room])) + 1):
                            cost = prefix[z] - prefix[s] + keeps[inner, z * band + t - z] + best[s * band + z - 1 - s]
                            if cost < keep[at]:
                                keep[at], keep_split[m, at] = cost, z
                if drop[at] < keep[at]:
                    keep_split[m, at] = -max(1, keep_split[m, at])
                best[at] = min(drop[at], keep[at])
        for a in range(gaps):
            for b in range(a, near[a] + 1):
                at = nodes[a] * band + nodes[b + 1] - 1 - nodes[a]
                leaf_drop[m, begin[a] + b - a], leaf_keep[m, begin[a] + b - a] = drop[at], keep[at]
    return Leaves(first, width, near, begin, leaf_drop, leaf_keep), drop_split, keep_split


# Reassociating a minimum is exact, and lets the compiler use vector registers; infinities stay infinities.
@kernel(fastmath={"nnan", "nsz"})
def least_split(low: int, high: int, column: int, weight: Floats, inner: Floats, row: Floats) -> tuple[float, int]:
    """Return the least of weight[z] + inner[column + z] + row[z - 1] for z in low..high, and the first z that has it."""
    least = np.inf
    for z in range(low, high + 1):
        least = min(least, weight[z] + inner[column + z] + row[z - 1])
    if least < np.inf:
        for z in range(low, high + 1):
            if weight[z] + inner[column + z] + row[z - 1] <= least:
                return least, z
    return np.inf, 0


@kernel
def _search(
    short: bool,
    low: int,
    high: int,
    s: int,
    column: int,
    weight: Floats,
    inner: Floats,
    at: int,
    rows: Floats,
    below: Floats,
) -> tuple[float, int]:
    """Search low..high, or only its two ends if the heuristic search is to be `short`.

    `rows` and `below` both hold the costs of the segments (s, z - 1): as rows for wide searches, as columns for narrow ones, so
    that neighbouring bases find what they need in the same few lines of the processor's cache.
    """
    if high - low < SPAN or rows.shape[1] == 0:
        least, split = np.inf, 0
        for z in range(low, high + 1):
            cost = weight[z] + inner[at, column + z] + below[(z - 1) * z // 2 + s]
            if cost < least:
                least, split = cost, z
        return least, split
    if not short or high - low < 2 * SPAN:
        whole: tuple[float, int] = least_split(low, high, column, weight, inner[at], rows[s])
        return whole
    cost, z = least_split(low, low + SPAN, column, weight, inner[at], rows[s])
    other, y = least_split(high - SPAN, high, column, weight, inner[at], rows[s])
    return (other, y) if other < cost else (cost, z)


@kernel
def _level(
    m: int,
    adjoint: bool,
    slack: int,
    size: Ints,
    prefix: Floats,
    reach: Int32s,
    leaves: Leaves,
    tables: SegmentTables,
    drop_split: Shorts,
    keep_split: Shorts,
) -> None:
    """Fill level `m`; `slack` widens the search around the neighbours' splits, -1 tries every split."""
    n = size.size - 1
    near, begin, best, below = leaves.near, leaves.begin, tables.best, tables.below
    leaf_drop, leaf_keep = leaves.drop[m], leaves.keep[m]
    ring = tables.drop.shape[0]
    drop, keep = tables.drop[m % ring], tables.keep[m % ring]
    for t in range(n):
        for s in range(t, -1, -1):
            at = t * (t + 1) // 2 + s
            drop[at], keep[at] = np.inf, np.inf
            drop_split[at], keep_split[at] = 0, 0
            if t <= near[s]:
                drop[at], keep[at] = leaf_drop[begin[s] + t - s], leaf_keep[begin[s] + t - s]
            elif size[s] <= m:
                column = t * (t + 1) // 2
                left, right = (t - 1) * t // 2 + s, at + 1
                inner = (m - size[s]) % ring
                if not adjoint:
                    low, high = s + 1, min(t, reach[s, m])
                    if slack >= 0 and drop_split[left] > 0 and drop_split[right] > 0:
                        low, high = max(low, drop_split[left] - slack), min(high, drop_split[right] + slack)
                    drop[at], drop_split[at] = _search(
                        slack > 0, low, high, s, column, prefix, tables.drop, inner, best, below
                    )
                    drop[at] -= prefix[s]
                room = m if adjoint else m - size[t + 1]
                if room >= 0:
                    low, high = s + 1, t if adjoint else min(t, reach[s, room])
                    if slack >= 0 and keep_split[left] != 0 and keep_split[right] != 0:
                        low = max(low, abs(keep_split[left]) - slack)
                        high = min(high, abs(keep_split[right]) + slack)
                    keep[at], keep_split[at] = _search(
                        slack > 0, low, high, s, column, prefix, tables.keep, inner, best, below
                    )
                    keep[at] -= prefix[s]
                if drop[at] < keep[at]:
                    keep_split[at] = -keep_split[at] if keep_split[at] else -1
            below[at] = min(drop[at], keep[at])
            if t < best.shape[1]:
                best[s, t] = below[at]


@kernel
def _quadrangle(table: Floats, n: int, tolerance: float) -> bool:
    for t in range(1, n - 1):
        for s in range(t):
            here, above = t * (t + 1) // 2 + s, (t + 1) * (t + 2) // 2 + s
            if table[above] < np.inf and table[here] + table[above + 1] > table[above] + table[here + 1] + tolerance:
                return False
    return True


@kernel
def general_levels(
    size: Ints,
    prefix: Floats,
    leaves: Leaves,
    memory: int,
    adjoint: bool,
    equal: bool,
    thorough: bool,
    tolerance: float,
    splits: bool,
) -> tuple[Floats, Floats, Shorts, Shorts]:
    """Return drop and keep with all of the memory, and (if `splits`) the splits of every level.

    `prefix` is the cost of computing node i from node 0, `leaves` what lies between neighbours. `thorough` tries every split.
    With `equal` sizes (all 1) the result is exact either way.
    """
    n = size.size - 1
    cells = n * (n + 1) // 2
    ring = np.max(size[:n]) + 1
    drops, keeps = np.full((ring, cells), np.inf), np.full((ring, cells), np.inf)
    # Rows are for wide searches only: writing them misses the cache every time.
    best, below = np.full((n, 0 if equal and not thorough else n), np.inf), np.full(cells, np.inf)
    rows = memory + 1 if splits else 1
    drop_split, keep_split = np.zeros((rows, cells), np.int16), np.zeros((rows, cells), np.int16)
    tables = SegmentTables(drops, keeps, best, below)
    reach = reach_table(size, leaves.first, leaves.width, memory, True)
    smooth = True
    for m in range(memory + 1):
        row = m if splits else 0
        slack = -1 if thorough or not smooth else 0 if equal else 1
        _level(m, adjoint, slack, size, prefix, reach, leaves, tables, drop_split[row], keep_split[row])
        if equal and not thorough:
            here = m % ring
            smooth = _quadrangle(drops[here], n, tolerance) and _quadrangle(keeps[here], n, tolerance)
            if slack >= 0 and not (smooth and _quadrangle(below, n, tolerance)):
                _level(m, adjoint, -1, size, prefix, reach, leaves, tables, drop_split[row], keep_split[row])
                smooth = False
    return drops[memory % ring], keeps[memory % ring], drop_split, keep_split


# Bases that the first sweep stores -------------------------------------------------------------------------------------


@kernel
def stored_bases(
    size: Ints,
    prefix: Floats,
    width: Ints,
    memory: int,
    adjoint: bool,
    store: Floats,
    load: Floats,
    drop: Floats,
    keep: Floats,
    monotone: bool,
) -> tuple[Floats, Ints, Shorts]:
    """Return, for t = 0..n, the least cost of serving the steps t-1 .. 0 from stored bases; the topmost base; and how.

    How, by base x and top t: 0 where x is loaded once and stays red; otherwise the split up to which the loaded x is carried,
    negative when the node above is made again.
    """
    n = size.size - 1
    slide = reach_table(size, width, width, memory, False)
    how = np.zeros((n, n), np.int16)
    total, base = np.full(n + 1, np.inf), np.full(n + 1, -1, np.int64)
    total[0] = 0.0
    both = np.minimum(drop, keep)
    segment = np.empty(n)
    # Bases from the bottom up: total[x] is final before x is tried, because it takes only bases below x.
    for x in range(n):
        if total[x] == np.inf or store[x] == np.inf or load[x] == np.inf:
            continue
        start = x + 1
        far = n if adjoint else slide[x, memory]
        for t in range(x, n):
            at = t * (t + 1) // 2
            least, split = both[at + x], 0
            # Up to `kept` a sweep that gives up x leaves room for the node above t. If `monotone`, a longer carry overtakes a
            # shorter one once and for good (`both` satisfies the quadrangle inequality): the search starts where it last ended.
            kept = min(t, far)
            if not adjoint:
                kept = min(kept, slide[x, memory - size[t + 1]]) if size[t + 1] <= memory else x
            carried, z = least_split(start, kept, at, prefix, both, segment)
            again, y = least_split(max(start, kept + 1), min(t, far), at, prefix, drop, segment)
            if again < carried:
                carried, z = again, y
            if z > 0:
                if monotone:
                    start = z
                if carried - prefix[x] < least:
                    least = carried - prefix[x]
                    split = z if z <= kept and keep[at + z] <= drop[at + z] else -z
            segment[t] = load[x] + least
            how[x, t] = split
            cost = total[x] + store[x] + segment[t]
            if cost < total[t + 1]:
                total[t + 1], base[t + 1] = cost, x
    return total, base, how
