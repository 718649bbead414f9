"""Layouts whose order changes as well: a few ops change places, and the values that they touch are routed anew.

What the ops in between leave where it is stays as it is, so a change costs the routes of a few values, not of all of them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pebbler.arrays import Ints
from pebbler.compiled import inner_kernel, kernel
from pebbler.extras.layout.kernels.value_route import cost_of, place, route

__all__ = ["CheapestOrder", "Cooling", "OrderArrays", "Reach", "reorder"]

_MOST = 192  # values routed anew at once
_SHARE = 0.7  # of the values of a window that are routed anew where no op moves


class OrderArrays(NamedTuple):
    """An order that can change. Positions count from 1, as uses do; the op at the last position stays there."""

    op_at: Ints  # by position
    place: Ints  # by op: its position
    reads: np.ndarray  # by op: the two values it reads at most, -1 for none; of the last op nothing is noted
    result: Ints  # by op: the value it makes, or -1
    maker: Ints  # by value: the op that makes it, or -1
    reader: Ints  # by value: the op that reads it, where it is made by one
    use_op: Ints  # by use, in the order of `LayoutArrays.use`
    group: Ints  # by op: the sum of which it makes a term, or -1
    term_start: Ints  # rows of ops by sum: those that make its terms
    term: Ints


class Reach(NamedTuple):
    """Limits on the reach of changes."""

    block: int  # ops that move together at most
    shift: int  # ops that they move past at most
    swap: int  # distance of blocks that change places at most
    window: int  # ops whose values are routed anew where none moves


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
    change = _OrderChange(
        np.empty(ops, np.int64), np.empty(ops, np.int64), np.empty(ops, np.int64), np.empty(_MOST + 3, np.int64),
        np.zeros(len(arrays.size), np.bool_), np.empty(ops, np.int64), np.empty(ops, np.int64), np.empty(ops, np.int64),
        np.empty(ops, np.int64), np.empty(ops, np.int64), np.empty(ops, np.int64),
    )  # fmt: skip
    lives = _Lives(arrays.first, arrays.end, arrays.use, order.use_op, routes.near, routes.far)
    old = _Lives(
        lives.first.copy(), lives.end.copy(), lives.use.copy(), lives.use_op.copy(), lives.near.copy(), lives.far.copy()
    )
    for number in range(cooling.rounds):
        heat = cooling.hot * (cooling.cold / cooling.hot) ** (number / cooling.rounds)
        kind = np.random.random()
        twins = kind < 0.1
        links = 0
        if twins:
            moved = _exchange_terms(arrays, order, change, reach.shift)
        else:
            moved, links = _propose(arrays, order, reach, change, kind)
        if moved < 0:
            continue
        count = _touched(order, change, moved, twins, reach.window)
        if count > _MOST:
            _unmark(change, count)
            _put_ops(order, change, moved, False)
            _unlink(arrays, order, change, links)
            continue
        if twins:
            _swap_lives(arrays, order, routes, change, moved)
        before = 0.0
        for i in range(count):
            value = change.chosen[i]
            before += routes.cost[value]
            place(arrays, scratch, room, routes, value, -1)
            _copy_life(arrays, lives, old, value)
            if moved:
                _renew(arrays, order, value)
        _unmark(change, count)
        rate = max(0.0, 1.5 * np.random.random() - 0.5)  # a third without prices of room
        limit = before - heat * math.log(1.0 - np.random.random()) + 1e-9
        after, done = 0.0, 0
        while done < count and after <= limit:
            if not route(arrays, scratch, room, toll, rate, routes, change.chosen[done]):
                after = limit + 1.0
                break
            place(arrays, scratch, room, routes, change.chosen[done], 1)
            after += routes.cost[change.chosen[done]]
            done += 1
        if after <= limit:
            total += after - before
            if total < best - 1e-9:
                best = total
                kept.near[:], kept.far[:] = routes.near, routes.far
                kept.op_at[:], kept.reads[:] = order.op_at, order.reads
            continue
        for i in range(done):
            place(arrays, scratch, room, routes, change.chosen[i], -1)
        _put_ops(order, change, moved, False)
        for i in range(count):
            value = change.chosen[i]
            _copy_life(arrays, old, lives, value)
            routes.cost[value] = cost_of(arrays, routes, value)
            place(arrays, scratch, room, routes, value, 1)
        _unlink(arrays, order, change, links)
        if twins:
            _swap_lives(arrays, order, routes, change, moved)
    return best, total


@inner_kernel
def _propose(arrays, order, reach, change, kind):  # type: ignore[no-untyped-def]
    """Choose a change of the order and make it; return how many ops it moves and how many terms go to another addition.

    No ops for a change of routes alone, -1 where the change cannot be made.
    """
    last = len(order.op_at) - 1  # positions 1 to last - 1 may change
    if kind < 0.3 or last < 4:
        change.spot[0] = 1 + np.random.randint(last)
        return 0, 0
    size = 1 + np.random.randint(reach.block)
    if np.random.random() < 0.5:
        size = 1 + np.random.randint(min(3, reach.block))
    if kind < 0.75:  # a block and what follows it change places
        past = 1 + np.random.randint(reach.shift if np.random.random() < 0.5 else min(4, reach.shift))
        low = 1 + np.random.randint(last - 1)
        if low + size + past > last:
            return -1, 0
        if np.random.random() < 0.5:
            size, past = past, size
        count = size + past
        for i in range(count):
            change.spot[i] = low + i
            change.after[i] = order.op_at[low + (i + size) % count]
    elif kind < 0.9:  # two blocks change places
        low = 1 + np.random.randint(last - 1)
        other = low + size + np.random.randint(reach.swap)
        if other + size > last:
            return -1, 0
        count = 2 * size
        for i in range(size):
            change.spot[i], change.spot[size + i] = low + i, other + i
            change.after[i], change.after[size + i] = order.op_at[other + i], order.op_at[low + i]
    else:  # a block turns round, in pieces of one or two ops
        piece = 1 + np.random.randint(2)
        pieces = 2 + np.random.randint(max(1, reach.shift // piece))
        count = piece * pieces
        low = 1 + np.random.randint(last - 1)
        if low + count > last:
            return -1, 0
        for i in range(count):
            change.spot[i] = low + i
            change.after[i] = order.op_at[low + piece * (pieces - 1 - i // piece) + i % piece]
    for i in range(count):
        change.before[i] = order.op_at[change.spot[i]]
    _put_ops(order, change, count, True)
    links = 0
    for i in range(count):
        if order.group[change.after[i]] < 0:
            count, links = _relink(arrays, order, change, count, links, change.after[i])
    for i in range(count):
        if not _in_order(order, change.after[i]):
            _put_ops(order, change, count, False)
            _unlink(arrays, order, change, links)
            return -1, 0
    return count, links


@inner_kernel
def _operand(order, op):  # type: ignore[no-untyped-def]
    """Return the operand of an addition that is a term, 0 or 1, and the addition that makes the other, -1 if none does."""
    for i in range(2):
        before = order.maker[order.reads[op, 1 - i]]
        if order.group[before] < 0:
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
def _exchange_terms(arrays, order, change, reach):  # type: ignore[no-untyped-def]
    """Let two ops that make terms of the same sum change places; return how many ops move, -1 where there are none.

    Often the same happens to other sums that read the same two operands: to all of them, or to those nearby.
    """
    if len(order.term) < 2:
        return -1
    one = order.term[np.random.randint(len(order.term))]
    low, high = order.term_start[order.group[one]], order.term_start[order.group[one] + 1]
    other = order.term[low + np.random.randint(high - low)]
    if one == other:
        return -1
    change.before[0], change.before[1] = one, other
    count, side, kind = 2, np.random.randint(2), np.random.random()
    mine, yours = order.reads[one, side], order.reads[other, side]
    if kind < 0.6 and mine != yours and mine >= 0 and yours >= 0:
        for i in range(arrays.use_start[mine], arrays.use_start[mine + 1]):
            op = order.use_op[i]
            if op == one or order.group[op] < 0 or (kind < 0.3 and abs(order.place[op] - order.place[one]) > reach):
                continue
            for k in range(order.term_start[order.group[op]], order.term_start[order.group[op] + 1]):
                twin = order.term[k]
                if order.reads[twin, 0] == yours or order.reads[twin, 1] == yours:
                    change.before[count], change.before[count + 1] = op, twin
                    count += 2
                    break
    for i in range(count):
        change.after[i] = change.before[i ^ 1]
        change.spot[i] = order.place[change.before[i]]
    _put_ops(order, change, count, True)
    return count


@inner_kernel
def _swap_lives(arrays, order, routes, change, count):  # type: ignore[no-untyped-def]
    """Let the terms that pairs of ops make change places, too: each is read where the other one was, and is where it was."""
    for pair in range(0, count, 2):
        one, other = order.result[change.before[pair]], order.result[change.before[pair + 1]]
        a, b = arrays.use_start[one], arrays.use_start[other]
        readers = order.use_op[a], order.use_op[b]
        for reader, old, new in ((readers[0], one, other), (readers[1], other, one)):
            if readers[0] == readers[1]:
                break
            for i in range(2):
                if order.reads[reader, i] == old:
                    order.reads[reader, i] = new
                    break
        order.use_op[a], order.use_op[b] = readers[1], readers[0]
        order.reader[one], order.reader[other] = readers[1], readers[0]
        arrays.use[a], arrays.use[b] = arrays.use[b], arrays.use[a]
        arrays.first[one], arrays.first[other] = arrays.first[other], arrays.first[one]
        arrays.end[one], arrays.end[other] = arrays.end[other], arrays.end[one]
        routes.cost[one], routes.cost[other] = routes.cost[other], routes.cost[one]
        x, y = arrays.parts * a + one, arrays.parts * b + other
        for k in range(arrays.parts + 1):
            routes.near[x + k], routes.near[y + k] = routes.near[y + k], routes.near[x + k]
            routes.far[x + k], routes.far[y + k] = routes.far[y + k], routes.far[x + k]


@inner_kernel
def _touched(order, change, moved, twins, window):  # type: ignore[no-untyped-def]
    """Choose the values to be routed anew, in random order: of the ops that move, or some of a window; return how many."""
    count = 0
    if moved == 0:
        low = change.spot[0]
        high = min(len(order.op_at) - 1, low + 1 + np.random.randint(window))
        for at in range(low, high):
            op = order.op_at[at]
            for i in range(3):
                value = order.reads[op, i] if i < 2 else order.result[op]
                if value >= 0 and not change.marked[value] and count < _MOST and np.random.random() < _SHARE:
                    change.marked[value] = True
                    change.chosen[count] = value
                    count += 1
    for at in range(moved):
        op = change.after[at]
        for i in range(2 if twins else 3):
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
def _copy_life(arrays, source, target, value):  # type: ignore[no-untyped-def]
    """Copy a value's life and route: away before a change, and back if the change loses."""
    low, high = arrays.use_start[value], arrays.use_start[value + 1]
    target.first[value], target.end[value] = source.first[value], source.end[value]
    for i in range(low, high):
        target.use[i], target.use_op[i] = source.use[i], source.use_op[i]
    for k in range(arrays.parts * low + value, arrays.parts * high + value + 1):
        target.near[k], target.far[k] = source.near[k], source.far[k]
