"""A stretch of an order annealed by Belady's rule: ops move with what they wait for, or with what waits for them.

The memory before the stretch is the order's own, and a trial runs the stretch and some ops beyond. So a trial takes time for these
alone, however long the order is. What is still to come is estimated: a value that has to come back costs its load, one that nothing
below holds half a store.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pebbler.arrays import Array, Ints
from pebbler.compiled import inner_kernel, kernel
from pebbler.solver.kernels.greedy_state import GreedyGame
from pebbler.solver.paging.kernels.random_draws import draw
from pebbler.solver.structure.kernels.belady_moves import COUNT, Memory, begin, play, sift_down
from pebbler.solver.structure.kernels.stretch import Net

__all__ = ["anneal_stretch"]

_FINE = 1 << 20


@inner_kernel(forceinline=False)
def _move(net: Net, order: Ints, place: Ints, marked: Array, held: Ints, at: int, count: int, to: int) -> bool:
    """Move ops to `to`, earlier with what they wait for or later with what waits for them; return whether any passed another."""
    low, high = min(at, to), max(at + count, to + 1)
    marks = 0
    for p in range(low, high):
        marked[order[p]] = at <= p < at + count
    if to < at:
        for p in range(at - 1, low - 1, -1):
            for k in range(net.after_start[order[p]], net.after_start[order[p] + 1]):
                q = place[net.after_items[k]]
                if q < at + count and marked[order[q]]:
                    marked[order[p]] = True
                    break
            marks += marked[order[p]]
        passed = at - low - marks
    else:
        for p in range(at + count, high):
            for k in range(net.before_start[order[p]], net.before_start[order[p] + 1]):
                q = place[net.before_items[k]]
                if q >= low and marked[order[q]]:
                    marked[order[p]] = True
                    break
            marks += marked[order[p]]
        passed = high - at - count - marks
    if passed == 0:
        return False
    filled = low
    for turn in range(2):
        for p in range(low, high):
            if marked[order[p]] == (turn == (to > at)):
                held[filled] = order[p]
                filled += 1
    for p in range(low, high):
        order[p] = held[p]
        place[order[p]] = p
    return True


@inner_kernel
def _to_come(g: GreedyGame, m: Memory, v: int, ended: bool, total: int) -> float:
    """Return the cost of a value after the ops that ran: as it seems, or where these were the last ones as it is."""
    last = len(g.capacity) - 1
    if ended:
        return (g.read[0] + g.write[last]) * g.size[v] if g.end[v] and m.below[v] == 0 else 0.0
    if m.next_use[v] == total and not g.survive[v]:
        return 0.0
    if not m.here[v]:
        return (g.read[last] + g.write[0]) * g.size[v] if m.next_use[v] < total else 0.0
    return 0.5 * (g.read[0] + g.write[last]) * g.size[v] if m.below[v] == 0 else 0.0


class _Before(NamedTuple):
    """The memory before a stretch, of values that a trial may change."""

    value: Ints  # those in the heap first
    inside: int  # of the heap
    here: Array
    below: Ints
    at_use: Ints
    numbers: Ints


@inner_kernel(forceinline=False)
def _return_to(g: GreedyGame, m: Memory, before: _Before, ops: Ints, low: int, total: int) -> None:
    """Let the memory be as before the stretch, whose ops are in another order."""
    for i in range(m.numbers[COUNT]):
        m.place[m.heap[i]] = -1
    for i in range(len(before.value)):
        v = before.value[i]
        m.here[v], m.below[v], m.clean[v] = before.here[i], before.below[i], before.below[i] != 0
        m.at_use[v] = before.at_use[i]
    for i in range(len(before.numbers)):
        m.numbers[i] = before.numbers[i]
    m.cost[0] = 0.0
    for i in range(len(ops)):
        for k in range(g.r_start[ops[i]], g.r_start[ops[i] + 1]):
            v = g.r_items[k]
            m.uses[m.at_use[v]] = low + i
            m.at_use[v] += 1
    for i in range(len(before.value)):
        v, at = before.value[i], before.at_use[i]
        m.at_use[v] = at
        m.next_use[v] = m.uses[at] if at < g.reader_start[v + 1] else total
    for i in range(before.inside):
        m.heap[i], m.place[before.value[i]] = before.value[i], i
    for i in range(before.inside // 2 - 1, -1, -1):
        sift_down(m.heap, m.place, m.next_use, m.clean, g.size, i, before.inside)


@inner_kernel(forceinline=False)
def _drawn(net: Net, order: Ints, place: Ints, rng: Array, low: int, high: int) -> tuple[int, int, int]:
    """Return ops of the stretch to move: the first, how many, and where to; mostly beside another that touches the same value."""
    at = low + draw(rng, high - low)
    size = 1 if draw(rng, 2) == 0 else 1 + draw(rng, 1 + (high - low) // 8)
    to = low + draw(rng, high - low)
    op = order[at]
    if draw(rng, 4) != 0 and net.v_start[op + 1] > net.v_start[op]:
        v = net.v_items[net.v_start[op] + draw(rng, net.v_start[op + 1] - net.v_start[op])]
        near = place[net.o_items[net.o_start[v] + draw(rng, net.o_start[v + 1] - net.o_start[v])]]
        if low <= near < high:
            to = min(max(near + 1 if near < at else near - 1, low), high - 1)
    return at, min(size, high - at), to


@kernel
def anneal_stretch(
    g: GreedyGame, net: Net, order: Ints, low: int, high: int, beyond: int, rounds: int, heat: float, seed: int
) -> tuple[Ints, float]:
    """Return the order with the best stretch that so many trials have found, and how much less that seems to cost.

    `heat` is in units of what it takes to bring a value of average size back, and falls to nothing.
    """
    total, last = len(order), len(g.capacity) - 1
    order, end = order.copy(), min(len(order), high + beyond)
    m = begin(g, order, 0)
    if last == 0 or not play(g, m, order[:low], 0, total, np.inf):
        return order, 0.0
    # What a trial may change: values in the memory, and those that its ops touch.
    seen = np.zeros(len(g.size), np.bool_)
    touched = np.empty(len(g.size), np.int64)
    inside = m.numbers[COUNT]
    touched[:inside] = m.heap[:inside]
    seen[m.heap[:inside]] = True
    count = inside
    for p in range(low, end):
        for k in range(net.v_start[order[p]], net.v_start[order[p] + 1]):
            v = net.v_items[k]
            if not seen[v]:
                seen[v] = True
                touched[count] = v
                count += 1
        for k in range(g.d_start[order[p]], g.d_start[order[p] + 1]):
            v = g.d_items[k]
            if not seen[v]:
                seen[v] = True
                touched[count] = v
                count += 1
    touched = touched[:count].copy()
    before = _Before(touched, inside, m.here[touched], m.below[touched], m.at_use[touched], m.numbers.copy())
    unit = (g.read[last] + g.write[0]) * max(1.0, g.size[touched].mean())
    rng = np.array([2 * seed + 1], np.uint64)
    place, marked, held = np.empty(total, np.int64), np.zeros(total, np.bool_), np.empty(total, np.int64)
    for p in range(total):
        place[order[p]] = p
    best, least, first, now = order[low:high].copy(), np.inf, np.inf, np.inf
    backup = np.empty(high - low, np.int64)
    for trial in range(rounds + 1):
        limit = np.inf
        if trial > 0:
            at, size, to = _drawn(net, order, place, rng, low, high)
            if at <= to < at + size:
                continue
            backup[:] = order[low:high]
            if not _move(net, order, place, marked, held, at, size, to):
                continue
            limit = now - heat * unit * (1.0 - trial / rounds) * np.log((1 + draw(rng, _FINE)) / _FINE)
        _return_to(g, m, before, order[low:high], low, total)
        fits = play(g, m, order[low:end], low, total, limit)
        cost = m.cost[0]
        if fits:
            for i in range(count):
                cost += _to_come(g, m, touched[i], end == total, total)
        if trial == 0:
            first = cost if fits else np.inf
        if fits and (trial == 0 or cost <= limit):
            now = cost
            if cost < least:
                least = cost
                best[:] = order[low:high]
        elif trial > 0:
            order[low:high] = backup
            for p in range(low, high):
                place[order[p]] = p
    order[low:high] = best
    return order, first - least if first < np.inf else 0.0
