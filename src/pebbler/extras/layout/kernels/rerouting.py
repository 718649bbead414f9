"""Layouts that fit: values routed one after the other into the room that is left, by prices of room, and some of them anew."""

from __future__ import annotations

import math

import numpy as np

from pebbler.compiled import inner_kernel, kernel
from pebbler.extras.layout.kernels.value_route import RoomOverTime, cost_of, place, route, segments

__all__ = ["fill", "price_room", "reroute", "sum_prices", "take_all"]

_SHARE = 0.7  # of the values of a window that are taken out together
_MOST = 256  # values taken out at once


@kernel
def fill(arrays, scratch, room, toll, rate, routes, order):  # type: ignore[no-untyped-def]
    """Route all values in this order; return what they cost, a negative number if one finds no room."""
    total = 0.0
    for value in order:
        if not _route(arrays, scratch, room, toll, rate, routes, value):
            return -1.0
        _place(arrays, scratch, room, routes, value, 1)
        total += routes.cost[value]
    return total


@kernel
def reroute(arrays, scratch, room, toll, routes, rounds, hot, cold, window, seed):  # type: ignore[no-untyped-def]
    """Take out the values of a few neighbouring ops and route them anew, in random order, again and again.

    Keeps a worse layout now and then, less often as the heat falls from `hot` to `cold`. Ends with the best layout in `routes` (and
    no longer in `room`) and returns what it costs.
    """
    np.random.seed(seed)
    positions = len(arrays.touch_start) - 1
    total = 0.0
    for value in range(len(arrays.size)):
        routes.cost[value] = cost_of(arrays, routes, value)
        total += routes.cost[value]
    best, near, far = total, routes.near.copy(), routes.far.copy()
    marked = np.zeros(len(arrays.size), np.bool_)
    chosen = np.empty(_MOST, np.int64)
    kept = np.empty((2, len(routes.near)), routes.near.dtype)
    for number in range(rounds):
        heat = hot * (cold / hot) ** (number / rounds)
        count = _choose(arrays, window, positions, marked, chosen)
        before = 0.0
        for i in range(count):
            before += routes.cost[chosen[i]]
            _place(arrays, scratch, room, routes, chosen[i], -1)
            _keep(arrays, routes, chosen[i], kept, True)
        rate = max(0.0, 1.5 * np.random.random() - 0.5)  # a third without prices of room
        limit = before - heat * math.log(1.0 - np.random.random()) + 1e-9
        after, done = 0.0, 0
        while done < count and after <= limit:
            if not _route(arrays, scratch, room, toll, rate, routes, chosen[done]):
                after = limit + 1.0
                break
            _place(arrays, scratch, room, routes, chosen[done], 1)
            after += routes.cost[chosen[done]]
            done += 1
        if after <= limit:
            total += after - before
            if total < best - 1e-9:
                best = total
                near[:], far[:] = routes.near, routes.far
            continue
        for i in range(done):
            _place(arrays, scratch, room, routes, chosen[i], -1)
        for i in range(count):
            _keep(arrays, routes, chosen[i], kept, False)
            routes.cost[chosen[i]] = cost_of(arrays, routes, chosen[i])
            _place(arrays, scratch, room, routes, chosen[i], 1)
    routes.near[:], routes.far[:] = near, far
    return best


@inner_kernel
def _route(arrays, scratch, room, toll, rate, routes, value):  # type: ignore[no-untyped-def]
    """Choose the cheapest route of a value anew, all of it."""
    low, high = arrays.use_start[value], arrays.use_start[value + 1]
    return route(arrays, scratch, room, toll, rate, routes, value, low, high)


@inner_kernel
def _place(arrays, scratch, room, routes, value, sign):  # type: ignore[no-untyped-def]
    """Take the room of all of a value's route, or give it back."""
    place(arrays, scratch, room, routes, value, sign, arrays.use_start[value], arrays.use_start[value + 1])


@inner_kernel
def _choose(arrays, window, positions, marked, chosen):  # type: ignore[no-untyped-def]
    """Choose values that neighbouring ops read or make, in random order; return how many."""
    first = np.random.randint(positions)
    last = min(positions, first + 1 + np.random.randint(window))
    count = 0
    for i in range(arrays.touch_start[first], arrays.touch_start[last]):
        value = arrays.touch[i]
        if not marked[value] and count < _MOST and np.random.random() < _SHARE:
            marked[value] = True
            chosen[count] = value
            count += 1
    for i in range(count):
        marked[chosen[i]] = False
    for i in range(count - 1, 0, -1):
        other = np.random.randint(i + 1)
        chosen[i], chosen[other] = chosen[other], chosen[i]
    return count


@inner_kernel
def _keep(arrays, routes, value, kept, away):  # type: ignore[no-untyped-def]
    """Put a route away, or bring it back."""
    low = arrays.parts * arrays.use_start[value] + value
    high = arrays.parts * arrays.use_start[value + 1] + value + 1
    for k in range(low, high):
        if away:
            kept[0, k], kept[1, k] = routes.near[k], routes.far[k]
        else:
            routes.near[k], routes.far[k] = kept[0, k], kept[1, k]


@kernel
def take_all(arrays, scratch, room, routes):  # type: ignore[no-untyped-def]
    """Take the room of all routes."""
    for value in range(len(arrays.size)):
        _place(arrays, scratch, room, routes, value, 1)


_LEAST = 1e-7  # prices are changed by factors, so none may be 0
_MOST_EXCESS = 2.0


@kernel
def price_room(arrays, scratch, capacity, price, toll, routes, rounds, fast, slow):  # type: ignore[no-untyped-def]
    """Change the prices of room over some rounds, by factors from `fast` to `slow`; keep the best and return their bound.

    No layout with at most two copies of a value at a time, made just before or right after its uses, costs less than the bound.
    """
    levels, slots = price.shape
    open_room = RoomOverTime(
        np.full(levels, 2**62, np.int64), np.zeros((levels, 0), np.int32), np.zeros(levels, np.int64),
        np.zeros((levels, 0, 0), np.uint64), np.zeros((levels, (slots >> 6) + 1), np.uint64), True,
    )  # fmt: skip
    change = np.zeros((levels, slots + 1))
    best_price, best = price.copy(), -1.0e300
    for number in range(rounds):
        sum_prices(price, toll)
        change[:] = 0.0
        bound = 0.0
        for value in range(len(arrays.size)):
            _route(arrays, scratch, open_room, toll, 1.0, routes, value)
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
    _, last = segments(arrays, scratch, value, arrays.use_start[value], arrays.use_start[value + 1])
    for k in range(last + 1):
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
