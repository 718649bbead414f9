"""Schedules of chains whose nodes differ: sizes, forward costs, load and store costs.

The recurrences are those of `pebbler.kernels.chain`, over segments (s, t) instead of lengths and over units of fast memory
instead of pebbles. Tables over segments are triangles: entry (s, t) is at `t (t + 1) / 2 + s`, so that all bases of one top lie
together. Only as many levels of values are held as the largest node has units; the splits of all levels are kept.

With nodes of equal size the splits are monotone in s and in t, because the tables satisfy the quadrangle inequality (proved in
`docs/chains.md` for the adjoint convention and checked here, level by level, for both; a level that fails is computed again
from all splits). With different sizes the same narrow search is used as a heuristic.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["blue_bases", "general_levels", "reach_table"]

# How many splits the heuristic search tries from either end of a window.
SPAN = 8
Longs = npt.NDArray[np.int64]
Shorts = npt.NDArray[np.int16]
Floats = npt.NDArray[np.float64]


@njit(cache=True)
def reach_table(size: Longs, memory: int, with_base: bool) -> npt.NDArray[np.int32]:
    """Return how far a sweep from each node gets in each amount of memory, the base kept (`with_base`) or given up."""
    n = size.size - 1
    reach = np.zeros((n + 1, memory + 1), np.int32)
    for s in range(n + 1):
        for m in range(memory + 1):
            z = reach[s, m - 1] if m > 0 else s
            while z < n:
                held = size[s] if with_base and z > s else 0
                if held + size[z] + size[z + 1] > m:
                    break
                z += 1
            reach[s, m] = z
    return reach


# Reassociating a minimum is exact, and lets the compiler use vector registers; infinities stay infinities.
@njit(cache=True, fastmath={"nnan", "nsz"})
def _least(low: int, high: int, column: int, weight: Floats, inner: Floats, row: Floats) -> tuple[float, int]:
    """Return the least of weight[z] + inner[column + z] + row[z - 1] for z in low..high, and the first z that has it."""
    least = np.inf
    for z in range(low, high + 1):
        least = min(least, weight[z] + inner[column + z] + row[z - 1])
    if least < np.inf:
        for z in range(low, high + 1):
            if weight[z] + inner[column + z] + row[z - 1] <= least:
                return least, z
    return np.inf, 0


@njit(cache=True)
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
        whole: tuple[float, int] = _least(low, high, column, weight, inner[at], rows[s])
        return whole
    cost, z = _least(low, low + SPAN, column, weight, inner[at], rows[s])
    other, y = _least(high - SPAN, high, column, weight, inner[at], rows[s])
    return (other, y) if other < cost else (cost, z)


@njit(cache=True)
def _level(
    m: int,
    adjoint: bool,
    slack: int,
    size: Longs,
    prefix: Floats,
    reach: npt.NDArray[np.int32],
    drops: Floats,
    keeps: Floats,
    best: Floats,
    below: Floats,
    drop_split: Shorts,
    keep_split: Shorts,
) -> None:
    """Fill level `m`; `slack` widens the search around the neighbours' splits, -1 tries every split."""
    n = size.size - 1
    ring = drops.shape[0]
    drop, keep = drops[m % ring], keeps[m % ring]
    for t in range(n):
        for s in range(t, -1, -1):
            at = t * (t + 1) // 2 + s
            drop[at], keep[at] = np.inf, np.inf
            drop_split[at], keep_split[at] = 0, 0
            if s == t:
                if adjoint:
                    keep[at] = 0.0
                elif size[s] + size[s + 1] <= m:
                    drop[at], keep[at] = prefix[s + 1] - prefix[s], 0.0
            elif size[s] <= m:
                column = t * (t + 1) // 2
                left, right = (t - 1) * t // 2 + s, at + 1
                inner = (m - size[s]) % ring
                if not adjoint:
                    low, high = s + 1, min(t, reach[s, m])
                    if slack >= 0 and drop_split[left] > 0 and drop_split[right] > 0:
                        low, high = max(low, drop_split[left] - slack), min(high, drop_split[right] + slack)
                    drop[at], drop_split[at] = _search(
                        slack > 0, low, high, s, column, prefix, drops, inner, best, below
                    )
                    drop[at] -= prefix[s]
                room = m if adjoint else m - size[t + 1]
                if room >= 0:
                    low, high = s + 1, t if adjoint else min(t, reach[s, room])
                    if slack >= 0 and keep_split[left] != 0 and keep_split[right] != 0:
                        low = max(low, abs(keep_split[left]) - slack)
                        high = min(high, abs(keep_split[right]) + slack)
                    keep[at], keep_split[at] = _search(
                        slack > 0, low, high, s, column, prefix, keeps, inner, best, below
                    )
                    keep[at] -= prefix[s]
                if drop[at] < keep[at]:
                    keep_split[at] = -keep_split[at] if keep_split[at] else -1
            below[at] = min(drop[at], keep[at])
            if t < best.shape[1]:
                best[s, t] = below[at]


