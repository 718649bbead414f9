"""The cheapest way of one value through the levels: where it is between its uses, with at most two copies at a time.

Time is in slots: slot `2 p` is just before the op at position `p` of the order (counted from 1), slot `2 p + 1` right after
it. A value's life is a row of segments: waiting for a use, the use itself, waiting for the next, and so on. Between two
segments copies may be made and dropped: just before a use, or right after one. Where results may take the room of operands,
a use has two segments: before the op, and after it, when only drops have happened. A state is one level, or a pair of
levels of which the first is the cheaper to read.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pebbler.arrays import Floats, Ints
from pebbler.compiled import inner_kernel, separate_kernel

__all__ = ["LayoutArrays", "RoomOverTime", "Routes", "Scratch", "empty_room", "scratch_for"]

_ALL = np.uint64(2**64 - 1)


class RoomOverTime(NamedTuple):
    """Per level and slot the units that are taken. Where all values have one unit, 64 slots are counted at once, digit by digit."""

    capacity: Ints
    taken: np.ndarray  # int32 by level and slot; unused where all values have one unit
    digits: Ints  # per level: how many binary digits its counts have, 0 where it is never full
    counts: np.ndarray  # uint64 by level, 64 slots and digit: what is taken, and more, so that in full slots all are 1
    full: np.ndarray  # uint64 by level and 64 slots
    single: bool  # whether all values have one unit


def empty_room(capacity: Ints, slots: int, values: int, single: bool) -> RoomOverTime:
    """Return room for so many values of which nothing is taken."""
    levels, words = len(capacity), (slots >> 6) + 1
    limits = [0 if room >= values else room for room in capacity.tolist()]  # a level holds a value once
    digits = np.array([limit.bit_length() for limit in limits], np.int64)
    counts = np.zeros((levels, words, int(digits.max(initial=0))), np.uint64)
    for level, limit in enumerate(limits):
        for digit in range(int(digits[level])):
            counts[level, :, digit] = _ALL if ((1 << int(digits[level])) - 1 - limit) >> digit & 1 else 0
    taken = np.zeros((levels, 0 if single else slots), np.int32)
    return RoomOverTime(capacity, taken, digits, counts, np.zeros((levels, words), np.uint64), bool(single))


@inner_kernel
def fits(room, level, first, end, size):  # type: ignore[no-untyped-def]
    """Return whether so many units are free in all slots from `first` to before `end`."""
    if first >= end:
        return True
    if not room.single:
        for slot in range(first, end):
            if room.taken[level, slot] + size > room.capacity[level]:
                return False
        return True
    low, high = first >> 6, (end - 1) >> 6
    head, tail = _ALL << np.uint64(first & 63), _ALL >> np.uint64(63 - ((end - 1) & 63))
    if low == high:
        return (room.full[level, low] & head & tail) == 0
    if room.full[level, low] & head:
        return False
    for word in range(low + 1, high):
        if room.full[level, word]:
            return False
    return (room.full[level, high] & tail) == 0


@inner_kernel
def occupy(room, level, first, end, units):  # type: ignore[no-untyped-def]
    """Take units in all slots from `first` to before `end`, or give them back if they are negative."""
    if not room.single:
        for slot in range(first, end):
            room.taken[level, slot] += units
        return
    digits = room.digits[level]
    if digits == 0 or first >= end:
        return
    low, high = first >> 6, (end - 1) >> 6
    flip = np.uint64(0) if units > 0 else _ALL  # a borrow goes on where a carry does not
    for word in range(low, high + 1):
        carry, full = _ALL, _ALL
        if word == low:
            carry &= _ALL << np.uint64(first & 63)
        if word == high:
            carry &= _ALL >> np.uint64(63 - ((end - 1) & 63))
        for digit in range(digits):
            was = room.counts[level, word, digit]
            now = was ^ carry
            room.counts[level, word, digit] = now
            full &= now
            carry &= was ^ flip
        room.full[level, word] = full


_NEVER = 1e18
_CLOSE = 1e-7
ANYWHERE = -1


class LayoutArrays(NamedTuple):
    """A graph in a fixed order as the layout sees it. Levels are in the order of their read prices."""

    read: Floats
    write: Floats
    slots: int
    parts: int  # segments per use: waiting, the use; and the slot after it, where results may take the room of operands
    size: Ints  # per value
    first: Ints  # per value: the slot in which it is first there, and the one in which it is no longer
    end: Ints
    begin: Ints  # per value: the level where it starts, ANYWHERE if that is free or an op makes it
    made: np.ndarray  # per value: whether an op writes it
    use_start: Ints  # rows of uses per value: the op's position, and how many times it reads it
    use: Ints
    times: Ints
    touch_start: Ints  # rows of values per position: what the op there reads or makes
    touch: Ints


class Routes(NamedTuple):
    """The places of values: per segment the cheaper level, and the other or -1. Value `v` begins at `parts use_start[v] + v`."""

    near: np.ndarray
    far: np.ndarray
    cost: Floats  # per value


class Scratch(NamedTuple):
    """Room for the tables of one value."""

    one: np.ndarray  # by segment and level
    two: np.ndarray  # by segment and pair of levels
    best: Floats
    held: Floats
    open: Ints  # by segment: the levels with room for it, and how many there are
    opens: Ints
    first: Ints
    end: Ints


def scratch_for(arrays: LayoutArrays) -> Scratch:
    """Return tables that are large enough for every value."""
    segments = arrays.parts * int(np.diff(arrays.use_start).max(initial=0)) + 1
    levels = len(arrays.read)
    return Scratch(
        np.zeros((segments, levels)), np.zeros((segments, levels, levels)), np.zeros(levels), np.zeros(levels),
        np.zeros((segments, levels), np.int64), np.zeros(segments, np.int64), np.zeros(segments, np.int64),
        np.zeros(segments, np.int64),
    )  # fmt: skip


@inner_kernel
def segments(arrays, scratch, value, low, high):  # type: ignore[no-untyped-def]
    """Lay out the segments from the wait for use `low` to the wait after the last use before `high`: their slots.

    Returns the number of the first of them, and that of the last.
    """
    start, last = arrays.use_start[value], arrays.use_start[value + 1]
    count = arrays.parts * (low - start)
    at = arrays.first[value] if low == start else min(2 * arrays.use[low - 1] + 2, arrays.end[value])
    for i in range(low, high):
        slot = 2 * arrays.use[i]
        scratch.first[count], scratch.end[count] = at, slot
        at = min(slot + (2 if arrays.parts == 2 else 1), arrays.end[value])
        scratch.first[count + 1], scratch.end[count + 1] = slot, at
        if arrays.parts == 3:
            scratch.first[count + 2] = at
            at = min(slot + 2, arrays.end[value])
            scratch.end[count + 2] = at
        count += arrays.parts
    scratch.first[count], scratch.end[count] = at, arrays.end[value] if high == last else 2 * arrays.use[high]
    return arrays.parts * (low - start), count


@separate_kernel(_nrt=False)
def place(arrays, scratch, room, routes, value, sign, low, high):  # type: ignore[no-untyped-def]
    """Take the room of a value's route about the uses from `low` to before `high`, or give it back."""
    base, units = arrays.parts * arrays.use_start[value] + value, sign * arrays.size[value]
    begin, stop = segments(arrays, scratch, value, low, high)
    for levels in (routes.near, routes.far):
        level, since = levels[base + begin], scratch.first[begin]
        for k in range(begin + 1, stop + 1):
            if levels[base + k] != level:  # where it stays, its room is taken at once
                if level >= 0:
                    occupy(room, level, since, scratch.first[k], units)
                level, since = levels[base + k], scratch.first[k]
        if level >= 0:
            occupy(room, level, since, scratch.end[stop], units)


