"""The tightest moment that no plan avoids, per set of ops that can have run (`docs/exact.md`, "The tightest moment")."""

from __future__ import annotations

import numpy as np

from pebbler.arrays import Array
from pebbler.compiled import kernel
from pebbler.extras.pebbles.kernels.pebble_state import (
    BEFORE,
    NEVER,
    READS,
    WITHIN,
    WRITES,
    PebbleGame,
    bits,
    exists,
    first_loads,
    place_of_set,
)
from pebbler.solver.exact.kernels.astar_estimate import inner
from pebbler.solver.kernels.state_table import slot_of

__all__ = ["enter_sets", "list_sets", "price_moments"]

_ONE = np.int64(1)


@kernel
def list_sets(before: Array, most: int) -> Array:
    """Return every set of ops that can have run, each once; nothing if there are more than `most`.

    Ops come after those that they wait for. A set is found from the one without its last op.
    """
    found = np.empty(1024, np.int64)
    found[0] = 0
    count, i = 1, 0
    while i < count:
        ran = found[i]
        i += 1
        op = len(before) - 1
        while op >= 0 and not ran >> op & 1:
            if not before[op] & ~ran:
                if count == most:
                    return found[:0].copy()
                if count == len(found):
                    more = np.empty(2 * count, np.int64)
                    more[:count] = found
                    found = more
                found[count] = ran | _ONE << op
                count += 1
            op -= 1
    return found[:count].copy()


@kernel
def enter_sets(sets: Array, slots: Array) -> None:
    """Enter every set's place in the list into an empty table."""
    for i in range(len(sets)):
        slots[slot_of(slots, len(slots) - 1, 0, sets, sets[i])] = i


@inner
def _alive(game: PebbleGame, ran: int) -> tuple:
    """The values that some ops leave alive: those that come back without a store, those made and read later, those only kept."""
    started, made, kept = np.int64(0), np.int64(0), np.int64(0)
    for v in range(len(game.readers)):
        later, one = game.readers[v] & ~ran, _ONE << v
        if game.given & one:
            if later and (game.readers[v] & ran or not game.fetched & one):
                started |= one
        elif exists(game, ran, v) and (later or game.survive & one):
            if not game.cheap & one:
                if later:
                    made |= one
                else:
                    kept |= one
            elif later:  # what is only kept may be in the slow level, or be made again at the end
                started |= one
    return started, made, kept


@inner
def _loads(alive: tuple, others: int, room: int, stores: int, columns: int) -> int:
    """Return the number of some live values that come back if no more than so many are stored; NEVER if more have to be stored."""
    started, kept = bits(alive[0] & others), bits(alive[2] & others)
    unsaved = kept + bits(alive[1] & others)
    if stores == columns - 1:
        stores = unsaved
    if unsaved - stores > room:
        return NEVER
    return int(max(0, unsaved + started - room - min(kept, stores)))


@inner
def _sure_loads(game: PebbleGame, ran: int, op: int) -> int:
    """Return the number of an op's reads that were out beside an op that left no room, and unused since, in any order."""
    found = 0
    if game.repeat:
        return found
    for v in range(len(game.readers)):
        if not game.ops[op, READS] >> v & 1:
            continue
        used = game.readers[v] & ran
        if game.maker[v] >= 0:
            used |= _ONE << game.maker[v]
        if used == 0 and (game.fetched | game.made_at_read) >> v & 1:
            continue  # its first load, or it is made here
        for full in range(len(game.needs)):
            own = game.ops[full, READS] | game.ops[full, WRITES]
            if (
                game.needs[full] == game.capacity
                and ran >> full & 1
                and not own >> v & 1 | used & ~game.ops[full, WITHIN]
            ):
                found += 1
                break
    return found


@inner
def _loads_after(game: PebbleGame, ran: int, place: int, op: int, stored: int, stores: int) -> int:
    """Return the number of values that come back after an op that left no room, if `stored` values had to be stored for it."""
    for f in range(len(game.fillings)):
        if game.fillings[f] == op and game.least_after[place, f] > 0 and stores < game.tightest.shape[1] - 1:
            left = game.least_after[place, f] - first_loads(game, ran) - game.store * (stores - stored)
            return int(max(0, np.ceil(left / game.least - 1e-9)))
    return 0


@kernel
def price_moments(game: PebbleGame, start: int, end: int) -> None:
    """Price the sets from `end` down to `start`: the loads of the tightest moment ahead, on the way where they are fewest.

    Sets are in ascending order, so those with one more op come later and have their prices.
    """
    columns = game.tightest.shape[1]
    for i in range(end - 1, start - 1, -1):
        ran, ahead = game.sets[i, 0], game.tightest[i]
        alive = _alive(game, ran)
        if i == len(game.sets) - 1:
            for stores in range(columns):
                ahead[stores] = _loads(alive, np.int64(-1), game.capacity, stores, columns)
            continue
        ahead[:] = NEVER
        for op in range(len(game.needs)):
            if ran >> op & 1 or game.ops[op, BEFORE] & ~ran:
                continue
            # An op changes nothing about the values that it neither reads nor makes.
            others = ~(game.ops[op, READS] | game.ops[op, WRITES])
            sure = _sure_loads(game, ran, op)
            place = place_of_set(game, ran | _ONE << op)
            later, stored = game.tightest[place], bits((alive[1] | alive[2]) & others)
            for stores in range(columns):
                if later[stores] < ahead[stores]:
                    loads = _loads(alive, others, game.capacity - game.needs[op], stores, columns)
                    if loads < NEVER:
                        loads = max(loads, np.int64(later[stores]))
                        loads = max(loads, _loads_after(game, ran | _ONE << op, place, op, stored, stores))
                        loads = min(NEVER - 1, sure + loads)
                    ahead[stores] = min(np.int64(ahead[stores]), loads)
