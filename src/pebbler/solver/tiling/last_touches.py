"""On caches: how deep what a piece reads lies at least, by who may have touched it last.

A tile is touched whole and in order, so all of it lies at one depth: itself, what the piece that touched it last has touched after
it, and what the piece that reads it has touched before. `docs/tiling.md` has the proof (since the last touch).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from pebbler.game.dataflow import NONE
from pebbler.solver.problem import Problem
from pebbler.solver.tiling.element_prices import CachePrices
from pebbler.solver.tiling.liveness import Axes, Elements
from pebbler.solver.tiling.tile_cases import TileCase

__all__ = ["LastTouches", "ReadFloor"]

_MOST_KEPT = 50_000
_MOST_VALUES = 400  # in graphs of more values the time goes into cases

# Per storage: a tensor of which a piece touches a tile, and the axes of which it touches all.
Tiles = Mapping[int, tuple[int, Axes]]


@dataclass(frozen=True)
class ReadFloor:
    """So many reads of an element that cost so much at the least, and what has to be written back for each."""

    count: int
    price: float
    written_back: float = 0.0


@dataclass(frozen=True)
class _LastTouch:
    """Who may have touched an element before it is read: what is above it then, and how often that can be in a step."""

    above: tuple[tuple[Tiles, Tiles], ...]  # touched after it by that piece, and before it by the one that reads
    pieces: tuple[int, Axes] | None  # ops and the axes that cut them apart; None: any number, they may run again
    same: bool  # another piece of the readers themselves

    @property
    def may_be_next(self) -> bool:
        """Whether nothing need be above the element, any number of times."""
        return self.pieces is None and any(not after and not before for after, before in self.above)


class LastTouches:
    """Who may have touched what before whom, for the cases that agree on which axes are cut."""

    def __init__(self, problem: Problem, elements: Elements, prices: CachePrices) -> None:
        self.problem, self.elements, self.prices = problem, elements, prices
        flow = self.flow = elements.flow
        self.known = flow.values <= _MOST_VALUES
        self.storage = [int(flow.storage[tensor]) for tensor in flow.value_tensor]
        starts = flow.start_value != NONE
        fixed = starts if problem.machine.allocator == "reuse" else np.ones(len(starts), np.bool_)
        self.fixed = set(flow.storage[fixed].tolist())  # storages that never change places with others
        self.mates = [
            [problem.graph.tensors[k] for k in np.flatnonzero(flow.storage == storage)] for storage in self.storage
        ]
        self._touches: dict[tuple[int, int | None], tuple[list[_LastTouch], Axes]] = {}
        self._floors: dict[object, list[ReadFloor]] = {}
        self._case: TileCase | None = None  # the case that was asked for last, and what was found for it
        self._of_tiles: dict[tuple[int, Axes, Axes], int] = {}
        self._of_case: dict[tuple[int, int | None, int, int, Axes], list[ReadFloor]] = {}

    def floors(
        self, case: TileCase, value: int, group: int | None, number: int, in_full: int, *, full: Axes
    ) -> list[ReadFloor]:
        """Return what `number` reads of an element by a group of ops cost at the least, `in_full` of them by pieces of full size.

        The element is in a tile of full size along the axes `full`. Without a group it is its maker that adds to it.
        """
        if case is not self._case:
            self._case, self._of_case, self._of_tiles = case, {}, {}
        key = (value, group, number, in_full, full)
        if key not in self._of_case:
            self._of_case[key] = self._find(case, *key)
        return self._of_case[key]

    def _find(
        self, case: TileCase, value: int, group: int | None, number: int, in_full: int, full: Axes
    ) -> list[ReadFloor]:
        if (value, group) not in self._touches:
            found = list(self._adding(value) if group is None else self._reading(value, group))
            self._touches[value, group] = found, self._axes(value, found)
        touches, axes = self._touches[value, group]
        if any(one.may_be_next for one in touches):
            return [ReadFloor(number, 0.0)]  # its tile is all that is certain
        # What has been found for other cases holds if they agree on these axes.
        ranges = tuple((one.least, one.most) for axis in axes if (one := case.ranges.get(axis)) is not None)
        key = (value, group, number, in_full, full, ranges)
        if key not in self._floors:
            if len(self._floors) > _MOST_KEPT:
                self._floors.clear()
            reader = int(self.flow.value_maker[value]) if group is None else group
            alone = group is None or self.elements.group.count(group) == 1  # else it may be cut by more axes
            in_full = min(number, in_full) if alone else 0
            others = self.elements.op_axes[reader] - self.elements.axes[int(self.flow.value_tensor[value])]
            kinds = ((in_full, full | others), (number - in_full, full))
            self._floors[key] = [
                one
                for count, axes in kinds
                if count > 0
                for one in self._split(case, value, touches, count, full, axes)
            ]
        return self._floors[key]

    def _split(
        self, case: TileCase, value: int, touches: list[_LastTouch], count: int, own: Axes, reading: Axes
    ) -> Iterator[ReadFloor]:
        """Yield reads by the level that they come from at the least: from near ones no more than touches allow it."""
        size = min(case.smallest(mate, own) for mate in self.mates[value])
        levels = [(self._level(case, value, size, one, own, reading), one) for one in touches]
        counted, level = 0, 0
        for level in sorted({level for level, _ in levels}):
            near = [one for at, one in levels if at <= level]
            most = count
            if all(one.pieces is not None and not one.same for one in near):
                most = min(
                    count, sum(ops * case.most_tiles(axes) for ops, axes in (one.pieces for one in near if one.pieces))
                )
            if most > counted:
                yield self._floor(most - counted, level)
                counted = most
        if count > counted:  # nobody has touched it before
            yield self._floor(count - counted, level)

    def _floor(self, count: int, level: int) -> ReadFloor:
        return ReadFloor(count, float(self.prices.below[level]), float(self.prices.sunk[level]))

    def _level(self, case: TileCase, value: int, size: int, touch: _LastTouch, own: Axes, reading: Axes) -> int:
        """Return the level in which an element is found at the least after one kind of touch."""
        line, least = self.problem.machine.line, None
        for after, before in touch.above:
            first = {at: self._lines(case, *touched, own) for at, touched in after.items()}
            then = {at: self._lines(case, *touched, reading) for at, touched in before.items()}
            apart = self.fixed.intersection({*first, *then})
            lines = sum(max(first.get(at, 0), then.get(at, 0)) for at in apart)
            # Other storages of the two lists may have had the same place, one after the other.
            lines += max(sum(lines for at, lines in touched.items() if at not in apart) for touched in (first, then))
            least = lines if least is None else min(least, lines)
        units = line * (-(-size // line) + (least or 0))
        return self.prices.of_tile(units).floor

    def _lines(self, case: TileCase, tensor: int, whole: Axes, full: Axes) -> int:
        """Return how many lines a tile of a tensor has at least, in full tiles along some axes; all tiles along others."""
        key = (tensor, whole, full)
        if key not in self._of_tiles:
            units = case.smallest(self.problem.graph.tensors[tensor], full, whole)
            self._of_tiles[key] = -(-units // self.problem.machine.line)
        return self._of_tiles[key]

    def _axes(self, value: int, touches: Iterable[_LastTouch]) -> Axes:
        """Return the axes whose tiles have to do with a read."""
        tensors = {int(self.flow.value_tensor[value])}
        axes: Axes = frozenset().union(*(one.pieces[1] for one in touches if one.pieces is not None))
        for one in touches:
            tensors |= {tensor for pair in one.above for tiles in pair for tensor, _ in tiles.values()}
        tensors |= {self.problem.graph.tensor_index(mate.name) for mate in self.mates[value]}
        return axes.union(*(self.elements.axes[tensor] for tensor in tensors))

    def _reading(self, value: int, group: int) -> Iterator[_LastTouch]:
        """Yield who may have touched a value before some group of ops reads it."""
        if not self.known:
            yield _LastTouch((({}, {}),), None, True)
            return
        elements, flow = self.elements, self.flow
        readers = [op for op in elements.readers[value] if elements.group[op] == group]
        befores = [self._before(op, value) for op in readers]
        by_group: dict[int, list[int]] = {}
        for op in self._touching(value, readers):
            by_group.setdefault(elements.group[op], []).append(op)
        for other, ops in by_group.items():
            afters = self._afters(other, ops, value)
            again = any(bool(flow.op_can_rerun[op]) for op in ops)
            axes = frozenset().union(*(elements.op_axes[op] for op in range(flow.ops) if elements.group[op] == other))
            own = elements.axes[int(flow.value_tensor[value])]
            above = tuple((after, before) for after in afters for before in befores)
            yield _LastTouch(above, None if again else (len(ops), axes - own), other == group)

    def _adding(self, value: int) -> Iterator[_LastTouch]:
        """Yield who may have touched a sum before the next piece of it goes on: another piece, which was not fused."""
        maker = int(self.flow.value_maker[value])
        reads = self._tiles(maker, self.elements.op_reads[maker], value)
        yield _LastTouch(((self._after(maker, value), reads),), None, True)

    def _touching(self, value: int, readers: list[int]) -> list[int]:
        """Return the ops that may touch a value, or what is in its place in the step before, ahead of some readers."""
        elements, flow = self.elements, self.flow
        others = [op for op in elements.readers[value] if op not in readers]
        if flow.value_maker[value] != NONE:
            return sorted({int(flow.value_maker[value]), *elements.readers[value]})
        if not self.problem.steady:
            return list(elements.readers[value])
        if readers == [int(flow.value_destroyer[value])] and others:
            return others  # all of it has been read by them since the step before
        own = self.storage[value]
        touched = (
            op
            for op in range(flow.ops)
            if any(self.storage[one] == own for one in (*elements.op_reads[op], *elements.op_writes[op]))
        )
        return list(touched)

    def _tiles(self, op: int, values: Iterable[int], value: int) -> Tiles:
        """Return what a piece of an op certainly touches of some values, apart from what shares the storage of one."""
        elements, flow = self.elements, self.flow
        added = set(self.problem.graph.ops[op].meta.get("adds", ()))
        found: dict[int, tuple[int, Axes]] = {}
        for one in values:
            tensor = int(flow.value_tensor[one])
            name = self.problem.graph.tensors[tensor].name
            if one in elements.vanishing or name in added or self.storage[one] == self.storage[value]:
                continue
            found.setdefault(self.storage[one], (tensor, elements.whole[op]))
        return found

    def _before(self, op: int, value: int) -> Tiles:
        """Return what a piece has touched before it reads a value: in a fused op, wherever that is read first."""
        reads = self.elements.op_reads[op]
        return self._tiles(op, reads[: reads.index(value)], value)

    def _after(self, op: int, value: int) -> Tiles:
        """Return what a piece of an op that is not fused touches after its last touch of a value's storage."""
        elements = self.elements
        touched = [*elements.op_reads[op], *elements.op_writes[op]]
        last = max(at for at, one in enumerate(touched) if self.storage[one] == self.storage[value])
        return self._tiles(op, touched[last + 1 :], value)

    def _afters(self, group: int, ops: list[int], value: int) -> list[Tiles]:
        """Return what a piece of some op of a group touches after its last touch of a value, for each op, whatever is fused."""
        elements = self.elements
        if elements.group.count(group) == 1:
            return [self._after(ops[0], value)]
        together = [op for op, leader in enumerate(elements.group) if leader == group]
        if any(self.storage[one] == self.storage[value] for op in together for one in elements.op_writes[op]):
            return [{}]
        return [self._tiles(op, elements.op_writes[op], value) for op in ops]