@separate_kernel(_nrt=False)
def route(arrays, scratch, room, toll, rate, routes, value, low, high):  # type: ignore[no-untyped-def]
    """Choose the cheapest route of a value that fits, and return whether there is one.

    Only the segments about the uses from `low` to before `high` may change. `toll[level, slot]` sums up prices of room before a
    slot; they count at `rate`, and not in the cost that is kept.
    """
    uses = arrays.use_start[value + 1] - arrays.use_start[value]
    if uses == 0 or (uses == 1 and arrays.times[low] == 1 and arrays.begin[value] == ANYWHERE):
        return _stay_once(arrays, room, toll, rate, routes, value)
    begin, stop = segments(arrays, scratch, value, low, high)
    levels, base = len(arrays.read), arrays.parts * arrays.use_start[value] + value
    if rate <= 0 and arrays.begin[value] == ANYWHERE:
        levels = _useful(arrays, room, value, scratch.first[begin], scratch.end[stop])
        if begin > 0:  # what it has before and after may go on
            levels = max(levels, routes.near[base + begin - 1] + 1, routes.far[base + begin - 1] + 1)
        if stop < arrays.parts * uses:
            levels = max(levels, routes.near[base + stop + 1] + 1, routes.far[base + stop + 1] + 1)
    if begin > 0:
        _go_on(scratch, begin - 1, routes.near[base + begin - 1], routes.far[base + begin - 1])
    for k in range(begin, stop + 1):
        _open(arrays, scratch, room, value, k, levels)
        if k == 0:
            _begin(arrays, scratch, value)
        else:
            _change(arrays, scratch, k, arrays.parts == 3 and k % 3 == 2)
        _stay(arrays, scratch, toll, rate, value, k)
    near, far, best = -1, -1, _NEVER
    if stop == arrays.parts * uses:
        for i in range(scratch.opens[stop]):
            x = scratch.open[stop, i]
            if scratch.one[stop, x] < best:
                near, best = x, scratch.one[stop, x]
    else:
        near, far = _meeting(arrays, scratch, stop, routes.near[base + stop + 1], routes.far[base + stop + 1])
    if near < 0:
        return False
    _retrace(arrays, scratch, toll, rate, routes, value, begin, stop, near, far)
    routes.cost[value] = cost_of(arrays, routes, value)
    return True


