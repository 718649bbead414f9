"""Running an order of ops in little memory, greedily and in near-linear time: values are evicted, stored, or made again.

What goes is what is cheap to be without for its size and the time until its next use. Being without a value costs the copy back
from a lower level, or the copies there and back, or running its maker again, whichever is least. On one level that is dynamic
tensor rematerialisation (Kirisame et al., ICLR 2021) with the order known; without reruns it is demand paging.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pebbler.compiled import inner_kernel, kernel, separate_kernel
from pebbler.solver.kernels.greedy_state import (
    COUNT,
    GOAL,
    LENGTH,
    NOW,
    RANDOM,
    GreedyGame,
    GreedyState,
    drop_if_dead,
    emit,
    enter,
    leave,
    leave_below,
    load_price,
    promise,
    release,
)

__all__ = ["make_room", "remake_cost", "run_greedily"]

_SAMPLED = 96  # values compared per eviction
_NO_WAY, _REMAKE, _KEPT_BELOW = -2, -1, 0  # ways to be without a value; else the level to store it in


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
    """Return the cost of promises that build on a value; without it they cost more."""
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
        s.spent[0] += (g.read[0] + g.write[way]) * g.size[v]
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
        if tries == 0 or s.spent[2] > s.spent[3]:
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
            s.spent[2] += 1
            if remake:
                s.spent[2] += g.reader_start[v + 1] - g.reader_start[v]
            if way == _REMAKE:
                promised = promise(g, s, v, stack)
                s.spent[2] += promised
                if promised == 0:
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


_COMPUTE, _COPY = 0, 1  # as in `game.moves`

Ints = npt.NDArray[np.int64]


@inner_kernel(forceinline=False)
def _run(g: GreedyGame, s: GreedyState, op: int, keen: float, remake: bool, stack: Ints) -> bool:
    """Run an op whose reads are all there and locked, with room made for its results; return whether that worked."""
    need = np.int64(0)
    for k in range(g.w_start[op], g.w_start[op + 1]):
        s.locks[g.w_items[k]] += 1  # a result that is there already must stay
        if not s.here[g.w_items[k]]:
            need += g.size[g.w_items[k]]
    for k in range(g.d_start[op], g.d_start[op + 1]):
        s.locks[g.d_items[k]] += 1  # what goes anyway need not be evicted
        if s.here[g.d_items[k]]:
            need -= g.size[g.d_items[k]]
    if not make_room(g, s, need, keen, remake, stack) or s.numbers[LENGTH] >= len(s.moves):
        return False
    emit(s, _COMPUTE, op, 0, 0)
    again = s.ran[op]
    s.ran[op] = True
    for k in range(g.r_start[op], g.r_start[op + 1]):
        s.locks[g.r_items[k]] -= 1
        if not again:
            s.next_use[g.r_items[k]] += 1
    for k in range(g.d_start[op], g.d_start[op + 1]):
        d = g.d_items[k]
        s.locks[d] -= 1
        if s.here[d]:
            leave(g, s, d, False)
        leave_below(g, s, d, False, True)
        if s.promised[d]:
            release(g, s, d, stack)
    for k in range(g.w_start[op], g.w_start[op + 1]):
        w = g.w_items[k]
        s.locks[w] -= 1
        if not s.here[w]:
            enter(g, s, w)
        if s.promised[w]:
            release(g, s, w, stack)
    for k in range(g.w_start[op], g.w_start[op + 1]):
        drop_if_dead(g, s, g.w_items[k])
    for k in range(g.r_start[op], g.r_start[op + 1]):
        drop_if_dead(g, s, g.r_items[k])
    return True


@separate_kernel(_nrt=False)
def _load(g: GreedyGame, s: GreedyState, v: int, keen: float, remake: bool, stack: Ints) -> bool:
    """Copy a value from the cheapest level below to the fastest."""
    s.locks[v] += 1
    room = make_room(g, s, g.size[v], keen, remake, stack)
    s.locks[v] -= 1
    if not room or s.spent[0] > s.spent[1]:
        return False
    source = 0
    for at in range(1, len(g.capacity)):
        if s.below[v] >> at & 1 and (source == 0 or g.read[at] < g.read[source]):
            source = at
    emit(s, _COPY, v, source, 0)
    s.spent[0] += (g.read[source] + g.write[0]) * g.size[v]
    enter(g, s, v)
    if s.promised[v]:
        release(g, s, v, stack)
    return True


@separate_kernel(_nrt=False)
def make(g: GreedyGame, s: GreedyState, goal: int, keen: float, remake: bool, pending: Ints, stack: Ints) -> bool:
    """Run an op, after all that must be loaded or made again for it; return whether that worked."""
    depth = 1
    pending[0, 0], pending[0, 1] = goal, 0
    while depth > 0:
        op, k = pending[depth - 1, 0], pending[depth - 1, 1]
        if k == g.r_start[op + 1] - g.r_start[op]:
            if not _run(g, s, op, keen, remake, stack):
                return False
            depth -= 1
            continue
        r = g.r_items[g.r_start[op] + k]
        if s.here[r]:
            s.locks[r] += 1
            pending[depth - 1, 1] += 1
        elif s.below[r] != 0 and not (s.promised[r] and remake_cost(g, s, r) < load_price(g, s, r) * g.size[r]):
            if not _load(g, s, r, keen, remake, stack):
                return False
        elif s.promised[r] and depth < len(pending):
            pending[depth, 0], pending[depth, 1] = g.maker[r], 0
            depth += 1
        else:
            return False
    return True


@inner_kernel(forceinline=False)
def _keep_promises(
    g: GreedyGame, s: GreedyState, op: int, keen: float, remake: bool, pending: Ints, stack: Ints, kept: Ints
) -> int:
    """Make again, and lock, what builds on the values that an op is about to overwrite; return how many, -1 if it fails."""
    count = 0
    for k in range(g.d_start[op], g.d_start[op + 1]):
        d = g.d_items[k]
        for j in range(g.reader_start[d] - 1, g.reader_start[d + 1]):
            # Readers of the value, and its maker, which could not run again either.
            other = g.maker[d] if j < g.reader_start[d] else g.reader_items[j]
            if other < 0 or other == op or not s.ran[other]:
                continue
            for i in range(g.w_start[other], g.w_start[other + 1]):
                w = g.w_items[i]
                if w == d or not s.promised[w]:
                    continue
                if s.below[w] != 0:
                    release(g, s, w, stack)
                    continue
                if not make(g, s, other, keen, remake, pending, stack):
                    return -1
                if s.here[w]:
                    s.locks[w] += 1
                    kept[count] = w
                    count += 1
    return count


@inner_kernel(forceinline=False)
def _end(g: GreedyGame, s: GreedyState, keen: float, remake: bool, pending: Ints, stack: Ints) -> bool:
    """Have everything where it must be at the end."""
    for v in range(len(g.size)):
        if g.survive[v] and not s.here[v] and s.below[v] == 0:
            if not s.promised[v] or not make(g, s, g.maker[v], keen, remake, pending, stack):
                return False
        if g.survive[v] and s.here[v] and len(g.capacity) == 1:
            s.locks[v] += 1
    for v in range(len(g.size)):
        if g.end[v] == 0:
            continue
        if g.end[v] == 1:
            if not s.here[v] and not _load(g, s, v, keen, remake, stack):
                return False
            s.locks[v] += 1
            leave_below(g, s, v, True, True)
            continue
        last = len(g.capacity) - 1
        if not s.below[v] >> last & 1:
            if not s.here[v] and not _load(g, s, v, keen, remake, stack):
                return False
            emit(s, _COPY, v, 0, last)
            s.below[v] |= 1 << last
        if s.here[v]:
            leave(g, s, v, True)
        leave_below(g, s, v, True, False)
    return True


@kernel
def _begin(g: GreedyGame, order: Ints, most: int, seed: int, bound: float, work: float) -> GreedyState:
    values, levels = len(g.size), len(g.capacity)
    use_start = g.reader_start.copy()
    fill, use_items = use_start[:-1].copy(), np.empty(use_start[values], np.int64)
    for p in range(len(order)):
        for k in range(g.r_start[order[p]], g.r_start[order[p] + 1]):
            use_items[fill[g.r_items[k]]] = p
            fill[g.r_items[k]] += 1
    s = GreedyState(
        np.zeros(values, np.bool_), np.zeros(values, np.int64), np.zeros(values, np.bool_),
        np.zeros(values, np.int64), np.zeros(values, np.int64), np.zeros(values),
        use_start, use_items, use_start[:-1].copy(), np.full(values, -1, np.int64), np.empty(values, np.int64),
        np.zeros(len(g.cost), np.bool_), np.zeros(levels, np.int64), np.empty((most, 4), np.int64),
        np.array([0, 0, 0, seed % 2147483648, -1], np.int64), np.array([0.0, bound, 0.0, work]),
    )  # fmt: skip
    for v in range(values):
        if g.start[v] & 1:
            enter(g, s, v)
        s.below[v] = g.start[v] >> 1 << 1
        for at in range(1, levels):
            if s.below[v] >> at & 1:
                s.used[at] += g.size[v]
    return s


@kernel(nogil=True)
def run_greedily(
    g: GreedyGame, order: Ints, most: int, keen: float, remake: bool, seed: int, bound: float, work: float
) -> tuple[Ints, bool]:
    """Return the moves (kind, op or value, level, to) that run an order, and whether that worked all the way.

    At most `most` moves, and it ends once copies cost more than `bound`, or evictions take more than so much `work`: values that
    were compared, with what reads them and what would be made again. The farther off a value's next use is, the sooner it goes:
    `keen` says how much that counts. Without `remake` no op runs twice.
    """
    s = _begin(g, order, most, seed, bound, work)
    pending, stack = np.empty((len(g.cost) + 1, 2), np.int64), np.empty(len(g.size) + 1, np.int64)
    kept = np.empty(len(g.size), np.int64)
    fits = True
    for at in range(len(g.capacity)):
        fits &= s.used[at] <= g.capacity[at]
    for v in range(len(g.size)):
        if g.start[v]:
            drop_if_dead(g, s, v)
    for p in range(len(order)):
        s.numbers[NOW], s.numbers[GOAL] = p, order[p]
        count = np.int64(0)
        if g.d_start[order[p]] < g.d_start[order[p] + 1]:
            count = _keep_promises(g, s, order[p], keen, remake, pending, stack, kept)
        if count < 0 or not make(g, s, order[p], keen, remake, pending, stack):
            fits = False
            break
        for i in range(count):
            s.locks[kept[i]] -= 1
            drop_if_dead(g, s, kept[i])
    # What is there at last must not be promised again; with levels below it is stored.
    fits = fits and _end(g, s, keen, remake and len(g.capacity) == 1, pending, stack) and s.numbers[LENGTH] <= most
    return s.moves[: min(most, s.numbers[LENGTH])].copy(), fits
