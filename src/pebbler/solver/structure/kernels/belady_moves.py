"""Belady's rule on an order: operands are brought to the fastest level on demand, and what is used next latest goes first.

The rule is that of `demand_plan` with `farthest`: ties go to what needs no store, then to the largest. Stores go to the last level.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pebbler.arrays import Array, Floats, Ints
from pebbler.compiled import inner_kernel, kernel, separate_kernel
from pebbler.solver.kernels.greedy_state import GreedyGame

__all__ = ["COUNT", "Memory", "begin", "play", "run_belady", "sift_down"]

_COMPUTE, _COPY, _DROP = 0, 1, 2  # as in `game.moves`
COUNT, _ROOM, _LENGTH = 0, 1, 2  # places in `numbers`


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
def sift_down(heap: Ints, place: Ints, next_use: Ints, clean: Ints, size: Ints, at: int, count: int) -> None:
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
        sift_down(heap, place, next_use, clean, size, place[heap[at]], count)
    return count


class Memory(NamedTuple):
    """The memory as it is while an order runs; per value unless it says otherwise."""

    here: Array  # in the fastest level
    below: Ints  # the other levels that hold it, as bits
    clean: Ints  # whether some do
    next_use: Ints  # position in the order, its length for never
    heap: Ints  # values that may be evicted
    place: Ints
    uses: Ints  # the positions of every value's readers in the order, ascending, as rows of the game's readers
    at_use: Ints  # the first of these that is still to come
    moves: Ints
    numbers: Ints  # values in the heap, units free, moves
    cost: Floats  # of the copies so far


@inner_kernel
def _emit(m: Memory, kind: int, subject: int, level: int, to: int) -> None:
    if len(m.moves):
        at = m.numbers[_LENGTH]
        m.moves[at, 0], m.moves[at, 1], m.moves[at, 2], m.moves[at, 3] = kind, subject, level, to
        m.numbers[_LENGTH] = at + 1


@inner_kernel(forceinline=False)
def _enter(g: GreedyGame, m: Memory, v: int) -> None:
    m.here[v] = True
    m.numbers[_ROOM] -= g.size[v]
    if g.size[v] > 0:
        at = m.numbers[COUNT]
        m.heap[at], m.place[v] = v, at
        _up(m.heap, m.place, m.next_use, m.clean, g.size, at)
        m.numbers[COUNT] = at + 1


@inner_kernel(forceinline=False)
def _leave(g: GreedyGame, m: Memory, v: int, by_move: bool) -> None:
    m.here[v] = False
    m.numbers[_ROOM] += g.size[v]
    if m.place[v] >= 0:
        m.numbers[COUNT] = _take_out(m.heap, m.place, m.next_use, m.clean, g.size, v, m.numbers[COUNT])
    if by_move:
        _emit(m, _DROP, v, 0, 0)


@inner_kernel(forceinline=False)
def _make_room(g: GreedyGame, m: Memory, need: int, now: int, ops: int) -> bool:
    """Evict what is used next latest until so many units are free; return whether that worked."""
    last = len(g.capacity) - 1
    while need > m.numbers[_ROOM]:
        v = m.heap[0]
        if m.numbers[COUNT] == 0 or m.next_use[v] <= now:  # all that is left is needed now
            return False
        if m.below[v] == 0 and (m.next_use[v] < ops or g.survive[v]):
            m.cost[0] += (g.read[0] + g.write[last]) * g.size[v]
            m.below[v] = 1 << last
            _emit(m, _COPY, v, 0, last)
        _leave(g, m, v, True)
        m.clean[v] = m.below[v] != 0
    return True


@inner_kernel(forceinline=False)
def _load(g: GreedyGame, m: Memory, v: int) -> bool:
    source = 0
    for level in range(1, len(g.capacity)):
        if m.below[v] >> level & 1 and (source == 0 or g.read[level] < g.read[source]):
            source = level
    if source == 0:
        return False
    m.cost[0] += (g.read[source] + g.write[0]) * g.size[v]
    _enter(g, m, v)
    _emit(m, _COPY, v, source, 0)
    return True


@inner_kernel(forceinline=False)
def _run_op(g: GreedyGame, m: Memory, op: int, now: int, ops: int) -> bool:
    """Bring an op's reads, make room for its results and run it; return whether that worked."""
    need = np.int64(0)
    for k in range(g.r_start[op], g.r_start[op + 1]):
        if not m.here[g.r_items[k]]:
            need += g.size[g.r_items[k]]
    if not _make_room(g, m, need, now, ops):
        return False
    for k in range(g.r_start[op], g.r_start[op + 1]):
        if not m.here[g.r_items[k]] and not _load(g, m, g.r_items[k]):
            return False
    need = np.int64(0)
    for k in range(g.w_start[op], g.w_start[op + 1]):
        need += g.size[g.w_items[k]]
    for k in range(g.d_start[op], g.d_start[op + 1]):
        if m.here[g.d_items[k]]:
            need -= g.size[g.d_items[k]]
    if not _make_room(g, m, need, now, ops):
        return False
    _emit(m, _COMPUTE, op, 0, 0)
    for k in range(g.d_start[op], g.d_start[op + 1]):
        if m.here[g.d_items[k]]:
            _leave(g, m, g.d_items[k], False)
        m.below[g.d_items[k]] = 0
    for k in range(g.w_start[op], g.w_start[op + 1]):
        _enter(g, m, g.w_items[k])
    return True


