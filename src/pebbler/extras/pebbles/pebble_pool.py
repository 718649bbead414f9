"""Pools of states of pebble games: made, grown, and searched a slice at a time."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from pebbler.extras.pebbles.kernels import pebble_astar as kernel
from pebbler.extras.pebbles.kernels.pebble_state import PebbleGame
from pebbler.solver.exact.kernels import astar as states
from pebbler.solver.kernels.open_list import OpenList

__all__ = ["grow", "pool_from", "search_pool"]

_SECONDS = 0.1  # between two looks at the clock, about


def _pool(nodes: int, values: int, pebbles: int) -> kernel.PebblePool:
    table = 1 << (2 * nodes - 1).bit_length()
    return kernel.PebblePool(
        sets=np.empty((nodes, 5), np.int64),
        levels=np.empty((nodes, values), np.uint8),
        spent=np.empty(nodes, np.float64),
        links=np.empty((nodes, 3), np.int32),
        table=np.full(table, -1, np.int32),
        open=OpenList.room(nodes + 1),
        counters=np.zeros(states.COUNTERS, np.int64),
        level=np.empty((2, values), np.uint8),
        counts=np.empty(2 * (pebbles + 1), np.int64),
        reached=np.empty(5, np.int64),
    )


def pool_from(game: PebbleGame, nodes: int, ran: int, fast: int, slow: int) -> kernel.PebblePool:
    """Return a pool with one state in it: the ops that have run, and the values in the fast level and in the slow one."""
    values = len(game.readers)
    pool = _pool(nodes, values, game.capacity)
    pool.sets[0] = ran, slow, 0, fast, 0
    pool.levels[0] = [game.capacity * (fast >> v & 1) for v in range(values)]
    pool.spent[0] = pool.open.estimate[0] = pool.open.paid[0] = 0.0
    pool.links[0], pool.open.node[0] = -1, 0
    pool.counters[0] = pool.open.used[0] = 1
    kernel.enter_all(pool)
    return pool


def grow(pool: kernel.PebblePool, max_states: int) -> kernel.PebblePool:
    """Return the same pool with room for more nodes."""
    nodes = int(pool.counters[0])
    more = min(4 * len(pool.spent), max(max_states, 64))
    grown = _pool(more, pool.levels.shape[1], len(pool.counts) // 2 - 1)
    for field in ("sets", "levels", "spent", "links"):
        getattr(grown, field)[:nodes] = getattr(pool, field)[:nodes]
    pool.open.copy_to(grown.open)
    grown.counters[:2] = pool.counters[:2]
    kernel.enter_all(grown)
    return grown


def search_pool(
    game: PebbleGame, pool: kernel.PebblePool, max_states: int, cutoff: float, seconds_left: Callable[[], float]
) -> tuple[int, kernel.PebblePool]:
    """Look at states until a plan is FOUND that costs less than the cutoff, or there is none (EXHAUSTED), or it has to stop.

    Returns why it ended, and the pool as it is then.
    """
    pops = 20
    while True:
        began = time.perf_counter()
        status = int(kernel.look(game, pool, pops, cutoff))
        pops = max(1, min(2 * pops, int(pops * _SECONDS / max(1e-6, time.perf_counter() - began))))
        if status in (states.FOUND, states.EXHAUSTED, states.TOO_WIDE) or seconds_left() <= 0:
            return status, pool
        if status == states.FULL:
            if len(pool.spent) >= max_states:
                return status, pool
            pool = grow(pool, max_states)
