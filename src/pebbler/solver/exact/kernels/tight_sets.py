"""The tightest moment that no plan avoids, per set of ops that can have run (`docs/exact.md`, "The tightest moment")."""

from __future__ import annotations

import numpy as np

from pebbler.arrays import Array
from pebbler.compiled import kernel
from pebbler.solver.exact.kernels.astar_estimate import inner
from pebbler.solver.exact.kernels.pebble_state import BEFORE, READS, WRITES, PebbleGame, slot_of_set

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
        slots[slot_of_set(sets, slots, sets[i])] = i


@inner
def _excess(game: PebbleGame, ran: int, own: int, room: int) -> float:
    """The least that plans pay for the values that are alive, beside some that are there anyway, and find no room."""
    cheap, started, kept, made = 0, 0, 0, 0
    for v in range(len(game.readers)):
        if own >> v & 1:
            continue
        later = game.readers[v] & ~ran
        if game.maker[v] < 0:
            if later and (game.readers[v] & ran or not game.fetched >> v & 1):
                started += 1
        elif ran >> game.maker[v] & 1 and (later or game.survive >> v & 1):
            if game.cheap >> v & 1:
                cheap += 1
            elif later:
                made += 1
            else:
                kept += 1
    out = cheap + started + kept + made - room
    if out <= 0:
        return 0.0
    paid = game.least * min(out, cheap)
    out -= min(out, cheap)
    price, other = game.load, game.store
    if price > other:
        price, other, started, kept = other, price, kept, started
    paid += price * min(out, started)
    out -= min(out, started)
    paid += other * min(out, kept)
    out -= min(out, kept)
    return float(paid + (game.load + game.store) * out)


@kernel
def price_moments(game: PebbleGame, start: int, end: int) -> None:
    """Price the sets from `end` down to `start`: what is paid at the tightest moment ahead, on the way where that is least.

    Sets are in ascending order, so those with one more op come later and have their prices.
    """
    for i in range(end - 1, start - 1, -1):
        ran = game.sets[i]
        best = np.inf
        for op in range(len(game.needs)):
            if ran >> op & 1 or game.ops[op, BEFORE] & ~ran:
                continue
            after = ran | _ONE << op
            worst = game.tightest[game.slots[slot_of_set(game.sets, game.slots, after)]]
            if worst < best:
                own = game.ops[op, READS] | game.ops[op, WRITES]
                best = min(best, max(worst, _excess(game, after, own, game.capacity - game.needs[op])))
        game.tightest[i] = best if best < np.inf else _excess(game, ran, np.int64(0), game.capacity)
