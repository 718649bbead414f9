"""A bound on every schedule of a chain whose nodes differ in size, from the room of the nodes that wait in fast memory."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from pebbler.arrays import Floats, Ints
from pebbler.solver.chain.chain_model import Chain
from pebbler.solver.chain.kernels.bound_tables import BLOCK, TOPS, BoundChain, Waiting, segment_tables, table_rows
from pebbler.solver.chain.kernels.segment_bound import bound_of_all, fill_block

__all__ = ["describe", "held_nodes_bound", "waiting_nodes"]

_PROOF = "every node that waits takes its room, every run and every backward step its own (docs/chains.md)"

# Segments x units of memory: 700 MB, in two tables if nodes can be loaded; and x nodes x nodes that may wait for each: about
# half a minute.
CELLS, WORK = 170_000_000, 140_000_000_000
# Units of memory beyond which finer grains say little more, and nodes that may wait for one.
FINEST, MOST_WAITING = 2000, 8
# Whole numbers up to these are exact in the table, of 8 bytes an entry or of 4. The latter are twice as fast, once there are some.
EXACT, EXACT_SMALL, SOME = 2**50, 2**24, 1_000_000


def held_nodes_bound(
    chain: Chain, energy: float, remaining: Callable[[], float] = lambda: math.inf
) -> tuple[float, str] | None:
    """Return a lower bound on every schedule, backward steps not counted, and its words; None without the time or room for it.

    `energy` is that of some schedule. Sizes and memory are rounded down to grains, and costs to the precision of the table.

    >>> chain = Chain((1, 3, 1, 2, 1), (0, 5, 1, 1, 2), (1,) * 5, (4,) * 5, (4,) * 5, fast=5)
    >>> held_nodes_bound(chain, 19.0)[0]
    14.0
    """
    if math.isinf(energy):
        return None
    tops = chain.length
    segments = (tops + 1) * (tops + 2) // 2
    loads = any(map(math.isfinite, (a + b for a, b in zip(chain.store[1:tops], chain.load[1:tops], strict=True))))
    tables, triples = 2 if loads else 1, segments * max(1, tops // 3)
    sizes, memory = _grains(chain, min(FINEST, CELLS // (tables * segments) - 1, WORK // (2 * triples) - 1))
    if not sizes.any():  # grains so coarse that nothing is left of the sizes
        return None
    entries, unit = segments * (memory + 1), _unit(chain, energy, EXACT_SMALL)
    small = 2 * tables * entries > CELLS or (entries > SOME and unit == 1.0)
    unit = unit if small else _unit(chain, energy, EXACT)
    described = describe(chain, sizes, unit)
    waiting = waiting_nodes(described.size, tops, min(MOST_WAITING, WORK // (tables * triples * (memory + 1))))
    kind = np.float32 if small else np.float64
    beside = memory - int(sizes[0])  # N_0; where it cannot be stored, that is all there is
    units = 1 + (memory if math.isfinite(chain.store_of_first + chain.load[0]) else max(0, beside))
    rows = table_rows(tops) * units
    swept, loaded = np.empty((rows, TOPS), kind), np.empty((rows if loads else 0, TOPS), kind)
    bounds = segment_tables(described, waiting, swept, loaded, units)
    for low in range(tops // BLOCK * BLOCK, -1, -BLOCK):
        if remaining() <= 0:
            return None
        fill_block(described, waiting, bounds, low, min(tops, low + BLOCK - 1))
    found = unit * float(bound_of_all(described, bounds, float(np.floor(chain.store_of_first / unit)), beside))
    once = 0.0 if chain.adjoint else chain.forward[chain.length]
    once += chain.load[0] if chain.start == "slow" else 0.0
    return found + once, _PROOF


def waiting_nodes(size: Ints, tops: int, most: int) -> Waiting:
    """Return the nodes that may wait for each node: itself, and lower nodes smaller than all between them and it.

    Where that is more than `most`, neighbours are taken together: the room of the smallest, as near as the highest.

    >>> waiting_nodes(np.array([0, 1, 2, 1, 3, 4]), 5, 9).node.tolist()
    [0, 1, 2, 1, 3, 4, 3, 5, 4, 3]
    >>> waiting = waiting_nodes(np.array([0, 1, 2, 1, 3, 4]), 5, 2)
    >>> waiting.node[waiting.begin[5] :].tolist(), waiting.size[waiting.begin[5] :].tolist()
    ([5, 4], [4, 1])
    """
    begin, nodes, sizes = [0, 1], [0], [0]
    smaller = [0] * (tops + 1)
    for e in range(1, tops + 1):
        below = e - 1
        while below > 0 and size[below] >= size[e]:
            below = smaller[below]
        smaller[e] = below
        lower = []
        while below > 0:
            lower.append(below)
            below = smaller[below]
        parts = [part for part in np.array_split(lower, max(2, most) - 1) if len(part)]
        nodes += [e, *(int(part[0]) for part in parts)]
        sizes += [int(size[e]), *(int(size[part[-1]]) for part in parts)]
        begin.append(len(nodes))
    return Waiting(*(np.array(values, np.int64) for values in (begin, nodes, sizes)))


def _unit(chain: Chain, energy: float, limit: int) -> float:
    """Return the unit of which costs are whole numbers, or are rounded down to some."""
    prices = (*chain.forward, *chain.store, *chain.load)
    if energy < limit and all(math.isinf(price) or price == int(price) for price in prices):
        return 1.0
    return energy / limit or 1.0


def _grains(chain: Chain, units: int) -> tuple[Ints, int]:
    """Return sizes and memory in at most `units` grains, rounded down."""
    sizes = np.array(chain.sizes, np.int64)
    if chain.adjoint:
        sizes[-1] = sizes[0]
    grain = int(np.gcd.reduce(sizes))
    memory = min(chain.fast // grain, int(sizes.sum()) // grain)
    coarse = max(1, -(-memory // max(1, units)))
    return sizes // (grain * coarse), memory // coarse


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
    store, load_again = np.where(never, np.inf, store[:tops]), np.where(never, np.inf, load[:tops])
    above, again, pair = np.zeros(tops + 2, np.int64), np.zeros(tops + 1), np.zeros(tops + 2, np.int64)
    if not chain.adjoint:
        above[:] = size[1:]
        pair[1:] = size[: tops + 1] + size[1 : tops + 2]
        again[1:tops] = np.minimum(forward[:tops], load_again)[1:]
    return BoundChain(
        size,
        pair,
        np.concatenate([[0.0], np.cumsum(forward)]),
        float(load[0]),
        np.concatenate([[0], pair[2:]]),
        above,
        again,
        np.concatenate([[np.inf], store]),
        np.concatenate([[np.inf], load_again]),
    )
