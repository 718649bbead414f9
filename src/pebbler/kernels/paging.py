"""Where values live while a sequence of ops runs: exact for one chain of values, local search over all of them.

A *chain* is one storage: its values follow one another, and at any moment its *state* says which levels hold a copy. A sequence of T
ops has 2T + 2 *slots*: slot 0 is the start, 2t + 1 the moment before op t computes, 2t + 2 the moment after, 2T + 1 the end. A chain's
route is a state at every op that touches it and one for every stretch between them; for one chain alone, with the room that the others
leave, the cheapest route is a shortest path over states. Routes meet only in the capacities.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["BOUNDED", "INFINITE", "Game", "Routes", "Track", "build_track", "empty_routes", "route", "settle", "total_cost"]

Array = npt.NDArray[Any]
INFINITE = 1e300
BOUNDED = 2**61  # capacities above this are no limit


class Game(NamedTuple):
    """What does not depend on the sequence: machine, states, and what every op does to every chain it touches."""

    fastest: bool
    capacity: Array  # per level
    write: Array
    masks: Array  # per state: bits of the levels that hold a copy; state 0 is "nowhere"
    trans: Array  # [state, state]: price per unit of the copies that lead from one to the other
    state_read: Array  # price per unit of reading in this state
    join: Array  # [state, level]: the state with that level added, -1 if there is none
    size: Array  # per value
    touch_start: Array  # per op
    touch_chain: Array
    touch_mult: Array  # how often the op reads the chain's value
    touch_old: Array  # the value before, -1 if none
    touch_make: Array  # the value made, -1 if none
    touch_destroys: Array
    op_cost: Array
    op_makes: Array  # number of values made
    chain_start: Array  # state at the start
    chain_wraps: Array  # a steady param: ends as it starts, wherever that is
    chain_first: Array  # the value at the start, -1 if none
    chain_survives: Array  # the last value must be there at the end
    step_price: float  # tiny price per unit and slot, so that ties go to the shorter stay


class Track(NamedTuple):
    """The events of every chain in one sequence."""

    seq: Array
    start: Array  # per chain
    when: Array  # per event: position in the sequence
    touch: Array


class Routes(NamedTuple):
    """Where every chain is, and the room that takes."""

    before: Array  # per event: state while the op computes
    after: Array  # per event: state from then to the next event
    out: Array  # per event: level that a made value is written to, -1 if none
    first: Array  # per chain: state until the first event
    start: Array  # per chain: state at the start
    cost: Array  # per chain
    used: Array  # [level, slot]
    out_level: Array  # per position: the common level of several results, -1 where each op may choose


@njit(cache=True)
def build_track(g: Game, seq: Array) -> Track:
    """Return the events of every chain."""
    chains = len(g.chain_start)
    start = np.zeros(chains + 1, np.int64)
    for t in range(len(seq)):
        for k in range(g.touch_start[seq[t]], g.touch_start[seq[t] + 1]):
            start[g.touch_chain[k] + 1] += 1
    for c in range(chains):
        start[c + 1] += start[c]
    fill = start[:-1].copy()
    when = np.empty(start[-1], np.int64)
    touch = np.empty(start[-1], np.int64)
    for t in range(len(seq)):
        for k in range(g.touch_start[seq[t]], g.touch_start[seq[t] + 1]):
            c = g.touch_chain[k]
            when[fill[c]] = t
            touch[fill[c]] = k
            fill[c] += 1
    return Track(seq, start, when, touch)


@njit(cache=True)
def empty_routes(g: Game, track: Track) -> Routes:
    """Return routes with only the room that every plan needs: start values, and under "fastest" all operands and results."""
    levels, chains, events, steps = len(g.capacity), len(g.chain_start), len(track.when), len(track.seq)
    used = np.zeros((levels, 2 * steps + 2), np.int64)
    out_level = np.full(steps, -1, np.int64)
    for c in range(chains):
        if g.chain_first[c] >= 0 and not g.chain_wraps[c]:
            for at in range(levels):
                if g.masks[g.chain_start[c]] >> at & 1:
                    used[at, 0] += g.size[g.chain_first[c]]
    for t in range(steps):
        op = track.seq[t]
        if g.fastest:
            out_level[t] = 0
            for k in range(g.touch_start[op], g.touch_start[op + 1]):
                if g.touch_mult[k] > 0:
                    used[0, 2 * t + 1] += g.size[g.touch_old[k]]
                    if not g.touch_destroys[k]:
                        used[0, 2 * t + 2] += g.size[g.touch_old[k]]
                if g.touch_make[k] >= 0:
                    used[0, 2 * t + 2] += g.size[g.touch_make[k]]
        elif g.op_makes[op] > 1:
            out_level[t] = levels - 1
    return Routes(
        np.zeros(events, np.int64), np.zeros(events, np.int64), np.full(events, -1, np.int64),
        np.zeros(chains, np.int64), np.zeros(chains, np.int64), np.full(chains, INFINITE), used, out_level,
    )  # fmt: skip


@njit(cache=True)
def _occupy(g, used, state, size, a, b, skip_fastest, sign):
    """Add a stay in slots a..b."""
    mask = g.masks[state]
    for at in range(len(g.capacity)):
        if mask >> at & 1 and g.capacity[at] < BOUNDED and not (skip_fastest and at == 0):
            for slot in range(a, b + 1):
                used[at, slot] += sign * size


@njit(cache=True)
def settle(g, track, r, c, sign):
    """Add (or with sign -1 take away) the room of one chain's route."""
    steps = len(track.seq)
    lo, hi = track.start[c], track.start[c + 1]
    size = g.size[g.chain_first[c]] if g.chain_first[c] >= 0 else np.int64(0)
    if g.chain_wraps[c]:
        _occupy(g, r.used, r.start[c], size, 0, 0, False, sign)
    _occupy(g, r.used, r.first[c], size, 1, 2 * track.when[lo] if lo < hi else 2 * steps + 1, False, sign)
    for e in range(lo, hi):
        t, k = track.when[e], track.touch[e]
        reserved = g.fastest and g.touch_mult[k] > 0
        if g.touch_old[k] >= 0:
            last = 2 * t + 1 if g.touch_destroys[k] else 2 * t + 2
            _occupy(g, r.used, r.before[e], g.size[g.touch_old[k]], 2 * t + 1, last, reserved, sign)
        now = g.touch_make[k] if g.touch_make[k] >= 0 else g.touch_old[k]
        if g.touch_make[k] >= 0 and not g.fastest:
            held = 0 if g.touch_destroys[k] else g.masks[r.before[e]]
            if not held >> r.out[e] & 1:
                r.used[r.out[e], 2 * t + 2] += sign * g.size[now]
        elif g.touch_make[k] >= 0 and not g.touch_destroys[k] and g.masks[r.before[e]] & 1:
            r.used[0, 2 * t + 2] -= sign * g.size[now]  # the result's room is reserved already
        end = 2 * track.when[e + 1] if e + 1 < hi else 2 * steps + 1
        _occupy(g, r.used, r.after[e], g.size[now], 2 * t + 3, end, False, sign)


