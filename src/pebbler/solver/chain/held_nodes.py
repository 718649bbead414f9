"""A bound on every schedule of a chain whose nodes differ in size: what waits in fast memory takes the room that it takes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from pebbler.arrays import Floats, Ints
from pebbler.solver.chain.chain_model import Chain
from pebbler.solver.chain.kernels.segment_bound import TOPS, BoundChain, fill_tops, first_phase, segment_rows

__all__ = ["held_nodes_bound"]

# Segments x units of memory: 400 MB; and x nodes: about half a minute.
CELLS, WORK = 100_000_000, 70_000_000_000
# Whole numbers up to these are exact in the table, of 4 bytes an entry if it is large, else of 8.
EXACT, EXACT_LARGE = 2**50, 2**24


def held_nodes_bound(
    chain: Chain, energy: float, remaining: Callable[[], float] = lambda: math.inf
) -> tuple[float, str] | None:
    """Return a lower bound on every schedule, backward steps not counted, and what it says; None without the time or room for it.

    `energy` is that of some schedule. Sizes and memory are rounded down to grains, and costs to the precision of the table.

    >>> chain = Chain((1, 3, 1, 2, 1), (0, 5, 1, 1, 2), (1,) * 5, (4,) * 5, (4,) * 5, fast=5)
    >>> held_nodes_bound(chain, 19.0)
    (14.0, 'every node that waits takes its room, every backward step its own (docs/chains.md)')
    """
    tops = chain.length
    table = (tops + 1) * (tops + 2) // 2
    units = int(min(CELLS // table, WORK // (table * max(1, tops // 3)))) - 1
    sizes, memory, exact = _grains(chain, units)
    if math.isinf(energy) or (not exact and memory < 2 * int(sizes.max())):
        return None
    large = 2 * table * (memory + 1) > CELLS
    limit = EXACT_LARGE if large else EXACT
    prices = (*chain.forward, *chain.store, *chain.load)
    whole = energy < limit and all(math.isinf(price) or price == int(price) for price in prices)
    unit = 1.0 if whole else energy / limit or 1.0
    described = _describe(chain, sizes, unit)
    bounds = segment_rows(described, np.empty((table, memory + 1), np.float32 if large else np.float64), tops)
    for top in range(1, tops + 1, TOPS):
        if remaining() <= 0:
            return None
        fill_tops(described, bounds, top)
    least = unit * first_phase(described, bounds, float(np.floor(chain.store_of_first / unit)))
    once = 0.0 if chain.adjoint else chain.forward[tops]
    start = chain.load[0] if chain.start == "slow" else 0.0
    return least + once + start, "every node that waits takes its room, every backward step its own (docs/chains.md)"


def _grains(chain: Chain, units: int) -> tuple[Ints, int, bool]:
    """Return sizes and memory in at most `units` grains, rounded down, and whether they did not have to be."""
    sizes = np.array(chain.sizes, np.int64)
    if chain.adjoint:
        sizes[-1] = sizes[0]
    grain = int(np.gcd.reduce(sizes))
    memory = min(chain.fast // grain, int(sizes.sum()) // grain)
    coarse = max(1, -(-memory // max(1, units)))
    return sizes // (grain * coarse), memory // coarse, coarse == 1


def _describe(chain: Chain, sizes: Ints, unit: float) -> BoundChain:
    """Return the chain as the recurrence wants it: node i + 1 is N_i, and costs are whole numbers of `unit`."""
    tops = chain.length

    def costs(values: tuple[float, ...]) -> Floats:
        found: Floats = np.floor(np.array(values, float) / unit)
        return found

    forward, load, store = costs((0.0, *chain.forward[1:])), costs(chain.load), costs(chain.store)
    size = np.zeros(tops + 3, np.int64)
    size[1 : tops + 2] = sizes
    never = (np.arange(tops) == 0) | np.isinf(store[:tops])
    need, third, again = np.zeros(tops + 1, np.int64), np.zeros(tops + 1, np.int64), np.zeros(tops + 1)
    if not chain.adjoint:
        need[1:] = size[1 : tops + 1] + size[2 : tops + 2]
        third[1:tops] = np.minimum(size[: tops - 1], size[3 : tops + 2])
        again[1:tops] = np.minimum(forward, load)[1:tops]
    return BoundChain(
        size,
        np.concatenate([[0.0], np.cumsum(forward)]),
        float(load[0]),
        need,
        third,
        again,
        np.concatenate([[np.inf], np.where(never, np.inf, store[:tops])]),
        np.concatenate([[np.inf], np.where(never, np.inf, load[:tops])]),
    )
