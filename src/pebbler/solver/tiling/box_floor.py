"""A bound of very many cases of tilings at once, without barriers: touches, the room of pieces, products, as arrays over cases.

A *box* is a case in which each axis is known to be whole or cut: a range of tile sizes for each of the cut ones. What `CaseBound`
says of one case in a millisecond or more, less what needs a linear program, is said here of thousands. `docs/tiling.md` has the
proof (boxes).
"""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np

from pebbler.arrays import Floats
from pebbler.solver.tiling.box_touches import Boxes, BoxTouches, total_of
from pebbler.solver.tiling.case_family import CaseFamily
from pebbler.solver.tiling.tile_products import ProductFamily

__all__ = ["BoxFloor"]

_FAMILIES = 3  # of products that are tried, those with most points
_SAFETY = 1e-9  # part of a bound that is taken off for rounding


class BoxFloor:
    """The bounds of boxes that agree on which axes are cut."""

    def __init__(self, family: CaseFamily, extents: dict[str, int]) -> None:
        self.family, self.elements, self.flow = family, family.elements, family.flow
        self.axes = sorted(family.elements.cut)
        self.extents = np.array([extents[axis] for axis in self.axes], np.int64)
        self.prices, self.room = family.program.found_within
        self.products = sorted(family.products, key=lambda one: -one.points)[:_FAMILIES]
        self.values = [value for value in range(self.flow.values) if value not in self.elements.vanishing]
        program = family.program
        # What a line that was written pays on its way down to where a read finds it.
        self.sinks = program.write[1:].tolist() if program.caches else [0.0] * (len(self.prices) - 1)

    def grid(self, factor: float) -> Boxes:
        """Return boxes that leave no size out, each from some size to less than `factor` times as much."""
        ranges = [_ranges(extent, factor) for extent in self.extents.tolist()]
        every = np.meshgrid(*(np.arange(len(one)) for one in ranges), indexing="ij")
        picked = [np.array(one, np.int64)[at.ravel()] for one, at in zip(ranges, every, strict=True)]
        if not picked:
            return Boxes(np.ones((1, 0), np.int64), np.ones((1, 0), np.int64))
        return Boxes(np.stack([one[:, 0] for one in picked], axis=1), np.stack([one[:, 1] for one in picked], axis=1))

    def bounds(self, boxes: Boxes) -> Floats:
        """Return a bound for every box."""
        touches = BoxTouches(self, boxes)
        total = self._groups(touches, frozenset())
        for products in self.products:
            total = np.maximum(total, self._groups(touches, products.values) + self._products(touches, products))
        total = (total + touches.writing()) * (1 - _SAFETY)
        return np.maximum(0.0, total) + self.family.costs * (1 - _SAFETY)

    def _groups(self, touches: BoxTouches, skipped: Collection[int]) -> Floats:
        """Return what reads of all values but some cost: at most so much of what a piece touches is found near."""
        total = touches.zero.copy()
        writes = self.family.program.room_prices.write
        for group in self.family.cutting:
            reads = [(value, number) for value, number in touches.reads[group].items() if value not in skipped]
            apart = [value for value in self._apart(group) if value not in skipped]
            if not reads and not apart:
                continue
            best, off, sunk = touches.reading(reads, 0), touches.zero, touches.zero
            pieces = touches.pieces(group)
            for at, sink in enumerate(self.sinks):
                step, steepest = self.prices[at + 1] - self.prices[at], touches.zero
                for value, number in reads if sink else ():
                    more = sink * touches.sinking(value)
                    sunk = sunk + more * number * touches.may_rise(value, at)
                    steepest = np.maximum(steepest, more)
                off = off + (step + steepest) * self.room[at] * pieces
                cost = touches.reading(reads, at + 1) + sunk - off
                for value in apart:
                    cost = cost + touches.raised_write(value, writes[at + 1])
                best = np.maximum(best, cost)
            total += best
        return total

    def _apart(self, group: int) -> list[int]:
        """Return the values that a group makes and that need room beside what it reads."""
        makers = self.flow.value_maker
        return [
            value
            for value in self.values
            if value in self.family.written_apart and self.elements.group[int(makers[value])] == group
        ]

    def _products(self, touches: BoxTouches, products: ProductFamily) -> Floats:
        """Return what reads of products' values cost: at least so many are from outside of the levels up to each price."""
        reads = [(value, touches.reads_of(value)) for value in sorted(products.values)]
        number = total_of(touches.zero, (one for _, one in reads))
        piece, best, inside = touches.largest_piece(products), touches.reading(reads, 0), touches.zero
        for at in range(len(self.prices) - 1):
            outside = np.minimum(number, products.outside_reads_of(self.room[at], piece))
            inside = inside + (self.prices[at + 1] - self.prices[at]) * (number - outside)
            best = np.maximum(best, touches.reading(reads, at + 1) - inside)
        return best


def _ranges(extent: int, factor: float) -> list[tuple[int, int]]:
    """Return ranges that together are all sizes of a cut axis.

    >>> _ranges(20, 4)
    [(1, 3), (4, 15), (16, 19)]
    """
    found: list[tuple[int, int]] = []
    least = 1
    while least < extent or not found:
        most = max(least, min(extent - 1, math.ceil(least * factor) - 1))
        found.append((least, most))
        least = most + 1
    return found
