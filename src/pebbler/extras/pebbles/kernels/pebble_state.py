"""A state of a pebble game of two levels, and what it still has to pay (`docs/exact.md`, "Pebble games of two levels").

A state says which ops have run, which values the slow level holds, and a *level* per value: 0 if it is surely not in the fast
memory, and otherwise j if of all the values with levels up to j at most j can have stayed there. Which ones did is decided when
they are read.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pebbler.arrays import Array
from pebbler.solver.exact.kernels.astar_estimate import inner
from pebbler.solver.kernels.state_table import slot_of

__all__ = [
    "ABOVE", "ACROSS", "BEFORE", "MOST_SWAPS", "NEVER", "READS", "WITHIN", "WRITES",
    "PebbleGame", "at_least", "bits", "canonical_state", "evictions", "exists", "first_loads", "lift", "moment_ahead", "out_price",
    "place_of_set", "stores_ahead", "tight_ahead", "useful",
]  # fmt: skip

# Columns of the table of ops: sets of values, then sets of ops.
READS, WRITES, ACROSS, BEFORE, WITHIN, ABOVE = 0, 1, 2, 3, 4, 5

MOST_SWAPS = 56  # swaps that are tried on one state
NEVER = 255  # loads of a moment that so few stores cannot bring about


class PebbleGame(NamedTuple):
    """The rules of one game. Sets of values and of ops are bit masks; arrays are of int64 unless said otherwise."""

    capacity: int
    load: float
    store: float
    rounding: float  # the part of a sum of prices that may be rounding
    survive: int
    given: int  # values that nothing makes
    # Values that are made where they are first read, from an input of their own, by an op that is not listed. No op may run
    # again then.
    made_at_read: int
    cheap: int  # values whose maker may run again
    repeat: int  # ops that may
    # A row per op: READS and WRITES; ACROSS, the values that lie across its first run in every order; BEFORE, the ops that it
    # waits for; WITHIN, it and all that comes before; ABOVE, all that comes after.
    ops: Array
    readers: Array  # per value, a set of ops
    maker: Array
    needs: Array  # per op: how many values are there when it runs
    again: Array  # float64, per op: what it costs to run again; infinite where that never pays
    price: Array  # float64, per value: the least that brings it back
    tail: Array  # float64, per op: the least that bringing values back costs after its first run
    fetched: int  # values that nothing makes and that are not in the fast level at the start
    least: float  # a price below which no value that has been in the fast level comes back to it
    # Every set of ops that can have run, in ascending order, in one column; a table of their places by hash (int32); and per number
    # of stores, the last column for more, how many values come back after the tightest moment ahead (uint8, or NEVER).
    sets: Array
    slots: Array
    tightest: Array
    # The ops that leave no room for others; and per set and such an op, if it is the last that ran (float64): the least that
    # is still to be paid after it, if none of its values that are made is in the slow level. 0 where it is not known.
    fillings: Array
    least_after: Array
    # Sets of ops after which other ops and values may change places, the most alike first; per such set, where its swaps begin;
    # the turns, swaps to be tried one after the other; per swap, where its pairs begin; and the pairs: two ops, or two values,
    # and whether they are ops.
    fixed: Array
    swap_start: Array
    swaps: Array
    pair_start: Array
    pairs: Array


@inner
def canonical_state(game: PebbleGame, ran: int, slow: int, before: Array, level: Array) -> tuple:
    """Let ops and values that are symmetric change places until a state is in order; return its two sets then, and what was done.

    `level` gets the levels. Of all states that are equally good this is one and the same, or one of few.
    `pebble_symmetries.swap_back` undoes it.
    """
    for v in range(len(level)):
        level[v] = before[v]
    for base in range(len(game.fixed)):
        if game.fixed[base] & ~ran:
            continue
        code, bit = np.int64(base + 1), np.int64(64)
        for k in range(game.swap_start[base], game.swap_start[base + 1]):
            start, end = game.pair_start[game.swaps[k]], game.pair_start[game.swaps[k] + 1]
            while start < end:
                a, b = game.pairs[start, 0], game.pairs[start, 1]
                if game.pairs[start, 2]:
                    more = (ran >> b & 1) - (ran >> a & 1)
                else:
                    more = 2 * (np.int64(level[b]) - np.int64(level[a])) + (slow >> b & 1) - (slow >> a & 1)
                if more != 0:
                    break
                start += 1
            if start < end and more > 0:
                code |= bit
                for p in range(start, end):
                    a, b = game.pairs[p, 0], game.pairs[p, 1]
                    if game.pairs[p, 2]:
                        differ = (ran >> a ^ ran >> b) & 1
                        ran ^= differ << a | differ << b
                    else:
                        differ = (slow >> a ^ slow >> b) & 1
                        slow ^= differ << a | differ << b
                        level[a], level[b] = level[b], level[a]
            bit <<= 1
        return ran, slow, code
    return ran, slow, np.int64(0)


@inner
def exists(game: PebbleGame, ran: int, v: int) -> bool:
    """Whether a value has been made, or nothing makes it."""
    if game.maker[v] >= 0:
        return bool(ran >> game.maker[v] & 1)
    return bool(game.given >> v & 1 or game.readers[v] & ran)


@inner
def bits(mask: int) -> int:
    """The number of members of a set."""
    mask -= mask >> 1 & 0x5555555555555555
    mask = (mask & 0x3333333333333333) + (mask >> 2 & 0x3333333333333333)
    mask = (mask + (mask >> 4)) & 0x0F0F0F0F0F0F0F0F
    mask += mask >> 8
    mask += mask >> 16
    mask += mask >> 32
    return int(mask & 127)


@inner
def useful(game: PebbleGame, ran: int) -> int:
    """The values that some future move may still need."""
    found = game.survive
    for op in range(len(game.again) - 1, -1, -1):
        if not ran >> op & 1 or (game.again[op] < np.inf and game.ops[op, WRITES] & found):
            found |= game.ops[op, READS]
    return found


@inner
def out_price(game: PebbleGame, ran: int, slow: int, v: int) -> float:
    """Return the largest cost of a value that does not stay in fast memory: a copy out, and one back in if it may be read."""
    price = 0.0 if slow >> v & 1 else game.store
    return float(price + game.load) if game.readers[v] & (~ran | game.repeat) else float(price)


@inner
def lift(game: PebbleGame, level: Array, count: Array) -> None:
    """Raise levels that say nothing: if at most j values have levels up to j, all of them may have stayed."""
    for j in range(game.capacity + 1):
        count[j] = 0
    for v in range(len(level)):
        count[level[v]] += 1
    below, highest = 0, 0
    for j in range(1, game.capacity):
        below += count[j]
        if below <= j:
            highest = j  # as far as the next one that says something
        count[j] = below
    # Levels go up to the next j at which more than j values are.
    up = game.capacity
    for j in range(game.capacity - 1, 0, -1):
        if count[j] > j:
            up = j
        count[j] = up
    if highest > 0:
        for v in range(len(level)):
            if 0 < level[v] < game.capacity:
                level[v] = count[level[v]]


@inner
def evictions(game: PebbleGame, level: Array, chosen: int, count: Array) -> int:
    """Return a lower bound on the number of chosen values that cannot have stayed."""
    for j in range(game.capacity + 1):
        count[j] = 0
    for v in range(len(level)):
        if chosen >> v & 1:
            count[level[v]] += 1
    kept, total = 0, 0
    for j in range(game.capacity + 1):
        total += count[j]
        kept = min(kept + count[j], j)
    return total - kept


@inner
def _loads_by_stage(game: PebbleGame, ran: int, level: Array, missing: int, inside: int, count: Array) -> float:
    """Return the loads that bring values back: until some op first runs, and after it."""
    cheapest, total = game.load, 0.0
    for v in range(len(level)):
        if missing >> v & 1:
            total += game.price[v]
        elif inside >> v & 1:
            cheapest = min(cheapest, game.price[v])
    out = cheapest * evictions(game, level, inside, count)
    best = float(total + out)
    for op in range(len(game.again)):
        if not ran >> op & 1 and game.tail[op] > 0 and total + out + game.tail[op] > best:
            until = game.ops[op, WITHIN] & ~ran
            soon, chosen = game.tail[op], np.int64(0)
            for v in range(len(level)):
                if game.readers[v] & until:
                    if missing >> v & 1:
                        soon += game.price[v]
                    elif inside >> v & 1:
                        chosen |= 1 << v
            if soon + out > best:
                best = max(best, soon + cheapest * evictions(game, level, chosen, count))
    return float(best)


@inner
def stores_ahead(game: PebbleGame, ran: int, below: int) -> int:
    """Return the least number of values still to be stored, given those that the slow level has."""
    most = max(0, bits(game.survive & ~below) - game.capacity)
    union, rooms = np.int64(0), 0
    for op in range(len(game.again)):
        if not ran >> op & 1:
            across, room = game.ops[op, ACROSS] & ~below, game.capacity - game.needs[op]
            most = max(most, bits(across) - room)
            if bits(across & ~union) > room:
                union |= across
                rooms += room
    return int(max(most, bits(union) - rooms))


@inner
def place_of_set(game: PebbleGame, ran: int) -> int:
    """The place in the list of sets of those ops that have run."""
    return int(game.slots[slot_of(game.slots, len(game.slots) - 1, 0, game.sets, (ran,))])


@inner
def first_loads(game: PebbleGame, ran: int) -> float:
    """Return the cost of loading values that no op has read yet."""
    loads = 0
    for v in range(len(game.readers)):
        if game.fetched >> v & 1 and game.readers[v] and not game.readers[v] & ran:
            loads += 1
    return float(game.load * loads)


@inner
def moment_ahead(game: PebbleGame, ran: int, stored: int) -> float:
    """The least that stores, and loads after the tightest moment ahead, still cost, with so many values stored already."""
    if len(game.sets) == 0:
        return 0.0
    loads = game.tightest[place_of_set(game, ran)]
    last = len(loads) - 1
    stores = min(stored, last)
    best, paid = np.inf, 0.0
    while stores <= last and paid < best:
        if loads[stores] < NEVER:
            best = min(best, paid + game.least * loads[stores])
        stores += 1
        paid += game.store
    return float(best)


@inner
def tight_ahead(game: PebbleGame, ran: int, slow: int) -> float:
    """A lower bound on what is still to be paid: first loads, and what the tightest moment that no plan avoids costs."""
    return float(first_loads(game, ran) + moment_ahead(game, ran, bits(slow & ~game.given & ~game.cheap)))


@inner
def at_least(game: PebbleGame, ran: int, slow: int, level: Array, count: Array) -> float:
    """A lower bound on what loads, stores and second runs must still cost."""
    missing, inside, unsaved = np.int64(0), np.int64(0), np.int64(0)
    for v in range(len(level)):
        if game.readers[v] & ~ran and (game.given >> v & 1 or ran >> max(0, game.maker[v]) & 1):
            if level[v] > 0:
                inside |= 1 << v
            else:
                missing |= 1 << v
        if level[v] > 0 and not (slow | game.cheap) >> v & 1 and (game.readers[v] & ~ran or game.survive >> v & 1):
            unsaved |= 1 << v
    loads = _loads_by_stage(game, ran, level, missing, inside, count)
    stored = max(stores_ahead(game, ran, slow), evictions(game, level, unsaved, count))
    return float(max(loads + game.store * stored, tight_ahead(game, ran, slow)))
