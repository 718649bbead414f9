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
    """The live tensors, the time of each one's last use, and a Fenwick tree over places: the higher the place, the more recent.

    What the step under way has touched is in `touched` instead, until the step is over: all of it ties.
    """

    is_live: Array  # per tensor
    accessed: Array  # per tensor: the step of its last access, from 1
    last_read: Array  # per tensor: the last step of the whole order that reads it
    stamp: Array  # per tensor: when it came into the ranking; of one step, what came first lies above
    place: Array  # per tensor: where it is in the tree, from 1; 0 while it is not there
    tree: Array  # units of live tensors
    touched: Array  # tensors
    state: Array  # how many are in `touched`, the last place taken, the last stamp given, units in the tree


@kernel
def price_prefix(game, order, count, detail, books):  # type: ignore[no-untyped-def]
    """Return the energy of the first `count` ops of `order`, and the ranking that they leave.

    The ranking is the live tensors in order of first insertion, and the step of each tensor's last access. With `detail` the
    amounts are added to `books`.
    """
    tensors, touches = len(game.size), 0
    for s in range(count):
        touches += game.read_start[order[s] + 1] - game.read_start[order[s]]
        touches += game.write_start[order[s] + 1] - game.write_start[order[s]]
    ranking = Ranking(
        game.initial.copy(), np.zeros(tensors, np.int64), np.full(tensors, -1, np.int64), np.zeros(tensors, np.int64),
        np.zeros(tensors, np.int64), np.zeros(tensors + touches + 1, np.int64), np.empty(tensors + touches + 1, np.int64),
        np.zeros(4, np.int64),
    )  # fmt: skip
    total = _run(game, ranking, order, count, detail, books)
    live = np.flatnonzero(ranking.is_live)
    return total, live[np.argsort(ranking.stamp[live])], ranking.accessed


@inner_kernel
def _run(game, ranking, order, count, detail, books):  # type: ignore[no-untyped-def]
    """Return the energy of the first `count` ops."""
    for s in range(len(order)):
        for k in range(game.read_start[order[s]], game.read_start[order[s] + 1]):
            ranking.last_read[game.read_tensor[k]] = s
    for t in range(len(game.size)):
        if game.initial[t]:
            ranking.state[2] += 1
            ranking.stamp[t] = ranking.state[2]
            ranking.touched[ranking.state[0]] = t
            ranking.state[0] += 1
    _end_step(game, ranking)
    total = 0.0
    for s in range(count):
        op = order[s]
        energy = game.cost[op]
        if detail:
            _note_cost(game, op, books)
        for k in range(game.read_start[op], game.read_start[op + 1]):
            t = game.read_tensor[k]
            at = _found_at(game, ranking, t, s)
            _touch(game, ranking, t, s)
            energy += game.size[t] * game.read[at]
            if detail:
                books.by_level[at] += game.size[t] * game.read[at]
                books.by_tensor[t] += game.size[t] * game.read[at]
        for k in range(game.write_start[op], game.write_start[op + 1]):
            t = game.write_tensor[k]
            at = 0
            while game.size[t] > game.capacity[at] and at < len(game.capacity) - 1:
                at += 1
            if not ranking.is_live[t]:
                ranking.is_live[t] = True
                ranking.state[2] += 1
                ranking.stamp[t] = ranking.state[2]
            _touch(game, ranking, t, s)
            energy += game.size[t] * game.store[at]
            if detail:
                books.by_level[at] += game.size[t] * game.store[at]
                books.by_tensor[t] += game.size[t] * game.store[at]
        _drop_dead(game, ranking, order, s)
        _end_step(game, ranking)
        total += energy
        if detail:
            books.by_op[op] += energy
            books.step_energy[s] = energy
    return total


