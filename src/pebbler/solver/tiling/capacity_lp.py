"""The least price of elements that share the capacity of the levels: a small linear program, bounded from below by its dual.

The LP solver only suggests prices for room; any room prices give a bound, and it is added up here exactly: room prices are rounded
to few bits, so that sums with whole prices have no rounding error, and totals are fractions. Prices that are not whole lose a
trillionth for the rounding in their sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from pebbler.game.machine import Machine
from pebbler.referee import pricing

__all__ = ["CapacityLP", "ElementClass"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
_BITS = 40  # of a room price, below the largest price
_SAFETY = 1 - Fraction(1, 10**12)  # sums of a few dozen doubles


@dataclass(frozen=True)
class ElementClass:
    """Elements that are touched alike: how many, and what each costs by where it is at the barrier and between steps.

    `prices[i, j]` is for state i at the end of the step and j at the barrier (`pebbler.solver.tiling.element_prices`); where one of
    them does not matter there is a single row or column. A column beyond the states stands for not being alive at the barrier.
    """

    count: int
    prices: Floats
    takes_end: bool = False  # needs room at the end of the step
    takes_barrier: Bools | None = None  # per column: whether it needs room at the barrier; None: no column does
    pair: bool = False  # touched on both sides of the barrier in every step, and written on one
    early: int = 0  # how often it is read before the barrier, at times unknown included, and after
    late: int = 0


@dataclass(frozen=True)
class _Limit:
    """A limit on how many elements may be in some of the states."""

    units: int
    end: Bools | None = None  # per state at the end of the step, for classes that take room there
    barrier: Bools | None = None
    pairs: int | None = None  # for pairs: those that are in this level or above both times

    def members(self, one: ElementClass) -> Bools | None:
        """Return which combinations of states count against the limit."""
        shape = one.prices.shape
        if self.pairs is not None:
            if not one.pair:
                return None
            i, j = np.indices(shape)
            return np.asarray((i <= self.pairs) & (j <= self.pairs))
        if self.end is not None:
            return np.repeat(self.end[: shape[0], None], shape[1], axis=1) if one.takes_end else None
        if one.takes_barrier is None or self.barrier is None:
            return None
        columns = np.zeros(shape[1], np.bool_)
        columns[: len(self.barrier)] = self.barrier[: shape[1]]
        return np.repeat((columns & one.takes_barrier)[None, :], shape[0], axis=0)


class CapacityLP:
    """The linear program of elements that share the levels of a machine."""

    def __init__(self, machine: Machine, *, steady: bool) -> None:
        self.steady = steady
        self.caches = machine.management != "explicit"
        self.read = pricing.prices(machine, "read")
        prices = np.concatenate([self.read, pricing.prices(machine, "write")])
        self.scale = math.ceil(math.log2(max(1.0, float(prices.max()))))
        self.whole_prices = bool((prices == np.floor(prices)).all()) and self.scale <= _BITS
        room = pricing.capacities(machine)
        levels = np.arange(len(room))
        self.reach = np.cumsum(room[:-1]) // machine.line * machine.line
        self.limits: list[_Limit] = []
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

    def least(self, classes: Sequence[ElementClass]) -> Fraction:
        """Return a price that the classes together cannot fall below."""
        classes = [one for one in classes if one.count]
        best = self._bound(classes, self.limits)
        pairs = [one for one in classes if one.pair]
        total = sum(one.count for one in pairs)
        if not (self.caches and self.steady and pairs):
            return best
        for level, reach in enumerate(self.reach.tolist()):
            if level == 0 or reach >= total:
                continue
            # Elements that are near both times either are few, or are touched twice in each phase (docs/tiling.md).
            few = self._bound(classes, [*self.limits, _Limit(max(0, 2 * reach - total), pairs=level)])
            below = float(self.read[1:].min())
            cheapest = float(self.read.min())
            raised = []
            for one in classes:
                if one.pair:
                    i, j = np.indices(one.prices.shape)
                    prices = one.prices + np.where((i <= level) & (j <= level), 2 * below, 0.0)
                    one = replace(one, prices=prices)
                raised.append(one)
            covered = 2 * Fraction(below) * int(self.reach[0])
            covered += Fraction(cheapest) * sum(one.count * ((one.early > 1) + (one.late > 1)) for one in pairs)
            best = max(best, min(few, self._bound(raised, self.limits) - covered))
        return best

    def _bound(self, classes: Sequence[ElementClass], limits: Sequence[_Limit]) -> Fraction:
        members = [[limit.members(one) for one in classes] for limit in limits]
        room_prices = [self._rounded(price) for price in self._room_prices(classes, limits, members)]
        total = -sum(
            (Fraction(price) * limit.units for price, limit in zip(room_prices, limits, strict=True)), Fraction()
        )
        for k, one in enumerate(classes):
            table = one.prices.copy()
            for price, marks in zip(room_prices, members, strict=True):
                mark = marks[k]
                if price > 0 and mark is not None:
                    table += price * mark
            total += one.count * Fraction(float(table.min()))
        return max(Fraction(), total if self.whole_prices else total * _SAFETY)

    def _rounded(self, price: float) -> float:
        """Return a room price of few bits, so that adding it to whole prices is exact."""
        grain = 2.0 ** (self.scale - _BITS)
        return math.floor(price / grain) * grain if math.isfinite(price) else 0.0

    def _room_prices(
        self, classes: Sequence[ElementClass], limits: Sequence[_Limit], members: Sequence[Sequence[Bools | None]]
    ) -> list[float]:
        """Return a price of room per limit from the linear program, all 0 where it has no solution."""
        from ortools.linear_solver import pywraplp

        solver = pywraplp.Solver.CreateSolver("GLOP")
        rows: list[Any] = [solver.Constraint(-solver.infinity(), float(limit.units)) for limit in limits]
        goal = solver.Objective()
        for k, one in enumerate(classes):
            if all(marks[k] is None for marks in members):
                continue
            count = solver.Constraint(float(one.count), float(one.count))
            for i, j in np.ndindex(*one.prices.shape):
                if not np.isfinite(one.prices[i, j]):
                    continue
                amount = solver.NumVar(0.0, solver.infinity(), "")
                goal.SetCoefficient(amount, float(one.prices[i, j]))
                count.SetCoefficient(amount, 1.0)
                for row, marks in zip(rows, members, strict=True):
                    mark = marks[k]
                    if mark is not None and mark[i, j]:
                        row.SetCoefficient(amount, 1.0)
        goal.SetMinimization()
        if solver.Solve() != pywraplp.Solver.OPTIMAL:
            return [0.0] * len(limits)
        return [max(0.0, -row.dual_value()) for row in rows]
