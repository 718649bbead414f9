"""The state of a greedy run of an order: the values in each level, and the values marked for recomputation.

A value that is dropped although it is still needed is a *promise*: what its maker reads is kept, stored, or promised itself,
until the value is there again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pebbler.compiled import inner_kernel, separate_kernel

__all__ = [
    "COUNT", "GOAL", "LENGTH", "NOW", "RANDOM", "GreedyGame", "GreedyState", "available", "drop_if_dead", "emit", "enter", "leave",
    "leave_below", "load_price", "promise", "release", "wanted",
]  # fmt: skip

COUNT, LENGTH, NOW, RANDOM, GOAL = 0, 1, 2, 3, 4  # places in `numbers`
DROP = 2  # as in `game.moves`
_DEPTH = 200  # makers that one promise may take

Ints = npt.NDArray[np.int64]


class GreedyGame(NamedTuple):
    """A graph and a machine as flat arrays; lists are rows `items[start[i]:start[i + 1]]`, each item once."""

    capacity: Ints  # per level
    read: npt.NDArray[np.float64]
    write: npt.NDArray[np.float64]
    size: Ints  # per value
    maker: Ints
    destroyer: Ints
    survive: npt.NDArray[np.bool_]
    start: Ints  # per value: the levels where it starts, as bits
    end: Ints  # per value: the levels where it must be at the end, and only there, as bits; 0 for anywhere
    cost: npt.NDArray[np.float64]  # per op
    again: npt.NDArray[np.bool_]  # per op: may run again
    r_start: Ints
    r_items: Ints
    w_start: Ints
    w_items: Ints
    d_start: Ints
    d_items: Ints
    reader_start: Ints
    reader_items: Ints


class GreedyState(NamedTuple):
    """The progress of a run; arrays are per value unless they say otherwise."""

    here: npt.NDArray[np.bool_]  # in the fastest level
    below: Ints  # the other levels that hold it, as bits
    promised: npt.NDArray[np.bool_]
    locks: Ints  # runs under way that read it
    holds: Ints  # promises that build on it
    chain: npt.NDArray[np.float64]  # what making it again was thought to cost when it was dropped
    use_start: Ints  # positions of its readers in the order, ascending
    use_items: Ints
    next_use: Ints  # index into `use_items`
    place: Ints  # its index in `candidates`, -1 if it is not there
    candidates: Ints  # values that may be evicted
    ran: npt.NDArray[np.bool_]  # per op
    used: Ints  # per level
    moves: Ints  # kind, subject (op or value), level, to
    numbers: Ints  # candidates, moves, position in the order, random state, the op that is to run there
    spent: npt.NDArray[np.float64]  # on copies, the most that may be; work for evictions, the most that may be


@inner_kernel
def wanted(s: GreedyState, survive: npt.NDArray, v: int) -> bool:
    """Whether a value will be read by the rest of the order, or must be there at the end."""
    return bool(s.next_use[v] < s.use_start[v + 1] or survive[v])


@inner_kernel
def available(s: GreedyState, v: int) -> bool:
    """Whether a value can be had: it is somewhere, or promised."""
    return bool(s.here[v] or s.below[v] != 0 or s.promised[v])


@inner_kernel
def emit(s: GreedyState, kind: int, subject: int, level: int, to: int) -> None:
    """Append a move; past the end of the buffer they are only counted."""
    at = s.numbers[LENGTH]
    if at < len(s.moves):
        s.moves[at, 0], s.moves[at, 1], s.moves[at, 2], s.moves[at, 3] = kind, subject, level, to
    s.numbers[LENGTH] = at + 1


@inner_kernel(forceinline=False)
def enter(g: GreedyGame, s: GreedyState, v: int) -> None:
    """Count a value as there, in the fastest level."""
    s.here[v] = True
    s.used[0] += g.size[v]
    if g.size[v] > 0 and (len(g.capacity) > 1 or (g.maker[v] >= 0 and g.again[g.maker[v]])):
        s.place[v] = s.numbers[COUNT]
        s.candidates[s.numbers[COUNT]] = v
        s.numbers[COUNT] += 1


@inner_kernel(forceinline=False)
def leave(g: GreedyGame, s: GreedyState, v: int, by_move: bool) -> None:
    """Count a value as no longer in the fastest level, because of a drop or because it was overwritten."""
    s.here[v] = False
    s.used[0] -= g.size[v]
    at = s.place[v]
    if at >= 0:
        s.numbers[COUNT] -= 1
        last = s.candidates[s.numbers[COUNT]]
        s.candidates[at] = last
        s.place[last] = at
        s.place[v] = -1
    if by_move:
        emit(s, DROP, v, 0, 0)


@inner_kernel(forceinline=False)
def leave_below(g: GreedyGame, s: GreedyState, v: int, by_move: bool, everywhere: bool) -> None:
    """Give up the copies of a value in the other levels: all of them, or only those in levels where room is short."""
    for at in range(1, len(g.capacity)):
        if s.below[v] >> at & 1 and (everywhere or at < len(g.capacity) - 1):
            s.below[v] ^= 1 << at
            s.used[at] -= g.size[v]
            if by_move:
                emit(s, DROP, v, at, 0)


@inner_kernel(forceinline=False)
def drop_if_dead(g: GreedyGame, s: GreedyState, v: int) -> None:
    """Drop a value that nobody needs any more."""
    if s.locks[v] == 0 and s.holds[v] == 0 and not wanted(s, g.survive, v):
        if s.here[v]:
            leave(g, s, v, True)
        if s.below[v] != 0:
            leave_below(g, s, v, True, False)


@separate_kernel(_nrt=False)
def release(g: GreedyGame, s: GreedyState, v: int, stack: Ints) -> None:
    """Take back the promise of a value, and with it all that nobody else needs."""
    depth = 1
    stack[0] = v
    s.promised[v] = False
    while depth > 0:
        depth -= 1
        op = g.maker[stack[depth]]
        for k in range(g.r_start[op], g.r_start[op + 1]):
            r = g.r_items[k]
            s.holds[r] -= 1
            if s.holds[r] == 0 and not wanted(s, g.survive, r):
                if s.promised[r]:
                    s.promised[r] = False
                    stack[depth] = r
                    depth += 1
                drop_if_dead(g, s, r)


@inner_kernel(forceinline=False)
def can_run_again(g: GreedyGame, s: GreedyState, op: int) -> bool:
    """Whether an op may run again: nothing that it reads or writes is overwritten, or just about to be."""
    if op < 0 or not g.again[op]:
        return False
    for k in range(g.w_start[op], g.w_start[op + 1]):
        d = g.destroyer[g.w_items[k]]
        if d >= 0 and (s.ran[d] or d == s.numbers[GOAL]):
            return False
    for k in range(g.r_start[op], g.r_start[op + 1]):
        d = g.destroyer[g.r_items[k]]
        if d >= 0 and (s.ran[d] or d == s.numbers[GOAL]):
            return False
    return True


@inner_kernel(forceinline=False)
def promise(g: GreedyGame, s: GreedyState, v: int, stack: Ints) -> int:
    """Fill `stack` with a value and all that is gone and must be promised with it; return how many, 0 if it cannot be."""
    if not can_run_again(g, s, g.maker[v]):
        return 0
    count, at = 1, 0
    stack[0] = v
    while at < count:
        op = g.maker[stack[at]]
        at += 1
        for k in range(g.r_start[op], g.r_start[op + 1]):
            r = g.r_items[k]
            if available(s, r):
                continue
            known = False
            for i in range(count):
                known |= stack[i] == r
            if known:
                continue
            if count >= _DEPTH or not can_run_again(g, s, g.maker[r]):
                return 0
            stack[count] = r
            count += 1
    return count


@inner_kernel
def load_price(g: GreedyGame, s: GreedyState, v: int) -> float:
    """Return the least price of a unit from below; infinite when it is not there."""
    best = np.inf
    for at in range(1, len(g.capacity)):
        if s.below[v] >> at & 1:
            best = min(best, g.read[at] + g.write[0])
    return best
