"""A row: an inequality over counters that every legal plan satisfies.

A *counter* is a number that a plan has: so many reads of some elements found in a level, so many elements written back, so many
that are in a level at a moment (`pebbler.referee.counters`). The price of a plan is a sum of counters times prices, so rows with
weights add up to a bound: if no counter is charged above its price, the plan costs at least the weighted sum of the constants.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

__all__ = ["ONE", "Counter", "Number", "Row", "at_least", "at_most"]

Counter = tuple[Any, ...]  # its kind, then what tells it from others of the kind
Number = int | Fraction
Term = tuple[Counter, Number]
ONE: Counter = ("one",)  # always 1: its term is part of the constant


class Row(NamedTuple):
    """The sum of `terms` is at least `least`, in every legal plan in the range that the row was made for.

    A row that is `whole` says how many elements there are, each of which has one of the counters with the factor 1: its weight is
    what the cheapest of them costs, once everything else is charged.
    """

    name: str
    of: tuple[Any, ...]
    terms: Mapping[Counter, Number]
    least: Number
    whole: bool = False

    @property
    def key(self) -> tuple[Any, ...]:
        """The row's identity among all rows of its leaf."""
        return (self.name, *self.of)


def at_least(name: str, of: tuple[Any, ...], terms: Iterable[Term], least: Number, *, whole: bool = False) -> Row:
    """Return the row that says that a sum is at least a number.

    >>> at_least("visits", (0,), [(("read", 1), 1), (("read", 2), 1), (("read", 1), 1)], 5).terms
    {('read', 1): 2, ('read', 2): 1}
    """
    listed = list(terms)
    found = dict(listed)
    if len(found) < len(listed):
        found = dict.fromkeys(found, 0)
        for counter, factor in listed:
            found[counter] += factor
    least -= found.pop(ONE, 0)
    return Row(name, of, found, least, whole)


def at_most(name: str, of: tuple[Any, ...], terms: Iterable[Term], most: Number) -> Row:
    """Return the row that says that a sum is at most a number.

    >>> at_most("room", (0,), [(("read", 1), 1)], 5)
    Row(name='room', of=(0,), terms={('read', 1): -1}, least=-5, whole=False)
    """
    return at_least(name, of, [(counter, -factor) for counter, factor in terms], -most)
