"""The cost of an order on caches in one compiled call: the referee's rules without a breakdown, for searches over orders."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from pebbler.arrays import Array
from pebbler.compiled import kernel
from pebbler.referee.kernels.allocation import OpTouches, allocate
from pebbler.referee.kernels.books import Books
from pebbler.referee.kernels.lru_stack import cut_runs, window
from pebbler.referee.kernels.recency_rank import RecencyGame, price_prefix

__all__ = ["LruGame", "lru_price", "price", "recency_price"]


class LruGame(NamedTuple):
    """A graph as the `lru` rule sees it."""

    touches: OpTouches
    cost: Array  # per op
    reach: Array  # lines down to the end of each level but the last
    read: Array  # per level: its prices
    store: Array
    steady: bool


@kernel
def lru_price(game, order):  # type: ignore[no-untyped-def]
    """Return the energy of running the ops in `order` under the `lru` rule."""
    touches = game.touches
    touch, where, _ = allocate(touches, order)
    runs, _, _ = cut_runs(where, touches.lines[touch], touches.units[touch], touches.write[touch], touches.line)
    energy = 0.0
    for op in order:
        energy += game.cost[op]
    if len(runs.item) > 0:
        units = window(runs, game.reach, game.steady, False).units
        for level in range(len(game.read)):
            energy += units[0, level] * game.read[level] + (units[1, level] + units[2, level]) * game.store[level]
    return energy


@kernel
def recency_price(game, order):  # type: ignore[no-untyped-def]
    """Return the energy of running the ops in `order` under the `recency` rule."""
    none = np.zeros(0)
    books = Books(none, none, none, none, none, np.zeros(0, np.int64))
    return price_prefix(game, order, len(order), False, books)[0]


def price(game: Any, order: Array) -> float:
    """Return the energy of running the ops in `order` by the rule that `game` is for; a kernel compiles only that rule."""
    return float(recency_price(game, order) if isinstance(game, RecencyGame) else lru_price(game, order))


@overload(price)
def _price_of(game, order):  # type: ignore[no-untyped-def]
    if game.instance_class is RecencyGame:
        return lambda game, order: recency_price(game, order)
    return lambda game, order: lru_price(game, order)
