"""The setting of a set of rows: a range of tilings, a moment of the step, and what is assumed of it.

Every row of a leaf holds for every legal plan of every form in the range for which the assumption holds.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from pebbler.game.dataflow import NONE
from pebbler.referee.rows.elements import Axes, Liveness
from pebbler.referee.rows.family import Family
from pebbler.referee.rows.row import ONE, Counter
from pebbler.referee.rows.sums_wait import WaitingSum
from pebbler.referee.rows.tile_range import TileRange

__all__ = ["FEW", "Few", "Leaf", "Near", "Phase", "Readings", "Start", "TilePart", "Time"]

Phase = Literal["before", "after", "any"]  # of first runs: before the moment, after it, or at a time that is not known
Time = Literal[
    "before", "after", "early", "late", "any"
]  # of reads; early and late are those of runs at a time not known
Few = Literal["first", "second", "neither"]
FEW: tuple[Few, ...] = ("first", "second", "neither")


class Near(NamedTuple):
    """An assumption about a level of a cache: in which phase few elements are near both times (`near_twice`)."""

    level: int
    few: Few


class TilePart(NamedTuple):
    """Elements of a value in tiles of full size along some axes; such tiles have at least `units`, too many for `deep` levels."""

    number: int
    full: Axes
    units: int
    deep: int


class Readings(NamedTuple):
    """First runs of the pieces of a group of ops that read a value: before the moment, after it, or at any time."""

    group: int
    phase: Phase
    axes: frozenset[Axes]  # of each reader: those that cut it and not the value
    times: tuple[Time, ...]  # when they are counted apart
    certain: bool = True  # not where these readers may be fused with others of the group, which are counted


class Start(NamedTuple):
    """A tensor that has a value at the start of a step; at the end it has the value `last`, which may be the same."""

    tensor: int
    first: int
    last: int
    update: int  # the op that overwrites it, NONE for no op


@dataclass(frozen=True, eq=False)
class Leaf:
    """A range of tilings, a moment, and assumptions about levels at that moment."""

    family: Family
    tiles: TileRange
    moment: Liveness | None = None
    near: tuple[Near, ...] = ()

    @cached_property
    def values(self) -> list[int]:
        """The values that no fusion does away with."""
        elements = self.family.elements
        return [value for value in range(elements.flow.values) if value not in elements.vanishing]

    @cached_property
    def parts(self) -> dict[int, list[TilePart]]:
        """Per value: its elements by the size of their tiles; the first part is of full size along all axes."""
        return {value: self._parts(value) for value in self.values}

    def _parts(self, value: int) -> list[TilePart]:
        tensor, mates = self.family.elements.tensor(value), self.family.mates[value]
        found: list[TilePart] = []
        for number, full in self.tiles.parts(tensor) if tensor.size else ():
            units = min(self.tiles.smallest(mate, full) for mate in mates)
            found.append(TilePart(number, full, units, self.deep(units)))
        merged: dict[int, TilePart] = {}
        for part in found[1:]:
            known = merged.get(part.deep)
            if known is not None:
                units = min(known.units, part.units)
                part = TilePart(known.number + part.number, known.full & part.full, units, part.deep)
            merged[part.deep] = part
        return found[:1] + list(merged.values())

    def deep(self, units: int) -> int:
        """Return in how many levels, from the top, no element of a tile of so many units is ever found.

        On a cache a tile is touched whole and in order: when an element of it is touched, all the rest has been touched since.
        Where a plan places tiles, a tile is in a level only if it fits.
        """
        task = self.family.task
        if task.caches:
            return bisect_left(task.reach, -(-units // task.machine.line) * task.machine.line)
        return next((level for level in task.levels if task.room[level] >= units), task.levels[-1])

    @cached_property
    def runs(self) -> dict[int, list[Readings]]:
        """Per value: the groups that read it in first runs, and their phase."""
        found: dict[int, list[Readings]] = {}
        phases: tuple[Phase, ...] = ("before", "after", "any")
        unknown: tuple[Time, ...] = ("early", "late") if self.tells_early else ("any",)
        times: dict[Phase, tuple[Time, ...]] = {"before": ("before",), "after": ("after",), "any": unknown}
        for value in self.values:
            readers = ({}, {}, self.family.reads[value]) if self.moment is None else self.moment.readers[value]
            found[value] = [
                Readings(group, phase, frozenset(axes), times[phase])
                for phase, groups in zip(phases, readers, strict=True)
                for group, axes in groups.items()
            ]
            found[value] += [
                Readings(group, "any", frozenset(), unknown, certain=False) for group in self._unsure(value)
            ]
        return found

    @property
    def tells_early(self) -> bool:
        """Whether reads by runs at a time that is not known are told apart by whether they come before the moment."""
        return self.moment is not None and self.family.task.caches

    def _unsure(self, value: int) -> list[int]:
        """Return groups that read a value before or after the moment, and with another op, if that is not fused, at any time."""
        if self.moment is None:
            return []
        known = self.moment.before | self.moment.after
        group = self.family.elements.group
        counted = {group[op] for op in self.family.elements.readers[value] if op in known}
        others = (group[op] for op in self.family.elements.readers[value] if op not in known)
        return [one for one in dict.fromkeys(others) if one in counted]

    def count(self, axes: Iterable[str]) -> tuple[Counter, int]:
        """Return into how many pieces some axes together cut something: a counter of tiles, and a factor.

        Axes of several extents, which may be cut or not, are left out.
        """
        factor, unknown = 1, []
        for axis in sorted(axes):
            if axis in self.tiles.ranges:
                least, most = self.tiles.tiles((axis,)), self.tiles.most_tiles((axis,))
                if least == most:
                    factor *= least
                else:
                    unknown.append(axis)
        return ("tiles", *unknown) if unknown else ONE, factor

    def most_count(self, axes: Iterable[str]) -> tuple[Counter, int]:
        """Return the same with the most that axes of several extents can add."""
        axes = list(axes)
        tiles, factor = self.count(axes)
        return tiles, factor * math.prod(self.tiles.loose.get(axis, 1) for axis in axes)

    def visits(self, run: Readings) -> int:
        """Return the least number of reads of an element by the first runs of a group: those of the op that reads it most."""
        return max(self.tiles.tiles(axes) for axes in run.axes) if run.certain else 0

    def full_visits(self, value: int, run: Readings) -> int:
        """Return the least number of these reads that pieces of full size make, for an element in full tiles."""
        if (value, run.group) in self.family.added or not run.certain:
            return 0
        return min(self.visits(run), *(self.tiles.full_tiles(axes) for axes in run.axes))

    def writes(self, value: int) -> int:
        """Return the least number of writes of an element by first runs: every piece of a sum writes it."""
        made = self.family.flow.value_maker[value] != NONE
        return self.tiles.tiles(self.family.summed[value]) if made else 0

    @cached_property
    def starts(self) -> list[Start]:
        """The tensors whose start value is there until some op overwrites it by their last one, if any does."""
        flow, found = self.family.flow, []
        for tensor in np.flatnonzero(flow.start_value != NONE).tolist():
            first, last = int(flow.start_value[tensor]), int(flow.final_value[tensor])
            update = int(flow.value_destroyer[first])
            if first in self.parts and (update == NONE or last in self.family.elements.op_writes[update]):
                found.append(Start(tensor, first, last, update))
        return found

    def crossing(self, value: int) -> bool:
        """Whether a value is made before the moment and read after it."""
        if self.moment is None or int(self.family.flow.value_maker[value]) not in self.moment.before:
            return False
        return bool(self.moment.readers[value][1]) and value not in self._lasting

    @cached_property
    def _lasting(self) -> set[int]:
        return {one for start in self.starts for one in (start.first, start.last)}

    @cached_property
    def waiting_sums(self) -> list[WaitingSum]:
        """The sums that wait for their last terms at the moment, with terms of which that is not known."""
        found = self.family.waiting_sums(self.moment) if self.moment is not None else []
        return [one for one in found if not any(self.crossing(v) for v in (one.term, one.source) if v is not None)]

    @cached_property
    def kept(self) -> dict[int, bool]:
        """Values of which some elements may be there at the moment for sums that wait; whether all are made before it."""
        assert self.moment is not None or not self.waiting_sums
        values = {value for one in self.waiting_sums for value in (one.term, one.source) if value is not None}
        makers, moment = self.family.flow.value_maker, self.moment
        return {value: moment is not None and int(makers[value]) in moment.before for value in sorted(values)}

    @cached_property
    def tiers(self) -> list[tuple[int, ...]]:
        """Levels that are near: of a cache those from the top down to each level, of others those up to each price of a read."""
        task = self.family.task
        if task.caches:
            return [tuple(task.levels[: level + 1]) for level in task.levels]
        return [tuple(at for at in task.levels if task.read[at] <= price) for price in sorted(set(task.read))]

    @cached_property
    def tight_tiers(self) -> list[int]:
        """The tiers that have an end; the last level, which has none, may be cheaper to read than others."""
        return [tier for tier, near in enumerate(self.tiers) if self.family.task.levels[-1] not in near]

    def by_price(self, level: int) -> tuple[float, int]:
        """Return the key that sorts levels by the price of a read."""
        return self.family.task.read[level], level

    def tier_room(self, tier: int) -> int:
        """Return the units that the levels of a tier hold together."""
        task = self.family.task
        return task.reach[tier] if task.caches else sum(task.room[level] for level in self.tiers[tier])

    def outside(self, tier: int) -> list[int]:
        """Return the levels that are not in a tier."""
        return self._outside[tier]

    @cached_property
    def _outside(self) -> list[list[int]]:
        return [[level for level in self.family.task.levels if level not in tier] for tier in self.tiers]

    def told_apart(self, value: int, *phases: Phase) -> tuple[Phase, ...]:
        """Return the phases in which copies and later runs of a value are counted: of those asked for, by default all.

        They are told apart where it is known whether the value is there at the moment.
        """
        known = self.moment is not None and (self.crossing(value) or value in self._firsts)
        return (phases or ("before", "after")) if known else ("any",)

    @cached_property
    def _firsts(self) -> set[int]:
        return {start.first for start in self.starts}

    def entering(self, value: int, part: int, tier: int, *phases: Phase) -> Iterator[Counter]:
        """Yield the copies of a part of a value into a tier from outside of it, in some phases, by default in all."""
        if not self.family.task.caches:
            near, far = self.tiers[tier], self.outside(tier)
            for phase in self.told_apart(value, *phases):
                for source in far:
                    for target in near:
                        yield ("copy", phase, value, part, source, target)

    def leaving(self, value: int, part: int, tier: int, *phases: Phase) -> Iterator[Counter]:
        """Yield the copies of a part of a value out of a tier, in some phases, by default in all."""
        if not self.family.task.caches:
            near, far = self.tiers[tier], self.outside(tier)
            for phase in self.told_apart(value, *phases):
                for source in near:
                    for target in far:
                        yield ("copy", phase, value, part, source, target)

    def reads(self, value: int, part: int, levels: Iterable[int], *times: Time) -> Iterator[Counter]:
        """Yield the reads of a part of a value by first runs at some times, all by default, from some levels."""
        wanted = list(levels)
        for run in self.runs[value]:
            yield from self.reads_by(run, value, part, wanted, *times)

    def reads_by(self, run: Readings, value: int, part: int, levels: Sequence[int], *times: Time) -> Iterator[Counter]:
        """Yield the reads of a part of a value by the first runs of a group."""
        for time in run.times:
            if not times or time in times:
                for full in (False, True) if part == 0 else (False,):
                    for level in levels:
                        yield ("read", run.group, time, value, part, full, level)

    def later(self, value: int, part: int, levels: Iterable[int], *phases: Phase) -> Iterator[Counter]:
        """Yield the reads of a part of a value by later runs before or after the moment, by default both."""
        wanted = list(levels)
        for phase in (phases or ("before", "after")) if self.tells_early else ("any",):
            for level in wanted:
                yield ("more", phase, value, part, level)
        for phase in phases or ("before", "after"):
            for made, made_part in self._remaking[value]:
                for level in wanted:
                    yield ("again", phase, made, made_part, value, part, level)

    def far_reads(self, value: int, tier: int, operand: bool) -> list[Counter]:
        """Return the reads and copies of a value from outside of a tier; of a sum that is no operand, reads by who adds it up."""
        key = (value, tier, operand)
        if key not in self._far_reads:
            far, maker = self.outside(tier), int(self.family.flow.value_maker[value])
            adding = self.family.elements.group[maker] if maker != NONE else NONE
            self._far_reads[key] = [
                counter
                for part in range(len(self.parts[value]))
                for counter in (
                    *self.later(value, part, far),
                    *self.adds(value, part, far),
                    *self.entering(value, part, tier),
                    *(one for one in self.reads(value, part, far) if operand or one[1] == adding),
                )
            ]
        return self._far_reads[key]

    @cached_property
    def _far_reads(self) -> dict[tuple[int, int, bool], list[Counter]]:
        return {}

    def adds(self, value: int, part: int, levels: Iterable[int]) -> Iterator[Counter]:
        """Yield the reads of a sum by pieces that go on with it."""
        if self.writes(value) > 1:
            for full in (False, True) if part == 0 else (False,):
                for level in levels:
                    yield ("add", value, part, full, level)

    def made_again(self, value: int, part: int, levels: Iterable[int], *phases: Phase) -> Iterator[Counter]:
        """Yield the writes of complete elements by later runs, in some phases, by default in all; on explicit machines."""
        elements, wanted = self.family.elements, list(levels)
        if not elements.can_remake(value):
            return
        maker = int(self.family.flow.value_maker[value])
        for phase in self.told_apart(value, *phases):
            if phase != "after" or elements.can_rerun(maker):  # at the moment a sum beside the value is complete
                for level in wanted:
                    yield ("made again", phase, value, part, level)

    @cached_property
    def remade(self) -> dict[int, list[tuple[int, Fraction, Axes]]]:
        """Per value that crosses the moment, or is kept for a sum, and can be recomputed: the reads of that recomputation.

        In elements per element, with the axes whose indices share them.
        """
        elements = self.family.elements
        return {
            value: [one for one in elements.recomputing(value) if one[0] in self.parts]
            for value in self.values
            if (self.crossing(value) or self.kept.get(value)) and elements.can_rerun(self._maker(value))
        }

    def _maker(self, value: int) -> int:
        return int(self.family.flow.value_maker[value])

    @cached_property
    def begun_again(self) -> dict[int, list[tuple[int, Fraction, Axes]]]:
        """The same for incomplete sums that cross the moment: the pieces that begin them may run again."""
        elements, found = self.family.elements, {}
        for value in self.values:
            if value in self.remade or not self.crossing(value):
                continue
            if self.family.flow.op_can_rerun[int(self.family.flow.value_maker[value])]:
                found[value] = [one for one in elements.recomputing(value) if one[0] in self.parts]
        return found

    def begun(self, value: int, operands: list[tuple[int, Fraction, Axes]]) -> list[tuple[int, Fraction, Axes]]:
        """Return the reads of a piece that recomputes a value, or begins its sum: its own tile of the summed operands."""
        elements = self.family.elements
        maker = int(self.family.flow.value_maker[value])
        summed = elements.op_axes[maker] - elements.whole[maker] - elements.tensor_axes(value)
        return [
            (read, ratio * self.tiles.least_share(summed & elements.tensor_axes(read)), own)
            for read, ratio, own in operands
        ]

    @cached_property
    def _remaking(self) -> dict[int, list[tuple[int, int]]]:
        """Per value: the values, with their parts, that are made again from it."""
        found: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for made, operands in (*self.remade.items(), *self.begun_again.items()):
            for value, _, _ in operands:
                found[value] += [(made, part) for part in range(len(self.parts[made]))]
        return found

    def price(self, counter: Counter) -> float:
        """Return a lower bound on the referee's price for one unit of a counter."""
        task, kind = self.family.task, counter[0]
        free = not task.caches and task.machine.operands == "fastest"  # what ops touch there costs nothing
        if kind in ("read", "again", "more"):
            return 0.0 if free else task.read[counter[-1]]
        if kind == "add":  # on caches what the piece before has written was written back that far
            level: int = counter[-1]
            sunk = sum(task.write[1 : level + 1]) if task.caches else 0.0
            return 0.0 if free else task.read[level] + sunk
        if kind == "sunk":
            below: int = counter[-1] + 1
            return task.write[below]
        if kind == "remade":
            return task.write[0] if task.caches else 0.0
        if kind == "written":
            return task.write[0]
        if kind == "run":
            return 1.0
        if kind in ("begun", "added", "made", "made again"):
            return 0.0 if free else task.write[counter[-1]]
        if kind == "copy":
            return task.read[counter[-2]] + task.write[counter[-1]]
        return 0.0
