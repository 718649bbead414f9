"""Classes of elements, and limits on how many of those that are touched on both sides of a barrier can be near both times.

A least recently used stack cannot choose what stays: what is touched late in a phase is not found near by its first touch there,
what is touched early is not found near in the next. And what is read together with something that is made there, and kept, shares
the room with it. `docs/tiling.md` has the proofs (near both times).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

import numpy as np

from pebbler.arrays import Bools, Floats

__all__ = [
    "Beside",
    "Company",
    "ElementClass",
    "PairLimit",
    "PairLimits",
    "near_at_barrier",
    "touch_again",
    "ways_again",
]


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
    read: float = 0.0  # the least price of a read, at which all of them but the first on each side are counted
    read_late: bool = False  # certainly read after the barrier, in the same step
    remade_apart: bool = (
        False  # touched with a pair before the barrier; one made twice, the last column, may share its room
    )
    remade_of_pairs: float = 0.0  # what of the last column, where one is made twice, is for reading elements that pair
    near: Bools | None = None  # where it is near both times, and must be touched again in a phase: for no less than
    touched_again: tuple[float, float] = (
        0.0,
        0.0,
    )  # if it is among the few of which one touch is enough, and otherwise


@dataclass(frozen=True)
class Company:
    """Elements that are only touched before the barrier by ops that make others, which stay until after it."""

    count: int
    share: Fraction  # how many others there are for each
    piece: int  # how many others one piece makes at most


@dataclass(frozen=True)
class Beside:
    """What a phase touches that does not pair, once more than some few elements that pair have been touched in it."""

    unsure: int = 0  # so many elements may be touched without it
    units: int = 0
    apart: int = 0  # without what is in anybody's company

    def most_near(self, reach: int) -> int:
        """Return how many elements that pair are among the first, or the last, `reach` units touched in the phase.

        >>> Beside(unsure=30, units=20).most_near(100), Beside(unsure=90, units=20).most_near(100)
        (80, 90)
        """
        return min(reach, max(self.unsure, reach - self.units))


def most_near(reach: int, total: int, company: Sequence[Company]) -> int:
    """Return how many of `total` elements that pair are among the first, or the last, `reach` units touched before a barrier.

    >>> most_near(100, 500, [])
    100
    >>> most_near(100, 500, [Company(480, Fraction(1, 4), 5)])  # 20 alone, and 68 with 17 others, 5 of which may not yet be made
    88
    """
    room, near = Fraction(reach + sum(one.piece for one in company)), Fraction()
    alone = Company(total - sum(one.count for one in company), Fraction(), 0)
    for one in sorted([alone, *company], key=lambda one: one.share):
        fits = min(Fraction(one.count), room / (1 + one.share))
        near, room = near + fits, room - fits * (1 + one.share)
    return min(reach, math.floor(near))


@dataclass(frozen=True)
class PairLimit:
    """Which elements count against a limit on those in some level or above, at the end of the step or at the barrier."""

    level: int
    end: bool
    barrier: bool
    others: bool = False  # what does not pair counts, too, if it is near at the barrier and read after it
    remade: int = 0  # how many more may be near for each element made twice that its company is touched with
    # Limits on touching again: how many only once, beside the others or by themselves; how much of it is counted already.
    again: Literal["", "few", "alone", "counted"] = ""

    def members(self, one: ElementClass) -> Floats | None:
        """Return how much each combination of states counts; None: nothing."""
        i, j = np.indices(one.prices.shape)
        found: Floats | None = None
        if self.again:
            remade = one.remade_of_pairs if self.again == "counted" else 0.0
            return -remade * (j == one.prices.shape[1] - 1) if remade else None
        if one.pair:
            far = (self.end & (i > self.level)) | (self.barrier & (j > self.level))
            found = np.where(far, 0.0, 1.0)
        elif self.others and one.read_late:
            found = near_at_barrier(one, np.arange(one.prices.shape[1]) <= self.level)
        if self.remade and one.remade_apart:
            found = np.zeros(one.prices.shape) if found is None else found
            found[:, -1] -= self.remade
        return found


class PairLimits:
    """The limits on elements that pair, for one level: what always holds, and what holds where few are near both times."""

    def __init__(
        self,
        level: int,
        reach: int,
        total: int,
        company: Sequence[Company],
        beside: tuple[Beside, Beside] = (Beside(), Beside()),
    ) -> None:
        self.level = level
        first, second = (one.most_near(reach) for one in beside)
        near = reach
        chosen: list[Company] = []
        for one in sorted(company, key=lambda one: -one.count * one.share):
            fewer = most_near(reach, total, [*chosen, one])
            if fewer < near:
                chosen, near = [*chosen, one], fewer
        if chosen:
            near = min(near, max(beside[0].unsure, most_near(max(0, reach - beside[0].apart), total, chosen)))
        # Where many are near both times, few of them need to be touched only once more.
        self.again = [(PairLimit(level, end=False, barrier=False, again="counted"), 0)]
        kind: Literal["few", "alone"] = "few" if 2 * reach >= total else "alone"
        few = PairLimit(level, end=False, barrier=False, again=kind)
        self.again.append((few, max(0, 3 * reach - total)))
        both = min(first, second)
        self.always = [
            *self._at_each_time(near, remade=1, known=both),
            *self._at_each_time(both, remade=0, known=reach),
        ]
        # In each phase: among the first units touched, or among the last ones, where others are, too.
        self.few_in_second_phase = [
            self._both_times(second + reach - total, others=True),
            *([self._both_times(2 * second - total)] if second < reach else []),
        ]
        self.few_in_first_phase = [
            self._both_times(first + reach - total, others=True),
            *([self._both_times(2 * first - total)] if first < reach else []),
        ]
        if near < first:
            self.few_in_first_phase += [
                self._both_times(near + reach - total, others=True, remade=1),
                self._both_times(2 * near - total, remade=2),
            ]

    def _at_each_time(self, units: int, *, remade: int, known: int) -> list[tuple[PairLimit, int]]:
        """Return limits on what is near at the end, and at the barrier; none where that is known."""
        times = ((True, False), (False, True)) if units < known else ()
        return [(PairLimit(self.level, end, barrier, remade=remade), max(0, units)) for end, barrier in times]

    def _both_times(self, units: int, *, others: bool = False, remade: int = 0) -> tuple[PairLimit, int]:
        return PairLimit(self.level, end=True, barrier=True, others=others, remade=remade), max(0, units)


def near_at_barrier(one: ElementClass, near: Bools) -> Floats | None:
    """Return 1 for the ways of a class that take room at the barrier in a state that is near, 0 for others; None: none does."""
    if one.takes_barrier is None:
        return None
    shape = one.prices.shape
    columns = np.zeros(shape[1], np.bool_)
    columns[: len(near)] = near[: shape[1]]
    return np.repeat((columns & one.takes_barrier)[None, :], shape[0], axis=0).astype(np.float64)


def touch_again(
    classes: Sequence[ElementClass], level: int, phases: tuple[int, int], price: float, far: float
) -> list[ElementClass]:
    """Return the classes where pairs that are in a level or above both times are touched again before the barrier, or after it.

    That costs `price`; of those that are not among the few, `far` or two such touches. Reads that are counted anyway, beyond
    the first one of a phase, may be among them.
    """
    found = []
    for one in classes:
        if one.pair:
            i, j = np.indices(one.prices.shape)
            near, once, often = min(one.read, price), 0.0, 0.0
            for more in [reads - 1 for phase, reads in zip(phases, (one.early, one.late), strict=True) if phase]:
                once += price - near * (more > 0)
                often += min(2 * price - near * min(max(more, 0), 2), far - min(one.read, far) * (more > 0))
            both = np.asarray((i <= level) & (j <= level))
            one = replace(one, near=both, touched_again=(once, max(once, often)))
        found.append(one)
    return found


def ways_again(
    one: ElementClass, limits: Sequence[PairLimit | None], prices: Floats, marks: Floats
) -> tuple[Floats, Floats]:
    """Return the ways of a class and what each counts against the limits, with those that touch an element again told apart.

    Where it is a piece that runs again that does so, it is counted already with what that makes.
    """
    if one.near is None:
        return prices, marks
    near = one.near.ravel()
    kinds = np.array([limit.again if limit is not None else "" for limit in limits])
    all_prices, all_marks = [prices[~near]], [marks[~near]]
    for price, beside, alone in zip(one.touched_again, (2, 1), (2, 0), strict=True):
        taken = beside * (kinds == "few") + alone * (kinds == "alone")
        for paid in (price, 0.0):
            all_prices.append(prices[near] + paid)
            all_marks.append(marks[near] + taken + (price - paid) * (kinds == "counted"))
    return np.concatenate(all_prices), np.concatenate(all_marks)
