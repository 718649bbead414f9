"""A stretch of an order by itself: its ops and values numbered from 0, its components, and simple orders of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pebbler.arrays import Floats, Ints
from pebbler.compiled import kernel, separate_kernel

__all__ = ["Net", "Stretch", "components", "narrowest", "orders_of", "sorted_by", "stretch_of", "width_of"]


class Net(NamedTuple):
    """Ops and the values that they touch, as rows `items[start[i]:start[i + 1]]`."""

    v_start: Ints  # per op: the values that it reads or writes, each once
    v_items: Ints
    o_start: Ints  # per value: the ops that touch it
    o_items: Ints
    before_start: Ints  # per op: the ops that must run before it
    before_items: Ints
    after_start: Ints
    after_items: Ints
    size: Floats  # per value
    weight: Floats  # per value: what it costs on both sides of a cut
    lasting: Any  # per value: whether it must be there at the end
    given: Any  # per value: whether it is there at the start


class Stretch(NamedTuple):
    """A stretch by itself: its ops are numbered from 0 in the order at hand, its values too."""

    ops: Ints
    v_start: Ints
    v_items: Ints
    o_start: Ints
    o_items: Ints
    b_start: Ints
    b_items: Ints
    a_start: Ints
    a_items: Ints
    size: Floats
    weight: Floats
    anchor: Ints


@separate_kernel
def stretch_of(net: Net, order: Ints, place: Ints, low: int, high: int, value_id: Ints) -> Stretch:
    """Return the stretch from `low` to `high` by itself."""
    count = high - low
    ops = order[low:high].copy()
    v_start, b_start, a_start = (
        np.zeros(count + 1, np.int64),
        np.zeros(count + 1, np.int64),
        np.zeros(count + 1, np.int64),
    )
    touches = 0
    for i in range(count):
        touches += net.v_start[ops[i] + 1] - net.v_start[ops[i]]
    v_items, values, used = np.empty(touches, np.int64), np.empty(touches, np.int64), 0
    filled = 0
    for i in range(count):
        op = ops[i]
        for k in range(net.v_start[op], net.v_start[op + 1]):
            v = net.v_items[k]
            if value_id[v] < 0:
                value_id[v] = used
                values[used] = v
                used += 1
            v_items[filled] = value_id[v]
            filled += 1
        v_start[i + 1] = filled
        for k in range(net.before_start[op], net.before_start[op + 1]):
            b_start[i + 1] += low <= place[net.before_items[k]]
        for k in range(net.after_start[op], net.after_start[op + 1]):
            a_start[i + 1] += place[net.after_items[k]] < high
    b_start, a_start = np.cumsum(b_start), np.cumsum(a_start)
    b_items, a_items = np.empty(b_start[count], np.int64), np.empty(a_start[count], np.int64)
    for i in range(count):
        op, at = ops[i], b_start[i]
        for k in range(net.before_start[op], net.before_start[op + 1]):
            other = place[net.before_items[k]]
            if low <= other:
                b_items[at] = other - low
                at += 1
        at = a_start[i]
        for k in range(net.after_start[op], net.after_start[op + 1]):
            other = place[net.after_items[k]]
            if other < high:
                a_items[at] = other - low
                at += 1
    o_start = np.zeros(used + 1, np.int64)
    for k in range(touches):
        o_start[v_items[k] + 1] += 1
    o_start = np.cumsum(o_start)
    fill, o_items = o_start[:-1].copy(), np.empty(touches, np.int64)
    for i in range(count):
        for k in range(v_start[i], v_start[i + 1]):
            o_items[fill[v_items[k]]] = i
            fill[v_items[k]] += 1
    size, weight, anchor = np.empty(used), np.empty(used), np.empty(used, np.int64)
    for n in range(used):
        v = values[n]
        size[n], weight[n], value_id[v] = net.size[v], net.weight[v], -1
        earlier, later = net.given[v], net.lasting[v]
        # Values that many ops touch are looked at in part: whether they are touched outside as well is then soon known.
        for k in range(net.o_start[v], net.o_start[v + 1]):
            earlier |= place[net.o_items[k]] < low
            later |= place[net.o_items[k]] >= high
            if earlier and later:
                break
        anchor[n] = -1 if earlier == later else (0 if earlier else 1)
        if net.given[v] and not later:
            anchor[n] = -1  # it comes from below whenever it is needed first
            for k in range(net.o_start[v], net.o_start[v + 1]):
                if place[net.o_items[k]] < low:
                    anchor[n] = 0
                    break
    return Stretch(ops, v_start, v_items, o_start, o_items, b_start, b_items, a_start, a_items, size, weight, anchor)


@kernel
def components(p: Stretch) -> Ints:
    """Return per op the number of its component, numbered by first op; ops are joined by values and by waiting."""
    count = len(p.ops)
    found, stack, number = np.full(count, -1, np.int64), np.empty(count, np.int64), 0
    seen = np.zeros(len(p.size), np.bool_)
    for first in range(count):
        if found[first] >= 0:
            continue
        depth, stack[0], found[first] = 1, first, number
        while depth > 0:
            depth -= 1
            op = stack[depth]
            for k in range(p.v_start[op], p.v_start[op + 1]):
                v = p.v_items[k]
                if seen[v]:
                    continue
                seen[v] = True
                for j in range(p.o_start[v], p.o_start[v + 1]):
                    if found[p.o_items[j]] < 0:
                        found[p.o_items[j]] = number
                        stack[depth] = p.o_items[j]
                        depth += 1
            for k in range(p.b_start[op], p.b_start[op + 1]):
                if found[p.b_items[k]] < 0:
                    found[p.b_items[k]] = number
                    stack[depth] = p.b_items[k]
                    depth += 1
            for k in range(p.a_start[op], p.a_start[op + 1]):
                if found[p.a_items[k]] < 0:
                    found[p.a_items[k]] = number
                    stack[depth] = p.a_items[k]
                    depth += 1
        number += 1
    return found


@kernel
def _walked(n_start: Ints, n_items: Ints, e_start: Ints, backward: bool) -> Ints:
    """Return ops as a depth-first walk leaves them: from those without `e` neighbours, through `n` neighbours; or backward."""
    count = len(n_start) - 1
    order, filled = np.empty(count, np.int64), 0
    seen, stack, at = np.zeros(count, np.bool_), np.empty(count, np.int64), n_start[:-1].copy()
    for number in range(count):
        first = count - 1 - number if backward else number
        if seen[first] or e_start[first] < e_start[first + 1]:
            continue
        depth, stack[0], seen[first] = 1, first, True
        while depth > 0:
            op = stack[depth - 1]
            if at[op] == n_start[op + 1]:
                order[filled] = op
                filled += 1
                depth -= 1
                continue
            k = n_start[op + 1] - 1 - (at[op] - n_start[op]) if backward else at[op]
            other = n_items[k]
            at[op] += 1
            if not seen[other]:
                seen[other] = True
                stack[depth] = other
                depth += 1
    return order[::-1].copy() if backward else order


@separate_kernel
def sorted_by(number: Ints) -> Ints:
    """Return positions sorted by small numbers, in the order at hand where they are equal."""
    start = np.zeros(number.max() + 2, np.int64)
    for one in number:
        start[one + 1] += 1
    start = np.cumsum(start)
    found = np.empty(len(number), np.int64)
    for i in range(len(number)):
        found[start[number[i]]] = i
        start[number[i]] += 1
    return found


@kernel
def _by_depth(p: Stretch) -> Ints:
    """Return the ops by how many must run before them one after the other."""
    count = len(p.ops)
    depth = np.zeros(count, np.int64)
    for op in range(count):
        for k in range(p.b_start[op], p.b_start[op + 1]):
            depth[op] = max(depth[op], depth[p.b_items[k]] + 1)
    found: Ints = sorted_by(depth)
    return found


@separate_kernel
def width_of(p: Stretch, order: Ints, side: Ints, which: int) -> float:
    """Return the most that is held at once when the ops of a part run in this order, values from their first use to their last."""
    left, seen = np.zeros(len(p.size), np.int64), np.zeros(len(p.size), np.bool_)
    for op in order:
        if side[op] == which:
            for k in range(p.v_start[op], p.v_start[op + 1]):
                left[p.v_items[k]] += 1
    held = most = 0.0
    for op in order:
        if side[op] != which:
            continue
        for k in range(p.v_start[op], p.v_start[op + 1]):
            v = p.v_items[k]
            if not seen[v]:
                seen[v] = True
                held += p.size[v]
        most = max(most, held)
        for k in range(p.v_start[op], p.v_start[op + 1]):
            v = p.v_items[k]
            left[v] -= 1
            if left[v] == 0:
                held -= p.size[v]
    return most


@separate_kernel
def orders_of(p: Stretch) -> Ints:
    """Return orders of a stretch whose prefixes may be good cuts: as it is, walks from the ends and from the starts, by depth."""
    count = len(p.ops)
    orders = np.empty((5, count), np.int64)
    orders[0] = np.arange(count)
    orders[1] = _walked(p.b_start, p.b_items, p.a_start, False)
    orders[2] = _by_depth(p)
    orders[3] = _walked(p.a_start, p.a_items, p.b_start, True)
    orders[4] = _walked(p.a_start, p.a_items, p.b_start, False)[::-1]
    return orders


@kernel
def narrowest(p: Stretch) -> tuple[Ints, float]:
    """Return the order of a stretch that holds least at once, of those that are tried, and how much that is."""
    orders, every = orders_of(p), np.zeros(len(p.ops), np.int64)
    best, least = 0, np.inf
    for i in range(len(orders)):
        width = width_of(p, orders[i], every, 0)
        if width < least:
            best, least = i, width
    return orders[best].copy(), least
