"""Every order of a small graph on caches: depth first, with what is left bounded from below and equal states met once.

Two prefixes that have run the same ops and left the same state have the same future, so only the cheaper one goes on. States
are compared by 128-bit hashes. Each prefix is priced from scratch: these graphs are small, and one way of pricing is enough.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from pebbler.arrays import Array
from pebbler.compiled import inner_kernel, kernel
from pebbler.referee.kernels.allocation import allocate, allocate_until
from pebbler.referee.kernels.books import Books
from pebbler.referee.kernels.cache_price import price
from pebbler.referee.kernels.lru_stack import count_units, cut_runs, depths, levels
from pebbler.referee.kernels.recency_rank import RecencyGame, price_prefix
from pebbler.solver.kernels.sequence_edits import assign
from pebbler.solver.kernels.state_table import is_cheapest, mix
from pebbler.solver.tiling.kernels.order_walk import go_on, next_op

__all__ = ["DONE", "LIMIT", "RunChoices", "all_orders", "all_runs"]

DONE, LIMIT = 0, 1


@kernel
def _lru_prefix(game, order, count, key):  # type: ignore[no-untyped-def]
    """Return a price that `order[:count]` cannot fall below, whatever follows; mix the state that it leaves into `key`.

    The ops after `count` only say what is still alive. In a steady window the price of a line's first touch is not known
    yet: it counts at the fastest level, and the order of first touches is part of the state.
    """
    touch, where, ends = allocate(game.touches, order)
    return _lru_left(game, order, count, touch, where, ends, key)


@kernel
def _lru_left(game, order, count, touch, where, ends, key):  # type: ignore[no-untyped-def]
    """Return the same, once everything has its place."""
    touches = game.touches
    used = 0
    for i in range(count):
        used += touches.start[order[i] + 1] - touches.start[order[i]]
    block = np.full(len(touches.room), -1, np.int64)
    for i in range(used):
        storage = touches.storage[touch[i]]
        block[storage] = -1 if ends[i] and not touches.lasting[storage] else where[i]
    for storage in range(len(block)):
        if touches.home[storage] < 0:
            mix(key, block[storage])
    touch = touch[:used]
    lines, units, write = touches.lines[touch], touches.units[touch], touches.write[touch]
    runs, _, edges = cut_runs(where[:used], lines, units, write, touches.line)
    depth, last = np.empty(len(runs.item), np.int64), np.empty(runs.items, np.int64)
    depths(runs.item, runs.lines, depth, last)
    level = np.empty(len(runs.item), np.int8)
    levels(depth, game.reach, level)
    before = np.zeros(runs.items, np.int64)  # steady: the deepest level of a touch up to the first write
    total = _begin_loop(game, runs, edges, level, before, key) if game.steady else 0.0
    current = np.full(runs.items, len(game.reach), np.int64)  # the deepest level that is up to date
    writer = np.full(runs.items, -1, np.int64)
    moved = np.zeros((3, len(game.read)), np.int64)
    count_units(runs, level, current, writer, moved, np.empty(0, np.int8), np.empty(0, np.int64))
    for k in range(len(game.read)):
        total += moved[0, k] * game.read[k] + (moved[1, k] + moved[2, k]) * game.store[k]
    # Runs are named by where they lie, not by their number, which depends on how the prefix was cut.
    for i in range(len(runs.item) - 1, -1, -1):
        item = runs.item[i]
        if last[item] == i:
            mix(key, edges[item])
            mix(key, runs.lines[i])
            mix(key, current[item])
            mix(key, before[item])
            mix(key, writer[item] >= 0)
    for i in range(count):
        total += game.cost[order[i]]
    return total


@kernel
def _begin_loop(game, runs, edges, level, before, key):  # type: ignore[no-untyped-def]
    """Set the level of every first touch to the fastest, mix them into `key`, and fill `before`.

    Returns what the first reads can cost less than at the fastest level, on a machine where another level is cheaper.
    """
    first, written = np.ones(runs.items, np.bool_), np.zeros(runs.items, np.bool_)
    cheaper = game.read.min() - game.read[0]
    total = 0.0
    for i in range(len(runs.item)):
        item = runs.item[i]
        if first[item]:
            first[item] = False
            level[i] = 0
            mix(key, edges[item])
            mix(key, runs.write[i])
            if not runs.write[i]:
                total += runs.units[i] * cheaper
        if not written[item]:
            before[item] = max(before[item], level[i])
            written[item] = runs.write[i]
    return total


@kernel
def _recency_prefix(game, order, count, key):  # type: ignore[no-untyped-def]
    """Return the cost of `order[:count]` by recency rank; mix the ranking that it leaves into `key`."""
    none = np.zeros(0)
    books = Books(none, none, none, none, none, np.zeros(0, np.int64))
    total, live, accessed = price_prefix(game, order, count, False, books)
    rank = np.empty(len(live), np.int64)
    for i in range(len(live)):
        rank[i] = accessed[live[i]] * len(live) + len(live) - 1 - i
    for i in np.argsort(-rank):
        mix(key, live[i])
    # Ties to come are settled by insertion.
    for tensor in live:
        mix(key, tensor)
    return total


def prefix_price(game: Any, order: Array, count: int, key: Array) -> float:
    """Return the least cost of `order[:count]` by the rule that `game` is for; mix the state that it leaves into `key`."""
    prefix = _recency_prefix if isinstance(game, RecencyGame) else _lru_prefix
    return float(prefix(game, order, count, key))


@overload(prefix_price)
def _prefix_price(game, order, count, key):  # type: ignore[no-untyped-def]
    if game.instance_class is RecencyGame:
        return lambda game, order, count, key: _recency_prefix(game, order, count, key)
    return lambda game, order, count, key: _lru_prefix(game, order, count, key)


@kernel
def all_orders(game, walk, best, best_energy, rounding, limit, met):  # type: ignore[no-untyped-def]
    """Return the least energy below `best_energy` of all orders of a walk, why the search ended, and how many prefixes it priced.

    `best` receives the order; `rounding` is the part of an energy that may be rounding; `met` holds the states met.
    """
    n = len(walk.waits)
    full, key = np.empty(n, np.int64), np.empty(2, np.uint64)
    nodes, op = 0, next_op(walk)
    while op >= 0:
        nodes += 1
        if nodes > limit:
            return best_energy, LIMIT, nodes
        place = walk.depth[0] + 1
        for i in range(place):
            full[i] = walk.prefix[i]
        for other in range(n):
            if not walk.ran[other]:
                full[place] = other
                place += 1
        if walk.depth[0] + 1 == n:
            energy = price(game, full)
            if energy < best_energy:
                best_energy = energy
                assign(best, full)
        else:
            key[0], key[1] = np.uint64(walk.depth[0]), np.uint64(7)
            for other in range(n):
                mix(key, walk.ran[other])
            paid = prefix_price(game, full, walk.depth[0] + 1, key)
            below = paid + walk.rest[0] - walk.floor[op] < best_energy * (1 - rounding)
            if below and is_cheapest(met, key, paid):
                go_on(walk)
        op = next_op(walk)
    return best_energy, DONE, nodes


class RunChoices(NamedTuple):
    """The conditions for ops to run, of at most 62 storages; sets of storages are bits. A *passing* storage has no home."""

    waits: Array  # per op: how many must run before it
    after_start: Array
    after: Array  # per op: those that wait for it
    gone_start: Array
    gone: Array  # per op: those after which it cannot run again
    again: Array  # per op: whether it can run again at all
    reads: Array  # per op: the passing storages whose content it needs
    makes: Array  # per op: those that it writes afresh
    floor: Array  # per op: what its first run costs at least
    rerun: Array  # per op: what any run costs at least


@inner_kernel
def _can_run(choices, op, ran, waits, live):  # type: ignore[no-untyped-def]
    """Return whether an op can run, for the first time or again, with some contents alive."""
    if choices.reads[op] & ~live != 0 or choices.makes[op] & live != 0:
        return False
    if ran[op] == 0:
        return waits[op] == 0
    for k in range(choices.gone_start[op], choices.gone_start[op + 1]):
        if ran[choices.gone[k]] > 0:
            return False
    return choices.again[op]


@inner_kernel
def _count_run(choices, op, ran, waits, step):  # type: ignore[no-untyped-def]
    """Add a run of an op (`step` 1) or take it back (-1); return whether it is the first."""
    ran[op] += step
    first = ran[op] == (1 if step > 0 else 0)
    if first:
        for k in range(choices.after_start[op], choices.after_start[op + 1]):
            waits[choices.after[k]] -= step
    return first


@kernel
def all_runs(game, choices, best, best_energy, rounding, most, limit, met):  # type: ignore[no-untyped-def]
    """Return the least energy below `best_energy` of all sequences with at most `most` further runs, and how the search went.

    That is: whether it was done, whether `most` was in the way, the length of the sequence in `best` (0: none was better), and how
    many prefixes were priced. Which content ends with a run depends on what follows, so the search tries every way and
    goes on only as it has said. Without a limit, `most` is as long as `best` less the number of ops: then equal states are met
    once however many runs led there.
    """
    n = len(choices.waits)
    longest = len(best)
    free = most >= longest - n
    waits = choices.waits.copy()
    prefix, ended = np.empty(longest, np.int64), np.zeros(longest, np.int64)
    ran = np.zeros(n, np.int64)
    tried = np.full(longest + 1, -1, np.int64)
    way = np.zeros(longest + 1, np.int64)  # the next set of contents that end with the op tried; -1: go to the next op
    live = np.zeros(longest + 1, np.int64)
    paid_at = np.zeros(longest + 1)
    way[0] = -1
    left = choices.floor.sum()
    depth, nodes, runs, length = 0, 0, 0, 0  # runs: of different ops
    blocked = False
    key = np.empty(2, np.uint64)
    while depth >= 0:
        if way[depth] < 0:
            op = tried[depth] + 1
            while op < n:
                possible = _can_run(choices, op, ran, waits, live[depth])
                if possible and ran[op] > 0 and (depth - runs >= most or depth + 1 >= longest):
                    blocked |= paid_at[depth] + left + choices.rerun[op] < best_energy * (1 - rounding)
                    possible = False
                if possible:
                    break
                op += 1
            if op == n:
                depth -= 1
                if depth >= 0:
                    op = prefix[depth]
                    if _count_run(choices, op, ran, waits, -1):
                        runs -= 1
                        left += choices.floor[op]
                continue
            tried[depth] = op
            way[depth] = choices.reads[op] | choices.makes[op]
        op, ends = tried[depth], way[depth]
        every = choices.reads[op] | choices.makes[op]
        way[depth] = -1 if ends == 0 else (ends - 1) & every
        prefix[depth], ended[depth] = op, ends
        nodes += 1
        if nodes > limit:
            return best_energy, LIMIT, blocked, length, nodes
        first = ran[op] == 0
        rest = left - choices.floor[op] if first else left
        now = (live[depth] | choices.makes[op]) & ~ends
        key[0], key[1] = np.uint64(0 if free else depth), np.uint64(7)
        for other in range(n):
            mix(key, ran[other] > 0 or other == op)
        mix(key, now)
        touch, where, last = allocate_until(game.touches, prefix[: depth + 1], ended[: depth + 1])
        paid = _lru_left(game, prefix, depth + 1, touch, where, last, key)
        if paid + rest >= best_energy * (1 - rounding):
            continue
        complete = runs + first == n
        if complete:
            energy = price(game, prefix[: depth + 1])
            if energy < best_energy:
                best_energy, length = energy, depth + 1
                assign(best, prefix)
            if not game.steady or depth + 1 >= longest:
                blocked |= game.steady and depth + 1 >= longest
                continue
        if not is_cheapest(met, key, paid):
            continue
        left = rest
        runs += _count_run(choices, op, ran, waits, 1)
        depth += 1
        live[depth], paid_at[depth] = now, paid
        tried[depth], way[depth] = -1, -1
    return best_energy, DONE, blocked, length, nodes
