"""Every order of first runs of a small graph by recency rank, each at the least that it costs with any runs beyond the first.

Depth first, as `cache_exact` goes through orders; states are equal if all prices to come are, which here depend on more.
"""

from __future__ import annotations

import numpy as np

from pebbler.compiled import inner_kernel, kernel
from pebbler.solver.tiling.kernels.cache_exact import DONE, LIMIT, mix
from pebbler.solver.tiling.kernels.rerun_prices import FirstRuns, run_first

__all__ = ["least_of_first_orders"]


@kernel
def least_of_first_orders(game, waits, after_start, after, below, limit, table_a, table_b, table_g):  # type: ignore[no-untyped-def]
    """Return the least cost of all orders, or `below` if none is less, why the search ended, and how many prefixes it priced.

    The tables (a power of two long, `table_g` negative where empty) hold the states met, as far as they have room.
    """
    n, stored = len(waits), 0
    state = np.zeros((4, len(game.size)), np.int64)
    runs = _begin(game, state, n)
    kept = np.zeros((n + 1, *state.shape), np.int64)
    kept[0] = state
    waits, paid, key = waits.copy(), np.zeros(n + 1), np.empty(2, np.uint64)
    tried, prefix = np.full(n + 1, -1, np.int64), np.empty(n, np.int64)
    rest, depth, nodes = game.floor.sum(), 0, 0
    while depth >= 0:
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
        if nodes > limit:
            return below, LIMIT, nodes
        state[:] = kept[depth]
        cost = paid[depth] + run_first(game, runs, op, depth + 1)
        keep = cost + rest - game.floor[op] < below * (1 - 1e-12)
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
        kept[depth], paid[depth], tried[depth] = state, cost, -1
    return below, DONE, nodes


@kernel
def _begin(game, state, ops):  # type: ignore[no-untyped-def]
    """Return what is there before anything has run, with `state` as the part that runs change."""
    tensors = len(game.size)
    state[1] = np.where(game.initial, np.cumsum(game.initial), 0)
    state[2] = -1
    state[3] = game.readers
    again = np.diff(game.toucher_start).max()
    return FirstRuns(
        np.zeros(ops, np.bool_), state[0], state[1], state[2], state[3], np.empty(tensors, np.int64),
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
