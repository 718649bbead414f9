"""Belady's rule on an order: operands are brought to the fastest level on demand, and what is used next latest goes first.

The rule is that of `demand_plan` with `farthest`: ties go to what needs no store, then to the largest. Stores go to the last level.
"""

from __future__ import annotations

import numpy as np

from pebbler.arrays import Ints
from pebbler.compiled import inner_kernel, kernel
from pebbler.solver.kernels.greedy_state import GreedyGame

__all__ = ["run_belady"]

_COMPUTE, _COPY, _DROP = 0, 1, 2  # as in `game.moves`


@inner_kernel
def _goes_before(next_use: Ints, clean: Ints, size: Ints, one: int, other: int) -> bool:
    if next_use[one] != next_use[other]:
        return bool(next_use[one] > next_use[other])
    if clean[one] != clean[other]:
        return bool(clean[one] > clean[other])
    if size[one] != size[other]:
        return bool(size[one] > size[other])
    return bool(one < other)


@inner_kernel(forceinline=False)
def _up(heap: Ints, place: Ints, next_use: Ints, clean: Ints, size: Ints, at: int) -> None:
    one = heap[at]
    while at > 0:
        above = (at - 1) >> 1
        if not _goes_before(next_use, clean, size, one, heap[above]):
            break
        heap[at] = heap[above]
        place[heap[at]] = at
        at = above
    heap[at], place[one] = one, at


@inner_kernel(forceinline=False)
def _down(heap: Ints, place: Ints, next_use: Ints, clean: Ints, size: Ints, at: int, count: int) -> None:
    one = heap[at]
    while 2 * at + 1 < count:
        below = 2 * at + 1
        if below + 1 < count and _goes_before(next_use, clean, size, heap[below + 1], heap[below]):
            below += 1
        if not _goes_before(next_use, clean, size, heap[below], one):
            break
        heap[at] = heap[below]
        place[heap[at]] = at
        at = below
    heap[at], place[one] = one, at


@inner_kernel(forceinline=False)
def _take_out(heap: Ints, place: Ints, next_use: Ints, clean: Ints, size: Ints, one: int, count: int) -> int:
    at, count = place[one], count - 1
    place[one] = -1
    if at < count:
        heap[at] = heap[count]
        place[heap[at]] = at
        _up(heap, place, next_use, clean, size, at)
        _down(heap, place, next_use, clean, size, place[heap[at]], count)
    return count


