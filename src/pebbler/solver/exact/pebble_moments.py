"""Pebble games with the tightest moment that is still ahead, for every set of ops that can have run.

`docs/exact.md` ("The tightest moment") says why no plan costs less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pebbler.solver.exact.kernels import tight_sets as kernel
from pebbler.solver.exact.kernels.pebble_state import BEFORE
from pebbler.solver.exact.pebble_rules import PebbleRules

__all__ = ["with_tightest_moments"]

_MOST_SETS = 5_000_000  # some seconds
_MOST_BYTES = 1 << 27
_SLICE = 100_000  # sets between two looks at the clock


def with_tightest_moments(rules: PebbleRules, seconds_left: Callable[[], float]) -> PebbleRules:
    """Return the same game with a price per set of ops; without, where there are too many sets or the time is over.

    >>> from pebbler import machine, workloads
    >>> from pebbler.solver.exact.pebble_rules import pebble_rules
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
