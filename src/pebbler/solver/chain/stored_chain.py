"""The schedule that stores every node once and loads it once: it fits wherever each backward step does."""

from __future__ import annotations

import math

from pebbler.solver.chain.chain_model import Chain
from pebbler.solver.chain.chain_moves import ChainMove, Recorded

__all__ = ["store_all"]


def store_all(chain: Chain) -> tuple[float, Recorded]:
    """Return the energy of that schedule, backward steps not counted, and its moves; infinity where a node cannot be stored.

    >>> energy, moves = store_all(Chain.uniform(3, red=2, io=5))
    >>> energy, moves.recorded[:4]
    (23.0, (('store', 0), ('compute', 1), ('drop', 0), ('store', 1)))
    """
    n = chain.length
    moved = range(n - 1)
    stores = [chain.store_of_first if k == 0 else chain.store[k] for k in moved]
    first = chain.load[0] if chain.start == "slow" else 0.0
    energy = first + math.fsum(stores) + math.fsum(chain.load[k] for k in moved) + math.fsum(chain.forward[1:])
    moves: list[ChainMove] = [("load", 0)] if chain.start == "slow" else []
    if n > 1 and chain.start == "fast":
        moves.append(("store", 0))
    for k in range(1, n + 1):
        moves.append(("compute", k))
        if k < n:
            moves.append(("drop", k - 1))
        if k < n - 1:
            moves.append(("store", k))
    moves += [("backward", n), ("backward", n - 1)]
    for i in range(n - 2, -1, -1):
        moves += [("drop", i + 2), ("load", i), ("backward", i)]
    return energy, Recorded(tuple(moves))
