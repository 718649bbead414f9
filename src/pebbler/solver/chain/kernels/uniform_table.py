"""Least recomputation of a uniform chain, level by level, and the blue segments around it.

Lengths count from the base of a segment: length `l` means the backward steps `s + l .. s` over a red base `s`. Costs here are
whole numbers of forward steps, so nothing is rounded. `docs/chains.md` has the recurrences and their proofs; in short, with `a`
red pebbles (the base included)

    drop[a][l] = min over z of  z + drop[a-1][l-z] + best[a][z-1]      the pebble above the segment is made again
    keep[a][l] = min over z of  z + keep[a-1][l-z] + best[a][z-1]      it stays red meanwhile
    best[a][l] = min(drop[a][l], keep[a][l])

Both terms are convex in every case seen, so the best split moves by at most one when `l` grows by one. That is *checked* on
every level, not assumed: a level that fails the check is computed again by trying every split.
"""

from __future__ import annotations

import numpy as np

from pebbler.arrays import Floats, Int32s, Ints
from pebbler.compiled import kernel

__all__ = ["FAR", "blue_chain", "blue_segments", "uniform_levels"]

FAR = 1 << 60


@kernel
def _convex(values: Ints) -> bool:
    for i in range(2, values.size):
        if values[i] < FAR and values[i] - values[i - 1] < values[i - 1] - values[i - 2]:
            return False
    return True


@kernel
def _fill(length: int, guess: int, reach: int, scan: bool, inner: Ints, best: Ints) -> tuple[int, int]:
    """Return the least cost and its split; `inner` is finite up to length `reach` only (-1: everywhere)."""
    low, high = 1, length
    if reach >= 0:
        low = max(1, length - reach)
    elif not scan:
        low, high = guess, min(guess + 1, length)
    least, split = FAR, low
    for z in range(low, high + 1):
        cost = z + inner[length - z] + best[z - 1]
        if cost < least:
            least, split = cost, z
    return least, split


@kernel
def _level(
    n: int,
    scan: bool,
    adjoint: bool,
    a: int,
    drop_in: Ints,
    keep_in: Ints,
    drop: Ints,
    keep: Ints,
    drop_split: Int32s,
    keep_split: Int32s,
) -> bool:
    """Fill level `a` from level `a - 1`; return whether the convexity that the narrow search needs holds."""
    best = np.full(n, FAR, np.int64)
    for length in range(n):
        drop[length], keep[length] = FAR, FAR
        if length == 0:
            keep[0] = 0
            if not adjoint:
                drop[0] = 1
        elif adjoint:
            reach = 0 if a == 1 else -1
            keep[length], keep_split[length] = _fill(length, max(1, keep_split[length - 1]), reach, scan, keep_in, best)
        elif a >= 3:
            reach = 0 if a == 3 else -1
            drop[length], drop_split[length] = _fill(length, max(1, drop_split[length - 1]), reach, scan, drop_in, best)
            if a == 3:
                # Two slots above the base: the pebble that stays leaves room for a single step, not for a sweep.
                if length == 1:
                    keep[1], keep_split[1] = 1, 1
            else:
                reach = 1 if a == 4 else -1
                keep[length], keep_split[length] = _fill(
                    length, max(1, keep_split[length - 1]), reach, scan, keep_in, best
                )
        best[length] = min(drop[length], keep[length])
    smooth: bool = _convex(best) and _convex(drop_in) and _convex(keep_in)
    return smooth


@kernel
def uniform_levels(n: int, red: int, adjoint: bool) -> tuple[Ints, Ints, Int32s, Int32s]:
    """Return drop and keep of the top level for lengths 0..n-1, and the splits of every level.

    A negative split of `keep` says that `drop` is the better of the two there; its size is still the split of `keep`.

    `adjoint` drops the pebble above from the rules: then only `keep` is used, `red` counts checkpoints, and level 0 holds the
    running state alone.
    """
    drop_split = np.zeros((red + 1, n), np.int32)
    keep_split = np.zeros((red + 1, n), np.int32)
    drop_in, keep_in = np.full(n, FAR, np.int64), np.full(n, FAR, np.int64)
    drop, keep = np.full(n, FAR, np.int64), np.full(n, FAR, np.int64)
    bottom = 0 if adjoint else 2
    keep[0] = 0
    if not adjoint:
        drop[0] = 1
    for a in range(bottom + 1, red + 1):
        drop, drop_in = drop_in, drop
        keep, keep_in = keep_in, keep
        if not _level(n, False, adjoint, a, drop_in, keep_in, drop, keep, drop_split[a], keep_split[a]):
            _level(n, True, adjoint, a, drop_in, keep_in, drop, keep, drop_split[a], keep_split[a])
        for length in range(1, n):
            if drop[length] < keep[length]:
                keep_split[a, length] = -keep_split[a, length] if keep_split[a, length] else -1
    return drop, keep, drop_split, keep_split


