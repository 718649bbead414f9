"""The best loops of one op over its tiles: blocks of one operand stay in a memory while the others pass by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from pebbler.arrays import Bools
from pebbler.solver.tiling.kernels.blocked_nest import best_nest

__all__ = ["BlockedLoops", "best_loops"]

_MOST_LOOPS = 5  # of an op, all orders of which are compared
_MOST_BLOCKS = 400  # blocks of several axes that are compared for one order of loops
_GAIN = 1e-9


@dataclass(frozen=True)
class BlockedLoops:
    """Loops, outermost first, each with how many tiles it goes on at a time, and the price of all that they move."""

    loops: tuple[tuple[str, int], ...]
    moved: float


def best_loops(
    tiles: dict[str, int],
    uses: Bools,
    units: Sequence[float],
    whole: Sequence[float],
    price: Sequence[float],
    summed: frozenset[str],
    room: float,
) -> BlockedLoops:
    """Return the loops of an op that move least data with a given room; if a piece does not fit, as if it just did.

    `tiles` are the axes and how many tiles each has, in the order in which they are cut. Per operand: which of the axes it `uses`,
    the `units` of a tile and of all of it, and the `price` of moving a unit once. The terms of axes that are `summed` are added in
    turn.

    >>> rows, sums, columns = [True, False, True], [True, True, False], [False, True, True]
    >>> uses = np.array([sums, rows, columns])
    >>> best_loops({"i": 9, "j": 9, "k": 9}, uses, [1, 1, 1], [81, 81, 81], [2, 1, 1], frozenset("k"), 14).loops
    (('i', 3), ('j', 3), ('k', 1), ('i', 1), ('j', 1))
    """
    axes, counts = list(tiles), np.array(list(tiles.values()), np.int64)
    added = np.array([axis in summed for axis in axes], np.bool_)
    every = permutations(range(len(axes))) if len(axes) <= _MOST_LOOPS else [tuple(range(len(axes)))]
    orders = np.array(list(every), np.int64)
    most = max(2, int(_MOST_BLOCKS ** (1 / max(1, len(axes) - 1))))
    blocks = [_blocks(count, most) for count in tiles.values()]
    moved, stays, row, chosen = best_nest(
        orders, counts, uses, np.array(units, np.float64), np.array(whole, np.float64), np.array(price, np.float64),
        added & (added.sum() > 1), np.cumsum([0, *map(len, blocks)]),
        np.array([one for some in blocks for one in some], np.int64), max(room, math.fsum(units) * (1 + _GAIN)),
    )  # fmt: skip
    outer = [(axes[axis], int(chosen[axis])) for axis in range(len(axes)) if uses[stays, axis]]
    inner = [(axes[axis], 1) for axis in orders[row].tolist()]
    return BlockedLoops((*outer, *inner), float(moved))


def _blocks(tiles: int, most: int) -> list[int]:
    """Return possible block sizes for a number of tiles, in parts as equal as possible: at most `most` sizes, 1 included.

    >>> _blocks(12, 10), _blocks(1000, 5)
    ([1, 2, 3, 4, 6, 12], [1, 6, 32, 167, 1000])
    """
    root = math.isqrt(tiles)
    found = sorted({-(-tiles // parts) for parts in range(1, root + 1)} | set(range(1, root + 1)))
    if len(found) <= most:
        return found
    steps = [round(tiles ** (i / (most - 1))) for i in range(most)]
    return sorted({-(-tiles // -(-tiles // step)) for step in steps})
