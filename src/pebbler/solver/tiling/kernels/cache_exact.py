"""Every order of a small graph on caches: depth first, with what is left bounded from below and equal states met once.

Two prefixes that have run the same ops and left the same state have the same future, so only the cheaper one goes on. States
are compared by 128-bit hashes. Each prefix is priced from scratch: these graphs are small, and one way of pricing is enough.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba.extending import overload

from pebbler.compiled import kernel
from pebbler.referee.kernels.lru_stack import depths, levels
from pebbler.solver.tiling.kernels.cache_order import Ranking, allocate, cut_pieces, price

__all__ = ["DONE", "LIMIT", "all_orders"]

Array = npt.NDArray[Any]
DONE, LIMIT = 0, 1
_A, _B = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)


@kernel
def _mix(key, word):  # type: ignore[no-untyped-def]
    """Add a word to a 128-bit hash."""
    w = np.uint64(word) + np.uint64(1)
    for i in range(2):
        x = key[i] ^ (w * (_A if i == 0 else _B))
        x ^= x >> np.uint64(31)
        x *= _B if i == 0 else _A
        x ^= x >> np.uint64(29)
        x *= np.uint64(0xBF58476D1CE4E5B9)
        key[i] = x ^ (x >> np.uint64(32))


@kernel
def _lru_prefix(t, order, count, key):  # type: ignore[no-untyped-def]
    """Return a price that `order[:count]` cannot fall below, whatever follows; mix the state that it leaves into `key`.

    The ops after `count` only say what is still alive. In a steady window the price of a line's first touch is not known
    yet: it counts at the fastest level, and the order of first touches is part of the state.
    """
    touch, where, last = allocate(t, order)
    used = 0
    for i in range(count):
        used += t.start[order[i] + 1] - t.start[order[i]]
    block = np.full(len(t.room), -1, np.int64)
    for i in range(used):
        root = t.storage[touch[i]]
        block[root] = -1 if last[i] and not t.lasting[root] else where[i]
    for root in range(len(block)):
        if t.home[root] < 0:
            _mix(key, block[root])
    item, write, lines, units, edges = cut_pieces(t, touch[:used], where[:used])
    n, items = len(item), len(edges)
    depth = np.empty(n, np.int64)
    latest = np.empty(items, np.int64)
    depths(item, lines, depth, latest)
    level = np.empty(n, np.int8)
    levels(depth, t.reach, level)
    bottom = len(t.reach)
    first = np.zeros(items, np.bool_)
    current = np.full(items, bottom, np.int64)  # the deepest level that is up to date
    before = np.zeros(items, np.int64)  # steady: the deepest level of a touch before the first write
    written = np.zeros(items, np.bool_)
    total = 0.0
    for i in range(n):
        one, at = item[i], level[i]
        unknown = t.steady and not first[one]
        if unknown:
            at = 0
            first[one] = True
            _mix(key, edges[one])
            _mix(key, write[i])
        if t.steady and not written[one]:
            before[one] = max(before[one], at)
        else:
            for k in range(current[one] + 1, at + 1):
                total += lines[i] * t.line * t.store[k]
        if write[i]:
            total += units[i] * t.store[0]
            current[one] = 0
            written[one] = True
        else:
            cheapest = t.read[at]
            if unknown:
                for k in range(len(t.read)):
                    cheapest = min(cheapest, t.read[k])
            total += units[i] * cheapest
            current[one] = max(current[one], at)
    # Pieces are named by where they lie, not by their number, which depends on how the prefix was cut.
    for i in range(n - 1, -1, -1):
        one = item[i]
        if latest[one] == i:
            _mix(key, edges[one])
            _mix(key, lines[i])
            _mix(key, current[one])
            _mix(key, before[one])
            _mix(key, written[one])
    for i in range(count):
        total += t.cost[order[i]]
    return total


@kernel
def _recency_prefix(t, order, count, key):  # type: ignore[no-untyped-def]
    """Return what `order[:count]` costs by recency rank; mix the ranking that it leaves into `key`."""
    tensors = len(t.size)
    last_read = np.full(tensors, -1, np.int64)
    for s in range(len(order)):
        for k in range(t.read_start[order[s]], t.read_start[order[s] + 1]):
            last_read[t.read_tensor[k]] = s
    # Newest first; ties of one step are by first insertion, so what a step touches is brought to the front in that order.
    inserted = np.full(tensors, -1, np.int64)
    accessed = np.zeros(tensors, np.int64)
    clock = 0
    for one in range(tensors):
        if t.initial[one]:
            inserted[one] = clock
            clock += 1
    total = 0.0
    for s in range(count):
        op = order[s]
        total += t.cost[op]
        for k in range(t.read_start[op], t.read_start[op + 1]):
            one = t.read_tensor[k]
            depth = t.size[one]
            for other in range(tensors):
                if other == one or inserted[other] < 0:
                    continue
                newer = accessed[other] > accessed[one]
                tie = accessed[other] == accessed[one] and inserted[other] < inserted[one]
                if newer or tie:
                    depth += t.size[other]
            at, room = 0, t.capacity[0]
            while depth > room and at < len(t.capacity) - 1:
                at += 1
                room += t.capacity[at]
            total += t.size[one] * t.read[at]
            accessed[one] = s + 1
        for k in range(t.write_start[op], t.write_start[op + 1]):
            one = t.write_tensor[k]
            at = 0
            while t.size[one] > t.capacity[at] and at < len(t.capacity) - 1:
                at += 1
            total += t.size[one] * t.store[at]
            accessed[one] = s + 1
            if inserted[one] < 0:
                inserted[one] = clock
                clock += 1
        for one in range(tensors):
            if inserted[one] >= 0 and not t.initial[one] and last_read[one] <= s:
                made_now = False
                for k in range(t.write_start[op], t.write_start[op + 1]):
                    made_now = made_now or t.write_tensor[k] == one
                if not made_now:
                    inserted[one] = -1
    live = np.flatnonzero(inserted >= 0)
    rank = np.empty(len(live), np.int64)
    for i in range(len(live)):
        rank[i] = accessed[live[i]] * (clock + 1) + (clock - inserted[live[i]])
    for i in np.argsort(-rank):
        _mix(key, live[i])
    # Ties to come are settled by insertion.
    for i in np.argsort(inserted[live]):
        _mix(key, live[i])
    return total


def prefix_price(t: Any, order: Array, count: int, key: Array) -> float:
    """Return what `order[:count]` costs at least by the rule that `t` is for; mix the state that it leaves into `key`."""
    prefix = _recency_prefix if isinstance(t, Ranking) else _lru_prefix
    return float(prefix(t, order, count, key))


@overload(prefix_price)
def _prefix_price(t, order, count, key):  # type: ignore[no-untyped-def]
    if t.instance_class is Ranking:
        return lambda t, order, count, key: _recency_prefix(t, order, count, key)
    return lambda t, order, count, key: _lru_prefix(t, order, count, key)


@kernel
def all_orders(t, waits, after_start, after, floor, best, best_energy, limit, table_a, table_b, table_g):  # type: ignore[no-untyped-def]
    """Return the least energy below `best_energy` of all orders, why the search ended, and how many prefixes it priced.

    `best` receives the order. `floor` is a price that each op cannot fall below. The tables (a power of two long, `table_g`
    negative where empty) hold the states met; when they are full, states are no longer remembered, which costs time only.
    """
    n = len(waits)
    mask = len(table_a) - 1
    stored = 0
    waits = waits.copy()
    prefix = np.empty(n, np.int64)
    full = np.empty(n, np.int64)
    ran = np.zeros(n, np.bool_)
    tried = np.full(n + 1, -1, np.int64)  # the last op tried at each depth
    left = floor.sum()
    depth, nodes = 0, 0
    key = np.empty(2, np.uint64)
    while depth >= 0:
        op = tried[depth] + 1
        while op < n and (ran[op] or waits[op] > 0):
            op += 1
        if op == n:
            tried[depth] = -1
            depth -= 1
            if depth >= 0:
                op = prefix[depth]
                ran[op] = False
                left += floor[op]
                for k in range(after_start[op], after_start[op + 1]):
                    waits[after[k]] += 1
            continue
        tried[depth] = op
        prefix[depth] = op
        nodes += 1
        if nodes > limit:
            return best_energy, LIMIT, nodes
        ran[op] = True
        full[: depth + 1] = prefix[: depth + 1]
        place = depth + 1
        for other in range(n):
            if not ran[other]:
                full[place] = other
                place += 1
        keep = True
        if depth + 1 == n:
            energy = price(t, full)
            if energy < best_energy:
                best_energy = energy
                best[:] = full
            keep = False
        else:
            key[0], key[1] = np.uint64(depth), np.uint64(7)
            for other in range(n):
                _mix(key, ran[other])
            paid = prefix_price(t, full, depth + 1, key)
            if paid + left - floor[op] >= best_energy * (1 - 1e-12):
                keep = False
            else:
                slot = np.int64(key[0] & np.uint64(mask))
                while table_g[slot] >= 0 and (table_a[slot] != key[0] or table_b[slot] != key[1]):
                    slot = (slot + 1) & mask
                if table_g[slot] >= 0:
                    if table_g[slot] <= paid:
                        keep = False
                    else:
                        table_g[slot] = paid
                elif 2 * stored < mask:
                    table_a[slot], table_b[slot], table_g[slot] = key[0], key[1], paid
                    stored += 1
        if keep:
            left -= floor[op]
            for k in range(after_start[op], after_start[op + 1]):
                waits[after[k]] -= 1
            depth += 1
            tried[depth] = -1
        else:
            ran[op] = False
    return best_energy, DONE, nodes
