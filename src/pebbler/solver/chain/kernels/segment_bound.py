"""A lower bound on every schedule of a chain whose nodes differ, from a recurrence over segments (docs/chains.md).

Node 0 of these tables stands below the chain: it takes no room, is always there, and N_0 comes from it at the price of a load. So
node i + 1 is N_i. Entry (s, t) by units of memory is what the backward steps t .. s cost at least if s is always there and takes no
room: it is at row `begin[s] + t` of `rows`. All costs are added and compared only, so that whole numbers stay exact.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pebbler.arrays import Floats, Ints
from pebbler.compiled import kernel

__all__ = ["TOPS", "BoundChain", "SegmentBounds", "fill_tops", "first_phase", "segment_rows"]

# Tops that are filled in together, so that each row of a long table is read once for all of them.
TOPS = 4


class BoundChain(NamedTuple):
    """What the recurrence asks of a chain."""

    size: Ints
    prefix: Floats  # the cost of making each node from N_0; one entry more than nodes
    first: float  # the price of N_0 from below: a load, or infinity
    need: Ints  # per top: the room of its backward step, its node and the one above
    third: Ints  # per top: the room beyond that with which nothing has to be made again for it
    again: Floats  # per top: what the node above costs if it has to be made again
    store: Floats
    load: Floats


class SegmentBounds(NamedTuple):
    """Bounds of segments, and what all bases of one top share."""

    rows: npt.NDArray[Any]  # by segment and units of memory
    begin: Ints
    smaller: Ints  # per node: the nearest one below that is smaller, 0 if there is none
    lowest: Ints  # per node: the last of those, and of theirs
    cheapest: float  # load
    group: npt.NDArray[Any]  # per node z, of each top at hand: the backward steps down to z, with what waits meanwhile
    loaded: npt.NDArray[Any]  # per top at hand and node z: the least price of having z by way of a load
    swept: npt.NDArray[Any]  # per node: the steps from N_0


@kernel
def segment_rows(chain: BoundChain, rows: npt.NDArray[Any], tops: int) -> SegmentBounds:
    """Return tables for tops 1 .. `tops` in `rows`, which has a row per segment; nothing is filled in."""
    begin = np.zeros(tops + 1, np.int64)
    at = 0
    for s in range(tops + 1):
        begin[s] = at - s
        at += tops + 1 - s
    smaller, lowest = np.zeros(tops + 1, np.int64), np.zeros(tops + 1, np.int64)
    for z in range(1, tops + 1):
        h = z - 1
        while h > 0 and chain.size[h] >= chain.size[z]:
            h = smaller[h]
        smaller[z] = h
        lowest[z] = z if h == 0 else lowest[h]
    group = np.full((tops + 1, TOPS, rows.shape[1]), np.inf, rows.dtype)
    loaded = np.full((TOPS, tops + 1), np.inf, rows.dtype)
    swept = chain.prefix.astype(rows.dtype)
    return SegmentBounds(rows, begin, smaller, lowest, np.min(chain.load), group, loaded, swept)


@kernel
def _price_loads(chain: BoundChain, bounds: SegmentBounds, t: int, loaded: npt.NDArray[Any]) -> None:
    """Find what each node z costs by way of a load: of z or a node below, with its share of the store for the steps t .. z."""
    prefix, store = chain.prefix, chain.store
    for z in range(2, t + 1):
        least = np.inf
        for j in range(z, 1, -1):
            steps = prefix[z] - prefix[j]
            if bounds.cheapest + steps >= least:
                break
            share = min(store[j], prefix[t + 1] - prefix[j]) - min(store[j], steps)
            least = min(least, chain.load[j] + steps + share)
        loaded[z] = least


# Reassociating a minimum is exact, and lets the compiler use vector registers.
@kernel(fastmath={"nnan", "nsz"}, _nrt=False, no_cpython_wrapper=True)
def _lower(
    least: npt.NDArray[Any],
    way: Any,
    swept: npt.NDArray[Any],
    loaded: npt.NDArray[Any],
    group: npt.NDArray[Any],
    rows: npt.NDArray[Any],
    at: int,
    begin: int,
    end: int,
) -> None:
    """Lower `least`, of each top at hand, by the groups of the nodes begin .. end - 1; row `at` + z lies below z."""
    for z in range(begin, end):
        for k in range(TOPS):
            price = min(way + swept[z], loaded[k, z])
            for m in range(least.shape[1]):
                least[k, m] = min(least[k, m], price + group[z, k, m] + rows[at + z, m])


@kernel
def _wait(chain: BoundChain, bounds: SegmentBounds, z: int, t: int, k: int) -> None:
    """Set the group of z: some node h <= z waits while the steps t .. z + 1 are done; if h < z, z is made again."""
    rows, group, at = bounds.rows, bounds.group, bounds.begin[z] + t
    group[z, k, :] = np.inf
    h = z
    while h > 0:
        again = rows.dtype.type(min(chain.prefix[z] - chain.prefix[h], bounds.cheapest))
        for m in range(max(chain.size[h], chain.need[z]), rows.shape[1]):
            group[z, k, m] = min(group[z, k, m], again + rows[at, m - chain.size[h]])
        h = bounds.smaller[h]


@kernel
def _lower_near(
    chain: BoundChain, bounds: SegmentBounds, s: int, z: int, t: int, least: npt.NDArray[Any], price: Any
) -> None:
    """Lower `least` by the group of z with only nodes above s to wait."""
    rows, above, below = bounds.rows, bounds.begin[z] + t, bounds.begin[s] + z - 1
    h = z
    while h > s:
        again = price + rows.dtype.type(min(chain.prefix[z] - chain.prefix[h], bounds.cheapest))
        for m in range(max(chain.size[h], chain.need[z]), least.size):
            least[m] = min(least[m], again + rows[above, m - chain.size[h]] + rows[below, m])
        h = bounds.smaller[h]


@kernel
def _finish(
    chain: BoundChain, bounds: SegmentBounds, s: int, t: int, k: int, near: int, least: npt.NDArray[Any]
) -> None:
    """Lower `least` by the step t alone and by the groups that were not lowered for all tops together; fill in (s, t)."""
    rows, begin, cost = bounds.rows, bounds.begin, bounds.rows.dtype.type
    way = (chain.first if s == 0 else 0.0) - chain.prefix[s]
    enough = chain.need[t] + (chain.third[t] if s < t - 1 else 0)
    for m in range(chain.need[t], least.size):
        swept = way + chain.prefix[t] + (0.0 if m >= enough else chain.again[t])
        least[m] = min(least[m], cost(min(swept, bounds.loaded[k, t])) + rows[begin[s] + t - 1, m])
    z = s + 1
    while z < t:
        if z == near:  # the groups from here to t - k are done
            z = max(z, t - k)
        if z < t:
            price = cost(min(way + chain.prefix[z], bounds.loaded[k, z]))
            _lower_near(chain, bounds, s, z, t, least, price)
        z += 1
    rows[begin[s] + t] = least
    if s > 0:
        _wait(chain, bounds, s, t, k)


@kernel
def fill_tops(chain: BoundChain, bounds: SegmentBounds, top: int) -> None:
    """Fill in the segments of `TOPS` tops from `top` on; those of lower tops are there."""
    rows, begin = bounds.rows, bounds.begin
    last = begin.size - 1
    count = min(TOPS, last + 1 - top)
    least = np.empty((TOPS, rows.shape[1]), rows.dtype)
    rows[begin[0], :] = 0
    for k in range(count):
        if top + k == last:
            bounds.loaded[k, :] = np.inf  # before the first backward step every node is computed
        elif bounds.cheapest < np.inf:
            _price_loads(chain, bounds, top + k, bounds.loaded[k])
        rows[begin[top + k] + top + k, :] = 0
    for s in range(top + count - 2, -1, -1):
        least[:] = np.inf
        near = s + 1  # the first node for which all that may wait are above s; so they are for those above it
        while near < top and bounds.lowest[near] <= s:
            near += 1
        way = rows.dtype.type((chain.first if s == 0 else 0.0) - chain.prefix[s])
        _lower(least, way, bounds.swept, bounds.loaded, bounds.group, rows, begin[s] - 1, near, top)
        for k in range(max(0, s + 1 - top), count):
            _finish(chain, bounds, s, top + k, k, near, least[k])


@kernel
def first_phase(chain: BoundChain, bounds: SegmentBounds, store_of_first: float) -> float:
    """Return the bound of the whole chain from filled tables: N_0 stays in fast memory, or it is stored."""
    rows, units = bounds.rows, bounds.rows.shape[1]
    tops = bounds.begin.size - 1
    if tops == 1:
        return 0.0
    least, room = np.inf, units - 1 - chain.size[1]
    if room >= 0:
        least = float(rows[bounds.begin[1] + tops, room])
    if store_of_first + chain.first == np.inf:
        return least
    for z in range(1, tops + 1):
        if units - 1 < chain.need[z]:
            continue
        before = store_of_first + chain.prefix[z] + float(rows[bounds.begin[0] + z - 1, units - 1])
        h = z
        while h > 0:
            if z == tops:
                least = min(least, before)
            elif units - 1 >= chain.size[h]:
                again = min(chain.prefix[z] - chain.prefix[h], bounds.cheapest)
                least = min(least, before + again + float(rows[bounds.begin[z] + tops, units - 1 - chain.size[h]]))
            h = bounds.smaller[h]
    return least
