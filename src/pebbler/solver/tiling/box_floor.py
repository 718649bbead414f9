"""A bound of very many cases of tilings at once, without barriers: touches, the room of pieces, products, as arrays over cases.

A *box* is a case in which each axis is known to be whole or cut: a range of tile sizes for each of the cut ones. What `CaseBound`
says of one case in a millisecond or more, less what needs a linear program, is said here of thousands. `docs/tiling.md` has the
proof (boxes).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pebbler.arrays import Floats
from pebbler.game.dataflow import NONE
from pebbler.referee import pricing
from pebbler.solver.tiling.box_touches import Boxes, BoxTouches, total_of
from pebbler.solver.tiling.case_family import CaseFamily
from pebbler.solver.tiling.tile_products import ProductFamily

__all__ = ["BoxFloor"]

_FAMILIES = 3  # of products that are tried, those with most points
_SAFETY = 1e-9  # part of a bound that is taken off for rounding


class GroupStep(NamedTuple):
    """What one step of prices is worth for a group of ops: because pieces are large, or single tiles."""

    raised: Floats
    by_tiles: Floats


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
        self.updated = self._updated()

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
        number = total_of(touches.zero, (one for reads in touches.reads.values() for one in reads.values()))
        total = self.prices[0] * number + self._beyond_levels(touches) + touches.writing() + self._leaving(touches)
        return np.maximum(0.0, total * (1 - _SAFETY)) + self.family.costs * (1 - _SAFETY)

    def _beyond_levels(self, touches: BoxTouches) -> Floats:
        """Return what reads cost beyond the cheapest price: for every step of prices those that are from farther away."""
        steps = range(len(self.prices) - 1)
        plain = [self._group_steps(touches, at, frozenset()) for at in steps]
        families = [
            ([self._group_steps(touches, at, one.values) for at in steps], self._product_steps(touches, one))
            for one in self.products
        ]
        if self.family.program.caches:  # every step for itself
            total = touches.zero
            for at in steps:
                best = _best_of(touches, plain[at : at + 1])
                for groups, products in families:
                    best = np.maximum(best, _best_of(touches, groups[at : at + 1]) + products[at])
                total = total + best
            return total
        # What is written is raised by all steps up to some price: products count in the steps from some price on.
        best = _best_of(touches, plain)
        for groups, products in families:
            for first in steps:
                own = total_of(touches.zero, products[first:])
                best = np.maximum(best, _best_of(touches, plain[:first] + groups[first:]) + own)
        return best

    def _group_steps(self, touches: BoxTouches, at: int, skipped: Collection[int]) -> dict[int, GroupStep]:
        """Return what a step of prices is worth for each group of ops, some values left out.

        That is because at most so much of what a piece touches is found near, and because of what single tiles are too large for.
        """
        found = {}
        writes, step, sink = (
            self.family.program.room_prices.write,
            self.prices[at + 1] - self.prices[at],
            self.sinks[at],
        )
        for group in self.family.cutting:
            reads = [(value, number) for value, number in touches.reads[group].items() if value not in skipped]
            apart = [value for value in self._apart(group) if value not in skipped]
            if not reads and not apart:
                continue
            raised, steepest = step * total_of(touches.zero, (number for _, number in reads)), touches.zero
            for value, number in reads if sink else ():
                more = sink * touches.sinking(value)
                raised += more * number * touches.may_rise(value, at)
                steepest = np.maximum(steepest, more)
            raised -= (step + steepest) * self.room[at] * touches.pieces(group)
            for value in apart:
                raised += touches.raised_write(value, writes[at + 1]) - touches.raised_write(value, writes[at])
            found[group] = GroupStep(raised, step * touches.beyond(reads, at))
        return found

    def _apart(self, group: int) -> list[int]:
        """Return the values that a group makes and that need room beside what it reads."""
        makers = self.flow.value_maker
        return [
            value
            for value in self.values
            if value in self.family.written_apart and self.elements.group[int(makers[value])] == group
        ]

    def _updated(self) -> list[int]:
        """Return the versions that a step leaves behind of parameters that are read, and that nobody reads before it ends."""
        flow, readers = self.flow, self.elements.readers
        found = []
        for tensor, one in enumerate(self.family.problem.graph.tensors):
            first, last = int(flow.start_value[tensor]), int(flow.final_value[tensor])
            if one.kind != "param" or first == NONE or last in (first, NONE) or flow.value_destroyer[last] != NONE:
                continue
            found += [last] if readers[first] and not readers[last] else []
        return found

    def _leaving(self, touches: BoxTouches) -> Floats:
        """Return what is written farther away than counted so far because not all that is left behind finds room near."""
        program, total = self.family.program, touches.zero.copy()
        if program.caches:
            size = float(sum(self.flow.value_size[value] for value in self.updated))
            beyond = [sink * max(0.0, size - room) for sink, room in zip(self.sinks, self.room, strict=True)]
            return total + math.fsum(beyond)
        prices = sorted(set(program.write.tolist()))
        for price, next_price in pairwise(prices):
            room = float(pricing.capacities(program.machine)[program.write <= price].astype(object).sum())
            # Of tiles of full size more may have been counted already.
            near = total_of(touches.zero, (touches.written_within(value, price) for value in self.updated))
            total += (next_price - price) * np.maximum(0.0, near - room)
        return total

    def _product_steps(self, touches: BoxTouches, products: ProductFamily) -> list[Floats]:
        """Return what each step of prices is worth for products' values: so many reads are from outside of the levels below."""
        reads = [(value, touches.reads_of(value)) for value in sorted(products.values)]
        number = total_of(touches.zero, (one for _, one in reads))
        piece, found = touches.largest_piece(products), []
        for at in range(len(self.prices) - 1):
            outside = np.minimum(number, products.outside_reads_of(self.room[at], piece))
            found.append((self.prices[at + 1] - self.prices[at]) * np.maximum(outside, touches.beyond(reads, at)))
        return found


def _best_of(touches: BoxTouches, steps: list[dict[int, GroupStep]]) -> Floats:
    """Return what steps of prices are worth for all groups together: for each those up to some price are raised."""
    total = touches.zero.copy()
    for group in dict.fromkeys(group for one in steps for group in one):
        own = [one[group] for one in steps if group in one]
        worth = best = total_of(touches.zero, (one.by_tiles for one in own))
        for one in own:
            worth = worth + one.raised - one.by_tiles
            best = np.maximum(best, worth)
        total += best
    return total


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
