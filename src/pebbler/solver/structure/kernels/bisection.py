"""Orders that are local at every size at once: the ops are cut in two again and again, with few values on both sides.

A *cut* of a stretch of an order puts some of its ops first and the others second; no op of the first part waits for one of the
second. What it costs is the size of all values that both parts touch, and a share of those that a part has in common with what
lies outside on the other side. The best prefix of several orders is improved by moving single ops, as Fiduccia and Mattheyses
do (DAC 1982), where only an op may move that leaves the cut legal. Parts without a value in common are cut apart at no cost.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pebbler.arrays import Floats, Ints
from pebbler.compiled import inner_kernel, kernel, separate_kernel

__all__ = ["Cutting", "Net", "bisect", "simple_orders", "strips"]

_PASSES = 6
_LEAF = 4  # ops that are not cut any further


class Cutting(NamedTuple):
    """How stretches are cut."""

    least: float  # of the ops of a stretch, in its first part
    most: float
    share: float  # of its size, that a value costs which both parts touch
    blend: float  # of its size, that a value costs in one part which is also touched outside on the other side
    room: float  # a stretch that holds no more than this at once is not cut; 0 to cut all
    wide: float  # how much the width of the parts counts: what it may take to cut them further


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


@inner_kernel
def _cost(first: int, second: int, size: float, anchor: int, how: Cutting) -> float:
    """Return what a value costs that so many ops of each part touch; it is also touched before (0), after (1) or neither (-1)."""
    cost = 0.0
    if first > 0 and second > 0:
        cost += how.share * size
    if (anchor == 0 and second > 0) or (anchor == 1 and first > 0):
        cost += how.blend * size
    return cost


@inner_kernel(forceinline=False)
def _sift_up(heap: Ints, place: Ints, key: Floats, stamp: Ints, at: int) -> None:
    one = heap[at]
    while at > 0:
        up = (at - 1) >> 1
        other = heap[up]
        if key[one] < key[other] or (key[one] == key[other] and stamp[one] <= stamp[other]):
            break
        heap[at], place[other] = other, at
        at = up
    heap[at], place[one] = one, at


@inner_kernel(forceinline=False)
def _sift_down(heap: Ints, place: Ints, key: Floats, stamp: Ints, at: int, count: int) -> None:
    one = heap[at]
    while True:
        down = 2 * at + 1
        if down >= count:
            break
        other = heap[down]
        if down + 1 < count:
            right = heap[down + 1]
            if key[right] > key[other] or (key[right] == key[other] and stamp[right] > stamp[other]):
                down, other = down + 1, right
        if key[other] < key[one] or (key[other] == key[one] and stamp[other] <= stamp[one]):
            break
        heap[at], place[other] = other, at
        at = down
    heap[at], place[one] = one, at


@inner_kernel(forceinline=False)
def _insert(heap: Ints, place: Ints, key: Floats, stamp: Ints, one: int, count: int) -> int:
    heap[count], place[one] = one, count
    _sift_up(heap, place, key, stamp, count)
    return count + 1


@inner_kernel(forceinline=False)
def _remove(heap: Ints, place: Ints, key: Floats, stamp: Ints, one: int, count: int) -> int:
    at, count = place[one], count - 1
    place[one] = -1
    if at < count:
        other = heap[count]
        heap[at], place[other] = other, at
        _sift_up(heap, place, key, stamp, at)
        _sift_down(heap, place, key, stamp, place[other], count)
    return count


class _Part(NamedTuple):
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
def _part(net: Net, order: Ints, place: Ints, low: int, high: int, value_id: Ints) -> _Part:
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
    return _Part(ops, v_start, v_items, o_start, o_items, b_start, b_items, a_start, a_items, size, weight, anchor)


@kernel
def _components(p: _Part) -> Ints:
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
def _sorted_by(number: Ints) -> Ints:
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
def _by_depth(p: _Part) -> Ints:
    """Return the ops by how many must run before them one after the other."""
    count = len(p.ops)
    depth = np.zeros(count, np.int64)
    for op in range(count):
        for k in range(p.b_start[op], p.b_start[op + 1]):
            depth[op] = max(depth[op], depth[p.b_items[k]] + 1)
    found: Ints = _sorted_by(depth)
    return found


@kernel
def _best_prefix(p: _Part, order: Ints, how: Cutting) -> tuple[float, int]:
    """Return the least cost of a prefix of an order within the window, and how long it is; nearer to the middle where equal."""
    count = len(order)
    first, total = np.zeros(len(p.size), np.int64), 0.0
    for v in range(len(p.size)):
        total += _cost(0, p.o_start[v + 1] - p.o_start[v], p.weight[v], p.anchor[v], how)
    best, length = np.inf, count // 2
    for i in range(count - 1):
        op = order[i]
        for k in range(p.v_start[op], p.v_start[op + 1]):
            v = p.v_items[k]
            every = p.o_start[v + 1] - p.o_start[v]
            total -= _cost(first[v], every - first[v], p.weight[v], p.anchor[v], how)
            first[v] += 1
            total += _cost(first[v], every - first[v], p.weight[v], p.anchor[v], how)
        if i + 1 < max(1, int(how.least * count)) or i + 1 > max(1, int(how.most * count)):
            continue
        if total < best - 1e-9 or (total < best + 1e-9 and abs(2 * (i + 1) - count) < abs(2 * length - count)):
            best, length = total, i + 1
    return best, length


@separate_kernel
def _improve(p: _Part, side: Ints, how: Cutting, cost: float) -> float:
    """Move ops between the parts (0 and 1) as long as a pass of moves makes the cut cheaper; return its cost."""
    count, values = len(p.ops), len(p.size)
    low, high = max(1, int(how.least * count)), max(1, int(how.most * count))
    parts = np.empty((values, 2), np.int64)
    gain, stamp = np.empty(count), np.zeros(count, np.int64)
    heaps, place = np.empty((2, count), np.int64), np.empty(count, np.int64)
    sizes = np.zeros(2, np.int64)
    blocked = np.empty(
        count, np.int64
    )  # neighbours that keep an op from moving: before it in part 1, or after it in part 0
    locked = np.empty(count, np.bool_)
    moved = np.empty(count, np.int64)
    clock = np.int64(0)
    for _ in range(_PASSES):
        parts[:] = 0
        for op in range(count):
            for k in range(p.v_start[op], p.v_start[op + 1]):
                parts[p.v_items[k], side[op]] += 1
        inside = np.int64(0)
        sizes[:] = 0
        locked[:] = False
        place[:] = -1
        for op in range(count):
            inside += side[op] == 0
            blocked[op] = 0
            if side[op] == 1:
                for k in range(p.b_start[op], p.b_start[op + 1]):
                    blocked[op] += side[p.b_items[k]] == 1
            else:
                for k in range(p.a_start[op], p.a_start[op + 1]):
                    blocked[op] += side[p.a_items[k]] == 0
            gain[op] = 0.0
            for k in range(p.v_start[op], p.v_start[op + 1]):
                v = p.v_items[k]
                a, b = parts[v, 0], parts[v, 1]
                step = 1 if side[op] == 1 else -1
                gain[op] += _cost(a, b, p.weight[v], p.anchor[v], how)
                gain[op] -= _cost(a + step, b - step, p.weight[v], p.anchor[v], how)
        for op in range(count):
            if blocked[op] == 0:
                sizes[side[op]] = _insert(heaps[side[op]], place, gain, stamp, op, sizes[side[op]])
        now, best, kept, number = cost, cost, 0, 0
        patience = 200 + count // 8
        while number < count and number - kept < patience:
            grow = sizes[1] > 0 and inside < high
            shrink = sizes[0] > 0 and inside > low
            if not grow and not shrink:
                break
            take = 1 if grow else 0
            if grow and shrink:
                one, other = gain[heaps[1, 0]], gain[heaps[0, 0]]
                take = 1 if one > other or (one == other and 2 * inside < count) else 0
            op = heaps[take, 0]
            sizes[take] = _remove(heaps[take], place, gain, stamp, op, sizes[take])
            locked[op] = True
            moved[number] = op
            number += 1
            now -= gain[op]
            step = 1 if take == 1 else -1
            inside += step
            clock += 1
            for k in range(p.v_start[op], p.v_start[op + 1]):
                v = p.v_items[k]
                a, b, size, anchor = parts[v, 0], parts[v, 1], p.weight[v], p.anchor[v]
                parts[v, 0], parts[v, 1] = a + step, b - step
                here = _cost(a, b, size, anchor, how)
                after = _cost(a + step, b - step, size, anchor, how)
                # By how much the gain of another op changes that is in part 0, and in part 1.
                down = after - _cost(a + step - 1, b - step + 1, size, anchor, how)
                down -= here - _cost(a - 1, b + 1, size, anchor, how)
                up = after - _cost(a + step + 1, b - step - 1, size, anchor, how)
                up -= here - _cost(a + 1, b - 1, size, anchor, how)
                if down == 0.0 and up == 0.0:
                    continue
                for j in range(p.o_start[v], p.o_start[v + 1]):
                    other = p.o_items[j]
                    change = down if side[other] == 0 else up
                    if locked[other] or change == 0.0:
                        continue
                    gain[other] += change
                    stamp[other] = clock
                    if place[other] >= 0:
                        heap = heaps[side[other]]
                        _sift_up(heap, place, gain, stamp, place[other])
                        _sift_down(heap, place, gain, stamp, place[other], sizes[side[other]])
            side[op] = 1 - take
            if take == 1:  # into the first part: what waits for it may follow, what it waits for may not leave
                for k in range(p.a_start[op], p.a_start[op + 1]):
                    other = p.a_items[k]
                    blocked[other] -= 1
                    if blocked[other] == 0 and not locked[other]:
                        stamp[other] = clock
                        sizes[1] = _insert(heaps[1], place, gain, stamp, other, sizes[1])
                for k in range(p.b_start[op], p.b_start[op + 1]):
                    other = p.b_items[k]
                    blocked[other] += 1
                    if place[other] >= 0:
                        sizes[0] = _remove(heaps[0], place, gain, stamp, other, sizes[0])
            else:
                for k in range(p.b_start[op], p.b_start[op + 1]):
                    other = p.b_items[k]
                    blocked[other] -= 1
                    if blocked[other] == 0 and not locked[other]:
                        stamp[other] = clock
                        sizes[0] = _insert(heaps[0], place, gain, stamp, other, sizes[0])
                for k in range(p.a_start[op], p.a_start[op + 1]):
                    other = p.a_items[k]
                    blocked[other] += 1
                    if place[other] >= 0:
                        sizes[1] = _remove(heaps[1], place, gain, stamp, other, sizes[1])
            if now < best - 1e-9:
                best, kept = now, number
        for i in range(number - 1, kept - 1, -1):
            side[moved[i]] = 1 - side[moved[i]]
        if best > cost - 1e-9:
            break
        cost = best
    return cost


@separate_kernel
def _width(p: _Part, order: Ints, side: Ints, which: int) -> float:
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
def _orders(p: _Part) -> Ints:
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
def _cut(p: _Part, orders: Ints, how: Cutting) -> Ints:
    """Return per op the part that it goes to: the best prefixes of some orders, improved."""
    count, tries = len(p.ops), len(orders) if how.wide > 0 else 2
    best_side, best = np.empty(count, np.int64), np.inf
    costs, lengths = np.empty(len(orders)), np.empty(len(orders), np.int64)
    for i in range(len(orders)):
        costs[i], lengths[i] = _best_prefix(p, orders[i], how)
    mean = p.size.mean()
    for _ in range(tries):
        i = int(np.argmin(costs))
        if costs[i] == np.inf:
            break
        side = np.ones(count, np.int64)
        for k in range(lengths[i]):
            side[orders[i, k]] = 0
        cost = _improve(p, side, how, costs[i])
        if how.wide > 0:
            # What it may take to cut the parts further until a part can run in one go.
            for which in range(2):
                width, ops = np.inf, np.sum(side == which)
                for j in range(len(orders)):
                    width = min(width, _width(p, orders[j], side, which))
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
        p = _part(net, order, place, low, high, value_id)
        work -= len(p.v_items)
        group = _components(p)
        sequence = _sorted_by(group)
        if group.max() == 0:
            orders, narrow, least = _orders(p), -1, how.room
            for i in range(len(orders) if how.room > 0 else 0):
                width = _width(p, orders[i], group, 0)
                if width <= least and (narrow < 0 or width < least):
                    narrow, least = i, width
            if narrow >= 0:  # it can run in one go
                sequence = orders[narrow]
            else:
                work -= (20 if how.wide == 0 else 60) * len(p.v_items)
                group = _cut(p, orders, how)
                sequence = _sorted_by(group)
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
def _narrowest(p: _Part) -> tuple[Ints, float]:
    """Return the order of a stretch that holds least at once, of those that are tried, and how much that is."""
    orders, every = _orders(p), np.zeros(len(p.ops), np.int64)
    best, least = 0, np.inf
    for i in range(len(orders)):
        width = _width(p, orders[i], every, 0)
        if width < least:
            best, least = i, width
    return orders[best].copy(), least


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
    whole = _part(net, order, place, first, last, value_id)
    sequence = _orders(whole)[rule]
    for i in range(last - first):
        order[first + i] = whole.ops[sequence[i]]
        place[order[first + i]] = first + i
    low, guess = first, 16
    work -= 10 * len(whole.v_items)
    while low < last and work > 0:
        fits, fails, length = 0, last - low + 1, min(max(2, guess // 2), last - low)
        kept = np.zeros(1, np.int64)
        while fits < fails - 1 and (fits == 0 or fails - fits > max(1, fits // 32)):
            p = _part(net, order, place, low, low + length, value_id)
            sweep, width = _narrowest(p)
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
    found: Ints = _orders(_part(net, order, order, 0, count, np.full(len(net.size), -1, np.int64)))
    return found