@njit(cache=True)
def _stay_prices(g, used, cum, scale, size, a, b, skip_fastest, level_price, out):
    """Price every state for a stay in slots a..b; states that do not fit are infinite."""
    for at in range(len(g.capacity)):
        level_price[at] = 0.0
        if a > b or size == 0 or g.capacity[at] > BOUNDED or (skip_fastest and at == 0):
            continue
        room = g.capacity[at] - size
        level_price[at] = size * (scale * (cum[at, b + 1] - cum[at, a]) + g.step_price * (b + 1 - a))
        for slot in range(a, b + 1):
            if used[at, slot] > room:
                level_price[at] = INFINITE
                break
    for state in range(len(g.masks)):
        price = 0.0
        mask = g.masks[state]
        for at in range(len(g.capacity)):
            if mask >> at & 1:
                price += level_price[at]
        out[state] = price if price < INFINITE else INFINITE


@njit(cache=True)
def _sweep(g, track, c, from_state, first_price, at_price, stay_price, make_price, costs, back_y, back_p, back_o, back_q):
    """Run the shortest path from one start state; return the cost of every final state."""
    states, levels = len(g.masks), len(g.capacity)
    lo, hi = track.start[c], track.start[c + 1]
    size = float(g.size[g.chain_first[c]]) if g.chain_first[c] >= 0 else 0.0
    now, mid = costs[0], costs[1]
    for y in range(states):
        now[y] = INFINITE
        if g.trans[from_state, y] < INFINITE and first_price[y] < INFINITE:
            now[y] = size * g.trans[from_state, y] + first_price[y]
    for i in range(hi - lo):
        k = track.touch[lo + i]
        mult, old, made, destroys = g.touch_mult[k], g.touch_old[k], g.touch_make[k], g.touch_destroys[k]
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
            back_y[i, p] = arg
            if made < 0:
                if best < mid[p]:
                    mid[p] = best
                    back_p[i, p], back_o[i, p] = p, -1
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
                    back_p[i, q], back_o[i, q] = p, o
        size = float(g.size[made]) if made >= 0 else size
        for y in range(states):
            best, arg = INFINITE, -1
            if stay_price[i, y] < INFINITE:
                for q in range(states):
                    if mid[q] < INFINITE and g.trans[q, y] < INFINITE:
                        total = mid[q] + size * g.trans[q, y]
                        if total < best:
                            best, arg = total, q
            now[y] = best + stay_price[i, y] if arg >= 0 else INFINITE
            back_q[i, y] = arg
    return now


