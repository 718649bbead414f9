"""Note 000's pricing by recency rank, on flat arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pebbler.arrays import Array
from pebbler.compiled import inner_kernel, kernel

__all__ = ["RecencyGame", "price_prefix"]


class RecencyGame(NamedTuple):
    """A graph as the `recency` rule sees it: whole tensors, ranked by their last access."""

    cost: Array  # per op
    read: Array  # per level: its prices
    store: Array
    read_start: Array
    read_tensor: Array
    write_start: Array
    write_tensor: Array
    size: Array
    initial: Array  # tensors that have a value at the start; they stay in the ranking
    capacity: Array  # per level, the last larger than everything together


class Ranking(NamedTuple):
    """What is live, and when each tensor was last used."""

    live: Array  # tensors in order of first insertion
    is_live: Array  # per tensor
    accessed: Array  # per tensor: the step of its last access, from 1
    last_read: Array  # per tensor: the last step of the whole order that reads it


@kernel
def price_prefix(game, order, count, detail, books):  # type: ignore[no-untyped-def]
    """Return the energy of the first `count` ops of `order`, and the ranking that they leave.

    The ranking is the live tensors in order of first insertion, and the step of each tensor's last access. With `detail` the
    amounts are added to `books`.
    """
    tensors = len(game.size)
    ranking = Ranking(
        np.empty(tensors, np.int64), game.initial.copy(), np.zeros(tensors, np.int64), np.full(tensors, -1, np.int64)
    )
    total, alive = _run(game, ranking, order, count, detail, books)
    return total, ranking.live[:alive], ranking.accessed


@inner_kernel
def _run(game, ranking, order, count, detail, books):  # type: ignore[no-untyped-def]
    """Return the energy of the first `count` ops, and how many tensors are live then."""
    for s in range(len(order)):
        for k in range(game.read_start[order[s]], game.read_start[order[s] + 1]):
            ranking.last_read[game.read_tensor[k]] = s
    alive = 0
    for t in range(len(game.size)):
        if game.initial[t]:
            ranking.live[alive] = t
            alive += 1
    total = 0.0
    for s in range(count):
        op = order[s]
        energy = game.cost[op]
        if detail:
            _note_cost(game, op, books)
        for k in range(game.read_start[op], game.read_start[op + 1]):
            t = game.read_tensor[k]
            at = _found_at(game, ranking, alive, t)
            ranking.accessed[t] = s + 1
            energy += game.size[t] * game.read[at]
            if detail:
                books.by_level[at] += game.size[t] * game.read[at]
                books.by_tensor[t] += game.size[t] * game.read[at]
        for k in range(game.write_start[op], game.write_start[op + 1]):
            t = game.write_tensor[k]
            at = 0
            while game.size[t] > game.capacity[at] and at < len(game.capacity) - 1:
                at += 1
            ranking.accessed[t] = s + 1
            if not ranking.is_live[t]:
                ranking.is_live[t] = True
                ranking.live[alive] = t
                alive += 1
            energy += game.size[t] * game.store[at]
            if detail:
                books.by_level[at] += game.size[t] * game.store[at]
                books.by_tensor[t] += game.size[t] * game.store[at]
        alive = _drop_dead(game, ranking, alive, op, s)
        total += energy
        if detail:
            books.by_op[op] += energy
            books.step_energy[s] = energy
    return total, alive


@inner_kernel
def _found_at(game, ranking, alive, tensor):  # type: ignore[no-untyped-def]
    """Return the level that holds a tensor: everything used more recently lies above it, of one step what came first."""
    depth = game.size[tensor]
    seen = False
    for j in range(alive):
        other = ranking.live[j]
        newer = ranking.accessed[other] - ranking.accessed[tensor]
        if other == tensor:
            seen = True
        elif newer > 0 or (newer == 0 and not seen):
            depth += game.size[other]
    at = 0
    room = game.capacity[0]
    while depth > room and at < len(game.capacity) - 1:
        at += 1
        room += game.capacity[at]
    return at


@inner_kernel
def _drop_dead(game, ranking, alive, op, step):  # type: ignore[no-untyped-def]
    """Take tensors out of the ranking that nothing reads any more; return how many are left."""
    kept = 0
    for j in range(alive):
        t = ranking.live[j]
        stays = game.initial[t] or ranking.last_read[t] > step
        for k in range(game.write_start[op], game.write_start[op + 1]):
            stays = stays or game.write_tensor[k] == t
        if stays:
            ranking.live[kept] = t
            kept += 1
        else:
            ranking.is_live[t] = False
    return kept


@inner_kernel
def _note_cost(game, op, books):  # type: ignore[no-untyped-def]
    """Enter an op's own cost, with the first tensor it writes, or else the first it reads."""
    books.by_level[0] += game.cost[op]
    if game.write_start[op] < game.write_start[op + 1]:
        books.by_tensor[game.write_tensor[game.write_start[op]]] += game.cost[op]
    else:
        books.by_tensor[game.read_tensor[game.read_start[op]]] += game.cost[op]
