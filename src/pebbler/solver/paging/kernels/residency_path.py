"""The cheapest residency of one storage in the room that the others leave: a shortest path over states, on flat arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pebbler.compiled import separate_kernel
from pebbler.solver.paging.kernels.residency import (
    AFTER,
    AT_START,
    BEGIN,
    BOUNDED,
    DESTROYS,
    DURING,
    FIRST,
    INFINITE,
    INNER,
    MADE,
    OLD,
    PART,
    READS,
    RESULT,
    SURVIVES,
    UNTIL_FIRST,
    WRAPS,
    storage_cost,
)

__all__ = ["cheapest_residency"]

Array = npt.NDArray[Any]
# Tables to walk back: state before the access, state and level from which and in which the result was made, state left then.
CAME_FROM, MADE_FROM, MADE_IN, LEFT = 0, 1, 2, 3


class Room(NamedTuple):
    """The room that is left, and what a unit of it is worth."""

    masks: Array
    capacity: Array
    used: Array  # [level, slot]
    price_sums: Array  # [level, slot]: prefix sums over slots of what a unit of room is worth to others
    scale: float  # how often that counts
    step_price: float
    level_price: Array  # per level: space to work in


class StayPrices(NamedTuple):
    """The costs of the stays of one storage, infinite where there is no room."""

    start: Array  # [state]: slot 0
    during: Array  # [access, state]: while the op computes
    between: Array  # [access + 1, state]: before the first access, and after each
    result: Array  # [access, level]: making the result there


@INNER
def _price_stay(room, size, a, b, skip_fastest, out):  # type: ignore[no-untyped-def]
    """Price every state for a stay in slots a..b; states that do not fit are infinite."""
    for at in range(len(room.capacity)):
        room.level_price[at] = 0.0
        if a > b or size == 0 or room.capacity[at] > BOUNDED or (skip_fastest and at == 0):
            continue
        most = room.capacity[at] - size
        worth = room.scale * (room.price_sums[at, b + 1] - room.price_sums[at, a])
        room.level_price[at] = size * (worth + room.step_price * (b + 1 - a))
        for slot in range(a, b + 1):
            if room.used[at, slot] > most:
                room.level_price[at] = INFINITE
                break
    for state in range(len(room.masks)):
        price = 0.0
        mask = room.masks[state]
        for at in range(len(room.capacity)):
            if mask >> at & 1:
                price += room.level_price[at]
        out[state] = price if price < INFINITE else INFINITE


@PART
def _price_stays(arrays, accesses, r, room, storage):  # type: ignore[no-untyped-def]
    """Return the prices of all stays of a storage."""
    states, levels, end_slot = len(arrays.masks), len(arrays.capacity), 2 * len(accesses.sequence) + 1
    lo, hi = accesses.start[storage], accesses.start[storage + 1]
    n = hi - lo
    zero, one, every_level = np.int64(0), np.int64(1), np.bool_(False)
    prices = StayPrices(
        np.zeros(states), np.empty((n, states)), np.empty((n + 1, states)), np.full((n, levels), INFINITE)
    )
    first = arrays.storage[storage, FIRST]
    size = arrays.size[first] if first >= 0 else np.int64(0)
    _price_stay(room, size, one, 2 * accesses.when[lo] if n else end_slot, every_level, prices.between[0])
    if arrays.storage[storage, WRAPS]:
        _price_stay(room, size, zero, zero, every_level, prices.start)
    for i in range(n):
        t, k = accesses.when[lo + i], accesses.operand[lo + i]
        old, made, destroys = arrays.operand[k, OLD], arrays.operand[k, MADE], arrays.operand[k, DESTROYS]
        old_size = arrays.size[old] if old >= 0 else np.int64(0)
        again = arrays.fastest and made >= 0 and not destroys
        reserved = arrays.fastest and arrays.operand[k, READS] > 0
        _price_stay(
            room, old_size, 2 * t + 1, 2 * t + 1 if destroys else 2 * t + 2, reserved or again, prices.during[i]
        )
        if again and not reserved and room.used[0, 2 * t + 1] + old_size > arrays.capacity[0]:
            # Made again while it is still there: only in the slot before does that take more than the result's own room.
            for state in range(states):
                if arrays.masks[state] & 1:
                    prices.during[i, state] = INFINITE
        size = arrays.size[made] if made >= 0 else old_size
        if made >= 0:
            _price_result(arrays, room, r.result_level[t], t, size, prices.result[i])
        end = 2 * accesses.when[lo + i + 1] if i + 1 < n else end_slot
        _price_stay(room, size, 2 * t + 3, end, every_level, prices.between[i + 1])
    return prices


@PART
def _price_result(arrays, room, only, t, size, out):  # type: ignore[no-untyped-def]
    """Price every level for the result of the op at position t; with `only >= 0` no other level is open."""
    for at in range(len(arrays.capacity)):
        if only >= 0 and only != at:
            continue
        if arrays.fastest:
            out[at] = 0.0
        elif size == 0 or room.used[at, 2 * t + 2] + size <= arrays.capacity[at]:
            worth = 0.0
            if arrays.capacity[at] < BOUNDED:
                worth = room.price_sums[at, 2 * t + 3] - room.price_sums[at, 2 * t + 2]
            out[at] = size * (arrays.write[at] + room.scale * worth)


@INNER
def _shortest_paths(arrays, accesses, storage, prices, start_cost, costs, back):  # type: ignore[no-untyped-def]
    """Run the shortest path from the start states and what they cost; leave the cost of every final state in `costs[0]`."""
    states = len(arrays.masks)
    lo, hi = accesses.start[storage], accesses.start[storage + 1]
    first = arrays.storage[storage, FIRST]
    size = float(arrays.size[first]) if first >= 0 else 0.0
    now, made_cost = costs[0], costs[1]
    for y in range(states):
        now[y] = INFINITE
        if prices.between[0, y] < INFINITE:
            for s in range(states):
                if start_cost[s] < INFINITE and arrays.copy_price[s, y] < INFINITE:
                    now[y] = min(now[y], start_cost[s] + size * arrays.copy_price[s, y] + prices.between[0, y])
    for i in range(hi - lo):
        k = accesses.operand[lo + i]
        old, made = arrays.operand[k, OLD], arrays.operand[k, MADE]
        old_size = float(arrays.size[old]) if old >= 0 else 0.0
        _through_access(arrays, k, i, old_size, prices, now, made_cost, back)
        size = float(arrays.size[made]) if made >= 0 else old_size
        for y in range(states):
            best, arg = INFINITE, -1
            if prices.between[i + 1, y] < INFINITE:
                for q in range(states):
                    if made_cost[q] < INFINITE and arrays.copy_price[q, y] < INFINITE:
                        total = made_cost[q] + size * arrays.copy_price[q, y]
                        if total < best:
                            best, arg = total, q
            now[y] = best + prices.between[i + 1, y] if arg >= 0 else INFINITE
            back[LEFT, i, y] = arg


@PART
def _through_access(arrays, k, i, size, prices, now, made_cost, back):  # type: ignore[no-untyped-def]
    """Go from the states before an access to those right after it: copies, reads, and the choice of the result's level."""
    states, levels = len(arrays.masks), len(arrays.capacity)
    reads, old, made = arrays.operand[k, READS], arrays.operand[k, OLD], arrays.operand[k, MADE]
    for q in range(states):
        made_cost[q] = INFINITE
    for p in range(states):
        if prices.during[i, p] >= INFINITE or (old < 0 and p > 0):
            continue
        if reads > 0 and (p == 0 or (arrays.fastest and not arrays.masks[p] & 1)):
            continue
        best, arg = INFINITE, -1
        for y in range(states):
            if now[y] < INFINITE and arrays.copy_price[y, p] < INFINITE:
                total = now[y] + size * arrays.copy_price[y, p]
                if total < best:
                    best, arg = total, y
        if arg < 0:
            continue
        best += prices.during[i, p]
        if not arrays.fastest and reads > 0:
            best += reads * size * arrays.state_read[p]
        back[CAME_FROM, i, p] = arg
        if made < 0:
            if best < made_cost[p]:
                made_cost[p] = best
                back[MADE_FROM, i, p], back[MADE_IN, i, p] = p, -1
            continue
        base = 0 if arrays.operand[k, DESTROYS] else p
        for at in range(levels):
            q = arrays.join[base, at]
            if q < 0 or prices.result[i, at] >= INFINITE:
                continue
            total = best + prices.result[i, at]
            if base == q:  # its room is taken already
                total = best + (0.0 if arrays.fastest else float(arrays.size[made]) * arrays.write[at])
            if total < made_cost[q]:
                made_cost[q] = total
                back[MADE_FROM, i, q], back[MADE_IN, i, q] = p, at


