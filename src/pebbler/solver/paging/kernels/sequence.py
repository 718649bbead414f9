"""Sequences of ops, changed one move at a time: blocks shift past what they do not depend on, ops run again or stop doing so.

Every move keeps the sequence legal, so only its price is in question: routes are carried over from the sequence before, and
only the chains that the move touches, or that no longer fit, are routed anew.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pebbler.compiled import kernel
from pebbler.solver.paging.kernels.paging_state import (
    AFTER,
    AT,
    AT_START,
    BOUNDED,
    CHAIN,
    INNER,
    MAKE,
    MULT,
    OLD,
    OUT,
    UNTIL_FIRST,
    Game,
    Routes,
    Track,
    build_track,
    empty_routes,
    settle,
    total_cost,
)
from pebbler.solver.paging.kernels.placement import draw, reroute
from pebbler.solver.paging.kernels.routing import route

__all__ = ["Rules", "explore"]

Array = npt.NDArray[Any]


class Rules(NamedTuple):
    """Which ops may run again, and until when."""

    maker: Array  # per value
    rerun: Array  # per op: neither in place nor once
    kill_start: Array  # per op: the ops after which it can never run again
    kill_items: Array
    most: int  # the longest sequence


@INNER
def _conflict(g, a, b):  # type: ignore[no-untyped-def]
    """Whether two ops may not change places: both touch a chain, and one of them writes it."""
    for i in range(g.touch_start[a], g.touch_start[a + 1]):
        for j in range(g.touch_start[b], g.touch_start[b + 1]):
            if g.touch[i, CHAIN] == g.touch[j, CHAIN] and (g.touch[i, MAKE] >= 0 or g.touch[j, MAKE] >= 0):
                return True
    return False


@INNER
def _shift(g, seq, rng, new, where):  # type: ignore[no-untyped-def]
    """Move a block of ops earlier or later; fill the new sequence and where every position went. Return whether anything moved."""
    steps = len(seq)
    i = draw(rng, steps)
    block = min(steps - i, 1 if draw(rng, np.int64(2)) else 1 + draw(rng, 1 << (1 + draw(rng, np.int64(6)))))
    reach = 1 + draw(rng, 1 << (1 + draw(rng, np.int64(11))))
    forward = draw(rng, np.int64(2)) == 1
    moved = 0
    while moved < reach:
        at = i + block + moved if forward else i - 1 - moved
        if at < 0 or at >= steps:
            break
        stuck = False
        for j in range(i, i + block):
            if _conflict(g, seq[j], seq[at]):
                stuck = True
                break
        if stuck:
            break
        moved += 1
    if moved == 0:
        return False
    for t in range(steps):
        where[t] = t
    if forward:
        for j in range(i, i + block):
            where[j] = j + moved
        for j in range(i + block, i + block + moved):
            where[j] = j - block
    else:
        for j in range(i, i + block):
            where[j] = j - moved
        for j in range(i - moved, i):
            where[j] = j + block
    for t in range(steps):
        new[where[t]] = seq[t]
    return True


@INNER
def _can_rerun(rules, first, op, t):  # type: ignore[no-untyped-def]
    """Whether an op that has run may run again just before position t."""
    if not rules.rerun[op] or first[op] >= t:
        return False
    for k in range(rules.kill_start[op], rules.kill_start[op + 1]):
        if first[rules.kill_items[k]] < t:
            return False
    return True


@INNER
def _splice(seq, t, picked, count, new, where):  # type: ignore[no-untyped-def]
    """Put some ops in just before position t."""
    for j in range(len(seq)):
        where[j] = j if j < t else j + count
        new[where[j]] = seq[j]
    for i in range(count):
        new[t + i] = picked[i]


@INNER
def _insert(g, rules, track, first, rng, new, where):  # type: ignore[no-untyped-def]
    """Run an op again just before a reader of its result, perhaps with the ops before it; return the new length, 0 if none."""
    steps = len(track.seq)
    e = draw(rng, len(track.when))
    k, t = track.touch[e], track.when[e]
    if g.touch[k, MULT] == 0 or rules.maker[g.touch[k, OLD]] < 0:
        return 0
    op = rules.maker[g.touch[k, OLD]]
    if not _can_rerun(rules, first, op, t):
        return 0
    eagerness = draw(rng, np.int64(3)) * 35
    picked = np.empty(64, np.int64)
    picked[0] = op
    count, at = 1, 0
    while at < count:
        op = picked[at]
        at += 1
        for j in range(g.touch_start[op], g.touch_start[op + 1]):
            if g.touch[j, MULT] > 0 and count < 64 and draw(rng, np.int64(100)) < eagerness:
                before = rules.maker[g.touch[j, OLD]]
                if before >= 0 and _can_rerun(rules, first, before, t):
                    known = False
                    for i in range(count):
                        known |= picked[i] == before
                    if not known:
                        picked[count] = before
                        count += 1
    if steps + count > rules.most:
        return 0
    for i in range(1, count):  # sort by first run: an op after all that it depends on
        j = i
        while j > 0 and first[picked[j - 1]] > first[picked[j]]:
            picked[j - 1], picked[j] = picked[j], picked[j - 1]
            j -= 1
    _splice(track.seq, t, picked, count, new, where)
    return steps + count


@INNER
def _delete(seq, first, rng, new, where):  # type: ignore[no-untyped-def]
    """Take out one or several runs that are not an op's first; return the new length, 0 if there are none."""
    steps = len(seq)
    t, found = draw(rng, steps), np.int64(-1)
    for ahead in range(steps):
        if first[seq[(t + ahead) % steps]] < (t + ahead) % steps:
            found = (t + ahead) % steps
            break
    if found < 0:
        return 0
    wish = 1 if draw(rng, np.int64(2)) else 1 + draw(rng, np.int64(6))
    kept = 0
    for j in range(steps):
        if wish > 0 and j >= found and first[seq[j]] < j:
            where[j] = -1
            wish -= 1
        else:
            where[j] = kept
            new[kept] = seq[j]
            kept += 1
    return kept