@inner_kernel
def _go_on(scratch, k, near, far):  # type: ignore[no-untyped-def]
    """Let the levels of a segment be the only ones there."""
    scratch.one[k] = _NEVER
    scratch.open[k, 0], scratch.open[k, 1 if far >= 0 else 0] = near, far if far >= 0 else near
    scratch.opens[k] = 2 if far >= 0 else 1
    if far >= 0:
        scratch.two[k, near, far] = 0.0
    else:
        scratch.one[k, near] = 0.0


@inner_kernel
def _meeting(arrays, scratch, k, near, far):  # type: ignore[no-untyped-def]
    """Return the levels of a segment from which those of the next, which stay, are reached at the least cost; -1 if none."""
    found, beside, best = -1, -1, _NEVER
    for i in range(scratch.opens[k]):
        x = scratch.open[k, i]
        for j in range(i, scratch.opens[k]):
            y = scratch.open[k, j]
            cost = scratch.one[k, x] if y == x else scratch.two[k, x, y]
            if cost >= best:
                continue
            for level in (near, far):
                if level >= 0 and level != x and level != y:
                    cost += arrays.read[x] + arrays.write[level]
            if cost < best:
                found, beside, best = x, y if y != x else -1, cost
    return found, beside


@inner_kernel
def _stay_once(arrays, room, toll, rate, routes, value):  # type: ignore[no-untyped-def]
    """Choose the level of a value that is read at most once, and so never pays for a copy."""
    first, end, size = arrays.first[value], arrays.end[value], arrays.size[value]
    low, uses = arrays.use_start[value], arrays.use_start[value + 1] - arrays.use_start[value]
    near, best, paid = -1, _NEVER, 0.0
    for x in range(len(arrays.read)):
        if arrays.begin[value] != ANYWHERE and arrays.begin[value] != x:
            continue
        cost = uses * arrays.read[x] + (arrays.write[x] if arrays.made[value] else 0.0)
        if cost >= best and rate <= 0:
            continue
        with_room = cost + (rate * (toll[x, end] - toll[x, first]) if rate > 0 else 0.0)
        if with_room < best and fits(room, x, first, end, size):
            near, best, paid = x, with_room, cost
    if near < 0:
        return False
    base = arrays.parts * low + value
    for k in range(base, base + arrays.parts * uses + 1):
        routes.near[k], routes.far[k] = near, -1
    routes.cost[value] = size * paid
    return True


