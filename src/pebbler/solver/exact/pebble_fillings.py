"""The remaining cost of a pebble game after an op that fills the memory, for every possible set of ops run before it.

Beside such an op everything else is in the slow level, so the game falls into stretches that are searched from the last to the
first. `docs/exact.md` ("Ops that fill the memory") says what is proven.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pebbler.solver.exact.kernels import astar as states
from pebbler.solver.exact.kernels import tight_sets as kernel
from pebbler.solver.exact.kernels.pebble_state import ABOVE, READS, WRITES, PebbleGame
from pebbler.solver.exact.pebble_pool import pool_from, search_pool
from pebbler.solver.exact.pebble_rules import PebbleRules
from pebbler.solver.kernels.open_list import least_open

__all__ = ["with_fillings"]

_MOST_PLACES = 2_000  # sets of ops after a filling one
_MOST_SETS = 100_000


def with_fillings(rules: PebbleRules, most: float, max_states: int, seconds_left: Callable[[], float]) -> PebbleRules:
    """Return the same game with higher prices of its sets of ops; as it is where that would take too long or says nothing.

    `most` is what a plan may cost, beside what all plans pay, to be of interest. Each search looks at up to `max_states` states.
    Prices of a game that has been priced before can only rise.
    """
    game = rules.game
    fillings = np.flatnonzero(game.needs == game.capacity).astype(np.int64)
    if game.repeat or game.least <= 0 or not len(fillings) or not 0 < len(game.sets) <= _MOST_SETS:
        return rules
    places = [
        (i, f)
        for i, ran in enumerate(game.sets[:, 0].tolist())
        for f, op in enumerate(fillings.tolist())
        if ran >> op & 1 and not int(game.ops[op, ABOVE]) & ran
    ]
    if len(places) > _MOST_PLACES:
        return rules
    tightest = game.tightest.copy()
    least_after = game.least_after.copy() if len(game.fillings) else np.zeros((len(game.sets), len(fillings)))
    game = game._replace(fillings=fillings, least_after=least_after, tightest=tightest)
    done = len(game.sets)
    for left, (i, f) in zip(range(len(places), 0, -1), reversed(places), strict=True):
        seconds = seconds_left()
        if seconds <= 0:
            break
        kernel.price_moments(game, i, done)
        done = i
        share = _share(seconds_left, max(seconds / left, min(seconds / 4, 1.0)))
        least = _least_behind(game, int(game.sets[i, 0]), int(fillings[f]), most, max_states, share)
        least_after[i, f] = max(least_after[i, f], least)
    kernel.price_moments(game, 0, done)
    return replace(rules, game=game)


def _share(seconds_left: Callable[[], float], seconds: float) -> Callable[[], float]:
    if math.isinf(seconds):
        return seconds_left
    end = seconds_left() - seconds
    return lambda: seconds_left() - end


def _least_behind(
    game: PebbleGame, ran: int, op: int, most: float, max_states: int, seconds_left: Callable[[], float]
) -> float:
    """Return the least that is paid after a filling op, the last of some that ran, if none of its values is in the slow level."""
    own, wanted, made, read = int(game.ops[op, READS] | game.ops[op, WRITES]), int(game.survive), int(game.given), 0
    for other in range(len(game.needs)):
        if ran >> other & 1:
            made |= int(game.ops[other, WRITES])
            read |= int(game.ops[other, READS])
        else:
            wanted |= int(game.ops[other, READS])
    there, elsewhere = own & wanted, made & wanted & ~own
    # What plans have paid by then: everything that is elsewhere was stored, and everything that was read and starts below, loaded.
    paid = game.store * (elsewhere & ~int(game.given)).bit_count() + game.load * (read & int(game.fetched)).bit_count()
    pool = pool_from(game, min(1 << 12, max_states), ran, there, elsewhere | there & int(game.given))
    status, pool = search_pool(game, pool, max_states, most - paid, seconds_left)
    if status == states.FOUND:
        return float(pool.spent[pool.counters[1]])
    if status == states.EXHAUSTED:
        return max(0.0, most - paid)
    return least_open(pool.open, 0.0)
