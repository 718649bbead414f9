"""Cuts of a stretch in two: what they cost, the best prefix of an order, and single ops moved from one part to the other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pebbler.arrays import Array, Floats, Ints
from pebbler.compiled import inner_kernel, kernel, separate_kernel
from pebbler.solver.structure.kernels.gain_heap import insert, remove, sift_down, sift_up
from pebbler.solver.structure.kernels.stretch import Stretch

__all__ = ["Cutting", "best_prefix", "improve_cut"]

_PASSES = 6


class Cutting(NamedTuple):
    """Settings of the cuts of stretches."""

    least: float  # of the ops of a stretch, in its first part
    most: float
    share: float  # of its size, that a value costs which both parts touch
    blend: float  # of its size, that a value costs in one part which is also touched outside on the other side
    room: float  # a stretch that holds no more than this at once is not cut; 0 to cut all
    wide: float  # how much the width of the parts counts: what it may take to cut them further


@inner_kernel
def _cost(first: int, second: int, size: float, anchor: int, how: Cutting) -> float:
    """Return the cost of a value that so many ops of each part touch; it is also touched before (0), after (1) or neither (-1)."""
    cost = 0.0
    if first > 0 and second > 0:
        cost += how.share * size
    if (anchor == 0 and second > 0) or (anchor == 1 and first > 0):
        cost += how.blend * size
    return cost


@kernel
def best_prefix(p: Stretch, order: Ints, how: Cutting) -> tuple[float, int]:
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


class _Moving(NamedTuple):
    """The state of a pass of moves."""

    parts: Ints  # per value: how many ops of each part touch it
    gain: Floats  # per op: how much cheaper the cut gets when it moves
    stamp: Ints  # per op: when its gain changed
    heaps: Ints  # per part: ops that may move
    place: Ints  # per op: where it is in its heap, -1 if it is not
    sizes: Ints  # of the heaps
    blocked: Ints  # per op: neighbours that keep it from moving, before it in part 1 or after it in part 0
    locked: Array  # per op: has moved


@inner_kernel(forceinline=False)
def _begin_pass(p: Stretch, side: Ints, how: Cutting, s: _Moving) -> int:
    """Count everything anew; return how many ops are in the first part."""
    inside = 0
    s.parts[:] = 0
    s.sizes[:] = 0
    s.locked[:] = False
    s.place[:] = -1
    for op in range(len(p.ops)):
        for k in range(p.v_start[op], p.v_start[op + 1]):
            s.parts[p.v_items[k], side[op]] += 1
    for op in range(len(p.ops)):
        inside += side[op] == 0
        s.blocked[op] = 0
        if side[op] == 1:
            for k in range(p.b_start[op], p.b_start[op + 1]):
                s.blocked[op] += side[p.b_items[k]] == 1
        else:
            for k in range(p.a_start[op], p.a_start[op + 1]):
                s.blocked[op] += side[p.a_items[k]] == 0
        s.gain[op] = 0.0
        step = 1 if side[op] == 1 else -1
        for k in range(p.v_start[op], p.v_start[op + 1]):
            v = p.v_items[k]
            a, b = s.parts[v, 0], s.parts[v, 1]
            s.gain[op] += _cost(a, b, p.weight[v], p.anchor[v], how)
            s.gain[op] -= _cost(a + step, b - step, p.weight[v], p.anchor[v], how)
    for op in range(len(p.ops)):
        if s.blocked[op] == 0:
            s.sizes[side[op]] = insert(s.heaps[side[op]], s.place, s.gain, s.stamp, op, s.sizes[side[op]])
    return inside


@inner_kernel(forceinline=False)
def _change_gains(p: Stretch, side: Ints, how: Cutting, s: _Moving, op: int, step: int, clock: int) -> None:
    """Count an op in its new part, and change the gains of those that touch the same values."""
    for k in range(p.v_start[op], p.v_start[op + 1]):
        v = p.v_items[k]
        a, b, weight, anchor = s.parts[v, 0], s.parts[v, 1], p.weight[v], p.anchor[v]
        s.parts[v, 0], s.parts[v, 1] = a + step, b - step
        here = _cost(a, b, weight, anchor, how)
        after = _cost(a + step, b - step, weight, anchor, how)
        # By how much the gain of another op changes that is in part 0, and in part 1.
        down = after - _cost(a + step - 1, b - step + 1, weight, anchor, how)
        down -= here - _cost(a - 1, b + 1, weight, anchor, how)
        up = after - _cost(a + step + 1, b - step - 1, weight, anchor, how)
        up -= here - _cost(a + 1, b - 1, weight, anchor, how)
        if down == 0.0 and up == 0.0:
            continue
        for j in range(p.o_start[v], p.o_start[v + 1]):
            other = p.o_items[j]
            change = down if side[other] == 0 else up
            if s.locked[other] or change == 0.0:
                continue
            s.gain[other] += change
            s.stamp[other] = clock
            if s.place[other] >= 0:
                heap = s.heaps[side[other]]
                sift_up(heap, s.place, s.gain, s.stamp, s.place[other])
                sift_down(heap, s.place, s.gain, s.stamp, s.place[other], s.sizes[side[other]])


@inner_kernel(forceinline=False)
def _change_blocks(
    first: Ints, follow: Ints, start: Ints, stay: Ints, op: int, take: int, clock: int, s: _Moving
) -> None:
    """Let ops follow one that left part `take`, and keep those of the other part that must stay behind it."""
    for k in range(first[op], first[op + 1]):
        other = follow[k]
        s.blocked[other] -= 1
        if s.blocked[other] == 0 and not s.locked[other]:
            s.stamp[other] = clock
            s.sizes[take] = insert(s.heaps[take], s.place, s.gain, s.stamp, other, s.sizes[take])
    for k in range(start[op], start[op + 1]):
        other = stay[k]
        s.blocked[other] += 1
        if s.place[other] >= 0:
            s.sizes[1 - take] = remove(s.heaps[1 - take], s.place, s.gain, s.stamp, other, s.sizes[1 - take])


@separate_kernel
def improve_cut(p: Stretch, side: Ints, how: Cutting, cost: float) -> float:
    """Move ops between the parts (0 and 1) as long as a pass of moves makes the cut cheaper; return its cost."""
    count, values = len(p.ops), len(p.size)
    low, high = max(1, int(how.least * count)), max(1, int(how.most * count))
    s = _Moving(
        np.empty((values, 2), np.int64), np.empty(count), np.zeros(count, np.int64), np.empty((2, count), np.int64),
        np.empty(count, np.int64), np.zeros(2, np.int64), np.empty(count, np.int64), np.empty(count, np.bool_),
    )  # fmt: skip
    moved, clock = np.empty(count, np.int64), 0
    for _ in range(_PASSES):
        inside = _begin_pass(p, side, how, s)
        now, best, kept, number = cost, cost, 0, 0
        while number < count and number - kept < 200 + count // 8:
            grow = s.sizes[1] > 0 and inside < high
            shrink = s.sizes[0] > 0 and inside > low
            if not grow and not shrink:
                break
            take = 1 if grow else 0
            if grow and shrink:
                one, other = s.gain[s.heaps[1, 0]], s.gain[s.heaps[0, 0]]
                take = 1 if one > other or (one == other and 2 * inside < count) else 0
            op = s.heaps[take, 0]
            s.sizes[take] = remove(s.heaps[take], s.place, s.gain, s.stamp, op, s.sizes[take])
            s.locked[op] = True
            moved[number] = op
            number += 1
            now -= s.gain[op]
            step = 1 if take == 1 else -1
            inside += step
            clock += 1
            _change_gains(p, side, how, s, op, step, clock)
            side[op] = 1 - take
            if take == 1:  # into the first part: what waits for it may follow, what it waits for may not leave
                _change_blocks(p.a_start, p.a_items, p.b_start, p.b_items, op, 1, clock, s)
            else:
                _change_blocks(p.b_start, p.b_items, p.a_start, p.a_items, op, 0, clock, s)
            if now < best - 1e-9:
                best, kept = now, number
        for i in range(number - 1, kept - 1, -1):
            side[moved[i]] = 1 - side[moved[i]]
        if best > cost - 1e-9:
            break
        cost = best
    return cost