@inner_kernel
def least_cost(arrays, room, value, low, high):  # type: ignore[no-untyped-def]
    """Return a cost that no route is below, for the uses from `low` to before `high`.

    Each is read from the nearest level with room then, all its life if it is the only one.
    """
    once = arrays.use_start[value + 1] - arrays.use_start[value] == 1
    once, total = once and arrays.times[low] == 1 and arrays.begin[value] == ANYWHERE, 0.0
    for i in range(low, high):
        first = arrays.first[value] if once else 2 * arrays.use[i]
        end = arrays.end[value] if once else min(2 * arrays.use[i] + 1, arrays.end[value])
        for x in range(len(arrays.read)):
            if fits(room, x, first, end, arrays.size[value]):
                total += arrays.times[i] * arrays.read[x]
                break
    return arrays.size[value] * total


@inner_kernel
def _useful(arrays, room, value, first, end):  # type: ignore[no-untyped-def]
    """Return the number of levels that a value may need then: none is of use beyond one that has room for it all the time."""
    for x in range(len(arrays.read)):
        if fits(room, x, first, end, arrays.size[value]):
            levels = x + 1
            for y in range(x + 1, len(arrays.read)):
                if arrays.write[y] < arrays.write[x]:
                    levels = y + 1
            return levels
    return len(arrays.read)


@inner_kernel
def _open(arrays, scratch, room, value, k, levels):  # type: ignore[no-untyped-def]
    """Note the levels that have room for a value in a segment; in one without slots it stays where it was."""
    first, end, count = scratch.first[k], scratch.end[k], 0
    if k > 0 and first >= end:
        count = scratch.opens[k - 1]
        for i in range(count):
            scratch.open[k, i] = scratch.open[k - 1, i]
    else:
        for x in range(levels):
            if fits(room, x, first, end, arrays.size[value]):
                scratch.open[k, count] = x
                count += 1
    scratch.one[k] = _NEVER
    scratch.opens[k] = count


@inner_kernel
def _begin(arrays, scratch, value):  # type: ignore[no-untyped-def]
    for i in range(scratch.opens[0]):
        x = scratch.open[0, i]
        allowed = arrays.begin[value] == ANYWHERE or arrays.begin[value] == x
        scratch.one[0, x] = (arrays.write[x] if arrays.made[value] else 0.0) if allowed else _NEVER
        for j in range(i + 1, scratch.opens[0]):
            scratch.two[0, x, scratch.open[0, j]] = _NEVER


@inner_kernel
def _change(arrays, scratch, k, drops):  # type: ignore[no-untyped-def]
    """Drop and, unless only drops are allowed, copy between two segments: new copies are read where the old ones are cheapest."""
    before, pairs, one, two = scratch.one[k - 1], scratch.two[k - 1], scratch.one[k], scratch.two[k]
    held, best = scratch.held, scratch.best  # per level: the cheapest state that has it, and one read from that state
    held[:] = _NEVER
    best[:] = _NEVER
    least, count = _NEVER, scratch.opens[k - 1]
    for i in range(count):
        x = scratch.open[k - 1, i]
        held[x] = min(held[x], before[x])
        best[x] = min(best[x], before[x] + arrays.read[x])
        for j in range(i + 1, count):
            y = scratch.open[k - 1, j]
            cost = pairs[x, y]
            if cost < _NEVER:
                held[x], held[y] = min(held[x], cost), min(held[y], cost)
                cost += arrays.read[x]
                best[x], best[y] = min(best[x], cost), min(best[y], cost)
    if not drops:
        for x in range(len(best)):
            least = min(least, best[x])
    for i in range(scratch.opens[k]):
        x = scratch.open[k, i]
        one[x] = min(held[x], least + arrays.write[x])
        for j in range(i + 1, scratch.opens[k]):
            y = scratch.open[k, j]
            cost = pairs[x, y] if held[x] < _NEVER and held[y] < _NEVER else _NEVER
            if not drops:
                cost = min(cost, min(best[x] + arrays.write[y], best[y] + arrays.write[x]))
            two[x, y] = cost


