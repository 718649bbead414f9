"""Lower bounds on the cost of an op's first run by recency rank, for any reruns before it.

A read is found where the first runs have left the tensor, unless runs beyond the first ones have touched it meanwhile. These
touches are a chain, each of which is paid, and the cheapest chain is found as a shortest path. `docs/tiling.md` has the proof. All
orders of first runs are gone through depth first; states are equal if all prices to come are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pebbler.arrays import Array
from pebbler.compiled import inner_kernel, kernel
from pebbler.solver.kernels.state_table import is_cheapest, mix
from pebbler.solver.tiling.kernels.order_walk import OrderWalk, go_on, next_op

__all__ = ["FirstRunWalk", "FirstRuns", "RerunGame", "run_first", "walk_first_orders"]


class RerunGame(NamedTuple):
    """A graph as the `recency` rule sees it, and who may touch what again."""

    cost: Array  # per op
    floor: Array  # per op: what its first run costs at least
    can_rerun: Array  # per op
    size: Array  # per tensor
    initial: Array  # per tensor: always in the ranking
    readers: Array  # per tensor: how many ops read it
    write: Array  # per tensor: what writing it costs
    reach: Array  # per level but the last: how deep a tensor may lie
    price: Array  # per level: the cheapest read from there or below
    read_start: Array
    read_tensor: Array
    read_destroyer: Array  # per read: the op that overwrites the value, -1 for none
    write_start: Array
    write_tensor: Array
    touched_start: Array  # per op: the tensors that it reads or writes, each once
    touched: Array
    toucher_start: Array  # per tensor: the ops that read or write it
    toucher: Array
    wanted: Array  # [known, op, tensor]: whether somebody may read the tensor for the first time after `known` and `op` have run
    wanted_size: Array  # [known, op]: units of such tensors that `op` touches


class FirstRuns(NamedTuple):
    """The state that some first runs have left, and scratch arrays."""

    ran: Array  # per op
    accessed: Array  # per tensor: the step of its last access
    stamp: Array  # per tensor: when it came into the ranking, 0 if it has not yet
    by: Array  # per tensor: the op of its last access, -1 if it was there at the start
    left: Array  # per tensor: ops that read it and have not run
    above: Array  # tensors above the one that is read, the longest unused first
    again: Array  # ops that may have touched it again
    paid: Array  # [first or later, read]: prices of the reads of a run beyond the first
    share: Array  # [first or later, place, rerun]: what is paid for tensors that nobody wants any more
    chain: Array  # [place, rerun]: the cheapest chain that ends there
    mark: Array  # per tensor: marked if it equals the last token
    token: Array


@inner_kernel
def _price(game, depth):  # type: ignore[no-untyped-def]
    level = 0
    while level < len(game.reach) and depth > game.reach[level]:
        level += 1
    return game.price[level]


@inner_kernel
def _is_live(game, runs, tensor):  # type: ignore[no-untyped-def]
    """Return whether a tensor stays in the ranking, whatever runs again: it starts there, or a first run to come reads it."""
    return runs.stamp[tensor] > 0 and (game.initial[tensor] or runs.left[tensor] > 0)


@inner_kernel
def _reads(game, op, tensor):  # type: ignore[no-untyped-def]
    found = False
    for k in range(game.read_start[op], game.read_start[op + 1]):
        found = found or game.read_tensor[k] == tensor
    return found


@inner_kernel
def _writes(game, op, tensor):  # type: ignore[no-untyped-def]
    found = False
    for k in range(game.write_start[op], game.write_start[op + 1]):
        found = found or game.write_tensor[k] == tensor
    return found


@inner_kernel
def _is_above(runs, tensor, other):  # type: ignore[no-untyped-def]
    """Return whether `other` ranks before `tensor`."""
    later = runs.accessed[other] - runs.accessed[tensor]
    return later > 0 or (later == 0 and runs.stamp[other] < runs.stamp[tensor])


@inner_kernel(forceinline=False)
def run_first(game, runs, op, step):  # type: ignore[no-untyped-def]
    """Run an op for the first time; return what it costs at least."""
    energy = game.cost[op]
    for k in range(game.read_start[op], game.read_start[op + 1]):
        tensor = game.read_tensor[k]
        energy += _read_first(game, runs, tensor, op, step)
        runs.accessed[tensor], runs.by[tensor] = step, op
    for k in range(game.touched_start[op], game.touched_start[op + 1]):
        if _reads(game, op, game.touched[k]):
            runs.left[game.touched[k]] -= 1
    for k in range(game.write_start[op], game.write_start[op + 1]):
        tensor = game.write_tensor[k]
        energy += game.write[tensor]
        if runs.stamp[tensor] == 0:
            last = np.int64(0)
            for stamp in runs.stamp:
                last = max(last, stamp)
            runs.stamp[tensor] = last + 1
        runs.accessed[tensor], runs.by[tensor] = step, op
    runs.ran[op] = True
    return energy


@inner_kernel(forceinline=False)
def _read_first(game, runs, tensor, op, step):  # type: ignore[no-untyped-def]
    again = runs.accessed[tensor] == step
    depth = game.size[tensor]
    for other in range(len(game.size)):
        if other == tensor:
            continue
        if runs.accessed[other] == step:
            if not again or runs.stamp[other] < runs.stamp[tensor]:
                depth += game.size[other]
        elif not again and _is_live(game, runs, other) and _is_above(runs, tensor, other):
            depth += game.size[other]
    full = game.size[tensor] * _price(game, depth)
    if again or runs.by[tensor] < 0:
        return full
    touch = min(game.write[tensor], game.size[tensor] * _price(game, game.size[tensor]))
    if touch + game.size[tensor] * _price(game, _pile(game, runs, -1, op, tensor)) >= full:
        return full
    return _cheapest_chain(game, runs, tensor, op, step, full)


@inner_kernel(forceinline=False)
def _pile(game, runs, before, op, tensor):  # type: ignore[no-untyped-def]
    """Mark what lies above a tensor when an op reads it, if `before` has touched it last; return the units, its own included.

    That is what the op has read already, and what `before` touched with it, came into the ranking earlier and is still there.
    """
    runs.token[0] += 1
    token, depth = runs.token[0], game.size[tensor]
    runs.mark[tensor] = token
    for k in range(game.read_start[op], game.read_start[op + 1]):
        other = game.read_tensor[k]
        if other == tensor:
            break
        if runs.mark[other] != token:
            runs.mark[other] = token
            depth += game.size[other]
    if before >= 0:
        for k in range(game.touched_start[before], game.touched_start[before + 1]):
            other = game.touched[k]
            if runs.mark[other] != token and runs.stamp[other] < runs.stamp[tensor]:
                if _is_live(game, runs, other) or _reads(game, op, other):
                    runs.mark[other] = token
                    depth += game.size[other]
    return depth


@inner_kernel(forceinline=False)
def _cheapest_chain(game, runs, tensor, op, step, full):  # type: ignore[no-untyped-def]
    """Return the least that a read and the touches since the last first run cost; `full` without such touches."""
    count = _who_again(game, runs, tensor)
    if count == 0:
        return full
    places = _what_is_above(game, runs, tensor, step)
    for i in range(count):
        _share_costs(game, runs, tensor, i, places)
    size, chain, best = game.size[tensor], runs.chain, full
    for i in range(count):
        depth = _pile(game, runs, runs.by[tensor], runs.again[i], tensor)
        for place in range(places + 1):
            depth += _next_above(game, runs, place)
            own = game.write[tensor] if _writes(game, runs.again[i], tensor) else size * _price(game, depth)
            chain[place, i] = own + runs.share[0, place, i]
    for place in range(places + 1):
        for _ in range(count):
            if not _prolong(game, runs, tensor, place, places, count, best):
                break
        for i in range(count):
            if chain[place, i] < best:
                depth = _pile(game, runs, runs.again[i], op, tensor)
                for later in range(place + 1, places + 1):
                    depth += _next_above(game, runs, later)
                best = min(best, chain[place, i] + size * _price(game, depth))
    return best


@inner_kernel
def _next_above(game, runs, place):  # type: ignore[no-untyped-def]
    """Return the units that are above from this place on, unless they are marked."""
    if place == 0 or runs.mark[runs.above[place - 1]] == runs.token[0]:
        return 0
    return game.size[runs.above[place - 1]]


@inner_kernel(forceinline=False)
def _prolong(game, runs, tensor, place, places, count, best):  # type: ignore[no-untyped-def]
    """Prolong the chains that end at a place by one touch; return whether one that ends at this place became cheaper."""
    cheaper = False
    for i in range(count):
        if runs.chain[place, i] >= best:
            continue
        for k in range(count):
            depth = _pile(game, runs, runs.again[i], runs.again[k], tensor)
            made = _writes(game, runs.again[k], tensor)
            for later in range(place, places + 1):
                if later > place:
                    depth += _next_above(game, runs, later)
                own = game.write[tensor] if made else game.size[tensor] * _price(game, depth)
                cost = runs.chain[place, i] + own + runs.share[1, later, k]
                if cost < runs.chain[later, k]:
                    runs.chain[later, k] = cost
                    cheaper = cheaper or later == place
    return cheaper


@inner_kernel
def _who_again(game, runs, tensor):  # type: ignore[no-untyped-def]
    """Fill `again` with the ops that may have touched a tensor again since the last first run that did."""
    count = 0
    for k in range(game.toucher_start[tensor], game.toucher_start[tensor + 1]):
        other = game.toucher[k]
        possible = runs.ran[other] and game.can_rerun[other]
        for j in range(game.read_start[other], game.read_start[other + 1]):
            gone, read = game.read_destroyer[j], game.read_tensor[j]
            # The op that overwrites what it reads has touched the same tensor: was that before the last touch of this one?
            if gone >= 0 and runs.ran[gone] and _is_live(game, runs, read):
                possible = possible and runs.accessed[read] > runs.accessed[tensor]
        if possible:
            runs.again[count] = other
            count += 1
    return count


@inner_kernel
def _what_is_above(game, runs, tensor, step):  # type: ignore[no-untyped-def]
    """Fill `above` with what stays in the ranking above a tensor and was not read in this step."""
    count = 0
    for other in range(len(game.size)):
        if other == tensor or runs.accessed[other] == step or not _is_live(game, runs, other):
            continue
        if _is_above(runs, tensor, other):
            j = count
            while j > 0 and _is_above(runs, other, runs.above[j - 1]):
                runs.above[j] = runs.above[j - 1]
                j -= 1
            runs.above[j] = other
            count += 1
    return count


@inner_kernel(forceinline=False)
def _share_costs(game, runs, tensor, i, places):  # type: ignore[no-untyped-def]
    """Fill `share` for one rerun: of what it pays for tensors that nobody wants any more, the share of this tensor."""
    op, last = runs.again[i], runs.by[tensor]
    start, end = game.read_start[op], game.read_start[op + 1]
    for later in range(2):
        for k in range(start, end):
            runs.paid[later, k - start] = _read_again(game, runs, op, k, last, later == 0)
    for place in range(places + 1):
        known = last if place == 0 else runs.by[runs.above[place - 1]]
        for later in range(2):
            total = game.cost[op]
            for k in range(start, end):
                if not game.wanted[known, op, game.read_tensor[k]]:
                    total += runs.paid[later, k - start]
            for k in range(game.write_start[op], game.write_start[op + 1]):
                if not game.wanted[known, op, game.write_tensor[k]]:
                    total += game.write[game.write_tensor[k]]
            units = game.wanted_size[known, op]
            runs.share[later, place, i] = total * game.size[tensor] / units if units else 0.0


@inner_kernel(forceinline=False)
def _read_again(game, runs, op, k, last, first):  # type: ignore[no-untyped-def]
    """Return the least cost of read number `k` when its op runs again.

    With `first` it is the first run beyond the first ones that touches some tensor after `last`, which had touched it.
    """
    tensor, best = game.read_tensor[k], game.price[len(game.price) - 1]
    for j in range(game.read_start[op], k):
        if game.read_tensor[j] == tensor:
            return game.size[tensor] * _price(game, game.size[tensor])
    for j in range(game.toucher_start[tensor], game.toucher_start[tensor + 1]):
        before = game.toucher[j]
        if not runs.ran[before]:
            continue
        depth = _pile(game, runs, before, op, tensor)
        if first and before == op and last != op:
            # Its own last run was before `last`, and what that touched is above by now.
            found = False
            for i in range(game.touched_start[last], game.touched_start[last + 1]):
                other = game.touched[i]
                found = found or other == tensor
                if runs.mark[other] != runs.token[0] and (_is_live(game, runs, other) or _reads(game, op, other)):
                    depth += game.size[other]
            if found:
                continue
        best = min(best, _price(game, depth))
    return game.size[tensor] * best


# All orders of first runs ----------------------------------------------------------------------------------------------


class FirstRunWalk(NamedTuple):
    """A walk through all orders, with what the prefix costs and leaves behind."""

    orders: OrderWalk
    paid: Array  # per depth: what the ops before cost
    kept: Array  # per depth: what they have left behind
    below: Array  # one number: the least cost of an order so far


@kernel
def walk_first_orders(game, walk, rounding, limit, met):  # type: ignore[no-untyped-def]
    """Go on with a walk for so many prefixes; return whether it is done. `rounding` is the part of a sum that may be rounding."""
    orders, paid = walk.orders, walk.paid
    state = walk.kept[0].copy()
    runs = _room_for(game, state, orders.ran)
    key = np.empty(2, np.uint64)
    for _ in range(limit):
        op = next_op(orders)
        if op < 0:
            return True
        depth = orders.depth[0]
        state[:] = walk.kept[depth]
        orders.ran[op] = False  # until it has been priced
        cost = paid[depth] + run_first(game, runs, op, depth + 1)
        if cost + orders.rest[0] - game.floor[op] >= walk.below[0] * (1 - rounding):
            continue
        if depth + 1 == len(orders.waits):
            walk.below[0] = cost
            continue
        _mix_state(game, runs, depth, key)
        if is_cheapest(met, key, cost):
            go_on(orders)
            walk.kept[depth + 1], paid[depth + 1] = state, cost
    return False


@kernel
def _room_for(game, state, ran):  # type: ignore[no-untyped-def]
    """Return a record of first runs with `state` and `ran` as the parts that runs change, and room for thinking."""
    tensors, again = len(game.size), np.diff(game.toucher_start).max()
    return FirstRuns(
        ran, state[0], state[1], state[2], state[3], np.empty(tensors, np.int64),
        np.empty(again, np.int64), np.empty((2, np.diff(game.read_start).max())), np.empty((2, tensors + 1, again)),
        np.empty((tensors + 1, again)), np.zeros(tensors, np.int64), np.zeros(1, np.int64),
    )  # fmt: skip


@inner_kernel(forceinline=False)
def _mix_state(game, runs, depth, key):  # type: ignore[no-untyped-def]
    """Make a hash of all that the prices to come depend on: who has run, the ranking, who came into it first, who touched last."""
    key[0], key[1] = np.uint64(depth), np.uint64(7)
    for op in range(len(runs.ran)):
        mix(key, runs.ran[op])
    for first in (True, False):
        count = 0
        for tensor in range(len(game.size)):
            if runs.stamp[tensor] == 0 or (first and not game.initial[tensor] and runs.left[tensor] == 0):
                continue
            j = count
            while j > 0:
                other = runs.above[j - 1]
                later = runs.accessed[tensor] - runs.accessed[other] if first else 0
                if later < 0 or (later == 0 and runs.stamp[tensor] > runs.stamp[other]):
                    break
                runs.above[j] = other
                j -= 1
            runs.above[j] = tensor
            count += 1
        for i in range(count):
            mix(key, runs.above[i])
            if first:
                mix(key, runs.by[runs.above[i]] + 1)
