"""A bound of very many cases of tilings at once, without barriers: touches, the room of pieces, products, as arrays over cases.

A *box* is a case in which each axis is known to be whole or cut: a range of tile sizes for each of the cut ones. What `CaseBound`
says of one case in a millisecond or more, less what needs a linear program, is said here of thousands. `docs/tiling.md` has the
proof (boxes).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pebbler.arrays import Floats
from pebbler.game.dataflow import NONE
from pebbler.referee import pricing
from pebbler.solver.tiling.box_pushes import pushed_pairs
from pebbler.solver.tiling.box_touches import Boxes, BoxTouches, ReadStep, total_of
from pebbler.solver.tiling.case_family import CaseFamily
from pebbler.solver.tiling.tile_products import ProductFamily

__all__ = ["BoxFloor"]

_FAMILIES = 2  # of products that are tried, those with most points
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
        self.products = _worth_trying(family.products)
        self.values = [value for value in range(self.flow.values) if value not in self.elements.vanishing]
        program = family.program
        # What a line that was written pays on its way down to where a read finds it.
        self.sinks = program.write[1:].tolist() if program.caches else [0.0] * (len(self.prices) - 1)
        self.updated = self._updated()
        self.pairs = pushed_pairs(family)
        self._others: dict[tuple[int, object], list[int]] = {}
        made = [value for value in self.values if value in family.written_apart]
        self._apart = {
            group: [value for value in made if self.elements.group[int(self.flow.value_maker[value])] == group]
            for group in family.cutting
        }

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
        plain = [self._group_steps(touches, at, None) for at in steps]
        families = [
            (one, [self._group_steps(touches, at, one) for at in steps], self._product_steps(touches, one))
            for one in self.products
        ]
        if self.family.program.caches:  # every step for itself
            total = touches.zero
            for at in steps:
                best = np.maximum(_best_of(touches, plain[at : at + 1]), self._with_pushed(touches, at, None))
                for one, groups, products in families:
                    others = np.maximum(_best_of(touches, groups[at : at + 1]), self._with_pushed(touches, at, one))
                    best = np.maximum(best, others + products[at])
                total = total + best
            return total
        # What is written is raised by all steps up to some price: products count in the steps from some price on.
        best = _best_of(touches, plain)
        for _, groups, products in families:
            for first in steps:
                own = total_of(touches.zero, products[first:])
                best = np.maximum(best, _best_of(touches, plain[:first] + groups[first:]) + own)
        return best

    def _with_pushed(self, touches: BoxTouches, at: int, products: ProductFamily | None) -> Floats:
        """Return what a step of prices is worth for all groups and for what large pieces push out, beside some products."""
        taken = products.operands if products is not None else ()
        pairs = [pair for pair in self.pairs if pair.value not in taken and pair.beside not in taken]
        if not pairs:
            return touches.zero
        step, total, paid = self.prices[at + 1] - self.prices[at], touches.zero, {}
        for pair in pairs:
            weight = step + self.sinks[at] * touches.sinking(pair.value) * touches.may_rise(pair.value, at)
            worth, paid[pair.value] = pair.worth(touches, self.room[at], step, weight)
            total = total + worth
        beside = frozenset(pair.beside for pair in pairs)
        return total + _best_of(touches, [self._group_steps(touches, at, products, beside, paid)])

    def _group_steps(
        self,
        touches: BoxTouches,
        at: int,
        products: ProductFamily | None,
        skipped: Collection[int] = (),
        paid: Mapping[int, Floats] | None = None,
    ) -> dict[int, GroupStep]:
        """Return what a step of prices is worth for each group of ops, reads that are counted for products left out.

        That is because at most so much of what a piece touches is found near, and because of what single tiles are too large for.
        Other values may be left out, and of others a part may be paid already.
        """
        found = {}
        writes = self.family.program.room_prices.write
        paid = paid or {}
        for group in self.family.cutting:
            reads = [one for one in self._reads(touches, group, products) if one[0] not in skipped]
            apart = [value for value in self._apart[group] if products is None or value not in products.values]
            if not reads and not apart:
                continue
            raised, by_tiles = touches.zero.copy(), touches.zero.copy()
            steepest = touches.zero + (
                self.prices[at + 1] - self.prices[at] if apart else 0.0
            )  # of reads and of writes
            for value, number in reads:
                one = self._read_step(touches, group, value, at)
                less = paid.get(value)
                raised += one.raised if less is None else one.raised - less * number
                steepest = np.maximum(steepest, one.weight if less is None else one.weight - less)
                if less is None:
                    by_tiles += one.by_tiles
            raised -= steepest * (self.room[at] * touches.pieces(group))
            for value in apart:
                raised += touches.raised_write(value, writes[at + 1]) - touches.raised_write(value, writes[at])
            found[group] = GroupStep(raised, by_tiles)
        return found

    def _read_step(self, touches: BoxTouches, group: int, value: int, at: int) -> ReadStep:
        """Return what a step of prices is worth for the reads of a value by a group of ops."""
        key = (group, value, at)
        if key not in touches.read_steps:
            step, sink, number = self.prices[at + 1] - self.prices[at], self.sinks[at], touches.reads[group][value]
            more = sink * touches.sinking(value) if sink else touches.zero
            raised = number * (step + more * touches.may_rise(value, at))
            by_tiles = step * touches.beyond([(value, number)], at)
            touches.read_steps[key] = ReadStep(raised, step + more, by_tiles)
        return touches.read_steps[key]

    def _reads(self, touches: BoxTouches, group: int, products: ProductFamily | None) -> list[tuple[int, Floats]]:
        """Return how often a group reads what, but for what counts for products: operands, and sums that they go on with."""
        key = (group, None if products is None else products.products)
        if key not in self._others:
            every = touches.reads[group]
            self._others[key] = [
                value for value in every if products is None or not self._counts_for(products, group, value)
            ]
        return [(value, touches.reads[group][value]) for value in self._others[key]]

    def _counts_for(self, products: ProductFamily, group: int, value: int) -> bool:
        """Whether reads of a value by a group are among those that products bound: of sums only those by who adds them up."""
        if value in products.operands:
            return True
        return value in products.values and self.elements.group[int(self.flow.value_maker[value])] == group

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
        reads = [
            one
            for group, own in touches.reads.items()
            for one in own.items()
            if self._counts_for(products, group, one[0])
        ]
        number = total_of(touches.zero, (one for _, one in reads))
        piece, found = touches.largest_piece(products), []
        for at in range(len(self.prices) - 1):
            outside = np.minimum(number, products.outside_reads_of(self.room[at], piece))
            found.append((self.prices[at + 1] - self.prices[at]) * np.maximum(outside, touches.beyond(reads, at)))
        return found


def _worth_trying(families: Iterable[ProductFamily]) -> list[ProductFamily]:
    """Return the families whose points count for most, of those that count for about as much the one that makes least."""
    found: list[ProductFamily] = []
    for family in sorted(families, key=lambda one: (one.made, -one.worth)):
        if all(family.worth > 1.01 * one.worth for one in found):
            found.append(family)
    return found[-_FAMILIES:]


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
