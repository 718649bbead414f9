"""Prices of room, found by Lagrangean relaxation: every value takes its cheapest route, and what is too full costs more."""

from __future__ import annotations

import math

import numpy as np

from pebbler.compiled import inner_kernel, kernel
from pebbler.solver.layout.kernels.room import RoomOverTime
from pebbler.solver.layout.kernels.value_route import route, segments

__all__ = ["price_room", "sum_prices"]

_LEAST = 1e-7  # prices are changed by factors, so none may be 0
_MOST_EXCESS = 2.0


@kernel
def price_room(arrays, scratch, capacity, price, toll, routes, rounds, fast, slow):  # type: ignore[no-untyped-def]
    """Change the prices of room over some rounds, by factors from `fast` to `slow`; keep the best and return their bound.

    No layout with at most two copies of a value at a time, made just before or right after its uses, costs less than the bound.
    """
    levels, slots = price.shape
    open_room = RoomOverTime(
        np.full(levels, 2**62, np.int64), np.zeros((levels, 1), np.int32), np.zeros((levels, (slots >> 6) + 1), np.uint64),
        True,
    )  # fmt: skip
    change = np.zeros((levels, slots + 1))
    best_price, best = price.copy(), -1.0e300
    for number in range(rounds):
        sum_prices(price, toll)
        change[:] = 0.0
        bound = 0.0
        for value in range(len(arrays.size)):
            route(arrays, scratch, open_room, toll, 1.0, routes, value)
            bound += routes.cost[value] + _note_room(arrays, scratch, routes, value, toll, change)
        step = fast * (slow / fast) ** (number / max(1, rounds - 1))
        for level in range(levels - 1):
            used, room = 0.0, capacity[level]
            for slot in range(slots):
                used += change[level, slot]
                bound -= price[level, slot] * room
        if bound > best:
            best = bound
            best_price[:] = price
        if number < rounds - 1:
            _raise_prices(price, change, capacity, step)
    price[:] = best_price
    sum_prices(price, toll)
    return best


@kernel
def sum_prices(price, toll):  # type: ignore[no-untyped-def]
    """Sum up the prices of room before every slot."""
    for level in range(price.shape[0]):
        toll[level, 0] = 0.0
        for slot in range(price.shape[1]):
            toll[level, slot + 1] = toll[level, slot] + price[level, slot]


@inner_kernel
def _note_room(arrays, scratch, routes, value, toll, change):  # type: ignore[no-untyped-def]
    """Enter the room of a route where it begins and ends; return what it pays for it."""
    base, size, paid = arrays.parts * arrays.use_start[value] + value, arrays.size[value], 0.0
    for k in range(segments(arrays, scratch, value)):
        first, end = scratch.first[k], max(scratch.first[k], scratch.end[k])
        for level in (routes.near[base + k], routes.far[base + k]):
            if level >= 0:
                change[level, first] += size
                change[level, end] -= size
                paid += size * (toll[level, end] - toll[level, first])
    return paid


@inner_kernel
def _raise_prices(price, change, capacity, step):  # type: ignore[no-untyped-def]
    for level in range(price.shape[0] - 1):
        used, room = 0.0, capacity[level]
        for slot in range(price.shape[1]):
            used += change[level, slot]
            excess = min(_MOST_EXCESS, (used - room) / room)
            price[level, slot] = max(_LEAST, price[level, slot] * math.exp(step * excess))
