"""The least price of elements that share the capacity of the levels: a small linear program, bounded from below by its dual.

The LP solver only suggests prices for room; any room prices give a bound, and it is added up here exactly: room prices are rounded
to few bits, so that sums with whole prices have no rounding error, and totals are fractions. Prices that are not whole lose a
trillionth for the rounding in their sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from pebbler.game.machine import Machine
from pebbler.referee import pricing
from pebbler.solver.tiling.element_pairs import (
    Beside,
    Company,
    ElementClass,
    PairLimit,
    PairLimits,
    near_at_barrier,
    touch_again,
    ways_again,
)
from pebbler.solver.tiling.piece_room import RoomPrices

__all__ = ["CapacityLP"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
_BITS = 40  # of a room price, below the largest price
_KEPT = 3  # prices of room per barrier that are tried in other cases
_MOST_KEPT = 20_000
_ONE = 1 << _BITS
_WORTH = 0.005  # of a bound: where less could be gained by it, a level is not looked at for elements near both times
_SAFETY = 10**12  # where sums of doubles are not exact: what is taken off, as a part of all prices together


@dataclass(frozen=True)
class _Limit:
    """A limit on how many elements may be in some of the states."""

    units: int
    end: Bools | None = None  # per state at the end of the step, for classes that take room there
    barrier: Bools | None = None
    pairs: PairLimit | None = None

    def members(self, one: ElementClass) -> Floats | None:
        """Return how much each combination of states counts against the limit; None: nothing."""
        shape = one.prices.shape
        if self.pairs is not None:
            return self.pairs.members(one)
        if self.end is not None:
            return np.repeat(self.end[: shape[0], None], shape[1], axis=1) if one.takes_end else None
        return None if self.barrier is None else near_at_barrier(one, self.barrier)


@dataclass(frozen=True)
class _Ways:
    """The ways that the elements of a class may go: what each costs, and which limits it counts against."""

    prices: Floats
    marks: Floats
    exact: bool  # whether prices are whole, so that sums with room prices are exact


def _cheapest(ways: Sequence[_Ways], room_prices: Floats) -> Floats:
    """Return per class the price of its cheapest way, room included."""
    if not ways:
        return np.zeros(0)
    starts = np.cumsum([0, *(len(one.prices) for one in ways[:-1])])
    marks = np.concatenate([one.marks for one in ways])
    total = np.concatenate([one.prices for one in ways]) + marks @ room_prices
    return np.asarray(np.minimum.reduceat(total, starts))


class CapacityLP:
    """The linear program of elements that share the levels of a machine."""

    def __init__(self, machine: Machine, *, steady: bool) -> None:
        self.machine, self.steady = machine, steady
        self.caches = machine.management != "explicit"
        self.read = pricing.prices(machine, "read")
        self.write = pricing.prices(machine, "write")
        prices = np.concatenate([self.read, self.write])
        self.scale = math.ceil(math.log2(max(1.0, float(prices.max()))))
        self.whole_prices = bool((prices == np.floor(prices)).all()) and self.scale <= _BITS
        room = pricing.capacities(machine)
        levels = np.arange(len(room))
        self.reach = np.cumsum(room[:-1]) // machine.line * machine.line
        self.limits: list[_Limit] = []
        self.known: dict[str, list[Floats]] = {}
        self._kept_ways: dict[object, _Ways] = {}
        if self.caches:
            # Where an element is found is no higher than where it was, so only sums from the top are limited.
            for level, units in enumerate(self.reach.tolist()):
                self.limits += [_Limit(units, end=levels <= level), _Limit(units, barrier=levels <= level)]
        else:
            sets = np.arange(1, 1 << len(room))
            for level, units in enumerate(room.tolist()):
                if units < pricing.UNBOUNDED:
                    holds = (sets >> level & 1).astype(np.bool_)
                    self.limits += [_Limit(units, end=holds), _Limit(units, barrier=holds)]

    @cached_property
    def found_within(self) -> tuple[list[float], list[int]]:
        """Return prices of reads in rising order, and how many units of what one op reads can be found for no more than each."""
        if self.machine.management != "explicit":
            below = np.minimum.accumulate(self.read[::-1])[::-1].tolist()
            return below, self.reach.tolist()
        if self.machine.operands == "fastest":
            return [], []
        room = pricing.capacities(self.machine)
        prices = sorted(set(self.read.tolist()))
        within = [int(min(pricing.UNBOUNDED, room[self.read <= price].astype(object).sum())) for price in prices]
        return prices, within

    @property
    def results_apart(self) -> bool:
        """Whether what an op writes needs room beside what it reads, and costs more the farther away it is written."""
        machine = self.machine
        return machine.management == "explicit" and machine.operands == "any" and machine.results == "apart"

    @cached_property
    def room_prices(self) -> RoomPrices:
        """Return the prices that touches may be raised to, with the room of the levels below them."""
        prices, room = self.found_within
        levels = tuple(zip(self.read.tolist(), self.write.tolist(), strict=True))
        return RoomPrices(tuple(prices), tuple(room), levels if self.results_apart else ())

    def least(
        self,
        classes: Sequence[ElementClass],
        name: str = "",
        *,
        company: Sequence[Company] = (),
        beside: tuple[Beside, Beside] = (Beside(), Beside()),
        solve: bool = True,
    ) -> Fraction:
        """Return a price that the classes together cannot fall below.

        Prices of room that linear programs give are kept by `name`; without `solve` only those are used.
        """
        classes = [one for one in classes if one.count]
        best = self._bound(classes, self.limits, name, solve=solve)
        if not (self.caches and self.steady):
            return best
        total = sum(one.count for one in classes if one.pair)
        for level, reach in enumerate(self.reach.tolist()):
            if reach >= total or 2 * reach * float(self.read[level + 1] + self.write[level + 1]) < _WORTH * best:
                continue
            near = PairLimits(level, reach, total, company, beside)
            # A second touch is a read from below the fastest level, unless nearer is what is in that level.
            price, far = (float(self.read[at:].min()) for at in (min(level, 1), level + 1))
            # Either few elements are near both times, or many are touched twice in a phase, or in both (docs/tiling.md).
            cases = [
                (0, 0, [*near.always, *near.few_in_first_phase]),
                (1, 0, [*near.always, *near.few_in_second_phase]),
                (1, 1, near.always),
            ]
            if near.few_in_first_phase == near.few_in_second_phase:
                # Then the first case is the weaker one of the first two.
                del cases[1]
            weakest: Fraction | None = None
            for early, late, limits in cases:
                again = [] if not early + late else near.again
                raised = self._bound(
                    touch_again(classes, level, (early, late), price, far) if again else classes,
                    [*self.limits, *(_Limit(units, pairs=limit) for limit, units in [*limits, *again])],
                    f"{name} pairs {level} {early + late} of {len(limits)} and {len(again)}",
                    solve=solve,
                )
                if level:  # what is in the fastest level when the others are touched, or were, is found there
                    raised -= 2 * (early + late) * Fraction(price) * int(self.reach[0])
                weakest = raised if weakest is None else min(weakest, raised)
                if weakest <= best:
                    break
            else:
                best = weakest if weakest is not None else best
        return best

    def _bound(self, classes: Sequence[ElementClass], limits: Sequence[_Limit], name: str, *, solve: bool) -> Fraction:
        ways = [self._ways(one, limits) for one in classes]
        counts = np.array([one.count for one in classes], np.float64)
        units = np.array([limit.units for limit in limits], np.float64)
        known = self.known.setdefault(name, [])
        if solve and any(way.marks.any() for way in ways):
            prices = np.array([self._rounded(price) for price in self._room_prices(classes, limits, ways)])
            known[:] = [prices, *(other for other in known if not np.array_equal(other, prices))][:_KEPT]
            tried = [prices]
        else:
            tried = [*known, np.zeros(len(limits))]
        found = [_cheapest(ways, prices) for prices in tried]
        best = max(
            range(len(tried)), key=lambda k: float(counts @ found[k] - units @ tried[k]) if len(classes) else 0.0
        )
        # Scaling by a power of two is exact, and room prices are whole after it: the rest is whole numbers.
        total = sum(one.count * int(price * _ONE) for one, price in zip(classes, found[best].tolist(), strict=True))
        total -= sum(limit.units * int(price * _ONE) for limit, price in zip(limits, tried[best].tolist(), strict=True))
        # Room prices may be larger than any price where elements are read often: their sums must have few bits, too.
        largest = max((float(np.abs(way.marks).max(initial=0.0)) for way in ways), default=0.0) * tried[best].sum()
        few_bits = float(largest) < 2.0 ** (52 - _BITS + max(0, self.scale))
        if not few_bits or not all(way.exact for way in ways):
            gross = sum(one.count * int(price * _ONE) for one, price in zip(classes, found[best].tolist(), strict=True))
            total -= gross // _SAFETY + 1
        return max(Fraction(), Fraction(total, _ONE))

    def _ways(self, one: ElementClass, limits: Sequence[_Limit]) -> _Ways:
        """Return the ways an element of a class may go, less those that another beats at every price of room."""
        takes = None if one.takes_barrier is None else one.takes_barrier.tobytes()
        key = (
            one.prices.tobytes(),
            one.prices.shape,
            one.takes_end,
            takes,
            one.pair,
            one.remade_apart,
            one.remade_of_pairs,
            one.touched_again,
            tuple(limit.pairs for limit in limits),
        )
        if key not in self._kept_ways:
            members = [limit.members(one) for limit in limits]
            marks = np.array([np.zeros(one.prices.size) if m is None else m.ravel() for m in members], np.float64)
            marks = marks.reshape(
                len(limits), one.prices.size
            ).T  # there may be no limits: one level without a capacity
            prices = one.prices.ravel()
            prices, marks = ways_again(one, [limit.pairs for limit in limits], prices, marks)
            possible = np.flatnonzero(np.isfinite(prices))
            prices, marks = prices[possible], marks[possible]
            order = np.lexsort((marks.sum(axis=1), prices))
            prices, marks = prices[order], marks[order]
            kept: list[int] = []
            for k in range(len(prices)):
                if not any((marks[k] >= marks[other]).all() for other in kept):
                    kept.append(k)
            few_bits = bool((prices % 1 == 0).all() and (prices < 2.0 ** (52 - _BITS + max(0, self.scale))).all())
            few_bits = few_bits and bool(np.isin(marks, (-2, -1, 0, 1, 2, 3)).all())
            exact = self.whole_prices and few_bits
            # What fits nowhere is not counted: then no plan has this tiling, and any bound holds.
            found = (
                _Ways(prices[kept], marks[kept], exact)
                if kept
                else _Ways(np.zeros(1), np.zeros((1, len(limits))), exact)
            )
            if len(self._kept_ways) > _MOST_KEPT:
                self._kept_ways.clear()
            self._kept_ways[key] = found
        return self._kept_ways[key]

    def _rounded(self, price: float) -> float:
        """Return a room price of few bits, so that adding it to whole prices is exact."""
        grain = 2.0 ** (max(0, self.scale) - _BITS)
        return math.floor(price / grain) * grain if math.isfinite(price) else 0.0

    def _room_prices(
        self, classes: Sequence[ElementClass], limits: Sequence[_Limit], ways: Sequence[_Ways]
    ) -> list[float]:
        """Return a price of room per limit from the linear program, all 0 where it has no solution."""
        from ortools.linear_solver import pywraplp

        solver = pywraplp.Solver.CreateSolver("GLOP")
        rows: list[Any] = [solver.Constraint(-solver.infinity(), float(limit.units)) for limit in limits]
        goal = solver.Objective()
        # Classes whose elements may go the same ways are one class here.
        alike: dict[int, tuple[_Ways, int]] = {}
        for one, way in zip(classes, ways, strict=True):
            if way.marks.any():
                alike[id(way)] = (way, one.count + alike.get(id(way), (way, 0))[1])
        for way, units in alike.values():
            count = solver.Constraint(float(units), float(units))
            for price, marks in zip(way.prices.tolist(), way.marks.tolist(), strict=True):
                amount = solver.NumVar(0.0, solver.infinity(), "")
                goal.SetCoefficient(amount, price)
                count.SetCoefficient(amount, 1.0)
                for row, mark in zip(rows, marks, strict=True):
                    if mark:
                        row.SetCoefficient(amount, mark)
        goal.SetMinimization()
        if solver.Solve() != pywraplp.Solver.OPTIMAL:
            return [0.0] * len(limits)
        return [max(0.0, -row.dual_value()) for row in rows]
