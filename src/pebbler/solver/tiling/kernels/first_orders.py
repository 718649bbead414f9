"""Every order of first runs of a small graph by recency rank, each at the least that it costs with any runs beyond the first.

Depth first, as `cache_exact` goes through orders; states are equal if all prices to come are, which here depend on more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pebbler.arrays import Array
from pebbler.compiled import inner_kernel, kernel
from pebbler.solver.tiling.kernels.cache_exact import mix
from pebbler.solver.tiling.kernels.rerun_prices import FirstRuns, run_first

__all__ = ["OrderWalk", "walk_first_orders"]


class OrderWalk(NamedTuple):
    """How far a walk through all orders has come, so that it can be interrupted and go on."""

    waits: Array  # per op: ops that it waits for and that have not run
    ran: Array  # per op
    tried: Array  # per depth: the last op tried
    prefix: Array  # per depth: the op that runs
    paid: Array  # per depth: what the ops before cost
    kept: Array  # per depth: what they have left behind
    counts: Array  # the depth, and how many states the tables hold
    sums: Array  # the floors of the ops that have not run, the least cost of an order so far, and which part may be rounding


@kernel
def walk_first_orders(game, walk, after_start, after, limit, table_a, table_b, table_g):  # type: ignore[no-untyped-def]
    """Go on with a walk for so many prefixes; return whether it is done.

    The tables (a power of two long, `table_g` negative where empty) hold the states met, as far as they have room.
    """
    n, waits, tried, prefix, paid = len(walk.waits), walk.waits, walk.tried, walk.prefix, walk.paid
    state = walk.kept[0].copy()
    runs = _room_for(game, state, walk.ran)
    depth, stored = walk.counts
    rest, below, rounding = walk.sums
    key, nodes = np.empty(2, np.uint64), 0
    while depth >= 0 and nodes < limit:
        op = tried[depth] + 1
        while op < n and (runs.ran[op] or waits[op] > 0):
            op += 1
        if op == n:
            tried[depth] = -1
            depth -= 1
            if depth >= 0:
                op = prefix[depth]
                runs.ran[op] = False
                rest += game.floor[op]
                for k in range(after_start[op], after_start[op + 1]):
                    waits[after[k]] += 1
            continue
        tried[depth] = op
        prefix[depth] = op
        nodes += 1
        state[:] = walk.kept[depth]
        cost = paid[depth] + run_first(game, runs, op, depth + 1)
        keep = cost + rest - game.floor[op] < below * (1 - rounding)
        if keep and depth + 1 == n:
            below, keep = cost, False
        if keep:
            _mix_state(game, runs, depth, key)
            keep, stored = _is_cheapest(key, cost, stored, table_a, table_b, table_g)
        if not keep:
            runs.ran[op] = False
            continue
        rest -= game.floor[op]
        for k in range(after_start[op], after_start[op + 1]):
            waits[after[k]] -= 1
        depth += 1
        walk.kept[depth], paid[depth], tried[depth] = state, cost, -1
    walk.counts[0], walk.counts[1] = depth, stored
    walk.sums[0], walk.sums[1] = rest, below
    return depth < 0


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


@inner_kernel
def _is_cheapest(key, cost, stored, table_a, table_b, table_g):  # type: ignore[no-untyped-def]
    """Return whether no way to a state was as cheap so far, and how many states the tables hold now."""
    mask = len(table_a) - 1
    slot = np.int64(key[0] & np.uint64(mask))
    while table_g[slot] >= 0 and (table_a[slot] != key[0] or table_b[slot] != key[1]):
        slot = (slot + 1) & mask
    known = table_g[slot]
    if known < 0:
        if 2 * stored >= mask:
            return True, stored
        table_a[slot], table_b[slot], stored = key[0], key[1], stored + 1
    if known < 0 or cost < known:
        table_g[slot] = cost
        return True, stored
    return False, stored
