"""Routes for all chains together: one after another, then improved a few at a time, and priced by Lagrange multipliers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from pebbler.kernels.paging import BOUNDED, INFINITE, Game, Routes, Track, empty_routes, route, settle

__all__ = ["construct", "draw", "improve", "insertion_order", "relax"]

Array = npt.NDArray[Any]
WORSE = 1e-9  # a relative difference that is rounding, not a gain


@njit(cache=True)
def draw(rng: Array, below: int) -> int:
    """Return a whole number in 0 .. below - 1 from the generator `rng` (xorshift64*, one word of state, never 0)."""
    x = rng[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    rng[0] = x
    return np.int64(((x * np.uint64(2685821657736338717)) >> np.uint64(33)) % np.uint64(below))


@njit(cache=True)
def insertion_order(g: Game, track: Track) -> Array:
    """Return the chains with the least room x time between uses first: they gain most from room near the processor."""
    chains, steps = len(g.chain_start), len(track.seq)
    key = np.empty(chains)
    for c in range(chains):
        lo, hi = track.start[c], track.start[c + 1]
        if lo == hi:
            key[c] = INFINITE
            continue
        k = track.touch[hi - 1]
        size = g.size[g.touch_make[k]] if g.touch_make[k] >= 0 else g.size[g.touch_old[k]]
        span = track.when[hi - 1] - track.when[lo]
        if g.chain_wraps[c]:
            span = steps
        key[c] = float(size) * (span + 1) / max(1, hi - lo - 1)
    return np.argsort(key, kind="mergesort")


@njit(cache=True)
def construct(g: Game, track: Track, r: Routes, order: Array, cum: Array, scale: float) -> bool:
    """Route the chains of `order` one by one, each in the room that is left; return whether all found a way."""
    for c in order:
        found, _ = route(g, track, r, r.used, cum, scale, c)
        if not found:
            return False
        settle(g, track, r, c, 1)
    return True


@njit(cache=True)
def _resident_near(g, track, r, slot, rng):
    """Return a chain that takes bounded room in a slot, or -1 when a few draws find none."""
    chains, steps = len(g.chain_start), len(track.seq)
    for _ in range(8):
        c = draw(rng, chains)
        lo, hi = track.start[c], track.start[c + 1]
        state = r.first[c]
        for e in range(lo, hi):
            if 2 * track.when[e] + 1 > slot:
                break
            state = r.after[e]
        for at in range(len(g.capacity)):
            if g.capacity[at] < BOUNDED and g.masks[state] >> at & 1:
                return c
    return draw(rng, chains) if steps else -1


@njit(cache=True)
def reroute(g, track, r, chosen, count, cum, scale, rng, position, level):
    """Take a few chains out and put them back in a random order; keep the result if it is no dearer. Return the gain.

    With `position >= 0` the results of that op also move to `level`.
    """
    lo_sum = 0
    for i in range(count):
        lo_sum += track.start[chosen[i] + 1] - track.start[chosen[i]]
    saved = np.empty((lo_sum, 3), np.int64)
    ends = np.empty((count, 2), np.int64)
    costs = np.empty(count)
    at, before = 0, 0.0
    for i in range(count):
        c = chosen[i]
        settle(g, track, r, c, -1)
        ends[i, 0], ends[i, 1], costs[i] = r.first[c], r.start[c], r.cost[c]
        before += r.cost[c]
        for e in range(track.start[c], track.start[c + 1]):
            saved[at, 0], saved[at, 1], saved[at, 2] = r.before[e], r.after[e], r.out[e]
            at += 1
    old_level = np.int64(-1)
    if position >= 0:
        old_level = r.out_level[position]
        r.out_level[position] = level
    order = np.arange(count)
    for i in range(count - 1, 0, -1):
        j = draw(rng, i + 1)
        order[i], order[j] = order[j], order[i]
    after, done = 0.0, 0
    for i in order:
        found, _ = route(g, track, r, r.used, cum, scale, chosen[i])
        if not found:
            after = INFINITE
            break
        settle(g, track, r, chosen[i], 1)
        done += 1
        after += r.cost[chosen[i]]
    if after <= before * (1 + WORSE):
        return before - after
    for i in order[:done]:
        settle(g, track, r, chosen[i], -1)
    if position >= 0:
        r.out_level[position] = old_level
    at = 0
    for i in range(count):
        c = chosen[i]
        r.first[c], r.start[c], r.cost[c] = ends[i, 0], ends[i, 1], costs[i]
        for e in range(track.start[c], track.start[c + 1]):
            r.before[e], r.after[e], r.out[e] = saved[at, 0], saved[at, 1], saved[at, 2]
            at += 1
        settle(g, track, r, c, 1)
    return 0.0


@njit(cache=True)
def improve(g: Game, track: Track, r: Routes, cum: Array, rounds: int, rng: Array) -> float:
    """Take a few chains that meet somewhere out and put them back, `rounds` times; return the energy gained."""
    chains, steps, levels = len(g.chain_start), len(track.seq), len(g.capacity)
    if chains == 0 or steps == 0:
        return 0.0
    taken = np.zeros(chains, np.bool_)
    chosen = np.empty(chains, np.int64)
    shared = 0
    for t in range(steps):
        if r.out_level[t] >= 0 and not g.fastest:
            shared += 1
    gained = 0.0
    for _ in range(rounds):
        count, position, level = 0, np.int64(-1), np.int64(-1)
        t = draw(rng, steps)
        if shared and draw(rng, 4) == 0:
            for ahead in range(steps):
                if r.out_level[(t + ahead) % steps] >= 0:
                    position, level = (t + ahead) % steps, draw(rng, levels)
                    break
            op = track.seq[position]
            for k in range(g.touch_start[op], g.touch_start[op + 1]):
                if g.touch_make[k] >= 0:
                    chosen[count] = g.touch_chain[k]
                    taken[chosen[count]] = True
                    count += 1
            t = position
        wish = count + 1 + draw(rng, 6)
        reach = 1 + draw(rng, 1 + min(steps, 1 << draw(rng, 8)))
        for _ in range(3 * wish):
            if count >= min(wish, chains):
                break
            c = np.int64(-1)
            if draw(rng, 2):
                near = min(steps - 1, max(0, t + draw(rng, 2 * reach + 1) - reach))
                op = track.seq[near]
                if g.touch_start[op + 1] > g.touch_start[op]:
                    c = g.touch_chain[g.touch_start[op] + draw(rng, g.touch_start[op + 1] - g.touch_start[op])]
            else:
                c = _resident_near(g, track, r, 2 * t + 1 + draw(rng, 2), rng)
            if c >= 0 and not taken[c]:
                taken[c] = True
                chosen[count] = c
                count += 1
        scale = 0.5 * draw(rng, 3)
        gained += reroute(g, track, r, chosen, count, cum, scale, rng, position, level)
        for i in range(count):
            taken[chosen[i]] = False
    return gained


@njit(cache=True)
def relax(g: Game, track: Track, lam: Array, target: float, rounds: int, patience: int) -> tuple[float, Array]:
    """Raise the Lagrangian bound of this sequence by subgradient steps from `lam`; return the best bound and its prices.

    Capacities become prices per unit and slot; every chain then takes its cheapest route alone. Whatever the prices, the sum less what
    the whole room is worth is below every placement of this sequence. `target` is the energy of the best placement known.
    """
    levels, chains, steps = len(g.capacity), len(g.chain_start), len(track.seq)
    slots = 2 * steps + 2
    r = empty_routes(g, track)
    reserved = r.used.copy()
    if not g.fastest:
        r.out_level[:] = -1  # results of one op may part ways here: a relaxation
    base = 0.0
    for op in track.seq:
        base += g.op_cost[op]
    best, best_lam = -INFINITE, lam.copy()
    lam = lam.copy()
    cum = np.zeros((levels, slots + 1))
    step, stale = 1.0, 0
    for _ in range(rounds):
        worth = 0.0
        for at in range(levels):
            for slot in range(slots):
                cum[at, slot + 1] = cum[at, slot] + lam[at, slot]
                if g.capacity[at] < BOUNDED:
                    worth += lam[at, slot] * (g.capacity[at] - reserved[at, slot])
        r.used[:] = reserved
        value = base - worth
        for c in range(chains):
            found, priced = route(g, track, r, reserved, cum, 1.0, c)
            if not found:
                return INFINITE, best_lam
            value += priced
            settle(g, track, r, c, 1)
        if value > best + 1e-6 * abs(best):
            best, stale = value, 0
            best_lam[:] = lam
        else:
            stale += 1
            if stale >= patience:
                step, stale = 0.5 * step, 0
                lam[:] = best_lam
                if step < 1e-3:
                    break
                continue
        norm = 0.0
        for at in range(levels):
            if g.capacity[at] < BOUNDED:
                for slot in range(slots):
                    over = float(r.used[at, slot] - g.capacity[at])
                    if over > 0 or lam[at, slot] > 0:
                        norm += (over / g.capacity[at]) ** 2
        if norm == 0.0 or target <= value:
            break
        pace = step * (target - value) / norm
        for at in range(levels):
            if g.capacity[at] < BOUNDED:
                for slot in range(slots):
                    over = float(r.used[at, slot] - g.capacity[at])
                    if over > 0 or lam[at, slot] > 0:
                        lam[at, slot] = max(0.0, lam[at, slot] + pace * over / (g.capacity[at] * g.capacity[at]))
    return best, best_lam