@inner_kernel
def _stay(arrays, scratch, toll, rate, value, k):  # type: ignore[no-untyped-def]
    """Pay for a segment: room in it, and the reads if it is a use."""
    first, end, count = scratch.first[k], scratch.end[k], scratch.opens[k]
    reads = arrays.times[arrays.use_start[value] + k // arrays.parts] if k % arrays.parts == 1 else 0
    one, two = scratch.one[k], scratch.two[k]
    for i in range(count):
        x = scratch.open[k, i]
        cost = rate * (toll[x, end] - toll[x, first]) if rate > 0 else 0.0
        here = cost + reads * arrays.read[x]
        one[x] += here
        for j in range(i + 1, count):
            two[x, scratch.open[k, j]] += here
        for j in range(i):
            two[scratch.open[k, j], x] += cost


@inner_kernel
def _retrace(arrays, scratch, toll, rate, routes, value, begin, stop, near, far):  # type: ignore[no-untyped-def]
    """Walk back from the cheapest last state and keep the levels of every segment."""
    base = arrays.parts * arrays.use_start[value] + value
    for k in range(stop, begin - 1, -1):
        routes.near[base + k], routes.far[base + k] = near, far
        if k == begin:
            return
        first, end = scratch.first[k], scratch.end[k]
        cost = scratch.one[k, near] if far < 0 else scratch.two[k, near, far]
        if rate > 0:
            cost -= rate * (toll[near, end] - toll[near, first])
            if far >= 0:
                cost -= rate * (toll[far, end] - toll[far, first])
        if k % arrays.parts == 1:
            cost -= arrays.times[arrays.use_start[value] + k // arrays.parts] * arrays.read[near]
        same = scratch.one[k - 1, near]
        if far >= 0:  # pairs are noted for levels with room alone
            same = scratch.two[k - 1, near, far] if max(same, scratch.one[k - 1, far]) < _NEVER else _NEVER
        if abs(same - cost) < _CLOSE:
            continue  # nothing has changed, as most often
        drops = arrays.parts == 3 and k % 3 == 2
        old_near, old_far, nearest = near, far, _NEVER
        for i in range(scratch.opens[k - 1]):  # of the states before, the one whose cost and copies add up to this
            x = scratch.open[k - 1, i]
            for j in range(i, scratch.opens[k - 1]):
                y = scratch.open[k - 1, j]
                paid = scratch.one[k - 1, x] if y == x else scratch.two[k - 1, x, y]
                if paid > cost + _CLOSE:
                    continue
                for level in (near, far):
                    if level >= 0 and level != x and level != y:
                        paid += _NEVER if drops else arrays.read[x] + arrays.write[level]
                off = abs(paid - cost)
                if off < nearest:
                    nearest, old_near, old_far = off, x, y if y != x else -1
        near, far = old_near, old_far


@inner_kernel
def cost_of(arrays, routes, value):  # type: ignore[no-untyped-def]
    """Return the cost of a value's route: its write, its reads and its copies."""
    return cost_about(arrays, routes, value, arrays.use_start[value], arrays.use_start[value + 1])


@inner_kernel
def cost_about(arrays, routes, value, low, high):  # type: ignore[no-untyped-def]
    """Return the cost of the levels about the uses from `low` to before `high`: reads, and copies to there and from there."""
    start, last = arrays.use_start[value], arrays.use_start[value + 1]
    base, begin, stop = arrays.parts * start + value, arrays.parts * (low - start), arrays.parts * (high - start)
    total = arrays.write[routes.near[base]] if arrays.made[value] and low == start else 0.0
    for k in range(begin, stop + (2 if high < last else 1)):
        near, far = routes.near[base + k], routes.far[base + k]
        if k % arrays.parts == 1 and k < stop:
            total += arrays.times[start + k // arrays.parts] * arrays.read[near]
        if k:
            x, y = routes.near[base + k - 1], routes.far[base + k - 1]
            for level in (near, far):
                if level >= 0 and level != x and level != y:
                    total += arrays.read[x] + arrays.write[level]
    return arrays.size[value] * total
