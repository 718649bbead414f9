"""What a piece reads and writes is held at once: the prices that touches of groups of ops may be counted at, and for how much less.

Of the elements that a piece touches only so many are in the fast levels, and what lasts through the step needs room there, too. So
all touches of a group may be counted at a higher price if something is taken off for every piece: `docs/tiling.md` has the proof
(how much of it at once).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from pebbler.solver.tiling.liveness import Axes, Elements
from pebbler.solver.tiling.tile_cases import TileCase

__all__ = ["GroupTouches", "RaisedGroups", "RoomPrices", "full_touches", "raise_groups"]


@dataclass(frozen=True)
class RoomPrices:
    """Prices of reads in rising order, what room the levels up to each have, and what writes may be counted at then."""

    read: tuple[float, ...] = ()
    room: tuple[int, ...] = ()
    write: tuple[float, ...] = ()


@dataclass
class GroupTouches:
    """What the pieces of a group of ops touch in their first runs: how many pieces, and how many elements at which least price."""

    ops: int
    axes: Axes
    reads: list[tuple[int, float]] = field(default_factory=list)
    writes: list[tuple[int, float]] = field(default_factory=list)
    partial: int = 0  # touches by pieces that may not be of full size

    def add_reads(self, floors: Sequence[tuple[int, int, float]], full: int, *, cold: bool = False) -> None:
        """Add so many elements that are read so often, at which least price; `full` of all reads are by pieces of full size.

        Where they are cold, one of their reads costs more than its least price anyway, and nothing is gained by raising it.
        """
        self.reads += [((times - cold) * count, floor) for count, times, floor in floors]
        self.partial += max(0, sum(times * count for count, times, _ in floors) - full)

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

    at: Mapping[int, int] = field(default_factory=dict)  # per group: the number of the price
    levels: RoomPrices = RoomPrices()
    credit: Fraction = Fraction()
    gain: float = 0.0
    pieces: Mapping[int, int] = field(default_factory=dict)  # per group: those that have room taken off for them

    @property
    def least_price(self) -> dict[int, float]:
        """Per group: the least price that its reads are counted at."""
        return {group: self.levels.read[at] for group, at in self.at.items()}

    @property
    def least_write(self) -> dict[int, float]:
        """Per group: the least price that what it writes for the first time is counted at."""
        return {group: self.levels.write[at] for group, at in self.at.items()}

    def stays(self, groups: Iterable[int]) -> tuple[float, ...]:
        """Return what an element that none of `groups` touches pays for room if it is always in the levels up to each price."""
        touching, prices = set(groups), self.levels.read
        found = [0.0]
        for at in range(len(prices) - 2, -1, -1):
            pieces = sum(count for group, count in self.pieces.items() if self.at[group] > at and group not in touching)
            found.append(found[-1] + (prices[at + 1] - prices[at]) * pieces)
        return tuple(reversed(found)) if found[-1] else ()


@dataclass(frozen=True)
class _Choice:
    """A price for one group: what is gained, and what is taken off for it."""

    at: int
    gain: float
    pieces: int
    partial: int  # touches that are counted too much altogether


def raise_groups(
    case: TileCase, touched: Mapping[int, GroupTouches], levels: RoomPrices, lasting: Mapping[int, int]
) -> RaisedGroups:
    """Return the groups whose touches are worth counting at a higher price.

    `lasting` says how many elements that a group does not touch last through the step: where little is lost by it, a group is
    raised for the room that they need.
    """
    prices = levels.read
    if len(prices) < 2:
        return RaisedGroups()
    taken: dict[int, _Choice] = {}
    spare: list[tuple[float, int, _Choice]] = []
    for group, one in touched.items():
        best = max(_choices(case, one, levels), key=lambda choice: (choice.gain, -choice.at))
        if best.gain > 0:
            taken[group] = best
        elif lasting.get(group):
            spare.append((best.gain, -group, best))
    # An element that leaves the levels up to a price pays at least one step down and one step up.
    paid: dict[int, int] = {}
    for choice in taken.values():
        paid[choice.at] = paid.get(choice.at, 0) + choice.pieces
    for gain, minus_group, choice in sorted(spare, key=lambda one: one[:2], reverse=True):
        step, wanted = prices[choice.at] - prices[choice.at - 1], max(0, 2 - paid.get(choice.at, 0))
        if gain + step * min(wanted, choice.pieces) * lasting[-minus_group] > 0:
            taken[-minus_group] = choice
            paid[choice.at] = paid.get(choice.at, 0) + choice.pieces
    return RaisedGroups(
        {group: choice.at for group, choice in taken.items()},
        levels,
        sum((_credit(choice, levels) for choice in taken.values()), Fraction()),
        sum(choice.gain for choice in taken.values()),
        {group: choice.pieces for group, choice in taken.items()},
    )


def _choices(case: TileCase, one: GroupTouches, levels: RoomPrices) -> Iterator[_Choice]:
    """Yield what each price would bring a group."""
    every, full = one.pieces(case)
    over = 0.0
    for at in range(1, len(levels.read)):
        over += (levels.read[at] - levels.read[at - 1]) * levels.room[at - 1]
        gross = one.gain(levels.read[at], levels.write[at])
        # Either all pieces have room taken off for them, or those that are not of full size are counted too much altogether.
        yield _Choice(at, gross - over * every, every, 0)
        if one.partial or full < every:
            yield _Choice(at, gross - over * full - (levels.read[at] - levels.read[0]) * one.partial, full, one.partial)


def _credit(choice: _Choice, levels: RoomPrices) -> Fraction:
    """Return what is counted too much at the most, exactly."""
    read = [Fraction(price) for price in levels.read]
    over = sum(((read[at + 1] - read[at]) * levels.room[at] for at in range(choice.at)), Fraction())
    return over * choice.pieces + (read[choice.at] - read[0]) * choice.partial


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