@inner_kernel(forceinline=False)
def _drop_or_rank(g: GreedyGame, m: Memory, v: int, ops: int) -> None:
    """Drop a value that nobody needs any more, or give it its new rank."""
    if not m.here[v]:
        return
    if m.next_use[v] == ops and not g.survive[v]:
        _leave(g, m, v, True)
    elif m.place[v] >= 0:
        _up(m.heap, m.place, m.next_use, m.clean, g.size, m.place[v])
        sift_down(m.heap, m.place, m.next_use, m.clean, g.size, m.place[v], m.numbers[COUNT])


@inner_kernel(forceinline=False)
def _end(g: GreedyGame, m: Memory) -> bool:
    """Bring what must end in the last level there; return whether nothing must end elsewhere."""
    last = len(g.capacity) - 1
    for v in range(len(g.size)):
        if g.end[v] == 0:
            continue
        if g.end[v] != 1 << last or (m.below[v] >> last & 1 == 0 and not m.here[v]):
            return False
        if m.below[v] >> last & 1 == 0:
            m.cost[0] += (g.read[0] + g.write[last]) * g.size[v]
            _emit(m, _COPY, v, 0, last)
        if m.here[v]:
            _emit(m, _DROP, v, 0, 0)
    return True


@separate_kernel
def begin(g: GreedyGame, order: Ints, most: int) -> Memory:
    """Return the memory before an order runs, with room for so many moves."""
    values, ops = len(g.size), len(order)
    m = Memory(
        np.zeros(values, np.bool_), np.zeros(values, np.int64), np.zeros(values, np.int64), np.full(values, ops, np.int64),
        np.empty(values + 1, np.int64), np.full(values, -1, np.int64), np.empty(g.reader_start[values], np.int64),
        g.reader_start[:-1].copy(), np.empty((most, 4), np.int64), np.array([0, g.capacity[0], 0], np.int64), np.zeros(1),
    )  # fmt: skip
    fill = g.reader_start[:-1].copy()
    for p in range(ops):
        for k in range(g.r_start[order[p]], g.r_start[order[p] + 1]):
            m.uses[fill[g.r_items[k]]] = p
            fill[g.r_items[k]] += 1
    for v in range(values):
        if m.at_use[v] < g.reader_start[v + 1]:
            m.next_use[v] = m.uses[m.at_use[v]]
        m.below[v] = g.start[v] >> 1 << 1
        m.clean[v] = m.below[v] != 0
        if g.start[v] & 1:
            _enter(g, m, v)
    return m


@inner_kernel(forceinline=False)
def play(g: GreedyGame, m: Memory, ops: Ints, first: int, total: int, bound: float) -> bool:
    """Run ops of an order of `total` that begin at a position; return whether they fit and the copies cost no more than `bound`."""
    for i in range(len(ops)):
        op = ops[i]
        if not _run_op(g, m, op, first + i, total) or m.cost[0] > bound:
            return False
        for k in range(g.r_start[op], g.r_start[op + 1]):
            v = g.r_items[k]
            m.at_use[v] += 1
            m.next_use[v] = m.uses[m.at_use[v]] if m.at_use[v] < g.reader_start[v + 1] else total
            _drop_or_rank(g, m, v, total)
        for k in range(g.w_start[op], g.w_start[op + 1]):
            _drop_or_rank(g, m, g.w_items[k], total)
    return True


@kernel
def run_belady(g: GreedyGame, order: Ints, most: int, bound: float) -> tuple[Ints, float]:
    """Return the moves (kind, op or value, level, to) of an order and what they cost; infinite where it does not fit.

    With `most` of 0 no moves are written. It stops, with an infinite cost, once the copies cost more than `bound`.
    """
    m = begin(g, order, most)
    if m.numbers[_ROOM] < 0 or len(g.capacity) == 1 or not play(g, m, order, 0, len(order), bound) or not _end(g, m):
        return m.moves[:0], np.inf
    return m.moves[: m.numbers[_LENGTH]].copy(), m.cost[0] + g.cost[order].sum()
