"""Layouts whose order changes as well: a few ops change places, and the values that they touch are routed anew.

What the ops in between leave where it is stays as it is, so a change costs the routes of a few values, not of all of them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pebbler.arrays import Ints
from pebbler.compiled import inner_kernel, kernel
from pebbler.extras.layout.kernels.value_route import cost_about, cost_of, least_cost, place, route

__all__ = ["CheapestOrder", "Cooling", "OrderArrays", "Reach", "reorder"]

_MOST = 192  # values routed anew at once
# Kinds of changes, by the number that is drawn for each: below it.
_ROUTES_ALONE, _TO_GAPS, _SWAPS, _TURNS = 0.2, 0.87, 0.94, 0.98
_SHARE = 0.7  # of the values of a window that are routed anew where no op moves
_WHOLE = 0.3  # of the changes of routes alone, those that concern all of the routes
_FEW = 3  # uses up to which all of a route is new


class OrderArrays(NamedTuple):
    """An order that can change. Positions count from 1, as uses do; the op at the last position stays there.

    Some positions are empty, so that an op can go there while all others stay where they are.
    """

    op_at: Ints  # by position: an op, or -1
    place: Ints  # by op: its position
    reads: np.ndarray  # by op: the two values it reads at most, -1 for none; of the last op nothing is noted
    result: Ints  # by op: the value it makes, or -1
    maker: Ints  # by value: the op that makes it, or -1
    reader: Ints  # by value: the op that reads it, where it is made by one
    use_op: Ints  # by use, in the order of `LayoutArrays.use`
    product: np.ndarray  # by op: whether it makes a term of a sum


class Reach(NamedTuple):
    """Limits on the reach of changes."""

    block: int  # ops that move together at most
    shift: int  # positions that they move by at most
    window: int  # positions whose values are routed anew where no op moves


class Cooling(NamedTuple):
    """The number of changes tried, and the heats: a worse layout is kept less often as it falls from `hot` to `cold`."""

    rounds: int
    hot: float
    cold: float
    seed: int


class CheapestOrder(NamedTuple):
    """The cheapest layout so far: its routes, and its order as `OrderArrays` has it."""

    near: np.ndarray
    far: np.ndarray
    op_at: Ints
    reads: np.ndarray


class _OrderChange(NamedTuple):
    """Room for one change: the positions it concerns and their ops, and the values it touches."""

    spot: Ints
    before: Ints
    after: Ints
    chosen: Ints
    low: Ints  # the uses of each about which its route is new
    high: Ints
    cost: np.ndarray  # of the route of each
    least: np.ndarray  # that its next route can cost
    marked: np.ndarray
    chain: Ints  # the additions of one sum, their positions and the terms that they add
    at: Ints
    term: Ints
    linked: Ints  # additions that read another term than before, the operand of each, and what it was
    operand: Ints
    was: Ints


class _Lives(NamedTuple):
    """The lives of all values, from `first` to `end` with their uses, and their routes."""

    first: Ints
    end: Ints
    use: Ints
    use_op: Ints
    near: np.ndarray
    far: np.ndarray


@kernel
def reorder(arrays, order, scratch, room, toll, routes, cooling, reach, kept, best):  # type: ignore[no-untyped-def]
    """Change the order, and route what that touches anew, again and again.

    `best` is the least energy so far, and `kept` the layout that has it. The last layout stays in the other arrays. Returns the
    least energy, and that of the last layout.
    """
    np.random.seed(cooling.seed)
    total = 0.0
    for value in range(len(arrays.size)):
        routes.cost[value] = cost_of(arrays, routes, value)
        total += routes.cost[value]
    ops = len(order.op_at)
    places, values, some = np.empty((9, ops), np.int64), np.empty((3, _MOST + 3), np.int64), np.empty((2, _MOST + 3))
    change = _OrderChange(
        places[0], places[1], places[2], values[0], values[1], values[2], some[0], some[1],
        np.zeros(len(arrays.size), np.bool_), places[3], places[4], places[5], places[6], places[7], places[8],
    )  # fmt: skip
    lives = _Lives(arrays.first, arrays.end, arrays.use, order.use_op, routes.near, routes.far)
    old = _Lives(
        lives.first.copy(), lives.end.copy(), lives.use.copy(), lives.use_op.copy(), lives.near.copy(), lives.far.copy()
    )
    for number in range(cooling.rounds):
        heat = cooling.hot * (cooling.cold / cooling.hot) ** (number / cooling.rounds)
        moved, links = _propose(arrays, order, reach, change)
        if moved < 0:
            continue
        count = _touched(order, change, moved, reach.window)
        if count > _MOST:
            _unmark(change, count)
            _put_ops(order, change, moved, False)
            _unlink(arrays, order, change, links)
            continue
        before, whole = 0.0, moved == 0 and np.random.random() < _WHOLE
        for i in range(count):
            value = change.chosen[i]
            low, high = arrays.use_start[value], arrays.use_start[value + 1]
            if not whole and high - low > _FEW:
                low, high = _about(arrays, order, change, moved, reach.window, value)
            change.low[i], change.high[i] = low, high
            change.cost[i] = routes.cost[value]
            before += change.cost[i]
            change.least[i] = change.cost[i] - cost_about(arrays, routes, value, low, high)
            place(arrays, scratch, room, routes, value, -1, low, high)
            _copy_life(arrays, lives, old, value, low, high)
            if moved:
                _renew(arrays, order, value)
        _unmark(change, count)
        limit = before - heat * math.log(1.0 - np.random.random()) + 1e-9
        after, done = 0.0, 0  # the routes so far, and the least that the others can cost
        for i in range(count):
            change.least[i] += least_cost(arrays, room, change.chosen[i], change.low[i], change.high[i])
            after += change.least[i]
        while done < count and after <= limit:
            value, low, high = change.chosen[done], change.low[done], change.high[done]
            if not route(arrays, scratch, room, toll, 0.0, routes, value, low, high):
                after = limit + 1.0
                break
            place(arrays, scratch, room, routes, value, 1, low, high)
            after += routes.cost[value] - change.least[done]
            done += 1
        if after <= limit:
            total += after - before
            if total < best - 1e-9:
                best = total
                kept.near[:], kept.far[:] = routes.near, routes.far
                kept.op_at[:], kept.reads[:] = order.op_at, order.reads
            continue
        for i in range(done):
            place(arrays, scratch, room, routes, change.chosen[i], -1, change.low[i], change.high[i])
        _put_ops(order, change, moved, False)
        for i in range(count):
            value, low, high = change.chosen[i], change.low[i], change.high[i]
            _copy_life(arrays, old, lives, value, low, high)
            routes.cost[value] = change.cost[i]
            place(arrays, scratch, room, routes, value, 1, low, high)
        _unlink(arrays, order, change, links)
    return best, total


@inner_kernel
def _propose(arrays, order, reach, change):  # type: ignore[no-untyped-def]
    """Choose a change of the order and make it; return how many positions it changes and how many terms go to another addition.

    No positions for a change of routes alone, -1 where the change cannot be made.
    """
    last = len(order.op_at) - 1  # positions 1 to last - 1 may change
    kind = np.random.random()
    if kind < _ROUTES_ALONE or last < 4:
        change.spot[0] = 1 + np.random.randint(last)
        return 0, 0
    low = 1 + np.random.randint(last - 1)
    far = int(math.exp(np.random.random() * math.log(min(reach.shift, last) + 1.0)))  # of all magnitudes alike
    size = 1 + int(reach.block * np.random.random() ** 3)
    if kind < _TO_GAPS:
        count = _to_gaps(order, change, low, size, far if np.random.random() < 0.5 else -far)
    elif kind < _SWAPS:
        count = _swap(order, change, low, size, size - 1 + far)
    elif kind < _TURNS:
        count = _turn(order, change, low, 2 + np.random.randint(2 * reach.block))
    else:
        count = (
            _pass(order, change, low, size, far) if np.random.random() < 0.5 else _pass(order, change, low, far, size)
        )
    if count < 0:
        return -1, 0
    for i in range(count):
        change.before[i] = order.op_at[change.spot[i]]
    _put_ops(order, change, count, True)
    links = 0
    for i in range(count):
        if change.after[i] >= 0 and not order.product[change.after[i]]:
            count, links = _relink(arrays, order, change, count, links, change.after[i])
    for i in range(count):
        if change.after[i] >= 0 and not _in_order(order, change.after[i]):
            _put_ops(order, change, count, False)
            _unlink(arrays, order, change, links)
            return -1, 0
    return count, links


@inner_kernel
def _to_gaps(order, change, low, size, far):  # type: ignore[no-untyped-def]
    """Let some ops from position `low` on go to empty positions about `far` positions away; -1 where there are none.

    Half of the time they are an op and the one that adds its result, wherever that is.
    """
    last, count = len(order.op_at) - 1, 0
    while low < last and order.op_at[low] < 0:
        low += 1
    if low == last:
        return -1
    op = order.op_at[low]
    if order.product[op] and np.random.random() < 0.5:
        change.spot[0], change.spot[1], count = low, order.place[order.reader[order.result[op]]], 2
        if change.spot[1] == last:
            return -1
    else:
        at = low
        while count < size and at < last:
            if order.op_at[at] >= 0:
                change.spot[count] = at
                count += 1
            at += 1
    gap, found = low + far, 0
    while found < count:
        if gap < 1 or gap >= last:
            return -1
        if order.op_at[gap] < 0:
            change.spot[count + found] = gap
            found += 1
        gap += 1
    for i in range(count):
        change.after[i], change.after[count + i] = -1, order.op_at[change.spot[i]]
    return 2 * count


@inner_kernel
def _swap(order, change, low, size, far):  # type: ignore[no-untyped-def]
    """Let two blocks change places."""
    if low + far + size > len(order.op_at) - 1 or far < size:
        return -1
    for i in range(size):
        change.spot[i], change.spot[size + i] = low + i, low + far + i
        change.after[i], change.after[size + i] = order.op_at[low + far + i], order.op_at[low + i]
    return 2 * size


@inner_kernel
def _pass(order, change, low, size, past):  # type: ignore[no-untyped-def]
    """Let a block and what follows it change places."""
    count = size + past
    if low + count > len(order.op_at) - 1:
        return -1
    for i in range(count):
        change.spot[i] = low + i
        change.after[i] = order.op_at[low + (i + size) % count]
    return count


@inner_kernel
def _turn(order, change, low, count):  # type: ignore[no-untyped-def]
    """Let a block turn round."""
    if low + count > len(order.op_at) - 1:
        return -1
    for i in range(count):
        change.spot[i] = low + i
        change.after[i] = order.op_at[low + count - 1 - i]
    return count


@inner_kernel
def _operand(order, op):  # type: ignore[no-untyped-def]
    """Return the operand of an addition that is a term, 0 or 1, and the addition that makes the other, -1 if none does."""
    for i in range(2):
        before = order.maker[order.reads[op, 1 - i]]
        if not order.product[before]:
            return i, before
    return 1, -1


@inner_kernel
def _relink(arrays, order, change, count, links, op):  # type: ignore[no-untyped-def]
    """Let the additions of a sum be in their order again where a change has mixed them; each position keeps its term.

    Returns how many ops the change moves now, and how many terms went to another addition.
    """
    _, before = _operand(order, op)
    after = order.reader[order.result[op]]
    if (before < 0 or order.place[before] < order.place[op]) and order.place[op] < order.place[after]:
        return count, links
    while before >= 0:
        op = before
        _, before = _operand(order, op)
    if np.random.random() < 0.5:  # of the two first terms, either may go elsewhere
        order.reads[op, 0], order.reads[op, 1] = order.reads[op, 1], order.reads[op, 0]
    size = 0
    while op != order.op_at[-1]:
        at, term, i = order.place[op], order.reads[op, _operand(order, op)[0]], size
        while i > 0 and change.at[i - 1] > at:
            change.at[i], change.term[i] = change.at[i - 1], change.term[i - 1]
            i -= 1
        change.chain[size], change.at[i], change.term[i] = op, at, term
        op = order.reader[order.result[op]]
        size += 1
    for i in range(size):
        op, at, term = change.chain[i], change.at[i], change.term[i]
        if order.place[op] == at:
            continue
        spot = 0
        while spot < count and change.spot[spot] != at:
            spot += 1
        if spot == count:
            change.spot[spot], change.before[spot] = at, order.op_at[at]
            count += 1
        change.after[spot] = op
        order.op_at[at], order.place[op] = op, at
        operand, _ = _operand(order, op)
        change.linked[links], change.operand[links], change.was[links] = op, operand, order.reads[op, operand]
        _link(arrays, order, op, operand, term)
        links += 1
    return count, links


@inner_kernel
def _link(arrays, order, op, operand, term):  # type: ignore[no-untyped-def]
    order.reads[op, operand] = term
    order.reader[term] = op
    order.use_op[arrays.use_start[term]] = op


@inner_kernel
def _unlink(arrays, order, change, links):  # type: ignore[no-untyped-def]
    for i in range(links):
        _link(arrays, order, change.linked[i], change.operand[i], change.was[i])


@inner_kernel
def _put_ops(order, change, count, new):  # type: ignore[no-untyped-def]
    for i in range(count):
        op = change.after[i] if new else change.before[i]
        order.op_at[change.spot[i]] = op
        if op >= 0:
            order.place[op] = change.spot[i]


@inner_kernel
def _in_order(order, op):  # type: ignore[no-untyped-def]
    """Return whether an op comes after those whose results it reads, and before the one that reads its own."""
    at = order.place[op]
    for value in order.reads[op]:
        if value >= 0 and order.maker[value] >= 0 and order.place[order.maker[value]] > at:
            return False
    made = order.result[op]
    return made < 0 or order.place[order.reader[made]] > at


@inner_kernel
def _touched(order, change, moved, window):  # type: ignore[no-untyped-def]
    """Choose the values to be routed anew, in random order: of the ops that move, or some of a window; return how many."""
    count = 0
    if moved == 0:
        low = change.spot[0]
        high = min(len(order.op_at) - 1, low + 1 + np.random.randint(window))
        for at in range(low, high):
            op = order.op_at[at]
            for i in range(3 if op >= 0 else 0):
                value = order.reads[op, i] if i < 2 else order.result[op]
                if value >= 0 and not change.marked[value] and count < _MOST and np.random.random() < _SHARE:
                    change.marked[value] = True
                    change.chosen[count] = value
                    count += 1
    for at in range(moved):
        op = change.after[at]
        for i in range(3 if op >= 0 else 0):
            value = order.reads[op, i] if i < 2 else order.result[op]
            if value >= 0 and not change.marked[value]:
                if count > _MOST:
                    return count
                change.marked[value] = True
                change.chosen[count] = value
                count += 1
    for i in range(count - 1, 0, -1):
        other = np.random.randint(i + 1)
        change.chosen[i], change.chosen[other] = change.chosen[other], change.chosen[i]
    return count


@inner_kernel
def _about(arrays, order, change, moved, window, value):  # type: ignore[no-untyped-def]
    """Return the uses that a change concerns, and one more on either side: the first, and the one after the last.

    All others keep their numbers among the value's uses, and their levels.
    """
    low, high = arrays.use_start[value], arrays.use_start[value + 1]
    first, last = high, low - 1
    for i in range(low, high):
        at = order.place[order.use_op[i]]
        if moved == 0 and change.spot[0] <= at < change.spot[0] + window:
            first, last = min(first, i), max(last, i)
        elif at != arrays.use[i]:
            j = low
            while j < high - 1 and arrays.use[j] < at:
                j += 1
            first, last = min(first, i, j), max(last, i, j)
    if first > last:
        return low, high
    return max(low, first - 1), min(high, last + 2)


@inner_kernel
def _unmark(change, count):  # type: ignore[no-untyped-def]
    for i in range(count):
        change.marked[change.chosen[i]] = False


@inner_kernel
def _renew(arrays, order, value):  # type: ignore[no-untyped-def]
    """Set a value's life and uses from the positions of its ops."""
    maker, low, high = order.maker[value], arrays.use_start[value], arrays.use_start[value + 1]
    if maker >= 0:
        arrays.first[value] = 2 * order.place[maker] + 1
    for i in range(low, high):
        arrays.use[i] = order.place[order.use_op[i]]
    for i in range(low + 1, high):  # few, and nearly in order
        at, op, j = arrays.use[i], order.use_op[i], i
        while j > low and arrays.use[j - 1] > at:
            arrays.use[j], order.use_op[j] = arrays.use[j - 1], order.use_op[j - 1]
            j -= 1
        arrays.use[j], order.use_op[j] = at, op
    if high > low and arrays.end[value] < arrays.slots:
        arrays.end[value] = 2 * arrays.use[high - 1] + (1 if arrays.parts == 3 else 2)


@inner_kernel
def _copy_life(arrays, source, target, value, low, high):  # type: ignore[no-untyped-def]
    """Copy a value's life and route about some uses: away before a change, and back if the change loses."""
    target.first[value], target.end[value] = source.first[value], source.end[value]
    for i in range(low, high):
        target.use[i], target.use_op[i] = source.use[i], source.use_op[i]
    for k in range(arrays.parts * low + value, arrays.parts * high + value + 1):
        target.near[k], target.far[k] = source.near[k], source.far[k]
