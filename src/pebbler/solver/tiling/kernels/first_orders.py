"""Every order of first runs of a small graph by recency rank, each at the least that it costs with any runs beyond the first.

Depth first, as `cache_exact` goes through orders; states are equal if all prices to come are, which here depend on more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pebbler.arrays import Array
from pebbler.compiled import inner_kernel, kernel
from pebbler.solver.kernels.state_table import is_cheapest, mix
from pebbler.solver.tiling.kernels.order_walk import OrderWalk, go_on, next_op
from pebbler.solver.tiling.kernels.rerun_prices import FirstRuns, run_first

__all__ = ["FirstRunWalk", "walk_first_orders"]


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
