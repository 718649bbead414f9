"""Orders that are local at every size at once: the ops are cut in two again and again, with few values on both sides.

A *cut* of a stretch of an order puts some of its ops first and the others second; no op of the first part waits for one of the
second. What it costs is the size of all values that both parts touch, and a share of those that a part has in common with what
lies outside on the other side. The best prefix of several orders is improved by moving single ops, as Fiduccia and Mattheyses
do (DAC 1982), where only an op may move that leaves the cut legal. Parts without a value in common are cut apart at no cost.
"""

from __future__ import annotations

import numpy as np

from pebbler.arrays import Ints
from pebbler.compiled import kernel
from pebbler.solver.structure.kernels.cut_moves import Cutting, best_prefix, improve_cut
from pebbler.solver.structure.kernels.stretch import (
    Net,
    Stretch,
    components,
    narrowest,
    orders_of,
    sorted_by,
    stretch_of,
    width_of,
)

__all__ = ["bisect", "simple_orders", "strips"]

_LEAF = 4  # ops that are not cut any further


@kernel
def _cut(p: Stretch, orders: Ints, how: Cutting) -> Ints:
    """Return per op the part that it goes to: the best prefixes of some orders, improved."""
    count, tries = len(p.ops), len(orders) if how.wide > 0 else 2
    best_side, best = np.empty(count, np.int64), np.inf
    costs, lengths = np.empty(len(orders)), np.empty(len(orders), np.int64)
    for i in range(len(orders)):
        costs[i], lengths[i] = best_prefix(p, orders[i], how)
    mean = p.size.mean()
    for _ in range(tries):
        i = int(np.argmin(costs))
        if costs[i] == np.inf:
            break
        side = np.ones(count, np.int64)
        for k in range(lengths[i]):
            side[orders[i, k]] = 0
        cost = improve_cut(p, side, how, costs[i])
        if how.wide > 0:
            # What it may take to cut the parts further until a part can run in one go.
            for which in range(2):
                width, ops = np.inf, np.sum(side == which)
                for j in range(len(orders)):
                    width = min(width, width_of(p, orders[j], side, which))
                cost += how.wide * mean * mean * ops * max(0.0, 1 / max(how.room, 1.0) - 1 / max(width, 1.0))
        if cost < best - 1e-9:
            best, best_side = cost, side
        costs[i] = np.inf
    return best_side


@kernel
def bisect(net: Net, order: Ints, first: int, last: int, how: Cutting, work: int) -> tuple[Ints, int]:
    """Return a legal order with the stretch from `first` to `last` cut in two, and the parts again; and the work left.

    `work` is about the number of touches that may be looked at; what is not cut by then stays as it is.
    """
    count = len(order)
    order, place = order.copy(), np.empty(count, np.int64)
    for i in range(count):
        place[order[i]] = i
    value_id = np.full(len(net.size), -1, np.int64)
    stack, depth = np.empty((2 * (last - first) + 2, 2), np.int64), 1
    stack[0, 0], stack[0, 1] = first, last
    while depth > 0:
        depth -= 1
        low, high = stack[depth]
        if high - low <= _LEAF or work <= 0:
            continue
        p = stretch_of(net, order, place, low, high, value_id)
        work -= len(p.v_items)
        group = components(p)
        sequence = sorted_by(group)
        if group.max() == 0:
            orders, narrow, least = orders_of(p), -1, how.room
            for i in range(len(orders) if how.room > 0 else 0):
                width = width_of(p, orders[i], group, 0)
                if width <= least and (narrow < 0 or width < least):
                    narrow, least = i, width
            if narrow >= 0:  # it can run in one go
                sequence = orders[narrow]
            else:
                work -= (20 if how.wide == 0 else 60) * len(p.v_items)
                group = _cut(p, orders, how)
                sequence = sorted_by(group)
        for i in range(high - low):
            order[low + i] = p.ops[sequence[i]]
            place[order[low + i]] = low + i
        end = high
        for i in range(high - low - 1, -1, -1):  # the first part ends up on top of the stack
            if i == 0 or group[sequence[i]] != group[sequence[i - 1]]:
                if end - (low + i) < high - low:
                    stack[depth, 0], stack[depth, 1] = low + i, end
                    depth += 1
                end = low + i
    return order, work


@kernel
def strips(net: Net, order: Ints, first: int, last: int, rule: int, room: float, work: int) -> tuple[Ints, int]:
    """Return a legal order with the stretch from `first` to `last` cut into strips that hold `room` at most; and the work left.

    A strip is a piece of one order (`rule` says which) that runs in another one: rows of a table, say, run column by column.
    """
    count = len(order)
    order, place = order.copy(), np.empty(count, np.int64)
    for i in range(count):
        place[order[i]] = i
    value_id = np.full(len(net.size), -1, np.int64)
    whole = stretch_of(net, order, place, first, last, value_id)
    sequence = orders_of(whole)[rule]
    for i in range(last - first):
        order[first + i] = whole.ops[sequence[i]]
        place[order[first + i]] = first + i
    low, guess = first, 16
    work -= 10 * len(whole.v_items)
    while low < last and work > 0:
        fits, fails, length = 0, last - low + 1, min(max(2, guess // 2), last - low)
        kept = np.zeros(1, np.int64)
        while fits < fails - 1 and (fits == 0 or fails - fits > max(1, fits // 32)):
            p = stretch_of(net, order, place, low, low + length, value_id)
            sweep, width = narrowest(p)
            work -= 10 * len(p.v_items)
            if width <= room or length == 1:
                fits, kept = length, p.ops[sweep]
            else:
                fails = length
            if fits == 0:
                length = max(1, length // 2)
            elif fails > last - low:
                length = min(2 * fits, last - low)
                if length == fits:
                    break
            else:
                length = (fits + fails) // 2
        for i in range(fits):
            order[low + i] = kept[i]
            place[kept[i]] = low + i
        low, guess = low + fits, fits
    return order, work


@kernel
def simple_orders(net: Net) -> Ints:
    """Return program order, walks from the ends and from the starts, and the ops by depth: five legal orders."""
    count = len(net.v_start) - 1
    order = np.arange(count)
    found: Ints = orders_of(stretch_of(net, order, order, 0, count, np.full(len(net.size), -1, np.int64)))
    return found