@PART
def _closed_path(arrays, accesses, storage, prices, costs, back):  # type: ignore[no-untyped-def]
    """Return the least cost of a path that ends in the state it starts in, and that state; -1 if there is none."""
    states = len(arrays.masks)
    start_cost = np.full(states, INFINITE)
    # With the start left open, every final state gets a cost that no closed path beats: only the promising are closed.
    for state in range(1, states):
        start_cost[state] = prices.start[state]
    _shortest_paths(arrays, accesses, storage, prices, start_cost, costs, back)
    open_cost = costs[0].copy()
    best, begin, last = INFINITE, -1, -1
    while True:
        s = -1
        for state in range(1, states):
            if (
                prices.start[state] < INFINITE
                and open_cost[state] < best
                and (s < 0 or open_cost[state] < open_cost[s])
            ):
                s = state
        if s < 0:
            break
        open_cost[s] = INFINITE
        start_cost.fill(INFINITE)
        start_cost[s] = prices.start[s]
        _shortest_paths(arrays, accesses, storage, prices, start_cost, costs, back)
        last = s
        if costs[0, s] < best:
            best, begin = costs[0, s], s
    if begin >= 0 and last != begin:
        start_cost.fill(INFINITE)
        start_cost[begin] = prices.start[begin]
        _shortest_paths(arrays, accesses, storage, prices, start_cost, costs, back)
    return best, begin


