"""What one element must cost by where it is at a barrier: on caches a level, where a plan places it a set of levels.

Phases of a lasting element: from the end of the last step to the barrier it is read `early` times, from there to the end of the
step `late` times and, where it is updated, written once. All prices are from below: reads at a time unknown go to the cheapest
level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pebbler.arrays import Floats
from pebbler.game.machine import Machine
from pebbler.referee import pricing
from pebbler.solver.problem import Problem

__all__ = ["CachePrices", "ElementPrices", "ExplicitPrices", "Reads"]


@dataclass(frozen=True)
class Reads:
    """Reads of an element: how many there are at each price that is the least they are counted at."""

    counts: tuple[tuple[int, float], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.counts)

    def at(self, price: float) -> float:
        """Return what all of them cost where one read costs `price`."""
        return math.fsum(count * max(price, least) for count, least in self.counts)

    def one_more(self, price: float, higher: float) -> float:
        """Return what it costs more at the least if one of them costs `higher` and not `price`."""
        return min((max(higher, least) - max(price, least) for _, least in self.counts), default=0.0)

    def __or__(self, others: Reads) -> Reads:
        """Return these and others, of which any may come first."""
        return Reads((*self.counts, *others.counts))

    @property
    def number(self) -> int:
        """How many they are."""
        return sum(count for count, _ in self.counts)


class ElementPrices(Protocol):
    """ElementPrices per element of a tile of some size, from below."""

    ends_priced: bool  # whether what is where at the end matters without being steady
    cheapest_read: float
    cheapest_write: float

    def of_tile(self, units: int) -> ElementPrices:
        """Return the prices for elements of tiles of at least so many units: they are moved and touched whole."""

    def entries_paid(self) -> ElementPrices:
        """Return the prices for elements of which copies into the cheapest levels are counted as reads elsewhere."""

    def start_state(self, problem: Problem, tensor: int) -> int:
        """Return the state in which a value that does not wrap around starts."""

    def passing(self, reads: Reads, writes: int, adding: Reads, first: float = 0.0) -> float:
        """Return the least that adding an element up in `writes` pieces (0: it was there) and reading it `reads` times costs.

        Its first write is counted at no less than `first` where plans choose where it goes. `adding` are the reads of a sum by
        pieces that go on with it: on caches their prices include what was written back since the piece before.
        """

    def across(self, early: Reads, late: Reads, other: Reads, writes: int, adding: Reads, first: float) -> Floats:
        """Return the price of an element made before the barrier, by its state there: one row."""

    def lasting(
        self,
        early: Reads,
        late: Reads,
        other: Reads,
        updated: bool,
        afterwards: Reads,
        start: int | None,
        stays: tuple[float, ...] = (),
    ) -> Floats:
        """Return the price of an element that lasts, by its state at the end of the step and at the barrier.

        `start` is the state it comes from, None where that is its state at the end (steady). `stays` is what it pays if it is
        always in the levels up to each price of reads; empty: nothing.
        """

    def leaving(self, reads: Reads, *, updated: bool) -> list[float]:
        """Return what an element that lasts pays at the least for not always being in the levels up to each price of a read."""


class CachePrices:
    """LRU: a state is the level where the next touch finds an element, no higher than where it was at the barrier.

    What was written pays for every level that it sinks into. A tile is touched whole and in order, so that an element of it is
    never found above `floor`, the level that holds the tile.
    """

    ends_priced = True

    def __init__(self, machine: Machine, floor: int = 0) -> None:
        self.machine, self.floor = machine, floor
        self.read, self.store = pricing.prices(machine, "read"), pricing.prices(machine, "write")
        self.levels = len(self.read)
        deep = np.maximum(np.arange(self.levels), floor)
        self.below = np.minimum.accumulate(self.read[::-1])[::-1][deep]  # the cheapest read from a level or deeper
        self.cheapest_read, self.cheapest_write = float(self.below[0]), float(self.store[0])
        self.sunk = np.concatenate([[0.0], np.cumsum(self.store[1:])])
        self.sunk_again = self.sunk[deep]  # when it is touched again
        self._reach = np.cumsum(pricing.capacities(machine)[:-1]) // machine.line
        self._known = {floor: self}
        self._lasting: dict[tuple[Reads, Reads, Reads, bool, Reads, int | None], Floats] = {}

    def of_tile(self, units: int) -> CachePrices:
        """Return the prices for elements of tiles of at least so many units."""
        floor = int(np.searchsorted(self._reach, -(-units // self.machine.line), "left"))
        if floor not in self._known:
            self._known[floor] = CachePrices(self.machine, floor)
            self._known[floor]._known = self._known
        return self._known[floor]

    def entries_paid(self) -> CachePrices:
        """Return the same: nothing is copied on caches."""
        return self

    def start_state(self, problem: Problem, tensor: int) -> int:
        """Nothing has been touched: the last level."""
        return self.levels - 1

    def passing(self, reads: Reads, writes: int, adding: Reads, first: float = 0.0) -> float:
        """Return the least that adding an element up in `writes` pieces (0: it was there) and reading it `reads` times costs."""
        touches = writes * float(self.store[0]) + reads.at(self.cheapest_read) + adding.at(self.cheapest_read)
        return touches + (float(self.sunk_again[0]) if writes and reads else 0.0)

    def across(self, early: Reads, late: Reads, other: Reads, writes: int, adding: Reads, first: float) -> Floats:
        """Return the price of an element made before the barrier, by its level there."""
        touches = writes * float(self.store[0]) + sum(
            reads.at(self.cheapest_read) for reads in (early, late, other, adding)
        )
        # The next touch may be one of those whose time is not known, which may be counted at that price already.
        then = late | other if late else late
        found = np.array([then.one_more(self.cheapest_read, price) for price in self.below.tolist()])
        row: Floats = touches + found + self.sunk_again
        return row[None, :]

    def lasting(
        self,
        early: Reads,
        late: Reads,
        other: Reads,
        updated: bool,
        afterwards: Reads,
        start: int | None,
        stays: tuple[float, ...] = (),
    ) -> Floats:
        """Return the price of an element that lasts, by its level at the end of the step and at the barrier."""
        key = (early, late, other, updated, afterwards, start)
        if key in self._lasting:
            return self._lasting[key]
        table, cheapest = np.zeros((self.levels, self.levels)), self.cheapest_read
        # Reads whose time is not known may be the first ones, and may be counted at that price already.
        first = early | other if early or not late else Reads()
        then = late | other if late else Reads()
        for i, j in np.ndindex(*table.shape):
            came_from = i if start is None else start
            total = sum(reads.at(cheapest) for reads in (early, late, other, afterwards))
            total += first.one_more(cheapest, float(self.below[came_from]))
            # Untouched since the last step, it has only sunk.
            total += then.one_more(cheapest, float(self.below[j if early or other else max(came_from, j)]))
            if updated:
                total += float(self.store[0] + (self.sunk[i] if start is not None else self.sunk_again[max(i, j)]))
            table[i, j] = total
        self._lasting[key] = table
        return table

    def leaving(self, reads: Reads, *, updated: bool) -> list[float]:
        """Return nothing: on caches nobody chooses what stays."""
        return []


class ExplicitPrices:
    """ExplicitCandidate: an element is in a set of levels, is read where that is cheapest, and copied or dropped at will.

    States are the non-empty sets of levels: state s is the set whose bits are s + 1. A tile is in levels only that hold all of it.
    """

    ends_priced = False

    def __init__(self, machine: Machine, units: int = 1, *, entries_paid: bool = False) -> None:
        self.machine, self.fastest, self.units = machine, machine.operands == "fastest", units
        read, self.write = pricing.prices(machine, "read"), pricing.prices(machine, "write")
        self.levels = len(read)
        self.fits = tuple(bool(room >= units) for room in pricing.capacities(machine).tolist())
        self._known = {self.fits: self}
        self._stays: dict[Reads, Floats] = {}
        self._lasting: dict[object, Floats] = {}
        self._passing: dict[tuple[Reads, float], float] = {}
        self._paid: ExplicitPrices | None = None
        sets = [[at for at in range(self.levels) if mask >> at & 1] for mask in range(1, 1 << self.levels)]
        self.held = np.array([[at in held for at in range(self.levels)] for held in sets])
        source = np.array([min(read[at] for at in held) for held in sets])
        self.source, self.steps = source, sorted(set(read.tolist()))
        where = [at for at in range(self.levels) if self.fits[at]]
        self.cheapest_read = 0.0 if self.fastest else min((float(read[at]) for at in where), default=0.0)
        self.cheapest_write = 0.0 if self.fastest else min((float(self.write[at]) for at in where), default=0.0)
        self.reading = np.where(self.held[:, 0], 0.0, np.inf) if self.fastest else source
        # Copies add a level, from the cheapest level held; drops are free; then all ways from set to set.
        legal = np.array([all(self.fits[at] for at in held) for held in sets])
        lowest, *higher = self.steps
        step = higher[0] - lowest if entries_paid and higher else 0.0  # of a copy from outside of the cheapest levels
        self.path = np.full((len(sets), len(sets)), np.inf)
        for s in np.flatnonzero(legal).tolist():
            for at in range(self.levels):
                if not self.fits[at]:
                    continue
                less = step if source[s] > lowest and read[at] == lowest else 0.0
                self.path[s, (s + 1 | 1 << at) - 1] = 0.0 if self.held[s, at] else source[s] + self.write[at] - less
                if self.held[s, at] and (s + 1) & ~(1 << at):
                    self.path[s, ((s + 1) & ~(1 << at)) - 1] = 0.0
        for via in range(len(sets)):
            self.path = np.minimum(self.path, self.path[:, via, None] + self.path[None, via, :])

    def of_tile(self, units: int) -> ExplicitPrices:
        """Return the prices for elements of tiles of at least so many units."""
        fits = tuple(bool(room >= units) for room in pricing.capacities(self.machine).tolist())
        if fits not in self._known:
            self._known[fits] = ExplicitPrices(self.machine, units)
            self._known[fits]._known = self._known
        return self._known[fits]

    def entries_paid(self) -> ExplicitPrices:
        """Return the prices less what copies into the cheapest levels have been counted for as reads from outside of them."""
        if self._paid is None:
            self._paid = ExplicitPrices(self.machine, self.units, entries_paid=True)
        return self._paid

    def start_state(self, problem: Problem, tensor: int) -> int:
        """Return the set of levels that a value starts in."""
        return sum(1 << level for level in problem.plan([]).start_levels()[tensor]) - 1

    def passing(self, reads: Reads, writes: int, adding: Reads, first: float = 0.0) -> float:
        """Return the least that adding an element up in `writes` pieces (0: it was there) and reading it `reads` times costs."""
        if not writes:
            return reads.at(self.cheapest_read)
        if (reads, first) not in self._passing:
            self._passing[reads, first] = float((self._made(first)[:, None] + self._stay(reads)).min())
        return self._passing[reads, first] + self._adding(writes, adding)

    def across(self, early: Reads, late: Reads, other: Reads, writes: int, adding: Reads, first: float) -> Floats:
        """Return the price of an element made before the barrier, by its state there."""
        row: Floats = (self._made(first)[:, None] + self._stay(early)).min(axis=0) + self._stay(late).min(axis=1)
        return row[None, :] + other.at(self.cheapest_read) + self._adding(writes, adding)

    def lasting(
        self,
        early: Reads,
        late: Reads,
        other: Reads,
        updated: bool,
        afterwards: Reads,
        start: int | None,
        stays: tuple[float, ...] = (),
    ) -> Floats:
        """Return the price of an element that lasts, by its state at the end of the step and at the barrier."""
        key = (early, late, other, updated, afterwards, start, stays)
        if key in self._lasting:
            return self._lasting[key]
        before = (
            self._stay(early) if start is None else np.repeat(self._stay(early)[start, None], len(self.path), axis=0)
        )
        if not updated:
            back = self._stay(late).T if start is None else self._stay(late).min(axis=1)[None, :]
        else:
            made = (self._made()[:, None] + self._stay(afterwards)).min(axis=0)
            back = self._stay(late).min(axis=1)[None, :] + (made[:, None] if start is None else made.min())
        table: Floats = before + back
        if stays and start is None:
            away = [self._away(price, early, late, updated, afterwards) for price in self.steps[1:]]
            table = np.min([one + paid for one, paid in zip([table, *away], stays, strict=True)], axis=0)
        table = table + other.at(self.cheapest_read)
        self._lasting[key] = table
        return table

    def leaving(self, reads: Reads, *, updated: bool) -> list[float]:
        """Return what an element that lasts pays at the least for not always being in the levels up to each price of a read."""
        none = Reads()
        least = self.lasting(none, reads, none, updated, none, None).min()
        if not math.isfinite(least):  # it fits nowhere
            return [0.0] * len(self.steps[1:])
        return [float(self._away(price, none, reads, updated, none).min() - least) for price in self.steps[1:]]

    def _away(self, price: float, early: Reads, late: Reads, updated: bool, afterwards: Reads) -> Floats:
        """Return what an element that lasts costs if, at some moment of the step, no copy of it costs less than `price` to read."""
        far = np.flatnonzero(self.source >= price)

        def via(reads: Reads) -> Floats:
            stay = self._stay(reads)
            first = (self.path[:, far, None] + stay[None, far, :]).min(axis=1)
            last = (stay[:, far, None] + self.path[None, far, :]).min(axis=1)
            return np.asarray(np.minimum(first, last))

        if not updated:
            return np.minimum(via(early) + self._stay(late).T, self._stay(early) + via(late).T)
        stay, drop = self._stay(early), self._stay(late).min(axis=1)[None, :]
        made = (self._made()[:, None] + self._stay(afterwards)).min(axis=0)[:, None]
        made_away = (self._made()[:, None] + via(afterwards)).min(axis=0)[:, None]
        tables = via(early) + drop + made, stay + via(late).min(axis=1)[None, :] + made, stay + drop + made_away
        return np.asarray(np.minimum.reduce(tables))

    def _adding(self, writes: int, adding: Reads) -> float:
        """Return the least price of reading and writing a sum again for every piece but the first."""
        return max(0, writes - 1) * self.cheapest_write + adding.at(self.cheapest_read)

    def _made(self, least: float = 0.0) -> Floats:
        """Return the price of making an element, no less than `least`, by the state that it is then in: one level."""
        price = np.full(len(self.path), np.inf)
        for at in range(1 if self.fastest else self.levels):
            if self.fits[at]:
                price[(1 << at) - 1] = 0.0 if self.fastest else max(self.write[at], least)
        return price

    def _stay(self, reads: Reads) -> Floats:
        """Return the least price of `reads` reads on the way from one state to another; all at the cheapest state of the way."""
        if not reads:
            return self.path
        if reads in self._stays:
            return self._stays[reads]
        through = self.path + np.array([reads.at(price) for price in self.reading.tolist()])
        table: Floats = (through[:, :, None] + self.path[None, :, :]).min(axis=1)
        self._stays[reads] = table
        return table