@kernel
def blue_segments(compute: float, load: float, drop: Ints, keep: Ints, sweep_keeps: bool) -> tuple[Floats, Int32s]:
    """Return the cost of serving lengths 0..n-1 from a base in slow memory, and how.

    How: 0 where the base is loaded once and stays red; otherwise the split `z` up to which the loaded base is carried, negative
    when the pebble above is made again. `sweep_keeps` says whether such a sweep leaves room for the pebble above.
    """
    n = drop.size
    cost, how = np.empty(n), np.zeros(n, np.int32)
    above = drop.copy()
    if sweep_keeps:
        for length in range(n):
            above[length] = min(drop[length], keep[length])
    # For a convex `above`, a longer carry overtakes a shorter one once and for good (Galil and Park 1992), so the candidates
    # form a queue: `first[i]` is the length from which carry[i] is the best. Otherwise every carry is tried.
    reach = 0
    while reach + 1 < n and above[reach + 1] < FAR:
        reach += 1
    queued = reach == n - 1 and _convex(above)
    carry, first = np.empty(n + 1, np.int64), np.empty(n + 1, np.int64)
    head, tail = 0, 0
    for length in range(n):
        best, where = load + _price(compute, min(drop[length], keep[length])), 0
        if length > 0:
            if queued:
                while tail > head and first[tail - 1] > length:
                    low = first[tail - 1]
                    if _carried(length, low, compute, load, above, cost) > _carried(
                        carry[tail - 1], low, compute, load, above, cost
                    ):
                        break
                    tail -= 1
                low = length
                if tail > head:
                    high = n
                    low = max(length, first[tail - 1])
                    while low < high:
                        middle = (low + high) // 2
                        mine = _carried(length, middle, compute, load, above, cost)
                        if mine <= _carried(carry[tail - 1], middle, compute, load, above, cost):
                            high = middle
                        else:
                            low = middle + 1
                if low < n:
                    carry[tail], first[tail] = length, low
                    tail += 1
                while tail - head > 1 and first[head + 1] <= length:
                    head += 1
                candidate = _carried(carry[head], length, compute, load, above, cost)
                if candidate < best:
                    best, where = candidate, carry[head]
            else:
                for z in range(max(1, length - reach), length + 1):
                    candidate = _carried(z, length, compute, load, above, cost)
                    if candidate < best:
                        best, where = candidate, z
        cost[length] = best
        made_again = where > 0 and (not sweep_keeps or drop[length - where] < keep[length - where])
        how[length] = -where if made_again else where
    return cost, how


@kernel
def _carried(z: int, length: int, compute: float, load: float, above: Ints, cost: Floats) -> float:
    total: float = load + compute * z + _price(compute, above[length - z]) + cost[z - 1]
    return total


@kernel
def blue_chain(store: float, segment: Floats) -> tuple[Floats, Int32s]:
    """Return the least cost of serving 0..n steps from stored bases alone, and the length of the topmost segment.

    Serving t steps is a sequence of segments. A length that is served more cheaply by several shorter segments is never
    needed again, in any longer sequence, so only the irreducible lengths are tried.
    """
    n = segment.size
    total, top = np.zeros(n + 1), np.zeros(n + 1, np.int32)
    irreducible, count = np.empty(n, np.int64), 0
    for t in range(1, n + 1):
        best, length = store + segment[t - 1], t
        for i in range(count):
            candidate = store + segment[irreducible[i] - 1] + total[t - irreducible[i]]
            if candidate < best:
                best, length = candidate, irreducible[i]
        total[t], top[t] = best, length
        if length == t:
            irreducible[count] = t
            count += 1
    return total, top


@kernel
def _price(compute: float, steps: int) -> float:
    return np.inf if steps >= FAR else compute * steps