@separate_kernel
def cheapest_residency(arrays, accesses, r, used, price_sums, scale, storage):  # type: ignore[no-untyped-def]
    """Give one storage the cheapest residency in the room that `used` leaves; return whether there is one, and its price.

    `price_sums` are prefix sums of a price per unit and slot for every level, counted `scale` times: the worth of room to others.
    """
    states, levels = len(arrays.masks), len(arrays.capacity)
    lo = accesses.start[storage]
    n = accesses.start[storage + 1] - lo
    room = Room(arrays.masks, arrays.capacity, used, price_sums, scale, arrays.step_price, np.empty(levels))
    prices = _price_stays(arrays, accesses, r, room, storage)
    costs = np.empty((2, states))
    back = np.zeros((4, n, states), np.int64)
    best, begin, final = INFINITE, -1, -1
    if arrays.storage[storage, WRAPS]:
        best, begin = _closed_path(arrays, accesses, storage, prices, costs, back)
        final = begin
    else:
        begin = arrays.storage[storage, BEGIN]
        start_cost = np.full(states, INFINITE)
        start_cost[begin] = 0.0
        _shortest_paths(arrays, accesses, storage, prices, start_cost, costs, back)
        for y in range(1 if arrays.storage[storage, SURVIVES] else 0, states):
            if costs[0, y] < best:
                best, final = costs[0, y], y
    if final < 0:
        return False, INFINITE
    r.storage[storage, AT_START] = begin
    y = final
    for i in range(n - 1, -1, -1):
        r.access[lo + i, AFTER] = y
        q = back[LEFT, i, y]
        r.access[lo + i, RESULT] = back[MADE_IN, i, q]
        r.access[lo + i, DURING] = back[MADE_FROM, i, q]
        y = back[CAME_FROM, i, back[MADE_FROM, i, q]]
    r.storage[storage, UNTIL_FIRST] = y
    r.cost[storage] = storage_cost(arrays, accesses, r, storage)
    return True, best
