"""Pebble games with prices per set of ops that have run: the tightest moment ahead, and the rest after an op that fills the memory.

Beside such an op everything else is in the slow level, so the game falls into stretches that are searched from the last to the
first. `docs/exact.md` ("The tightest moment", "Ops that fill the memory") says why no plan costs less.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pebbler.extras.pebbles.kernels import tight_sets as kernel
from pebbler.extras.pebbles.kernels.pebble_state import ABOVE, BEFORE, READS, WRITES, PebbleGame
from pebbler.extras.pebbles.pebble_pool import pool_from, search_pool
from pebbler.extras.pebbles.pebble_rules import PebbleRules
from pebbler.solver.exact.kernels import astar as states
from pebbler.solver.kernels.open_list import least_open

__all__ = ["with_fillings", "with_tightest_moments"]

_MOST_SETS = 5_000_000  # some seconds
_MOST_BYTES = 1 << 27
_SLICE = 100_000  # sets between two looks at the clock


def with_tightest_moments(rules: PebbleRules, seconds_left: Callable[[], float]) -> PebbleRules:
    """Return the same game with a price per set of ops; without, where there are too many sets or the time is over.

    >>> from pebbler import machine, workloads
    >>> from pebbler.extras.pebbles.pebble_rules import pebble_rules
    >>> from pebbler.solver.problem import Problem
    >>> rules = pebble_rules(Problem.of(workloads.chain(2), machine("red-blue"), start={"N0": "fast"}))
    >>> with_tightest_moments(rules, lambda: 1.0).game.sets[:, 0].tolist()  # c1, c2, b2, b1, b0 in this order
    [0, 1, 3, 7, 15, 31]
    """
    game = rules.game
    sets = kernel.list_sets(np.ascontiguousarray(game.ops[:, BEFORE]), _MOST_SETS)
    if len(sets) == 0:
        return rules
    sets = np.sort(sets)[:, None]
    slots = np.full(1 << (2 * len(sets) - 1).bit_length(), -1, np.int32)
    kernel.enter_sets(sets, slots)
    stores = (~(game.given | game.cheap) & (1 << len(rules.values)) - 1).bit_count()
    columns = min(stores + 1, _MOST_BYTES // len(sets))
    priced = game._replace(sets=sets, slots=slots, tightest=np.empty((len(sets), columns), np.uint8))
    for end in range(len(sets), 0, -_SLICE):
        if seconds_left() <= 0:
            return rules
        kernel.price_moments(priced, max(0, end - _SLICE), end)
    return replace(rules, game=priced)


# Ops that fill the memory ----------------------------------------------------------------------------------------------


_MOST_PLACES = 2_000  # sets of ops after a filling one
_MOST_PRICED = 100_000


def with_fillings(rules: PebbleRules, most: float, max_states: int, seconds_left: Callable[[], float]) -> PebbleRules:
    """Return the same game with higher prices of its sets of ops; as it is where that would take too long or says nothing.

    `most` is what a plan may cost, beside what all plans pay, to be of interest. Each search looks at up to `max_states` states.
    Prices of a game that has been priced before can only rise.
    """
    game = rules.game
    fillings = np.flatnonzero(game.needs == game.capacity).astype(np.int64)
    if game.repeat or game.least <= 0 or not len(fillings) or not 0 < len(game.sets) <= _MOST_PRICED:
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
        least = _least_after(game, int(game.sets[i, 0]), int(fillings[f]), most, max_states, share)
        least_after[i, f] = max(least_after[i, f], least)
    kernel.price_moments(game, 0, done)
    return replace(rules, game=game)


def _share(seconds_left: Callable[[], float], seconds: float) -> Callable[[], float]:
    if math.isinf(seconds):
        return seconds_left
    end = seconds_left() - seconds
    return lambda: seconds_left() - end


def _least_after(
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