@kernel
def run_belady(g: GreedyGame, order: Ints, most: int, bound: float) -> tuple[Ints, float]:
    """Return the moves (kind, op or value, level, to) of an order and what they cost; infinite where it does not fit.

    With `most` of 0 no moves are written. It stops, with an infinite cost, once the copies cost `bound` or more.
    """
    values, last = len(g.size), len(g.capacity) - 1
    ops = len(order)
    moves, length = np.empty((most, 4), np.int64), 0
    use_start = g.reader_start.copy()
    fill, uses = use_start[:-1].copy(), np.empty(use_start[values] + 1, np.int64)
    for p in range(ops):
        for k in range(g.r_start[order[p]], g.r_start[order[p] + 1]):
            uses[fill[g.r_items[k]]] = p
            fill[g.r_items[k]] += 1
    at_use = use_start[:-1].copy()
    next_use, clean = np.full(values, ops, np.int64), np.zeros(values, np.int64)
    below = np.zeros(values, np.int64)  # the other levels that hold it, as bits
    heap, place, count = np.empty(values, np.int64), np.full(values, -1, np.int64), 0
    here, room, cost = np.zeros(values, np.bool_), g.capacity[0], 0.0
    store = g.read[0] + g.write[last]
    for v in range(values):
        if use_start[v] < use_start[v + 1]:
            next_use[v] = uses[use_start[v]]
        below[v] = g.start[v] >> 1 << 1
        clean[v] = below[v] != 0
        if g.start[v] & 1:
            here[v] = True
            room -= g.size[v]
            heap[count], place[v] = v, count
            _up(heap, place, next_use, clean, g.size, count)
            count += 1
    if room < 0 or last == 0:
        return moves[:0], np.inf
    for p in range(ops):
        op = order[p]
        need = np.int64(0)
        for k in range(g.r_start[op], g.r_start[op + 1]):
            if not here[g.r_items[k]]:
                need += g.size[g.r_items[k]]
        for phase in range(2):
            if phase == 1:
                need = np.int64(0)
                for k in range(g.w_start[op], g.w_start[op + 1]):
                    need += g.size[g.w_items[k]]
                for k in range(g.d_start[op], g.d_start[op + 1]):
                    if here[g.d_items[k]]:
                        need -= g.size[g.d_items[k]]
            while need > room:
                if count == 0:
                    return moves[:0], np.inf
                v = heap[0]
                if next_use[v] <= p:  # all that is left is needed now
                    return moves[:0], np.inf
                wanted = next_use[v] < ops or g.survive[v]
                if wanted and below[v] == 0:
                    cost += store * g.size[v]
                    if cost >= bound:
                        return moves[:0], np.inf
                    below[v] = 1 << last
                    if most:
                        moves[length, 0], moves[length, 1], moves[length, 2], moves[length, 3] = _COPY, v, 0, last
                        length += 1
                count = _take_out(heap, place, next_use, clean, g.size, v, count)
                here[v] = False
                clean[v] = below[v] != 0
                room += g.size[v]
                if most:
                    moves[length, 0], moves[length, 1], moves[length, 2], moves[length, 3] = _DROP, v, 0, 0
                    length += 1
            if phase == 1:
                break
            for k in range(g.r_start[op], g.r_start[op + 1]):
                v = g.r_items[k]
                if here[v]:
                    continue
                source = 0
                for level in range(1, last + 1):
                    if below[v] >> level & 1 and (source == 0 or g.read[level] < g.read[source]):
                        source = level
                if source == 0:
                    return moves[:0], np.inf
                cost += (g.read[source] + g.write[0]) * g.size[v]
                if cost >= bound:
                    return moves[:0], np.inf
                here[v] = True
                room -= g.size[v]
                if g.size[v] > 0:
                    heap[count], place[v] = v, count
                    _up(heap, place, next_use, clean, g.size, count)
                    count += 1
                if most:
                    moves[length, 0], moves[length, 1], moves[length, 2], moves[length, 3] = _COPY, v, source, 0
                    length += 1
        if most:
            moves[length, 0], moves[length, 1], moves[length, 2], moves[length, 3] = _COMPUTE, op, 0, 0
            length += 1
        for k in range(g.d_start[op], g.d_start[op + 1]):
            v = g.d_items[k]
            if here[v]:
                here[v] = False
                room += g.size[v]
                if place[v] >= 0:
                    count = _take_out(heap, place, next_use, clean, g.size, v, count)
            below[v] = 0
        for k in range(g.w_start[op], g.w_start[op + 1]):
            v = g.w_items[k]
            here[v] = True
            room -= g.size[v]
            if g.size[v] > 0:
                heap[count], place[v] = v, count
                _up(heap, place, next_use, clean, g.size, count)
                count += 1
        for phase in range(2):
            for k in range(
                g.r_start[op] if phase == 0 else g.w_start[op], g.r_start[op + 1] if phase == 0 else g.w_start[op + 1]
            ):
                v = g.r_items[k] if phase == 0 else g.w_items[k]
                if phase == 0:
                    at_use[v] += 1
                    next_use[v] = uses[at_use[v]] if at_use[v] < use_start[v + 1] else ops
                if not here[v]:
                    continue
                if next_use[v] == ops and not g.survive[v]:
                    here[v] = False
                    room += g.size[v]
                    if place[v] >= 0:
                        count = _take_out(heap, place, next_use, clean, g.size, v, count)
                    if most:
                        moves[length, 0], moves[length, 1], moves[length, 2], moves[length, 3] = _DROP, v, 0, 0
                        length += 1
                elif place[v] >= 0:
                    _up(heap, place, next_use, clean, g.size, place[v])
                    _down(heap, place, next_use, clean, g.size, place[v], count)
    for v in range(values):
        if g.end[v] == 0:
            continue
        if g.end[v] != 1 << last:
            return moves[:0], np.inf
        if below[v] >> last & 1 == 0:
            if not here[v]:
                return moves[:0], np.inf
            cost += store * g.size[v]
            if most:
                moves[length, 0], moves[length, 1], moves[length, 2], moves[length, 3] = _COPY, v, 0, last
                length += 1
        if here[v] and most:
            moves[length, 0], moves[length, 1], moves[length, 2], moves[length, 3] = _DROP, v, 0, 0
            length += 1
    for p in range(ops):
        cost += g.cost[order[p]]
    return moves[:length].copy(), cost