@njit(cache=True)
def _quadrangle(table: Floats, n: int, tolerance: float) -> bool:
    for t in range(1, n - 1):
        for s in range(t):
            here, above = t * (t + 1) // 2 + s, (t + 1) * (t + 2) // 2 + s
            if table[above] < np.inf and table[here] + table[above + 1] > table[above] + table[here + 1] + tolerance:
                return False
    return True


@njit(cache=True)
def general_levels(
    size: Longs, prefix: Floats, memory: int, adjoint: bool, equal: bool, thorough: bool, tolerance: float, splits: bool
) -> tuple[Floats, Floats, Shorts, Shorts]:
    """Return drop and keep with all of the memory, and (if `splits`) the splits of every level.

    `prefix` is the cost of computing node i from node 0. `thorough` tries every split. With `equal` sizes (all 1) the result is
    exact either way.
    """
    n = size.size - 1
    cells = n * (n + 1) // 2
    ring = np.max(size[:n]) + 1
    drops, keeps = np.full((ring, cells), np.inf), np.full((ring, cells), np.inf)
    # Rows are for wide searches only: writing them misses the cache every time.
    best, below = np.full((n, 0 if equal and not thorough else n), np.inf), np.full(cells, np.inf)
    rows = memory + 1 if splits else 1
    drop_split, keep_split = np.zeros((rows, cells), np.int16), np.zeros((rows, cells), np.int16)
    reach = reach_table(size, memory, True)
    smooth = True
    for m in range(memory + 1):
        row = m if splits else 0
        slack = -1 if thorough or not smooth else 0 if equal else 1
        _level(m, adjoint, slack, size, prefix, reach, drops, keeps, best, below, drop_split[row], keep_split[row])
        if equal and not thorough:
            here = m % ring
            smooth = _quadrangle(drops[here], n, tolerance) and _quadrangle(keeps[here], n, tolerance)
            if slack >= 0 and not (smooth and _quadrangle(below, n, tolerance)):
                _level(m, adjoint, -1, size, prefix, reach, drops, keeps, best, below, drop_split[row], keep_split[row])
                smooth = False
    return drops[memory % ring], keeps[memory % ring], drop_split, keep_split


@njit(cache=True)
def blue_bases(
    size: Longs, prefix: Floats, memory: int, adjoint: bool, store: Floats, load: Floats, drop: Floats, keep: Floats
) -> tuple[Floats, Longs, Shorts]:
    """Return, for t = 0..n, the least cost of serving the steps t-1 .. 0 from stored bases; the topmost base; and how.

    How, by base x and top t: 0 where x is loaded once and stays red; otherwise the split up to which the loaded x is carried,
    negative when the node above is made again.
    """
    n = size.size - 1
    slide = reach_table(size, memory, False)
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
            # Up to `kept` a sweep that gives up x leaves room for the node above t. A longer carry overtakes a shorter one
            # once and for good (`both` satisfies the quadrangle inequality), so the search starts where it last ended.
            kept = min(t, far)
            if not adjoint:
                kept = min(kept, slide[x, memory - size[t + 1]]) if size[t + 1] <= memory else x
            carried, z = _least(start, kept, at, prefix, both, segment)
            again, y = _least(max(start, kept + 1), min(t, far), at, prefix, drop, segment)
            if again < carried:
                carried, z = again, y
            if z > 0:
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
