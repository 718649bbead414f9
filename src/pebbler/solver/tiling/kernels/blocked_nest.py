"""The operand of an op that stays in the fastest level, and its block size in tiles, for the least data movement.

All tiles of a block of one operand stay while the loops that it does not depend on pass by; within one turn of those, the
block's own loops run. The classic blocked product is one of these nests: a block of sums stays while rows and columns pass.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pebbler.arrays import Array
from pebbler.compiled import inner_kernel, kernel

__all__ = ["best_nest"]


@inner_kernel
def _held(stays: int, order: Array, blocks: Array, uses: Array, units: Array) -> float:
    """Return the units held at once: the block that stays, and the parts of the others that are found again within one turn."""
    total = 0.0
    for one in range(len(units)):
        part, again = units[one], one == stays
        for i in range(len(order)):
            axis = order[i]
            if not uses[stays, axis]:
                continue
            if not uses[one, axis]:
                again |= blocks[axis] > 1
            elif again:
                part *= blocks[axis]
        total += part
    return total


@inner_kernel
def _moved(stays: int, blocks: Array, tiles: Array, uses: Array, whole: Array, price: Array) -> Any:
    """Return the cost of all passes of all operands."""
    total = whole[stays] * price[stays]
    for one in range(len(whole)):
        if one == stays:
            continue
        passes = whole[one] * price[one]
        for axis in range(len(tiles)):
            if not uses[one, axis]:
                passes *= -(-tiles[axis] // blocks[axis]) if uses[stays, axis] else tiles[axis]
        total += passes
    return total


@inner_kernel
def _is_nest(stays: int, order: Array, uses: Array, in_turn: Array) -> bool:
    """Whether an order has the loops that pass by first, and visits the terms of sums in the order in which they are added."""
    passing = np.int64(-1)
    inside, last_inside, first_passing = False, np.int64(-1), np.int64(len(order))
    for i in range(len(order)):
        axis = order[i]
        if uses[stays, axis]:
            inside = True
            if in_turn[axis]:
                last_inside = max(last_inside, axis)
        elif inside or axis < passing:
            return False
        else:
            passing = axis
            if in_turn[axis]:
                first_passing = min(first_passing, axis)
    return bool(last_inside < first_passing)


@inner_kernel
def _next_blocks(fits: bool, at: Array, blocks: Array, counts: Array, choice_start: Array, choices: Array) -> bool:
    """Go on to the next blocks, the first axis fastest, and past all that are larger where these do not fit; False at the end."""
    axis = 0
    if not fits:
        while axis < len(at) and at[axis] == 0:
            axis += 1
        if axis == len(at):
            return False
        at[axis], blocks[axis] = 0, 1
        axis += 1
    while axis < len(at):
        if counts[axis] and at[axis] + 1 < choice_start[axis + 1] - choice_start[axis]:
            at[axis] += 1
            blocks[axis] = choices[choice_start[axis] + at[axis]]
            return True
        at[axis], blocks[axis] = 0, 1
        axis += 1
    return False


@kernel
def best_nest(
    orders: Array, tiles: Array, uses: Array, units: Array, whole: Array, price: Array, in_turn: Array,
    choice_start: Array, choices: Array, room: float,
) -> tuple[float, int, int, Array]:  # fmt: skip
    """Return the least that an op moves, the operand that stays, the order of loops (a row of `orders`), and tiles per block.

    Per axis: its number of `tiles`, the blocks to choose from (rising, the first is 1), and whether its terms are added `in_turn`
    with those of other axes, which allows single tiles only. Per operand: which axes it `uses`, the `units` of one tile and of
    its `whole`, and the `price` of moving a unit once. Infinite where a piece does not fit into the `room`.
    """
    axes = len(tiles)
    best, best_stays, best_row, best_blocks = np.inf, 0, 0, np.ones(axes, np.int64)
    at, blocks, counts = np.zeros(axes, np.int64), np.ones(axes, np.int64), np.zeros(axes, np.bool_)
    for stays in range(len(units)):
        for row in range(len(orders)):
            order = orders[row]
            if not _is_nest(stays, order, uses, in_turn):
                continue
            last = order[axes - 1] if axes > 0 and uses[stays, order[axes - 1]] else -1
            for axis in range(axes):
                at[axis], blocks[axis] = 0, 1
                counts[axis] = uses[stays, axis] and axis != last and not in_turn[axis]
            more = True
            while more:
                fits = _held(stays, order, blocks, uses, units) <= room
                if fits and last >= 0 and not in_turn[last]:
                    # Of the last loop as much as fits: nothing moves more for it.
                    k = choice_start[last + 1] - 1
                    blocks[last] = choices[k]
                    while _held(stays, order, blocks, uses, units) > room:
                        k -= 1
                        blocks[last] = choices[k]
                if fits:
                    moved = _moved(stays, blocks, tiles, uses, whole, price)
                    if moved < best:
                        best, best_stays, best_row = moved, stays, row
                        for axis in range(axes):
                            best_blocks[axis] = blocks[axis]
                if last >= 0:
                    blocks[last] = 1
                more = _next_blocks(fits, at, blocks, counts, choice_start, choices)
    return best, best_stays, best_row, best_blocks
