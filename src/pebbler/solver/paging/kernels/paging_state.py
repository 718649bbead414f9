"""Where values live while a sequence of ops runs, on flat arrays.

A *chain* is one storage: its values follow one another, and at any moment its *state* says which levels hold a copy. A
sequence of T ops has 2T + 2 *slots*: slot 0 is the start, 2t + 1 the moment before op t computes, 2t + 2 the moment after,
2T + 1 the end. A chain's *route* is a state at every op that touches it and one for every stretch between them. Routes of
different chains meet only in the capacities.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pebbler.compiled import kernel

__all__ = [
    "BOUNDED",
    "INFINITE",
    "INNER",
    "Game",
    "Routes",
    "Track",
    "build_track",
    "empty_routes",
    "route_cost",
    "settle",
    "total_cost",
]

Array = npt.NDArray[Any]
INFINITE = 1e300
BOUNDED = 2**61  # capacities above this are no limit
INNER = kernel(no_cpython_wrapper=True, no_cfunc_wrapper=True)  # called from kernels only: half the compile time


# Few wide arrays rather than many narrow ones: every array that is passed on costs compile time and a reference count.
CHAIN, MULT, OLD, MAKE, DESTROYS = 0, 1, 2, 3, 4  # columns of Game.touch
BEGIN, WRAPS, FIRST, SURVIVES = 0, 1, 2, 3  # columns of Game.chain
AT, AFTER, OUT = 0, 1, 2  # columns of Routes.event
UNTIL_FIRST, AT_START = 0, 1  # columns of Routes.chain


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
    touch: Array  # chain, how often its value is read, that value or -1, the value made or -1, whether that overwrites the old one
    op_cost: Array
    op_makes: Array  # number of values made
    chain: Array  # state at the start, whether it ends so too (a steady param), value at the start or -1, whether it survives
    step_price: float  # tiny price per unit and slot, so that ties go to the shorter stay


class Track(NamedTuple):
    """The events of every chain in one sequence."""

    seq: Array
    start: Array  # per chain
    when: Array  # per event: position in the sequence
    touch: Array


class Routes(NamedTuple):
    """Where every chain is, and the room that takes."""

    event: Array  # state while the op computes, state from then to the next event, level that a made value is written to or -1
    chain: Array  # state until the first event, state at the start
    cost: Array  # per chain
    used: Array  # [level, slot]
    out_level: Array  # per position: the common level of several results, -1 where each op may choose


@kernel
def build_track(g: Game, seq: Array) -> Track:
    """Return the events of every chain."""
    chains = len(g.chain)
    start = np.zeros(chains + 1, np.int64)
    for t in range(len(seq)):
        for k in range(g.touch_start[seq[t]], g.touch_start[seq[t] + 1]):
            start[g.touch[k, CHAIN] + 1] += 1
    for c in range(chains):
        start[c + 1] += start[c]
    fill = start[:-1].copy()
    when = np.empty(start[-1], np.int64)
    touch = np.empty(start[-1], np.int64)
    for t in range(len(seq)):
        for k in range(g.touch_start[seq[t]], g.touch_start[seq[t] + 1]):
            c = g.touch[k, CHAIN]
            when[fill[c]] = t
            touch[fill[c]] = k
            fill[c] += 1
    return Track(seq, start, when, touch)


@kernel
def empty_routes(g: Game, track: Track) -> Routes:
    """Return routes with only the room that every plan needs: start values, and under "fastest" all operands and results."""
    levels, chains, events, steps = len(g.capacity), len(g.chain), len(track.when), len(track.seq)
    used = np.zeros((levels, 2 * steps + 2), np.int64)
    out_level = np.full(steps, -1, np.int64)
    for c in range(chains):
        if g.chain[c, FIRST] >= 0 and not g.chain[c, WRAPS]:
            for at in range(levels):
                if g.masks[g.chain[c, BEGIN]] >> at & 1:
                    used[at, 0] += g.size[g.chain[c, FIRST]]
    for t in range(steps):
        op = track.seq[t]
        if g.fastest:
            out_level[t] = 0
            for k in range(g.touch_start[op], g.touch_start[op + 1]):
                if g.touch[k, MULT] > 0:
                    used[0, 2 * t + 1] += g.size[g.touch[k, OLD]]
                    if not g.touch[k, DESTROYS]:
                        used[0, 2 * t + 2] += g.size[g.touch[k, OLD]]
                if g.touch[k, MAKE] >= 0:
                    used[0, 2 * t + 2] += g.size[g.touch[k, MAKE]]
        elif g.op_makes[op] > 1:
            out_level[t] = levels - 1
    event = np.zeros((events, 3), np.int64)
    event[:, OUT] = -1
    return Routes(event, np.zeros((chains, 2), np.int64), np.full(chains, INFINITE), used, out_level)


@INNER
def _occupy(masks, capacity, used, state, size, a, b, skip_fastest, sign, steps_only):  # type: ignore[no-untyped-def]
    """Add a stay in slots a..b."""
    mask = masks[state]
    if a > b or size == 0:
        return
    for at in range(len(capacity)):
        if mask >> at & 1 and capacity[at] < BOUNDED and not (skip_fastest and at == 0):
            if steps_only:
                used[at, a] += sign * size
                used[at, b + 1] -= sign * size
            else:
                for slot in range(a, b + 1):
                    used[at, slot] += sign * size


@INNER
def settle(g, track, r, used, c, sign, steps_only):  # type: ignore[no-untyped-def]
    """Add (or with sign -1 take away) the room of one chain's route.

    With `steps_only`, `used` gets only the differences from slot to slot, which is quicker for many chains at a time.
    """
    steps = len(track.seq)
    zero, one, keep = np.int64(0), np.int64(1), np.bool_(False)
    lo, hi = track.start[c], track.start[c + 1]
    size = g.size[g.chain[c, FIRST]] if g.chain[c, FIRST] >= 0 else np.int64(0)
    if g.chain[c, WRAPS]:
        _occupy(g.masks, g.capacity, used, r.chain[c, AT_START], size, zero, zero, keep, sign, steps_only)
    _occupy(
        g.masks,
        g.capacity,
        used,
        r.chain[c, UNTIL_FIRST],
        size,
        one,
        2 * track.when[lo] if lo < hi else 2 * steps + 1,
        keep,
        sign,
        steps_only,
    )
    for e in range(lo, hi):
        t, k = track.when[e], track.touch[e]
        reserved = g.fastest and g.touch[k, MULT] > 0
        if g.touch[k, OLD] >= 0:
            last = 2 * t + 1 if g.touch[k, DESTROYS] else 2 * t + 2
            _occupy(
                g.masks,
                g.capacity,
                used,
                r.event[e, AT],
                g.size[g.touch[k, OLD]],
                2 * t + 1,
                last,
                reserved,
                sign,
                steps_only,
            )
        now = g.touch[k, MAKE] if g.touch[k, MAKE] >= 0 else g.touch[k, OLD]
        if g.touch[k, MAKE] >= 0 and not g.fastest:
            held = 0 if g.touch[k, DESTROYS] else g.masks[r.event[e, AT]]
            if not held >> r.event[e, OUT] & 1:
                _occupy(
                    g.masks,
                    g.capacity,
                    used,
                    g.join[0, r.event[e, OUT]],
                    g.size[now],
                    2 * t + 2,
                    2 * t + 2,
                    keep,
                    sign,
                    steps_only,
                )
        elif g.touch[k, MAKE] >= 0 and not g.touch[k, DESTROYS] and g.masks[r.event[e, AT]] & 1:
            # The result's room is reserved already.
            _occupy(g.masks, g.capacity, used, g.join[0, 0], g.size[now], 2 * t + 2, 2 * t + 2, keep, -sign, steps_only)
        end = 2 * track.when[e + 1] if e + 1 < hi else 2 * steps + 1
        _occupy(g.masks, g.capacity, used, r.event[e, AFTER], g.size[now], 2 * t + 3, end, keep, sign, steps_only)


@INNER
def route_cost(g, track, r, c):  # type: ignore[no-untyped-def]
    """Return what a route costs: copies, and under "any" reads and writes."""
    size = float(g.size[g.chain[c, FIRST]]) if g.chain[c, FIRST] >= 0 else 0.0
    state = r.chain[c, UNTIL_FIRST]
    total = size * g.trans[r.chain[c, AT_START], state]
    for e in range(track.start[c], track.start[c + 1]):
        k = track.touch[e]
        if g.touch[k, OLD] >= 0:
            size = float(g.size[g.touch[k, OLD]])
            total += size * g.trans[state, r.event[e, AT]]
            if not g.fastest and g.touch[k, MULT] > 0:
                total += g.touch[k, MULT] * size * g.state_read[r.event[e, AT]]
        state = r.event[e, AT]
        if g.touch[k, MAKE] >= 0:
            size = float(g.size[g.touch[k, MAKE]])
            state = g.join[0 if g.touch[k, DESTROYS] else state, r.event[e, OUT]]
            if not g.fastest:
                total += size * g.write[r.event[e, OUT]]
        total += size * g.trans[state, r.event[e, AFTER]]
        state = r.event[e, AFTER]
    return total


@kernel
def total_cost(g: Game, track: Track, r: Routes) -> float:
    """Return the energy of the sequence with these routes."""
    total = 0.0
    for op in track.seq:
        total += g.op_cost[op]
    for c in range(len(r.cost)):
        total += r.cost[c]
    return total
