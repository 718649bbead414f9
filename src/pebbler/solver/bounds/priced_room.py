"""Prices per unit of room in the fast levels at one moment, chosen so that the lower bound on what values pay is largest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pebbler.arrays import Floats
from pebbler.referee.programs import moments

__all__ = ["RoomPrices", "cheapest_excess", "priced_room"]

_TURNS = 4  # in which the prices of room are set
_ROUNDING = 1e-13  # of sums that are subtracted from each other


def cheapest_excess(size: Floats, cost: Floats, room: float) -> float:
    """Return the least that must be paid when at most `room` units of these values stay in: a knapsack, relaxed to fractions.

    >>> cheapest_excess(np.array([2.0, 2.0]), np.array([6.0, 2.0]), 3)
    1.0
    """
    return _price_of_room(size, cost, room)[0]


def _price_of_room(size: Floats, cost: Floats, room: float) -> tuple[float, float]:
    """Return that, and what the last unit costs that has to go."""
    rate = cost / size
    order = np.argsort(rate, kind="stable")
    size, rate = size[order], rate[order]
    before = np.cumsum(size) - size
    out = np.clip(size.sum() - room - before, 0.0, size)
    return float((out * rate).sum()), float(rate[out > 0][-1]) if (out > 0).any() else 0.0


@dataclass(frozen=True)
class RoomPrices:
    """Prices of a unit of room within each boundary, what values pay at the least with them, and which share of each value's costs
    is enough for that: the rest may be paid at another moment.
    """

    gain: float
    prices: Floats
    shares: Floats


def priced_room(size: Floats, beyond: Floats, rooms: Sequence[float]) -> RoomPrices:
    """Return the prices of room with which values pay the most that is found, one price after the other.

    `rooms[i]` units have room within the first i + 1 levels, and `beyond[i]` is what each value pays for being in none of these.
    A price per unit of room lets every value choose its place for itself; whatever the prices, no plan pays less.

    >>> found = priced_room(np.array([2.0, 2.0]), np.array([[6.0, 2.0]]), [3])  # a unit has to go, for 1
    >>> found.gain, found.prices.tolist(), found.shares.round(3).tolist()
    (1.0, [1.0], [0.333, 1.0])
    >>> round(priced_room(np.array([2.0, 2.0]), np.array([[6.0, 2.0], [60.0, 60.0]]), [1, 3]).gain, 9)  # 30, 1 and 1
    32.0
    """
    boundaries = len(rooms)
    # What a unit pays, by place.
    places = moments.by_place(beyond) / size
    best, best_prices = 0.0, np.zeros(boundaries)
    prices = np.zeros(boundaries)

    def raise_price(last: int) -> None:
        nonlocal best, best_prices
        prices[last] = 0.0
        charged = places + _charges(prices)
        within, outside = charged[: last + 1].min(axis=0), charged[last + 1 :].min(axis=0)
        more, prices[last] = _price_of_room(size, size * np.maximum(outside - within, 0.0), rooms[last])
        fixed = float((size * np.minimum(within, outside)).sum())
        others = float(sum(prices[i] * rooms[i] for i in range(boundaries) if i != last))
        found = fixed + more - others - _ROUNDING * (fixed + others)
        if found > best:
            best, best_prices = found, prices.copy()

    for alone in range(boundaries - 1, -1, -1):
        prices[:] = 0.0
        raise_price(alone)
    for turn in range(_TURNS if boundaries > 1 else 0):
        for last in range(boundaries) if turn % 2 == 0 else range(boundaries - 1, -1, -1):
            raise_price(last)
    charges = _charges(best_prices)
    needed = np.maximum(
        (places + charges).min(axis=0) - charges, 0.0
    )  # a value that pays so much chooses no cheaper place
    shares = np.divide(needed, places, out=np.zeros_like(places), where=needed > 0).max(axis=0)
    return RoomPrices(best, best_prices, shares)


def _charges(prices: Floats) -> Floats:
    """Return, per place, the prices of room of all boundaries that it is within."""
    return np.append(np.cumsum(prices[::-1])[::-1], 0.0)[:, None]
