"""What a piece reads and writes is held at once: the prices that touches of groups of ops may be counted at, and for how much less.

Of the elements that a piece touches only so many are in the fast levels, and what lasts through the step needs room there, too. So
all touches of a group may be counted at a higher price if something is taken off for every piece: `docs/tiling.md` has the proof
(how much of it at once).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

from pebbler.solver.tiling.liveness import Axes, Elements
from pebbler.solver.tiling.piece_rows import PieceRow
from pebbler.solver.tiling.tile_cases import TileCase

_GRAINS = 64  # parts of a unit that prices between those of levels are rounded to

__all__ = ["GroupTouches", "RaisedGroups", "RoomPrices", "full_touches", "raise_groups"]


@dataclass(frozen=True)
class RoomPrices:
    """Prices of reads in rising order, what room the levels up to each have, and what writes may be counted at then."""

    read: tuple[float, ...] = ()
    room: tuple[int, ...] = ()
    levels: tuple[
        tuple[float, float], ...
    ] = ()  # what a read and a write cost in each level; none: writes stay as they are

    @property
    def write(self) -> tuple[float, ...]:
        """What writes may be counted at where reads are at each of the prices."""
        return tuple(self.write_at(price) for price in self.read)

    def write_at(self, price: float) -> float:
        """Return what writes may be counted at where reads are counted at no less than a price.

        A write to any level may be raised by as much as a read from that level.
        """
        return min((write + max(0.0, price - read) for read, write in self.levels), default=0.0)

    def over(self, price: float, pieces: int, rows: Sequence[PieceRow | None] = ()) -> Fraction:
        """Return what is counted too much at the most where the touches of some pieces are counted at no less than a price.

        `rows` says for the room below each price what is known of pieces that come one after the other.
        """
        steps = self._found(price, pieces, rows)
        return sum(((Fraction(high) - Fraction(low)) * found for low, high, found in steps), Fraction())

    def about(self, price: float, pieces: int, rows: Sequence[PieceRow | None] = ()) -> float:
        """Return the same, quickly and not exactly."""
        return sum((high - low) * found for low, high, found in self._found(price, pieces, rows))

    def _found(self, price: float, pieces: int, rows: Sequence[PieceRow | None]) -> Iterator[tuple[float, float, int]]:
        """Yield the steps of prices up to one, and how many elements are found in the room below each at the most."""
        for at, (low, high) in enumerate(pairwise(self.read)):
            if low < price:
                row = rows[at] if at < len(rows) else None
                found = pieces * self.room[at] if row is None else row.found(pieces, self.room[at])
                yield low, min(price, high), found

    def between(self, at: int, more: float) -> float:
        """Return the price that is so much above one of the prices, in few bits; no more than the next one."""
        step = self.read[at + 1] - self.read[at]
        return self.read[at] + min(step, math.ceil(min(step, more) * _GRAINS) / _GRAINS)


@dataclass
class GroupTouches:
    """What the pieces of a group of ops touch in their first runs: how many pieces, and how many elements at which least price."""

    ops: int
    axes: Axes
    reads: list[tuple[int, float]] = field(default_factory=list)
    writes: list[tuple[int, float]] = field(default_factory=list)
    partial: int = 0  # touches by pieces that may not be of full size
    rows: tuple[PieceRow | None, ...] = ()  # per price but the last: what is known of its pieces in a row

    def add_reads(
        self, floors: Sequence[tuple[int, int, float]], full: int, *, readers: int = 1, cold: bool = False
    ) -> None:
        """Add so many elements that are read so often, at which least price; `full` of all reads are by pieces of full size.

        Several readers count as one; but where a barrier is between them, each is counted at the raised price, and each may read
        so much by pieces of other sizes. Where they are cold, one of their reads costs more than its least price anyway, and
        nothing is gained by raising it.
        """
        self.reads += [((times - cold) * count, floor) for count, times, floor in floors]
        self.partial += readers * max(0, sum(times * count for count, times, _ in floors) - full)

    def add_writes(self, floors: Sequence[tuple[int, float]], full: int) -> None:
        """Add elements that are written once each, `full` of them by pieces of full size."""
        self.writes += floors
        self.partial += max(0, sum(count for count, _ in floors) - full)

    def gain(self, read: float, write: float) -> float:
        """Return what more these touches cost at least if reads and writes are counted at no less than two prices."""
        total = sum(number * (read - floor) for number, floor in self.reads if floor < read)
        return total + sum(number * (write - floor) for number, floor in self.writes if floor < write)

    def pieces(self, case: TileCase) -> tuple[int, int]:
        """Return how many pieces there are at most, and how many of full size."""
        return self.ops * case.most_tiles(self.axes), self.ops * case.most_full(self.axes)


@dataclass(frozen=True)
class RaisedGroups:
    """At what price the touches of which groups are counted, what is taken off for that, and what lasting elements pay for room."""

    least_price: Mapping[int, float] = field(default_factory=dict)  # per group: what its reads are counted at
    levels: RoomPrices = RoomPrices()
    credit: Fraction = Fraction()
    gain: float = 0.0
    pieces: Mapping[int, int] = field(default_factory=dict)  # per group: those that have room taken off for them
    rows: Mapping[int, tuple[PieceRow | None, ...]] = field(default_factory=dict)  # per group: by what that is less

    @property
    def least_write(self) -> dict[int, float]:
        """Per group: the least price that what it writes for the first time is counted at."""
        return {group: self.levels.write_at(price) for group, price in self.least_price.items()}

    def stays(self, groups: Iterable[int]) -> tuple[float, ...]:
        """Return what an element that none of `groups` touches pays for room if it is always in the levels up to each price."""
        touching = set(groups)
        beside = [(count, self.least_price[group]) for group, count in self.pieces.items() if group not in touching]
        found = [sum(count * max(0.0, price - level) for count, price in beside) for level in self.levels.read]
        return tuple(found) if any(found) else ()


@dataclass(frozen=True)
class _Choice:
    """A price for one group: what is gained, and what is taken off for it."""

    price: float
    gain: float
    pieces: int
    partial: int  # touches that are counted too much altogether
    rows: tuple[PieceRow | None, ...] = ()


def raise_groups(
    case: TileCase,
    touched: Mapping[int, GroupTouches],
    levels: RoomPrices,
    lasting: Mapping[int, tuple[int, Sequence[float]]],
) -> RaisedGroups:
    """Return the groups whose touches are worth counting at a higher price.

    `lasting` says how many elements that a group does not touch last through the step, and what each pays at the least for not
    always being in the levels up to each price: a group is raised for the room that they need, by no more than makes them leave.
    """
    if len(levels.read) < 2:
        return RaisedGroups()
    taken: dict[int, _Choice] = {}
    for group, one in touched.items():
        best = max(_choices(case, one, levels, levels.read[1:]), key=lambda choice: (choice.gain, -choice.price))
        if best.gain > 0:
            taken[group] = best
    for at in range(len(levels.read) - 1):
        while found := list(_raised_for_room(case, touched, levels, lasting, taken, at)):
            gain, minus_group, choice = max(found, key=lambda one: one[:2])
            if gain <= 0:
                break
            taken[-minus_group] = choice
    return RaisedGroups(
        {group: choice.price for group, choice in taken.items()},
        levels,
        sum((_credit(choice, levels) for choice in taken.values()), Fraction()),
        sum(choice.gain for choice in taken.values()),
        {group: choice.pieces for group, choice in taken.items()},
        {group: choice.rows for group, choice in taken.items()},
    )


def _raised_for_room(
    case: TileCase,
    touched: Mapping[int, GroupTouches],
    levels: RoomPrices,
    lasting: Mapping[int, tuple[int, Sequence[float]]],
    taken: Mapping[int, _Choice],
    at: int,
) -> Iterator[tuple[float, int, _Choice]]:
    """Yield what it would bring to raise one more group above a price for the room of what lasts: gain, minus group, price."""
    price = levels.read[at]
    paid = sum(_paid(choice, price) for choice in taken.values())
    for group, (number, leaving) in lasting.items():
        before = taken.get(group)
        wanted = leaving[at] - paid
        if group not in touched or wanted <= 0 or (before is not None and before.price > price):
            continue
        prices = {levels.between(at, wanted / count) for count in touched[group].pieces(case) if count}
        for choice in _choices(case, touched[group], levels, sorted(prices)):
            room = number * min(wanted, _paid(choice, price))
            yield choice.gain + room - (before.gain if before is not None else 0.0), -group, choice


def _paid(choice: _Choice, level: float) -> float:
    """Return what an element pays that is always in the levels up to a price beside the pieces of a group."""
    return choice.pieces * max(0.0, choice.price - level)


def _choices(case: TileCase, one: GroupTouches, levels: RoomPrices, prices: Iterable[float]) -> Iterator[_Choice]:
    """Yield what each price would bring a group."""
    every, full = one.pieces(case)
    for price in prices:
        gross = one.gain(price, levels.write_at(price))
        # Either all pieces have room taken off for them, or those that are not of full size are counted too much altogether.
        yield _Choice(price, gross - levels.about(price, every, one.rows), every, 0, one.rows)
        if one.partial or full < every:
            over = levels.about(price, full, one.rows) + (price - levels.read[0]) * one.partial
            yield _Choice(price, gross - over, full, one.partial, one.rows)


def _credit(choice: _Choice, levels: RoomPrices) -> Fraction:
    """Return what is counted too much at the most, exactly."""
    over = levels.over(choice.price, choice.pieces, choice.rows)
    return over + (Fraction(choice.price) - Fraction(levels.read[0])) * choice.partial


def full_touches(elements: Elements, case: TileCase) -> dict[int, int]:
    """Return, per group of ops, how many elements some piece of full size touches at least, whatever it is fused with."""
    flow, found = elements.flow, dict.fromkeys(elements.group, 0)
    for op, group in enumerate(elements.group):
        units: dict[int, int] = {}
        for value in (*elements.op_reads[op], *elements.op_writes[op]):
            if value not in elements.vanishing and not elements.added_once(op, value):
                part = case.full_part(elements.tensor(value), elements.whole[op])
                storage = int(flow.storage[flow.value_tensor[value]])
                units[storage] = min(part, units.get(storage, part))
        found[group] = max(found[group], sum(units.values()))
    return found