@inner_kernel
def _found_at(game, ranking, tensor, step):  # type: ignore[no-untyped-def]
    """Return the level that holds a tensor: everything used more recently lies above it, of one step what came first."""
    depth = game.size[tensor]
    again = ranking.accessed[tensor] == step + 1
    for j in range(ranking.state[0]):
        other = ranking.touched[j]
        if other != tensor and (not again or ranking.stamp[other] < ranking.stamp[tensor]):
            depth += game.size[other]
    if not again:
        below = 0
        j = ranking.place[tensor]
        while j > 0:
            below += ranking.tree[j]
            j &= j - 1
        depth += ranking.state[3] - below
    at = 0
    room = game.capacity[0]
    while depth > room and at < len(game.capacity) - 1:
        at += 1
        room += game.capacity[at]
    return at


@inner_kernel
def _move_in_tree(game, ranking, tensor, sign):  # type: ignore[no-untyped-def]
    """Put a tensor into the tree at its place, or take it out."""
    ranking.state[3] += sign * game.size[tensor]
    j = ranking.place[tensor]
    while j < len(ranking.tree):
        ranking.tree[j] += sign * game.size[tensor]
        j += j & -j


@inner_kernel
def _touch(game, ranking, tensor, step):  # type: ignore[no-untyped-def]
    """Enter an access of the step under way."""
    if ranking.accessed[tensor] == step + 1:
        return
    ranking.accessed[tensor] = step + 1
    if ranking.place[tensor] > 0:
        _move_in_tree(game, ranking, tensor, -1)
        ranking.place[tensor] = 0
    ranking.touched[ranking.state[0]] = tensor
    ranking.state[0] += 1


@inner_kernel
def _end_step(game, ranking):  # type: ignore[no-untyped-def]
    """End a step: what it touched and is still live goes into the tree, what came into the ranking first on top."""
    count = ranking.state[0]
    touched = ranking.touched[:count]
    # Few are touched in a step; the start values, which are many, come in order.
    for i in range(1, count):
        t = touched[i]
        j = i
        while j > 0 and ranking.stamp[touched[j - 1]] > ranking.stamp[t]:
            touched[j] = touched[j - 1]
            j -= 1
        touched[j] = t
    for i in range(count - 1, -1, -1):
        t = touched[i]
        if ranking.is_live[t]:
            ranking.state[1] += 1
            ranking.place[t] = ranking.state[1]
            _move_in_tree(game, ranking, t, 1)
    ranking.state[0] = 0


@inner_kernel
def _drop_dead(game, ranking, order, step):  # type: ignore[no-untyped-def]
    """Take tensors out of the ranking that nothing reads any more, unless they are just written.

    Those can only be what this step reads, or what the one before has written.
    """
    op = order[step]
    for k in range(game.read_start[op], game.read_start[op + 1]):
        _drop_if_dead(game, ranking, op, step, game.read_tensor[k])
    if step > 0:
        for k in range(game.write_start[order[step - 1]], game.write_start[order[step - 1] + 1]):
            _drop_if_dead(game, ranking, op, step, game.write_tensor[k])


@inner_kernel
def _drop_if_dead(game, ranking, op, step, tensor):  # type: ignore[no-untyped-def]
    stays = game.initial[tensor] or ranking.last_read[tensor] > step or not ranking.is_live[tensor]
    for k in range(game.write_start[op], game.write_start[op + 1]):
        stays = stays or game.write_tensor[k] == tensor
    if not stays:
        ranking.is_live[tensor] = False
        if ranking.place[tensor] > 0:
            _move_in_tree(game, ranking, tensor, -1)
            ranking.place[tensor] = 0


@inner_kernel
def _note_cost(game, op, books):  # type: ignore[no-untyped-def]
    """Enter an op's own cost, with the first tensor it writes, or else the first it reads."""
    books.by_level[0] += game.cost[op]
    if game.write_start[op] < game.write_start[op + 1]:
        books.by_tensor[game.write_tensor[game.write_start[op]]] += game.cost[op]
    else:
        books.by_tensor[game.read_tensor[game.read_start[op]]] += game.cost[op]