@njit(cache=True)
def route(g, track, r, used, cum, scale, c):
    """Find the cheapest route of one chain in the room that `used` leaves; return whether there is one, and its priced cost.

    `cum` are prefix sums of a price per unit and slot for every level, counted `scale` times: the worth of room to others.
    """
    states, levels, steps = len(g.masks), len(g.capacity), len(track.seq)
    lo, hi = track.start[c], track.start[c + 1]
    n = hi - lo
    level_price = np.empty(levels)
    first_price, start_price = np.empty(states), np.zeros(states)
    at_price, stay_price = np.empty((n, states)), np.empty((n, states))
    make_price = np.full((n, levels), INFINITE)
    size = g.size[g.chain_first[c]] if g.chain_first[c] >= 0 else np.int64(0)
    first_end = 2 * track.when[lo] if n else 2 * steps + 1
    _stay_prices(g, used, cum, scale, size, 1, first_end, False, level_price, first_price)
    if g.chain_wraps[c]:
        _stay_prices(g, used, cum, scale, size, 0, 0, False, level_price, start_price)
    for i in range(n):
        t, k = track.when[lo + i], track.touch[lo + i]
        made = g.touch_make[k]
        old_size = g.size[g.touch_old[k]] if g.touch_old[k] >= 0 else np.int64(0)
        last = 2 * t + 1 if g.touch_destroys[k] else 2 * t + 2
        again = g.fastest and made >= 0 and not g.touch_destroys[k]
        reserved = g.fastest and g.touch_mult[k] > 0
        _stay_prices(g, used, cum, scale, old_size, 2 * t + 1, last, reserved or again, level_price, at_price[i])
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
        _stay_prices(g, used, cum, scale, new_size, 2 * t + 3, end, False, level_price, stay_price[i])
    costs = np.empty((2, states))
    back_y, back_p = np.zeros((n, states), np.int64), np.zeros((n, states), np.int64)
    back_o, back_q = np.zeros((n, states), np.int64), np.zeros((n, states), np.int64)
    best, begin, final = INFINITE, -1, -1
    if g.chain_wraps[c]:
        for s in range(1, states):
            if start_price[s] < INFINITE:
                ends = _sweep(
                    g, track, c, s, first_price, at_price, stay_price, make_price, costs, back_y, back_p, back_o, back_q
                )
                total = ends[s] + start_price[s]
                if total < best:
                    best, begin, final = total, s, s
        if begin >= 0:
            _sweep(
                g, track, c, begin, first_price, at_price, stay_price, make_price, costs, back_y, back_p, back_o, back_q
            )
    else:
        begin = g.chain_start[c]
        ends = _sweep(
            g, track, c, begin, first_price, at_price, stay_price, make_price, costs, back_y, back_p, back_o, back_q
        )
        for y in range(1 if g.chain_survives[c] else 0, states):
            if ends[y] < best:
                best, final = ends[y], y
    if final < 0:
        return False, INFINITE
    r.start[c] = begin
    y = final
    for i in range(n - 1, -1, -1):
        r.after[lo + i] = y
        q = back_q[i, y]
        r.out[lo + i] = back_o[i, q]
        r.before[lo + i] = back_p[i, q]
        y = back_y[i, back_p[i, q]]
    r.first[c] = y
    r.cost[c] = _route_cost(g, track, r, c)
    return True, best


@njit(cache=True)
def _route_cost(g, track, r, c):
    """Return what a route costs: copies, and under "any" reads and writes."""
    size = float(g.size[g.chain_first[c]]) if g.chain_first[c] >= 0 else 0.0
    state = r.first[c]
    total = size * g.trans[r.start[c], state]
    for e in range(track.start[c], track.start[c + 1]):
        k = track.touch[e]
        if g.touch_old[k] >= 0:
            size = float(g.size[g.touch_old[k]])
            total += size * g.trans[state, r.before[e]]
            if not g.fastest and g.touch_mult[k] > 0:
                total += g.touch_mult[k] * size * g.state_read[r.before[e]]
        state = r.before[e]
        if g.touch_make[k] >= 0:
            size = float(g.size[g.touch_make[k]])
            state = g.join[0 if g.touch_destroys[k] else state, r.out[e]]
            if not g.fastest:
                total += size * g.write[r.out[e]]
        total += size * g.trans[state, r.after[e]]
        state = r.after[e]
    return total


@njit(cache=True)
def total_cost(g: Game, track: Track, r: Routes) -> float:
    """Return the energy of the sequence with these routes."""
    total = 0.0
    for op in track.seq:
        total += g.op_cost[op]
    for c in range(len(r.cost)):
        total += r.cost[c]
    return total
