"""Evictions from the fastest level: the victim, and whether it is already stored below, stored now, or marked for recomputation."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pebbler.compiled import inner_kernel, separate_kernel
from pebbler.solver.kernels.greedy_state import (
    COUNT,
    NOW,
    RANDOM,
    GreedyGame,
    GreedyState,
    emit,
    leave,
    load_price,
    promise,
)

__all__ = ["make_room", "remake_cost"]

_COPY = 1  # as in `game.moves`
_SAMPLED = 96  # values compared per eviction
_NO_WAY, _REMAKE, _KEPT_BELOW = -2, -1, 0  # ways to be without a value; else the level to store it in

Ints = npt.NDArray[np.int64]


@separate_kernel(_nrt=False)
def remake_cost(g: GreedyGame, s: GreedyState, v: int) -> Any:
    """Return about what it costs to make a value again."""
    op = g.maker[v]
    cost = g.cost[op]
    for k in range(g.r_start[op], g.r_start[op + 1]):
        r = g.r_items[k]
        if s.here[r]:
            continue
        price = load_price(g, s, r) * g.size[r]
        if s.promised[r]:
            price = min(price, s.chain[r])
        elif s.below[r] == 0:
            price = s.chain[r] + (g.cost[g.maker[r]] if g.maker[r] >= 0 else 0.0)
        cost += price
    return cost


@inner_kernel(forceinline=False)
def _dependents_cost(g: GreedyGame, s: GreedyState, v: int) -> float:
    """Return what promises that build on a value would cost; without it they cost more."""
    cost = 0.0
    for k in range(g.reader_start[v], g.reader_start[v + 1]):
        op = g.reader_items[k]
        if s.ran[op]:
            for j in range(g.w_start[op], g.w_start[op + 1]):
                if s.promised[g.w_items[j]]:
                    cost += s.chain[g.w_items[j]]
    return cost


@inner_kernel(forceinline=False)
def _way_out(g: GreedyGame, s: GreedyState, v: int, remake: bool) -> tuple[float, int]:
    """Return the least that being without a value costs, and how."""
    best, way = np.inf, _NO_WAY
    back = s.next_use[v] < s.use_start[v + 1] or s.holds[v] > 0
    if s.below[v] != 0:
        best, way = (load_price(g, s, v) * g.size[v] if back else 0.0), _KEPT_BELOW
    for at in range(1, len(g.capacity)):
        if not s.below[v] >> at & 1 and s.used[at] + g.size[v] <= g.capacity[at]:
            price = g.read[0] + g.write[at] + (g.read[at] + g.write[0] if back else 0.0)
            if price * g.size[v] < best:
                best, way = price * g.size[v], at
    if remake and g.maker[v] >= 0 and g.again[g.maker[v]]:
        price = remake_cost(g, s, v) + _dependents_cost(g, s, v)
        if price < best:
            best, way = price, _REMAKE
    return best, way


@inner_kernel(forceinline=False)
def _drop_for_now(g: GreedyGame, s: GreedyState, v: int, way: int, stack: Ints) -> None:
    """Evict a value in one of the ways."""
    if way > 0:
        emit(s, _COPY, v, 0, way)
        s.below[v] |= 1 << way
        s.used[way] += g.size[v]
    if way == _REMAKE:
        s.chain[v] = remake_cost(g, s, v)
        count = promise(g, s, v, stack)
        for i in range(count):
            s.promised[stack[i]] = True
            op = g.maker[stack[i]]
            for k in range(g.r_start[op], g.r_start[op + 1]):
                s.holds[g.r_items[k]] += 1
        for i in range(count - 1, 0, -1):
            s.chain[stack[i]] = remake_cost(g, s, stack[i])
    leave(g, s, v, True)


@inner_kernel(forceinline=False)
def _evict(g: GreedyGame, s: GreedyState, keen: float, remake: bool, stack: Ints) -> bool:
    """Drop the candidate that is cheapest to be without, of a sample; of all where the sample has none."""
    count = s.numbers[COUNT]
    for attempt in range(2):
        tries = min(count, _SAMPLED) if attempt == 0 else count
        if tries == 0:
            return False
        s.numbers[RANDOM] = (s.numbers[RANDOM] * 1103515245 + 12345) % 2147483648
        first = (s.numbers[RANDOM] >> 8) % count
        stride = 1 if attempt == 1 or count <= _SAMPLED else count // _SAMPLED
        best, best_score, best_way = -1, np.inf, _NO_WAY
        for i in range(tries):
            v = s.candidates[(first + i * stride) % count]
            if s.locks[v] > 0:
                continue
            ahead = len(s.ran) + 1 - s.numbers[NOW]
            if s.next_use[v] < s.use_start[v + 1]:
                ahead = s.use_items[s.next_use[v]] - s.numbers[NOW] + 1
            cost, way = _way_out(g, s, v, remake)
            if way == _REMAKE and promise(g, s, v, stack) == 0:
                cost, way = _way_out(g, s, v, False)
            score = (cost + 1e-9) / (g.size[v] * float(ahead) ** keen)
            if way != _NO_WAY and score < best_score:
                best, best_score, best_way = v, score, way
        if best >= 0:
            _drop_for_now(g, s, best, best_way, stack)
            return True
    return False


@separate_kernel(_nrt=False)
def make_room(g: GreedyGame, s: GreedyState, units: int, keen: float, remake: bool, stack: Ints) -> bool:
    """Evict values until so many more units fit; return whether that worked."""
    while s.used[0] + units > g.capacity[0]:
        if not _evict(g, s, keen, remake, stack):
            return False
    return True