@INNER
def _same_events(track, new_track, where, c):  # type: ignore[no-untyped-def]
    lo, hi, at = track.start[c], track.start[c + 1], new_track.start[c]
    if hi - lo != new_track.start[c + 1] - at:
        return False
    for i in range(hi - lo):
        if where[track.when[lo + i]] != new_track.when[at + i]:
            return False
    return True


@INNER
def _overloads(g, track, r, c):  # type: ignore[no-untyped-def]
    """Whether a chain's route lies in a slot that is too full."""
    steps = len(track.seq)
    lo, hi = track.start[c], track.start[c + 1]
    for at in range(len(g.capacity)):
        if g.capacity[at] > BOUNDED:
            continue
        if g.masks[r.chain[c, UNTIL_FIRST]] >> at & 1 or g.masks[r.chain[c, AT_START]] >> at & 1:
            for slot in range(0, 2 * track.when[lo] + 1 if lo < hi else 2 * steps + 2):
                if r.used[at, slot] > g.capacity[at]:
                    return True
        for e in range(lo, hi):
            t = track.when[e]
            if g.masks[r.event[e, AT]] >> at & 1 or r.event[e, OUT] == at:
                if r.used[at, 2 * t + 1] > g.capacity[at] or r.used[at, 2 * t + 2] > g.capacity[at]:
                    return True
            if g.masks[r.event[e, AFTER]] >> at & 1:
                for slot in range(2 * t + 3, 2 * track.when[e + 1] + 1 if e + 1 < hi else 2 * steps + 2):
                    if r.used[at, slot] > g.capacity[at]:
                        return True
    return False


@INNER
def _carry_over(g, track, r, seq, where, cum, rng, polish):  # type: ignore[no-untyped-def]
    """Return the track and routes of a changed sequence, and whether every chain found a way."""
    new_track = build_track(g, seq)
    new = empty_routes(g, new_track)
    chains, steps = len(g.chain), len(seq)
    for t in range(len(track.seq)):
        if where[t] >= 0:
            new.out_level[where[t]] = r.out_level[t]
    dirty = np.empty(chains, np.int64)
    differences = np.zeros((len(g.capacity), 2 * steps + 3), np.int64)
    count = 0
    for c in range(chains):
        if _same_events(track, new_track, where, c):
            for i in range(track.start[c + 1] - track.start[c]):
                old_e, e = track.start[c] + i, new_track.start[c] + i
                new.event[e, AT], new.event[e, AFTER], new.event[e, OUT] = (
                    r.event[old_e, AT],
                    r.event[old_e, AFTER],
                    r.event[old_e, OUT],
                )
            new.chain[c, UNTIL_FIRST], new.chain[c, AT_START], new.cost[c] = (
                r.chain[c, UNTIL_FIRST],
                r.chain[c, AT_START],
                r.cost[c],
            )
            settle(g, new_track, new, differences, c, np.int64(1), np.bool_(True))
        else:
            dirty[count] = c
            count += 1
    crowded = False
    for at in range(len(g.capacity)):
        held = np.int64(0)
        for slot in range(2 * steps + 2):
            held += differences[at, slot]
            new.used[at, slot] += held
            if new.used[at, slot] > g.capacity[at]:
                crowded = True
    touched = count
    if crowded:
        turn = draw(rng, chains)
        for i in range(chains):
            c = (i + turn) % chains
            known = False
            for j in range(touched):
                known |= dirty[j] == c
            if not known and _overloads(g, new_track, new, c):
                settle(g, new_track, new, new.used, c, np.int64(-1), np.bool_(False))
                dirty[count] = c
                count += 1
    for i in range(count - 1, 0, -1):
        j = draw(rng, i + 1)
        dirty[i], dirty[j] = dirty[j], dirty[i]
    for i in range(count):
        found, _ = route(g, new_track, new, new.used, cum, np.float64(0.0), dirty[i])
        if not found:
            return new_track, new, False
        settle(g, new_track, new, new.used, dirty[i], np.int64(1), np.bool_(False))
    if count > 0:
        few = np.empty(4, np.int64)
        for _ in range(polish):
            n = np.int64(0)
            for _ in range(1 + draw(rng, np.int64(3))):
                c = dirty[draw(rng, count)] if n == 0 or draw(rng, np.int64(2)) else draw(rng, chains)
                known = False
                for j in range(n):
                    known |= few[j] == c
                if not known:
                    few[n] = c
                    n += 1
            reroute(g, new_track, new, few, n, cum, np.float64(0.0), rng, np.int64(-1), np.int64(-1))
    return new_track, new, True


