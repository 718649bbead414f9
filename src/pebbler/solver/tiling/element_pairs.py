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

import numpy as np

from pebbler.arrays import Bools, Floats

__all__ = ["Company", "ElementClass", "PairLimit", "PairLimits", "near_at_barrier", "raise_pairs"]


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


@dataclass(frozen=True)
class Company:
    """Elements that are only touched before the barrier by ops that make others, which stay until after it."""

    count: int
    share: Fraction  # how many others there are for each
    piece: int  # how many others one piece makes at most


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

    def members(self, one: ElementClass) -> Floats | None:
        """Return how much each combination of states counts; None: nothing."""
        i, j = np.indices(one.prices.shape)
        found: Floats | None = None
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

    def __init__(self, level: int, reach: int, total: int, company: Sequence[Company]) -> None:
        chosen: list[Company] = []
        near = reach
        for one in sorted(company, key=lambda one: -one.count * one.share):
            fewer = most_near(reach, total, [*chosen, one])
            if fewer < near:
                chosen, near = [*chosen, one], fewer

        def limit(units: int, *, end: bool, barrier: bool, others: bool, remade: int) -> tuple[PairLimit, int]:
            return PairLimit(level, end, barrier, others, remade), max(0, units)

        self.few_in_second_phase = [limit(2 * reach - total, end=True, barrier=True, others=True, remade=0)]
        self.always: list[tuple[PairLimit, int]] = []
        self.few_in_first_phase = self.few_in_second_phase
        if near < reach:
            self.always = [
                limit(near, end=True, barrier=False, others=False, remade=1),
                limit(near, end=False, barrier=True, others=False, remade=1),
            ]
            self.few_in_first_phase = [
                limit(near + reach - total, end=True, barrier=True, others=True, remade=1),
                limit(2 * near - total, end=True, barrier=True, others=False, remade=2),
            ]


def near_at_barrier(one: ElementClass, near: Bools) -> Floats | None:
    """Return 1 for the ways of a class that take room at the barrier in a state that is near, 0 for others; None: none does."""
    if one.takes_barrier is None:
        return None
    shape = one.prices.shape
    columns = np.zeros(shape[1], np.bool_)
    columns[: len(near)] = near[: shape[1]]
    return np.repeat((columns & one.takes_barrier)[None, :], shape[0], axis=0).astype(np.float64)


def raise_pairs(classes: Sequence[ElementClass], level: int, price: float) -> list[ElementClass]:
    """Return the classes where pairs that are in a level or above both times cost so much more."""
    if not price:
        return list(classes)
    raised = []
    for one in classes:
        if one.pair:
            i, j = np.indices(one.prices.shape)
            one = replace(one, prices=one.prices + np.where((i <= level) & (j <= level), price, 0.0))
        raised.append(one)
    return raised
