"""The cheapest route of one chain in the room that the others leave: a shortest path over states, on flat arrays."""

from __future__ import annotations

import numpy as np

from pebbler.solver.paging.kernels.paging_state import (
    AFTER,
    AT,
    AT_START,
    BEGIN,
    BOUNDED,
    DESTROYS,
    FIRST,
    INFINITE,
    INNER,
    MAKE,
    MULT,
    OLD,
    OUT,
    SURVIVES,
    UNTIL_FIRST,
    WRAPS,
    route_cost,
)

__all__ = ["route"]

FROM, MADE_FROM, MADE_AT, LEFT = (
    0,
    1,
    2,
    3,
)  # tables to walk back: state before, state and level of the making, state left


@INNER
def _stay_prices(masks, capacity, step_price, used, cum, scale, size, a, b, skip_fastest, level_price, out):  # type: ignore[no-untyped-def]
    """Price every state for a stay in slots a..b; states that do not fit are infinite."""
    for at in range(len(capacity)):
        level_price[at] = 0.0
        if a > b or size == 0 or capacity[at] > BOUNDED or (skip_fastest and at == 0):
            continue
        room = capacity[at] - size
        level_price[at] = size * (scale * (cum[at, b + 1] - cum[at, a]) + step_price * (b + 1 - a))
        for slot in range(a, b + 1):
            if used[at, slot] > room:
                level_price[at] = INFINITE
                break
    for state in range(len(masks)):
        price = 0.0
        mask = masks[state]
        for at in range(len(capacity)):
            if mask >> at & 1:
                price += level_price[at]
        out[state] = price if price < INFINITE else INFINITE


@INNER
def _sweep(g, track, c, start_cost, at_price, stay_price, make_price, costs, back):  # type: ignore[no-untyped-def]
    """Run the shortest path from the start states and what they cost; return the cost of every final state."""
    states, levels = len(g.masks), len(g.capacity)
    lo, hi = track.start[c], track.start[c + 1]
    size = float(g.size[g.chain[c, FIRST]]) if g.chain[c, FIRST] >= 0 else 0.0
    now, mid = costs[0], costs[1]
    for y in range(states):
        now[y] = INFINITE
        if stay_price[0, y] < INFINITE:
            for s in range(states):
                if start_cost[s] < INFINITE and g.trans[s, y] < INFINITE:
                    now[y] = min(now[y], start_cost[s] + size * g.trans[s, y] + stay_price[0, y])
    for i in range(hi - lo):
        k = track.touch[lo + i]
        mult, old, made, destroys = g.touch[k, MULT], g.touch[k, OLD], g.touch[k, MAKE], g.touch[k, DESTROYS]
        size = float(g.size[old]) if old >= 0 else 0.0
        for q in range(states):
            mid[q] = INFINITE
        for p in range(states):
            if at_price[i, p] >= INFINITE or (old < 0 and p > 0):
                continue
            if mult > 0 and (p == 0 or (g.fastest and not g.masks[p] & 1)):
                continue
            best, arg = INFINITE, -1
            for y in range(states):
                if now[y] < INFINITE and g.trans[y, p] < INFINITE:
                    total = now[y] + size * g.trans[y, p]
                    if total < best:
                        best, arg = total, y
            if arg < 0:
                continue
            best += at_price[i, p]
            if not g.fastest and mult > 0:
                best += mult * size * g.state_read[p]
            back[FROM, i, p] = arg
            if made < 0:
                if best < mid[p]:
                    mid[p] = best
                    back[MADE_FROM, i, p], back[MADE_AT, i, p] = p, -1
                continue
            base = 0 if destroys else p
            for o in range(levels):
                q = g.join[base, o]
                if q < 0 or make_price[i, o] >= INFINITE:
                    continue
                total = best + make_price[i, o]
                if base == q:
                    total = best + (0.0 if g.fastest else float(g.size[made]) * g.write[o])  # its room is taken already
                if total < mid[q]:
                    mid[q] = total
                    back[MADE_FROM, i, q], back[MADE_AT, i, q] = p, o
        size = float(g.size[made]) if made >= 0 else size
        for y in range(states):
            best, arg = INFINITE, -1
            if stay_price[i + 1, y] < INFINITE:
                for q in range(states):
                    if mid[q] < INFINITE and g.trans[q, y] < INFINITE:
                        total = mid[q] + size * g.trans[q, y]
                        if total < best:
                            best, arg = total, q
            now[y] = best + stay_price[i + 1, y] if arg >= 0 else INFINITE
            back[LEFT, i, y] = arg
    return now


