"""A* over the states of the explicit game: the open list, the nodes found, and the search itself."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pebbler.arrays import Array
from pebbler.compiled import kernel, separate_kernel
from pebbler.solver.exact.kernels.astar_estimate import (
    PLACING,
    ExactGame,
    estimate,
    finished,
    inner,
    total_size,
    useful_values,
)
from pebbler.solver.exact.kernels.astar_moves import PLACE, drop_sets, list_moves, make, room
from pebbler.solver.kernels.open_list import OpenList, push, remove_first
from pebbler.solver.kernels.state_table import slot_of

__all__ = ["COUNTERS", "EXHAUSTED", "FOUND", "FULL", "PAUSED", "TOO_WIDE", "Pool", "rehash", "search"]

FOUND, EXHAUSTED, PAUSED, FULL, TOO_WIDE = 0, 1, 2, 3, 4
COUNTERS = 3  # nodes in use, goal node, whether the pool overflowed


class Pool(NamedTuple):
    """The nodes found so far, a hash table over their states, and the open list; of int64 unless said otherwise."""

    rows: Array
    spent: Array  # float64
    links: Array  # per node: its parent, the move from there, the values dropped at the target level just before it
    table: Array  # int32
    open: OpenList
    counters: Array
    moves: Array  # room for the moves of one state
    sets: Array  # room for the sets of drops of one move


@inner
def _assign(row: Array, other: Array) -> None:
    for word in range(len(row)):
        row[word] = other[word]


@kernel
def rehash(pool: Pool) -> None:
    """Enter every node into the pool's empty table."""
    for node in range(pool.counters[0]):
        pool.table[slot_of(pool.table, len(pool.table) - 1, 0, pool.rows, pool.rows[node])] = node


@inner
def _reach(
    game: ExactGame, pool: Pool, row: Array, spent: float, parent: int, move: int, drops: int, cutoff: float
) -> None:
    """Enter a state reached at cost `spent`, unless it is known to be reached as cheaply or cannot lead to a better plan."""
    if row[0] >> 32 != PLACING:
        useful = useful_values(game, row[0] & 0xFFFFFFFF)
        for word in range(2, len(row)):
            row[word] &= useful
    slot = slot_of(pool.table, len(pool.table) - 1, 0, pool.rows, row)
    node = np.int64(pool.table[slot])
    if node >= 0 and spent >= pool.spent[node]:
        return
    f = spent + estimate(game, row)
    if f >= cutoff:
        return
    if pool.counters[0] == len(pool.spent) or pool.open.used[0] + 1 == len(pool.open.node):
        pool.counters[2] = 1
        return
    if node < 0:
        node = pool.counters[0]
        pool.counters[0] += 1
        pool.table[slot] = node
        for word in range(len(row)):
            pool.rows[node, word] = row[word]
    pool.spent[node] = spent
    pool.links[node, 0] = parent
    pool.links[node, 1] = move
    pool.links[node, 2] = drops
    push(pool.open, f, spent, node)


@separate_kernel(_nrt=False)
def _expand(game: ExactGame, pool: Pool, node: int, row: Array, child: Array, cutoff: float) -> bool:
    """Enter all the states that one move leads to; False when there was not enough room for it."""
    if row[0] >> 32 == PLACING:
        count = (1 << len(game.capacity)) - 1
    else:
        count = list_moves(game, row, pool.moves)
        if count < 0:
            return False
    for i in range(count):
        sets = 1
        if row[0] >> 32 == PLACING:
            pool.moves[i] = PLACE
            pool.sets[0] = 0
        else:
            need, able = room(game, row, child, pool.moves[i])
            sets = drop_sets(game, able, need, pool.sets)
            if sets < 0:
                return False
        for k in range(sets):
            _assign(child, row)
            paid = 0.0
            if pool.moves[i] == PLACE:
                if not _place(game, child, i + 1):
                    continue
            else:
                paid = make(game, child, pool.moves[i], pool.sets[k])
            _reach(game, pool, child, pool.spent[node] + paid, node, pool.moves[i], pool.sets[k], cutoff)
    return True


@inner
def _place(game: ExactGame, row: Array, where: int) -> bool:
    """Choose the start levels of the next param of a steady step; return whether it fits there."""
    levels = len(game.capacity)
    p = 0
    while row[1] >> (p * levels) & ((1 << levels) - 1):
        p += 1
    row[1] |= where << (p * levels)
    for level in range(levels):
        if where >> level & 1:
            row[2 + level] |= 1 << game.params[0, p]
            if total_size(row[2 + level], game.size) > game.capacity[level]:
                return False
    if p == game.params.shape[1] - 1:
        row[0] = 0
    return True


@kernel
def search(game: ExactGame, pool: Pool, first: Array, pops: int, cutoff: float) -> int:
    """Look at up to `pops` states, best first, beginning with the row `first` when the pool is empty; return why it stopped.

    FOUND leaves the goal in `counters[1]`; FULL asks for a larger pool.
    """
    row = np.empty(pool.rows.shape[1], np.int64)
    child = np.empty(pool.rows.shape[1], np.int64)
    start = np.int64(-1)
    node = start
    for _ in range(pops):
        if pool.counters[0] == 0:
            _assign(child, first)
            _reach(game, pool, child, 0.0, start, np.int64(PLACE), np.int64(0), cutoff)
        if pool.open.used[0] == 0:
            return EXHAUSTED
        node, f, g = np.int64(pool.open.node[0]), pool.open.estimate[0], pool.open.paid[0]
        if g > pool.spent[node] or f >= cutoff:
            remove_first(pool.open)
            continue
        _assign(row, pool.rows[node])
        if finished(game, row):
            pool.counters[1] = node
            return FOUND
        remove_first(pool.open)
        enough = _expand(game, pool, node, row, child, cutoff)
        if not enough or pool.counters[2]:
            # Expanding it again in a larger pool finds again what was entered, and the rest. (Its own entry left room for this.)
            push(pool.open, f, g, node)
            return FULL if enough else TOO_WIDE
    return PAUSED
