"""Orders of the points of a product: nested loops over blocks, back and forth, and small changes of them.

Loops are written as text, outermost first: `i5k3jik` goes through blocks of about 5 rows and, within each, blocks of about
3 of the summed index; in a block it goes through the columns `j`, and for each through its rows and summed indices. Every
loop turns round each time it is begun again, unless it is followed by `_`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pebbler.arrays import Ints

__all__ = ["Loop", "changed_loops", "first_loops", "loops_of", "loops_text", "nested_order"]

AXES = "ijk"
_PROMISING = (
    "i5k3jik", "i4k2jik", "kij", "i5k4jik", "j5k3ijk", "i5k2jik", "i8k3jik", "k4i4jik", "j4k2ijk", "k4j4ijk", "kji",
    "i4j4kij", "ikj", "jki", "k4i8jik",
)  # fmt: skip
_BLOCKS = (2, 3, 4, 5, 8)


class Loop(NamedTuple):
    """One loop: over which index, in blocks of how many, and whether it goes back and forth."""

    axis: int
    block: int
    alternates: bool  # forwards in one pass, backwards in the next


Loops = tuple[Loop, ...]


def loops_of(text: str) -> Loops:
    """Return loops from their text.

    >>> loops_of("k4ijk_")[0], loops_of("k4ijk_")[3].alternates
    (Loop(axis=2, block=4, alternates=True), False)
    """
    found = re.findall(r"([ijk])(\d*)(_?)", text)
    return tuple(Loop(AXES.index(axis), int(block or 1), not stays) for axis, block, stays in found)


def loops_text(loops: Sequence[Loop]) -> str:
    """Return loops as text."""
    return "".join(
        f"{AXES[one.axis]}{one.block if one.block > 1 else ''}{'' if one.alternates else '_'}" for one in loops
    )


def first_loops(sizes: Sequence[int]) -> list[Loops]:
    """Return loops to begin with, the most promising first; blocks that hold everything are left out."""
    found = []
    for text in _PROMISING:
        loops = tuple(one for one in loops_of(text) if one.block == 1 or one.block < sizes[one.axis])
        if loops not in found:
            found.append(loops)
    return found


def nested_order(index: Ints, loops: Sequence[Loop]) -> Ints:
    """Return the points in the order of nested loops: positions in `index`, which has i, j and k of each.

    Loops in which there is no point do not begin. Blocks are as equal as can be. The work grows with the points, not with the
    indices between them.

    >>> square = np.array([[i, j, 0] for i in range(2) for j in range(2)])
    >>> nested_order(square, loops_of("ijk")).tolist()
    [0, 1, 3, 2]
    """
    points = index.astype(np.int64)
    low, high = np.zeros_like(points), np.broadcast_to(points.max(axis=0) + 1, points.shape).copy()
    turn = np.zeros(len(points), np.int64)  # when the loop that a point is in begins, among all loops of its depth
    for axis, block, alternates in loops:
        first, length = low[:, axis], high[:, axis] - low[:, axis]
        parts = np.maximum(1, (length / block + 0.5).astype(np.int64))
        part = ((points[:, axis] - first + 1) * parts - 1) // length
        low[:, axis], high[:, axis] = first + length * part // parts, first + length * (part + 1) // parts
        back = alternates & (turn % 2 == 1)
        steps = turn * (parts.max() + 1) + np.where(back, parts - 1 - part, part)
        turn = np.unique(steps, return_inverse=True)[1]
    return np.argsort(turn, kind="stable")


def changed_loops(rng: np.random.Generator, loops: Loops) -> Loops:
    """Return loops with one or two changes: the order, a block's size, a loop more or less, or whether one alternates."""
    while True:
        found = list(loops)
        for _ in range(1 if rng.random() < 0.6 else 2):
            at = int(rng.integers(len(found)))
            axis, block, alternates = found[at]
            kind = rng.random()
            if kind < 0.35 and at + 1 < len(found):
                found[at], found[at + 1] = found[at + 1], found[at]
            elif kind < 0.6 and block > 1:
                found[at] = Loop(axis, max(2, block + int(rng.choice([-2, -1, 1, 2]))), alternates)
            elif kind < 0.75:
                found.insert(at, Loop(int(rng.integers(3)), int(rng.choice(_BLOCKS)), True))
            elif kind < 0.9 and block > 1:
                found.pop(at)
            else:
                found[at] = Loop(axis, block, not alternates)
        if tuple(found) != loops and _is_nest(found):
            return tuple(found)


def _is_nest(loops: Sequence[Loop]) -> bool:
    """Return whether every index has loops over smaller and smaller blocks, the last over single ones."""
    blocks: dict[int, int] = {}
    for axis, block, _ in loops:
        if blocks.get(axis, block + 1) <= block:
            return False
        blocks[axis] = block
    return all(blocks.get(axis) == 1 for axis in range(3))