@kernel
def explore(
    g: Game, rules: Rules, track: Track, r: Routes, best_track: Track, best_r: Routes,
    high: int, low: int, rounds: int, hot: float, cold: float, polish: int, rng: Array,
) -> tuple[Track, Routes, Track, Routes]:  # fmt: skip
    """Search over sequences from `track`; return where the search stands, and the best it has seen.

    First, for every op at positions high - 1 down to `low`, it tries to make each operand again just before, and keeps what is
    cheaper. Then `rounds` random moves of simulated annealing, cooling from `hot` to `cold` (energies).
    """
    energy, least = total_cost(g, track, r), total_cost(g, best_track, best_r)
    first = np.empty(len(g.op_cost), np.int64)
    new_buffer, where = np.empty(rules.most + 64, np.int64), np.empty(rules.most + 64, np.int64)
    cum = np.zeros((len(g.capacity), 2 * rules.most + 200))
    picked = np.empty(1, np.int64)
    position, touch = high - 1, g.touch_start[track.seq[high - 1]] if high > low else 0
    i = -1
    while i < rounds:
        steps = len(track.seq)
        for t in range(steps - 1, -1, -1):
            first[track.seq[t]] = t
        length, heat = 0, 0.0
        if position >= low:  # still sweeping
            if touch == g.touch_start[track.seq[position] + 1]:
                position -= 1
                touch = g.touch_start[track.seq[position]] if position >= low else 0
                continue
            if g.touch[touch, MULT] > 0 and rules.maker[g.touch[touch, OLD]] >= 0 and steps < rules.most:
                picked[0] = rules.maker[g.touch[touch, OLD]]
                repeated = position > 0 and track.seq[position - 1] == picked[0]
                if not repeated and _can_rerun(rules, first, picked[0], position):
                    _splice(track.seq, position, picked, np.int64(1), new_buffer, where)
                    length = steps + 1
            touch += 1
        else:
            i += 1
            if i == rounds:
                break
            heat = hot * (cold / hot) ** (i / rounds) if hot > 0 else 0.0
            kind = draw(rng, np.int64(10))
            if kind >= 8 and steps > len(g.op_cost):
                length = _delete(track.seq, first, rng, new_buffer, where)
            elif kind >= 6 and steps < rules.most:
                length = _insert(g, rules, track, first, rng, new_buffer, where)
            elif _shift(g, track.seq, rng, new_buffer, where):
                length = steps
        if length == 0:
            continue
        new_track, new_r, found = _carry_over(g, track, r, new_buffer[:length].copy(), where, cum, rng, polish)
        if not found:
            continue
        price = total_cost(g, new_track, new_r)
        slack = -1e-9 * energy if position >= low else 1e-12 * energy  # while sweeping, only what is really cheaper
        if heat > 0:
            slack -= heat * math.log((draw(rng, np.int64(1 << 30)) + 1.0) / (1 << 30))
        if price <= energy + slack:
            if position >= low:
                position += 1  # the same reader, after what was put in before it
            track, r, energy = new_track, new_r, price
            if price < least - 1e-9 * abs(least):
                best_track, best_r, least = new_track, new_r, price
    return track, r, best_track, best_r
