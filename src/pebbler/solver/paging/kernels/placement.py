"""Routes for all chains together: one after another, then improved a few at a time, and priced by Lagrange multipliers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pebbler.compiled import kernel
from pebbler.solver.paging.kernels.paging_state import (
    AFTER,
    AT,
    AT_START,
    BOUNDED,
    CHAIN,
    INFINITE,
    INNER,
    MAKE,
    OLD,
    OUT,
    UNTIL_FIRST,
    WRAPS,
    Game,
    Routes,
    Track,
    empty_routes,
    route_cost,
    settle,
)
from pebbler.solver.paging.kernels.routing import route

__all__ = ["crowding", "draw", "place", "relax", "reroute", "settle_all"]

Array = npt.NDArray[Any]
WORSE = 1e-9  # a relative difference that is rounding, not a gain


@INNER
def draw(rng: Array, below: Any) -> Any:
    """Return a whole number in 0 .. below - 1 from the generator `rng` (xorshift64*, one word of state, never 0)."""
    x = rng[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    rng[0] = x
    return np.int64(((x * np.uint64(2685821657736338717)) >> np.uint64(33)) % np.uint64(below))


@kernel
def crowding(g: Game, track: Track) -> Array:
    """Return room x time between uses of every chain: those with the least gain most from room near the processor."""
    chains, steps = len(g.chain), len(track.seq)
    key = np.empty(chains)
    for c in range(chains):
        lo, hi = track.start[c], track.start[c + 1]
        if lo == hi:
            key[c] = INFINITE
            continue
        k = track.touch[hi - 1]
        size = g.size[g.touch[k, MAKE]] if g.touch[k, MAKE] >= 0 else g.size[g.touch[k, OLD]]
        span = track.when[hi - 1] - track.when[lo]
        if g.chain[c, WRAPS]:
            span = steps
        key[c] = float(size) * (span + 1) / max(1, hi - lo - 1)
    return key


@kernel
def settle_all(g: Game, track: Track, r: Routes) -> None:
    """Fill in the cost and the room of every chain from its states; `r.used` holds only what every plan needs."""
    for c in range(len(g.chain)):
        r.cost[c] = route_cost(g, track, r, c)
        settle(g, track, r, r.used, c, np.int64(1), np.bool_(False))


@INNER
def _resident_near(g, track, r, slot, rng):  # type: ignore[no-untyped-def]
    """Return a chain that takes bounded room in a slot, or -1 when a few draws find none."""
    chains, steps = len(g.chain), len(track.seq)
    for _ in range(8):
        c = draw(rng, chains)
        lo, hi = track.start[c], track.start[c + 1]
        state = r.chain[c, UNTIL_FIRST]
        for e in range(lo, hi):
            if 2 * track.when[e] + 1 > slot:
                break
            state = r.event[e, AFTER]
        for at in range(len(g.capacity)):
            if g.capacity[at] < BOUNDED and g.masks[state] >> at & 1:
                return c
    return draw(rng, chains) if steps else -1


@INNER
def reroute(g, track, r, chosen, count, cum, scale, rng, position, level):  # type: ignore[no-untyped-def]
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
        settle(g, track, r, r.used, c, np.int64(-1), np.bool_(False))
        ends[i, 0], ends[i, 1], costs[i] = r.chain[c, UNTIL_FIRST], r.chain[c, AT_START], r.cost[c]
        before += r.cost[c]
        for e in range(track.start[c], track.start[c + 1]):
            saved[at, 0], saved[at, 1], saved[at, 2] = r.event[e, AT], r.event[e, AFTER], r.event[e, OUT]
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
        settle(g, track, r, r.used, chosen[i], np.int64(1), np.bool_(False))
        done += 1
        after += r.cost[chosen[i]]
    if after <= before * (1 + WORSE):
        return before - after
    for i in order[:done]:
        settle(g, track, r, r.used, chosen[i], np.int64(-1), np.bool_(False))
    if position >= 0:
        r.out_level[position] = old_level
    at = 0
    for i in range(count):
        c = chosen[i]
        r.chain[c, UNTIL_FIRST], r.chain[c, AT_START], r.cost[c] = ends[i, 0], ends[i, 1], costs[i]
        for e in range(track.start[c], track.start[c + 1]):
            r.event[e, AT], r.event[e, AFTER], r.event[e, OUT] = saved[at, 0], saved[at, 1], saved[at, 2]
            at += 1
        settle(g, track, r, r.used, c, np.int64(1), np.bool_(False))
    return 0.0


@kernel
def place(
    g: Game, track: Track, r: Routes, order: Array, cum: Array, scale: float, rounds: int, rng: Array
) -> bool:  # fmt: skip
    """Route the chains of `order` one by one, each in the room that is left; return whether all found a way.

    Then, `rounds` times, take a few chains that meet somewhere out and put them back if that is no dearer. `cum` are prefix
    sums over slots of what room is worth to others; the first pass counts them `scale` times, the later ones now more, now less.
    """
    chains, steps, levels = len(g.chain), len(track.seq), len(g.capacity)
    for c in order:
        found, _ = route(g, track, r, r.used, cum, scale, c)
        if not found:
            return False
        settle(g, track, r, r.used, c, np.int64(1), np.bool_(False))
    if chains == 0 or steps == 0:
        return True
    taken = np.zeros(chains, np.bool_)
    chosen = np.empty(chains, np.int64)
    shared = 0
    for t in range(steps):
        if r.out_level[t] >= 0 and not g.fastest:
            shared += 1
    for _ in range(rounds):
        count, position, level = np.int64(0), np.int64(-1), np.int64(-1)
        t = draw(rng, steps)
        if shared and draw(rng, np.int64(4)) == 0:
            for ahead in range(steps):
                if r.out_level[(t + ahead) % steps] >= 0:
                    position, level = (t + ahead) % steps, draw(rng, levels)
                    break
            op = track.seq[position]
            for k in range(g.touch_start[op], g.touch_start[op + 1]):
                if g.touch[k, MAKE] >= 0:
                    chosen[count] = g.touch[k, CHAIN]
                    taken[chosen[count]] = True
                    count += 1
            t = int(position)
        wish = count + 1 + draw(rng, np.int64(6))
        reach = 1 + draw(rng, 1 + min(steps, 1 << draw(rng, np.int64(8))))
        for _ in range(3 * wish):
            if count >= min(wish, chains):
                break
            c = np.int64(-1)
            if draw(rng, np.int64(2)):
                near = min(steps - 1, max(0, t + draw(rng, 2 * reach + 1) - reach))
                op = track.seq[near]
                if g.touch_start[op + 1] > g.touch_start[op]:
                    c = g.touch[g.touch_start[op] + draw(rng, g.touch_start[op + 1] - g.touch_start[op]), CHAIN]
            else:
                c = _resident_near(g, track, r, 2 * t + 1 + draw(rng, np.int64(2)), rng)
            if c >= 0 and not taken[c]:
                taken[c] = True
                chosen[count] = c
                count += 1
        scale = 0.5 * draw(rng, np.int64(3))
        reroute(g, track, r, chosen, count, cum, scale, rng, position, level)
        for i in range(count):
            taken[chosen[i]] = False
    return True


@kernel
def relax(g: Game, track: Track, lam: Array, target: float, rounds: int, patience: int) -> tuple[float, Array]:
    """Raise the Lagrangian bound of this sequence by subgradient steps from `lam`; return the best bound and its prices.

    Capacities become prices per unit and slot; every chain then takes its cheapest route alone. Whatever the prices, the sum less
    what the whole room is worth is below every placement of this sequence. `target` is the energy of the best placement known.
    """
    levels, chains, steps = len(g.capacity), len(g.chain), len(track.seq)
    slots = 2 * steps + 2
    r = empty_routes(g, track)
    reserved = r.used.copy()
    if not g.fastest:
        r.out_level.fill(-1)  # results of one op may part ways here: a relaxation
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
        differences = np.zeros((levels, slots + 1), np.int64)
        value = base - worth
        for c in range(chains):
            found, priced = route(g, track, r, reserved, cum, np.float64(1.0), c)
            if not found:
                return INFINITE, best_lam
            value += priced
            settle(g, track, r, differences, c, np.int64(1), np.bool_(True))
        for at in range(levels):
            held = np.int64(0)
            for slot in range(slots):
                held += differences[at, slot]
                r.used[at, slot] = reserved[at, slot] + held
        if value > best + 1e-6 * abs(best):
            best, stale = value, 0
            best_lam = lam.copy()
        else:
            stale += 1
            if stale >= patience:
                step, stale = 0.5 * step, 0
                lam = best_lam.copy()
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