@INNER
def route(g, track, r, used, cum, scale, c):  # type: ignore[no-untyped-def]
    """Find the cheapest route of one chain in the room that `used` leaves; return whether there is one, and its priced cost.

    `cum` are prefix sums of a price per unit and slot for every level, counted `scale` times: the worth of room to others.
    """
    states, levels, steps = len(g.masks), len(g.capacity), len(track.seq)
    lo, hi = track.start[c], track.start[c + 1]
    n = hi - lo
    zero, one, all_levels = np.int64(0), np.int64(1), np.bool_(False)
    level_price = np.empty(levels)
    start_price = np.zeros(states)
    at_price = np.empty((n, states))
    stay_price = np.empty((n + 1, states))  # the first stay is the one before any event
    make_price = np.full((n, levels), INFINITE)
    size = g.size[g.chain[c, FIRST]] if g.chain[c, FIRST] >= 0 else np.int64(0)
    first_end = 2 * track.when[lo] if n else 2 * steps + 1
    _stay_prices(
        g.masks, g.capacity, g.step_price, used, cum, scale,
        size, one, first_end, all_levels, level_price, stay_price[0],
    )  # fmt: skip
    if g.chain[c, WRAPS]:
        _stay_prices(
            g.masks, g.capacity, g.step_price, used, cum, scale,
            size, zero, zero, all_levels, level_price, start_price,
        )  # fmt: skip
    for i in range(n):
        t, k = track.when[lo + i], track.touch[lo + i]
        made = g.touch[k, MAKE]
        old_size = g.size[g.touch[k, OLD]] if g.touch[k, OLD] >= 0 else np.int64(0)
        last = 2 * t + 1 if g.touch[k, DESTROYS] else 2 * t + 2
        again = g.fastest and made >= 0 and not g.touch[k, DESTROYS]
        reserved = g.fastest and g.touch[k, MULT] > 0
        _stay_prices(
            g.masks, g.capacity, g.step_price, used, cum, scale,
            old_size, 2 * t + 1, last, reserved or again, level_price, at_price[i],
        )  # fmt: skip
        if again and not reserved and used[0, 2 * t + 1] + old_size > g.capacity[0]:
            # Made again while it is still there: only in the slot before does that take more than the result's own room.
            for state in range(states):
                if g.masks[state] & 1:
                    at_price[i, state] = INFINITE
        new_size = g.size[made] if made >= 0 else old_size
        if made >= 0:
            for o in range(levels):
                if r.out_level[t] >= 0 and r.out_level[t] != o:
                    continue
                if g.fastest:
                    make_price[i, o] = 0.0
                elif new_size == 0 or used[o, 2 * t + 2] + new_size <= g.capacity[o]:
                    worth = cum[o, 2 * t + 3] - cum[o, 2 * t + 2] if g.capacity[o] < BOUNDED else 0.0
                    make_price[i, o] = new_size * (g.write[o] + scale * worth)
        end = 2 * track.when[lo + i + 1] if i + 1 < n else 2 * steps + 1
        _stay_prices(
            g.masks, g.capacity, g.step_price, used, cum, scale,
            new_size, 2 * t + 3, end, all_levels, level_price, stay_price[i + 1],
        )  # fmt: skip
    costs = np.empty((2, states))
    back = np.zeros((4, n, states), np.int64)
    best, begin, final = INFINITE, -1, -1
    start_cost = np.full(states, INFINITE)
    if g.chain[c, WRAPS]:
        # With the start left open, every final state gets a cost that no closed route beats: only the promising are closed.
        for state in range(1, states):
            start_cost[state] = start_price[state]
        open_cost = _sweep(g, track, c, start_cost, at_price, stay_price, make_price, costs, back).copy()
        last = -1
        while True:
            s = -1
            for state in range(1, states):
                if (
                    start_price[state] < INFINITE
                    and open_cost[state] < best
                    and (s < 0 or open_cost[state] < open_cost[s])
                ):
                    s = state
            if s < 0:
                break
            open_cost[s] = INFINITE
            start_cost.fill(INFINITE)
            start_cost[s] = start_price[s]
            ends = _sweep(g, track, c, start_cost, at_price, stay_price, make_price, costs, back)
            last = s
            if ends[s] < best:
                best, begin, final = ends[s], s, s
        if begin >= 0 and last != begin:
            start_cost.fill(INFINITE)
            start_cost[begin] = start_price[begin]
            _sweep(g, track, c, start_cost, at_price, stay_price, make_price, costs, back)
    else:
        begin = g.chain[c, BEGIN]
        start_cost[begin] = 0.0
        ends = _sweep(g, track, c, start_cost, at_price, stay_price, make_price, costs, back)
        for y in range(1 if g.chain[c, SURVIVES] else 0, states):
            if ends[y] < best:
                best, final = ends[y], y
    if final < 0:
        return False, INFINITE
    r.chain[c, AT_START] = begin
    y = final
    for i in range(n - 1, -1, -1):
        r.event[lo + i, AFTER] = y
        q = back[LEFT, i, y]
        r.event[lo + i, OUT] = back[MADE_AT, i, q]
        r.event[lo + i, AT] = back[MADE_FROM, i, q]
        y = back[FROM, i, back[MADE_FROM, i, q]]
    r.chain[c, UNTIL_FIRST] = y
    r.cost[c] = route_cost(g, track, r, c)
    return True, best
