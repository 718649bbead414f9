"""A bound on every schedule of a chain whose nodes differ in size: what waits in fast memory takes the room that it takes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from pebbler.arrays import Floats, Ints
from pebbler.solver.chain.chain_model import Chain
from pebbler.solver.chain.kernels.group_bound import close_groups, fill_node, group_tables
from pebbler.solver.chain.kernels.segment_bound import TOPS, BoundChain, fill_tops, first_phase, segment_rows

__all__ = ["describe", "held_nodes_bound"]

_PROOF = "every node that waits takes its room, every backward step its own (docs/chains.md)"

# Segments x units of memory: 400 MB; and x nodes: about half a minute.
CELLS, WORK = 100_000_000, 70_000_000_000
# Of short chains, node by node: segments x units, in four tables; and x segments: some seconds.
SHORT_CELLS, SHORT_WORK = 10_000_000, 5_000_000_000
FINE = 100  # grains below which that is not worth the while, unless sizes come out exactly
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
    if math.isinf(energy):
        return None
    once = 0.0 if chain.adjoint else chain.forward[chain.length]
    once += chain.load[0] if chain.start == "slow" else 0.0
    by_segments = _bound_by_segments(chain, energy, remaining)
    if by_segments is not None and by_segments + once >= energy:
        return by_segments + once, _PROOF
    by_groups = _bound_by_groups(chain, energy, remaining)
    found = [bound for bound in (by_segments, by_groups) if bound is not None]
    return (max(found) + once, _PROOF) if found else None


def _bound_by_segments(chain: Chain, energy: float, remaining: Callable[[], float]) -> float | None:
    tops = chain.length
    segments = (tops + 1) * (tops + 2) // 2
    sizes, memory, _ = _grains(chain, min(CELLS // segments, WORK // (segments * max(1, tops // 3))) - 1)
    if not sizes.any():  # grains so coarse that nothing is left of the sizes
        return None
    large = 2 * segments * (memory + 1) > CELLS
    unit = _unit(chain, energy, EXACT_LARGE if large else EXACT)
    described = describe(chain, sizes, unit)
    bounds = segment_rows(described, np.empty((segments, memory + 1), np.float32 if large else np.float64), tops)
    for top in range(1, tops + 1, TOPS):
        if remaining() <= 0:
            return None
        fill_tops(described, bounds, top)
    return unit * float(first_phase(described, bounds, float(np.floor(chain.store_of_first / unit))))


def _bound_by_groups(chain: Chain, energy: float, remaining: Callable[[], float]) -> float | None:
    tops, pairs = chain.length, (chain.length + 1) ** 2
    sizes, memory, exact = _grains(chain, min(SHORT_CELLS // pairs, 24 * SHORT_WORK // pairs**2) - 1)
    if tops == 1 or not (exact or memory >= FINE):
        return None
    unit = _unit(chain, energy, EXACT)
    described, tables = describe(chain, sizes, unit), group_tables(tops, memory + 1)
    for node in range(tops, 0, -1):
        if remaining() <= 0:
            return None
        fill_node(described, tables, node)
    return unit * float(close_groups(described, tables, float(np.floor(chain.store_of_first / unit))))


def _unit(chain: Chain, energy: float, limit: int) -> float:
    """Return the unit of which costs are whole numbers, or are rounded down to some."""
    prices = (*chain.forward, *chain.store, *chain.load)
    if energy < limit and all(math.isinf(price) or price == int(price) for price in prices):
        return 1.0
    return energy / limit or 1.0


def _grains(chain: Chain, units: int) -> tuple[Ints, int, bool]:
    """Return sizes and memory in at most `units` grains, rounded down, and whether they did not have to be."""
    sizes = np.array(chain.sizes, np.int64)
    if chain.adjoint:
        sizes[-1] = sizes[0]
    grain = int(np.gcd.reduce(sizes))
    memory = min(chain.fast // grain, int(sizes.sum()) // grain)
    coarse = max(1, -(-memory // max(1, units)))
    return sizes // (grain * coarse), memory // coarse, coarse == 1


def describe(chain: Chain, sizes: Ints, unit: float) -> BoundChain:
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
