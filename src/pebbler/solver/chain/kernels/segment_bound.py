"""A lower bound on every schedule of a chain whose nodes differ, from a recurrence over groups of backward steps (docs/chains.md).

A *group* (e, t) are the backward steps t .. e, whose nodes come from one root but for those that loads bring. With m units it costs
at least what is in row `begin[i] + width[i] m + e` of the tables, i = t // TOPS, beside the run that makes e. Meanwhile e waits, or
a smaller node below it from which e is made later. What such a *waiting* node serves is a path through groups, in `path`. All costs
are added and compared only, so that whole numbers stay exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pebbler.arrays import Ints
from pebbler.compiled import kernel
from pebbler.solver.chain.kernels.bound_tables import TOPS, BoundChain, SegmentBounds, Waiting

__all__ = ["bound_of_all", "fill_block"]


# Reassociating a minimum is exact, and lets the compiler use vector registers; eight sums are kept there.
@kernel(fastmath={"nnan", "nsz"}, _nrt=False, no_cpython_wrapper=True)
def _lower_column(
    least: npt.NDArray[Any],
    table: npt.NDArray[Any],
    row: int,
    m: int,
    nodes: Ints,
    count: int,
    price: npt.NDArray[Any],
    way: Any,
    path: npt.NDArray[Any],
) -> None:
    """Lower the tops at hand, for one waiting node and m units, by the groups of the first `count` nodes."""
    a0, a1, a2, a3, a4, a5, a6, a7 = (
        least[m, 0],
        least[m, 1],
        least[m, 2],
        least[m, 3],
        least[m, 4],
        least[m, 5],
        least[m, 6],
        least[m, 7],
    )
    for i in range(count):
        g = nodes[i]
        cost = way + price[g] + path[g - 1]
        a0 = min(a0, cost + table[row + g, 0])
        a1 = min(a1, cost + table[row + g, 1])
        a2 = min(a2, cost + table[row + g, 2])
        a3 = min(a3, cost + table[row + g, 3])
        a4 = min(a4, cost + table[row + g, 4])
        a5 = min(a5, cost + table[row + g, 5])
        a6 = min(a6, cost + table[row + g, 6])
        a7 = min(a7, cost + table[row + g, 7])
    least[m, 0], least[m, 1], least[m, 2], least[m, 3] = a0, a1, a2, a3
    least[m, 4], least[m, 5], least[m, 6], least[m, 7] = a4, a5, a6, a7


@kernel
def _lower_far(bounds: SegmentBounds, way: npt.NDArray[Any], prefix: npt.NDArray[Any], high: int, tile: int) -> None:
    """Lower all tops of a tile, for all waiting nodes of the block, by the groups of the nodes above `high` and below the tile."""
    free, nodes = np.zeros_like(prefix), bounds.useful
    for m in range(bounds.path.shape[1]):
        found, row = 0, bounds.begin[tile] + m * bounds.width[tile]
        for g in range(high + 1, tile * TOPS):
            if bounds.last[m, g] >= tile * TOPS:
                nodes[found] = g
                found += 1
        for w in range(way.size):
            least, path, count, end = bounds.least[w], bounds.path[w, m], 0, found
            while count < end:  # how many of them a run has the room to reach
                middle = (count + end) // 2
                if bounds.room[w, nodes[middle]] <= m:
                    count = middle + 1
                else:
                    end = middle
            _lower_column(least, bounds.swept, row, m, nodes, count, prefix, way[w], path)
            if bounds.loaded.size > 0:
                _lower_column(least, bounds.loaded, row, m, nodes, found, free, free[0], path)


@kernel
def _lower_near(bounds: SegmentBounds, w: int, k: int, price: Any, g: int, t: int) -> None:
    """Lower top t, the k-th of its tile, of one waiting node by the group of node g."""
    path, least, row, width = bounds.path, bounds.least, bounds.begin[t // TOPS] + g, bounds.width[t // TOPS]
    for m in range(bounds.room[w, g], path.shape[1]):
        least[w, m, k] = min(least[w, m, k], price + bounds.swept[row + m * width, k] + path[w, m, g - 1])
    if bounds.loaded.size > 0:
        for m in range(path.shape[1]):
            least[w, m, k] = min(least[w, m, k], bounds.loaded[row + m * width, k] + path[w, m, g - 1])


@kernel
def _kept(chain: BoundChain, y: int, t: int, run: int) -> int:
    """Return the room in which the node above t can stay while t is made from y: after its step, or before it up to some node."""
    least, pairs, p = run, 0, t
    while p > y and pairs < least:
        least = min(least, max(pairs, chain.size[p] + chain.above[t + 1]))
        pairs = max(pairs, chain.pair[p])
        p -= 1
    return int(least + chain.above[t])


@kernel
def _lower_alone(chain: BoundChain, bounds: SegmentBounds, w: int, k: int, y: int, t: int, price: Any) -> None:
    """Lower top t by its step alone, made from y."""
    path, least = bounds.path, bounds.least
    run = bounds.room[w, t]
    kept = _kept(chain, y, t, run)
    dear = price + least.dtype.type(chain.again[t])
    for m in range(max(run, chain.need[t]), path.shape[1]):
        least[w, m, k] = min(least[w, m, k], (price if m >= kept else dear) + path[w, m, t - 1])
    if bounds.loaded.size > 0:
        row, width = bounds.begin[t // TOPS] + t, bounds.width[t // TOPS]
        for m in range(chain.need[t], path.shape[1]):
            least[w, m, k] = min(least[w, m, k], bounds.loaded[row + m * width, k] + path[w, m, t - 1])


@kernel
def _price_loads(chain: BoundChain, cheapest: float, e: int, t: int, prices: npt.NDArray[Any]) -> None:
    """Find what e costs by way of a load, by units: of e or a node below, with its share of the store for the steps t .. e."""
    prices[:] = np.inf
    prefix, store, cost = chain.prefix, chain.store, prices.dtype.type
    last, pairs = prices.size - 1, 0
    for j in range(e, 1, -1):
        steps = prefix[e] - prefix[j]
        run = max(chain.size[j] if chain.pair[j] > 0 else 0, pairs)
        if run > last or cheapest + steps >= prices[last]:
            break
        share = min(store[j], prefix[t + 1] - prefix[j]) - min(store[j], steps)
        price = cost(chain.load[j] + steps + share)
        kept = _kept(chain, j - 1, t, run) if e == t else 0
        for m in range(run, last + 1):
            prices[m] = min(prices[m], price if m >= kept else price + cost(chain.again[t]))
        pairs = max(pairs, chain.pair[j])


@kernel
def _kept_at_last(chain: BoundChain, e: int) -> int:
    """Return the room in which the node above e can stay from its step to that of e, if e is not the only step of its group."""
    return int(_kept(chain, 0, e, chain.size[e] + chain.above[e + 1]))


@kernel
def _close(chain: BoundChain, waiting: Waiting, bounds: SegmentBounds, e: int, t: int, k: int, offset: int) -> None:
    """Let nodes that wait for e give way to higher ones at top t > e, and fill in the group (e, t) beside a run to e."""
    path, least, swept, units = bounds.path, bounds.least, bounds.swept, bounds.path.shape[1]
    row, width, first = bounds.begin[t // TOPS] + e, bounds.width[t // TOPS], waiting.begin[e]
    kept, again = _kept_at_last(chain, e), swept.dtype.type(chain.again[e])
    for at in range(first, waiting.begin[e + 1]):
        w, size = at - offset, waiting.size[at]
        path[w, :, t] = least[w, :, k]
        for above in range(first, at):  # those before are larger, and nearer to e
            more = waiting.size[above] - size
            for m in range(more, units):
                path[w, m, t] = min(path[w, m, t], path[above - offset, m - more, t])
    for m in range(units):
        cost = swept.dtype.type(np.inf)
        for at in range(first, waiting.begin[e + 1]):
            if m >= max(waiting.size[at], chain.need[e]):
                cost = min(cost, path[at - offset, m - waiting.size[at], t])
        swept[row + m * width, k] = cost if m >= kept else cost + again
        if cost < np.inf and bounds.loaded.size == 0 and t < chain.need.size - 1:
            bounds.last[m, e] = t


@kernel
def _close_loads(chain: BoundChain, bounds: SegmentBounds, e: int, t: int, w: int, k: int) -> None:
    """Fill in the group (e, t) by way of a load; note where it or a run to e may be better than smaller groups by loads.

    Elsewhere no waiting node needs it: the smaller groups cost no more, and are there for every one.
    """
    row, width, kind = bounds.begin[t // TOPS] + e, bounds.width[t // TOPS], bounds.path.dtype.type
    _price_loads(chain, bounds.cheapest, e, t, bounds.prices)
    step = kind(chain.prefix[e] - chain.prefix[e - 1]) if e > 0 else kind(0.0)
    for m in range(bounds.prices.size):
        loaded = bounds.prices[m]
        if e == t:
            bounds.loaded[row + m * width, k] = loaded
            bounds.path[w, m, t] = loaded if m >= chain.need[t] else kind(np.inf)
            continue
        smaller, swept = bounds.least[w, m, k], bounds.swept[row + m * width, k]
        loaded += swept
        if min(loaded, step + swept) < smaller:
            bounds.last[m, e] = t
        bounds.loaded[row + m * width, k] = loaded
        bounds.path[w, m, t] = min(smaller, loaded)


@kernel
def _prepare(chain: BoundChain, waiting: Waiting, bounds: SegmentBounds, low: int, high: int) -> None:
    """Set the room of runs from the waiting nodes of a block, and where their paths end."""
    offset, tops = waiting.begin[low], chain.need.size - 1
    for e in range(low, high + 1):
        for at in range(waiting.begin[e], waiting.begin[e + 1]):
            y, w = waiting.node[at], at - offset
            bounds.room[w, : y + 1] = 0
            room = 0
            for g in range(y + 1, tops + 1):
                room = max(room, chain.pair[g] if g > y + 1 else min(chain.size[g], chain.pair[g]))
                bounds.room[w, g] = room
            bounds.path[w, :, :e] = np.inf
            bounds.path[w, :, e] = 0.0
        if bounds.loaded.size > 0:
            w = waiting.begin[high + 1] - offset + e - low
            bounds.room[w] = bounds.path.shape[1]
            bounds.path[w, :, :e] = np.inf
            bounds.path[w, :, max(0, e - 1)] = 0.0


@kernel
def _lower_rest(chain: BoundChain, bounds: SegmentBounds, w: int, y: int, way: Any, e: int, t: int, high: int) -> None:
    """Lower top t of one row of paths from y by the groups that were not lowered for the whole tile, and by step t alone."""
    begin, k, kind = t // TOPS * TOPS, t % TOPS, bounds.path.dtype.type
    first = t == chain.need.size - 1
    for g in range(e + 1, t):
        if first or g <= high or g >= begin:
            _lower_near(bounds, w, k, way + kind(chain.prefix[g]), g, t)
    _lower_alone(chain, bounds, w, k, y, t, way + kind(chain.prefix[t]))


@kernel
def _fill_top(
    chain: BoundChain, waiting: Waiting, bounds: SegmentBounds, low: int, high: int, t: int, way: npt.NDArray[Any]
) -> None:
    """Fill in top t of the nodes low .. high."""
    offset, first = waiting.begin[low], t == chain.need.size - 1
    held, k, row = waiting.begin[high + 1] - offset, t % TOPS, bounds.begin[t // TOPS]
    for e in range(min(high, t), low - 1, -1):
        extra = held + e - low
        if t > e:
            for at in range(waiting.begin[e], waiting.begin[e + 1]):
                _lower_rest(chain, bounds, at - offset, waiting.node[at], way[at - offset], e, t, high)
            _close(chain, waiting, bounds, e, t, k, offset)
        if bounds.loaded.size > 0 and first:
            for m in range(bounds.path.shape[1]):  # before the first backward step every node is computed
                bounds.loaded[row + m * bounds.width[t // TOPS] + e, k] = np.inf
        elif bounds.loaded.size > 0:
            if t > e:
                _lower_rest(chain, bounds, extra, 0, way[extra], e, t, high)
            _close_loads(chain, bounds, e, t, extra, k)


@kernel
def _ways(
    chain: BoundChain, waiting: Waiting, bounds: SegmentBounds, low: int, high: int, first: bool
) -> npt.NDArray[Any]:
    """Return the cost of a run to N_0 from each row of paths: negative from higher nodes."""
    offset, held = waiting.begin[low], waiting.begin[high + 1] - waiting.begin[low]
    ways = np.full(held + (high + 1 - low if bounds.loaded.size > 0 and not first else 0), np.inf, bounds.path.dtype)
    for w in range(held):
        y = waiting.node[offset + w]
        ways[w] = (chain.first if y == 0 and not first else 0.0) - chain.prefix[y]
    return ways


@kernel
def fill_block(chain: BoundChain, waiting: Waiting, bounds: SegmentBounds, low: int, high: int) -> None:
    """Fill in the groups of the nodes low .. high, at most `BLOCK`; those of higher nodes are there."""
    last = chain.need.size - 1
    _prepare(chain, waiting, bounds, low, high)
    ways, prefix = _ways(chain, waiting, bounds, low, high, False), chain.prefix.astype(bounds.path.dtype)
    for tile in range(low // TOPS, last // TOPS + 1):
        bounds.least[:] = np.inf
        _lower_far(bounds, ways, prefix, high, tile)
        for t in range(max(low, tile * TOPS), min(last, (tile + 1) * TOPS)):
            _fill_top(chain, waiting, bounds, low, high, t, ways)
    bounds.least[:] = np.inf
    if bounds.loaded.size > 0:
        bounds.room[:] = 0  # what the first sweep leaves may have been brought by loads instead
    _fill_top(chain, waiting, bounds, low, high, last, _ways(chain, waiting, bounds, low, high, True))


@kernel
def bound_of_all(chain: BoundChain, bounds: SegmentBounds, store_of_first: float, room: int) -> float:
    """Return the bound of the whole chain once nodes 0 and 1 are filled in, as the last block: N_0 stays, or it is stored.

    `room` are the units beside N_0, less than 0 if it cannot stay.
    """
    tops = chain.need.size - 1
    if tops == 1:
        return 0.0
    least = float(bounds.path[1, room, tops]) if room >= 0 else np.inf
    return min(least, store_of_first + float(bounds.path[0, bounds.path.shape[1] - 1, tops]))
