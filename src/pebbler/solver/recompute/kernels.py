"""The recomputation game on flat arrays: what a sequence of ops needs in memory, and moves that make it cheaper.

On one level a plan is just a sequence of ops, some of them more than once. Which copies to keep follows from it: a value stays
from the last time it is made before a read until that read, and nothing is gained by keeping it longer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pebbler.compiled import kernel

__all__ = ["ILLEGAL", "RecomputeArrays", "anneal", "measure"]

ILLEGAL = np.int64(-1)


class RecomputeArrays(NamedTuple):
    """A game as flat arrays; the lists of an op or a value are rows `items[start[i]:start[i + 1]]`, each item once."""

    capacity: np.int64
    size: npt.NDArray[np.int64]  # per value
    maker: npt.NDArray[np.int64]  # per value: op, -1 for what is there at the start
    destroyer: npt.NDArray[np.int64]  # per value: op, -1 for none
    survive: npt.NDArray[np.bool_]  # per value: needed at the end
    cost: npt.NDArray[np.float64]  # per op
    again: npt.NDArray[np.bool_]  # per op: may run more than once
    r_start: npt.NDArray[np.int64]  # values an op reads
    r_items: npt.NDArray[np.int64]
    w_start: npt.NDArray[np.int64]  # values it writes
    w_items: npt.NDArray[np.int64]
    d_start: npt.NDArray[np.int64]  # values it destroys
    d_items: npt.NDArray[np.int64]


@kernel
def measure(
    game: RecomputeArrays,
    sequence: npt.NDArray,
    first: int,
    last: int,
    after: npt.NDArray,
    before: npt.NDArray,
    later: npt.NDArray,
    most: int,
    memory: npt.NDArray,
    alive: npt.NDArray,
    seen: npt.NDArray,
) -> np.int64:
    """Fill `memory` with the units held at every run and return the units above capacity, summed; ILLEGAL if it cannot be.

    `sequence[first:last]` may be a stretch of a longer one: `after` are the values needed after it, `before` those it may take
    over from before, `later` the ops that run after it. On return `alive` are the values that it does take over. More than
    `most` units above capacity count as ILLEGAL too.
    """
    held = np.int64(0)
    for v in range(len(alive)):
        alive[v] = after[v]
        if after[v]:
            held += game.size[v]
    for op in range(len(seen)):
        seen[op] = later[op]
    over = np.int64(0)
    for p in range(last - 1, first - 1, -1):
        op = sequence[p]
        here = held
        for k in range(game.d_start[op], game.d_start[op + 1]):
            if alive[game.d_items[k]]:
                return ILLEGAL  # something reads it afterwards
        for k in range(game.w_start[op], game.w_start[op + 1]):
            w = game.w_items[k]
            if game.destroyer[w] >= 0 and not seen[game.destroyer[w]]:
                return ILLEGAL  # would bring back what is overwritten
            if alive[w]:
                alive[w] = False
                held -= game.size[w]
            else:
                here += game.size[w]
        seen[op] = True
        for k in range(game.r_start[op], game.r_start[op + 1]):
            v = game.r_items[k]
            if game.destroyer[v] >= 0 and not seen[game.destroyer[v]]:
                return ILLEGAL  # reads what is overwritten
            if not alive[v]:
                alive[v] = True
                held += game.size[v]
                if game.destroyer[v] != op:
                    here += game.size[v]
        memory[p] = here
        if here > game.capacity:
            over += here - game.capacity
            if over > most:
                return ILLEGAL
    for v in range(len(alive)):
        if alive[v] and not before[v]:
            return ILLEGAL
    return over


@kernel
def _copy(source: npt.NDArray, count: int, target: npt.NDArray) -> None:
    # A slice assignment would do, but takes numba a second to compile, each time.
    for i in range(count):
        target[i] = source[i]


@kernel
def _insert(sequence: npt.NDArray, length: int, at: int, op: int) -> None:
    for p in range(length, at, -1):
        sequence[p] = sequence[p - 1]
    sequence[at] = op


@kernel
def _delete(sequence: npt.NDArray, length: int, at: int) -> None:
    for p in range(at, length - 1):
        sequence[p] = sequence[p + 1]


@kernel
def _window(game: RecomputeArrays, sequence: npt.NDArray, length: int, at: int) -> tuple[int, int]:
    """Return how far a run can move: after the last maker of its reads, before the first reader of its results."""
    op = sequence[at]
    low, high = at, at
    while low > 0:
        other = sequence[low - 1]
        for k in range(game.r_start[op], game.r_start[op + 1]):
            if game.maker[game.r_items[k]] == other:
                return low, _upper(game, sequence, length, at)
        low -= 1
    high = _upper(game, sequence, length, at)
    return low, high


@kernel
def _upper(game: RecomputeArrays, sequence: npt.NDArray, length: int, at: int) -> int:
    op = sequence[at]
    high = at
    while high < length - 1:
        other = sequence[high + 1]
        for k in range(game.r_start[other], game.r_start[other + 1]):
            if game.maker[game.r_items[k]] == op:
                return high
        high += 1
    return high


@kernel
def _change(
    game: RecomputeArrays, sequence: npt.NDArray, length: int, runs: npt.NDArray, room: int
) -> tuple[int, float]:
    """Change `sequence` at random in place; return (new length, change of cost), a length of -1 for no change."""
    roll = np.random.random()
    if length == 0:
        return -1, 0.0
    if roll < 0.3:
        # Make one of a run's reads again just before it, and perhaps what that takes.
        at = np.random.randint(length)
        added, depth = 0.0, 0
        while depth < 4:
            op = sequence[at]
            first, last = game.r_start[op], game.r_start[op + 1]
            if first == last:
                break
            maker = game.maker[game.r_items[first + np.random.randint(last - first)]]
            if maker < 0 or not game.again[maker] or length >= room:
                break
            _insert(sequence, length, at, maker)
            length += 1
            runs[maker] += 1
            added += game.cost[maker]
            depth += 1
            if np.random.random() < 0.5:
                break
        return (length, added) if depth else (-1, 0.0)
    if roll < 0.6:
        # Leave out a run.
        for _ in range(12):
            at = np.random.randint(length)
            op = sequence[at]
            if runs[op] > 1:
                _delete(sequence, length, at)
                runs[op] -= 1
                return length - 1, -game.cost[op]
        return -1, 0.0
    if roll < 0.9:
        # Move a run, often as early or as late as it can go.
        at = np.random.randint(length)
        low, high = _window(game, sequence, length, at)
        if low == high:
            return -1, 0.0
        pick = np.random.random()
        to = low if pick < 0.25 else high if pick < 0.5 else low + np.random.randint(high - low + 1)
        if to == at:
            return -1, 0.0
        op = sequence[at]
        _delete(sequence, length, at)
        _insert(sequence, length - 1, to, op)
        return length, 0.0
    # Move a block of runs.
    count = 2 + np.random.randint(6)
    if length < count + 2:
        return -1, 0.0
    at = np.random.randint(length - count)
    shift = np.random.randint(-12, 13)
    to = min(max(at + shift, 0), length - count)
    step = 1 if to > at else -1
    while at != to:
        if step > 0:
            op = sequence[at + count]
            _delete(sequence, length, at + count)
            _insert(sequence, length - 1, at, op)
        else:
            op = sequence[at - 1]
            _delete(sequence, length, at - 1)
            _insert(sequence, length - 1, at + count - 1, op)
        at += step
    return length, 0.0


@kernel(nogil=True)
def anneal(
    game: RecomputeArrays,
    start: npt.NDArray,
    runs: npt.NDArray,
    after: npt.NDArray,
    before: npt.NDArray,
    later: npt.NDArray,
    steps: int,
    hot: float,
    cold: float,
    weight: float,
    seed: int,
) -> tuple[npt.NDArray, float, int]:
    """Anneal a stretch of a sequence; return the best found with its cost and units above capacity.

    The price of a stretch is its cost plus `weight` times the units above capacity, summed over its runs; the temperature falls
    from `hot` to `cold`. `runs` counts the runs of every op in the whole sequence, so that the last one is never left out. The
    best is the one with the least excess, then the least cost.
    """
    np.random.seed(seed)
    room = 3 * len(start) + 64
    no_limit = np.int64(2**62)
    here, trial = np.empty(room, np.int64), np.empty(room, np.int64)
    memory = np.empty(room, np.int64)
    alive, seen = np.empty(len(game.size), np.bool_), np.empty(len(game.cost), np.bool_)
    counts, trial_runs = runs.copy(), runs.copy()
    length = len(start)
    _copy(start, length, here)
    over = measure(game, here, 0, length, after, before, later, no_limit, memory, alive, seen)
    cost = 0.0
    for p in range(length):
        cost += game.cost[here[p]]
    best, best_length, best_cost, best_over = here.copy(), length, cost, over
    cooling = (cold / hot) ** (1.0 / max(steps, 1))
    heat = hot
    for _ in range(steps):
        heat *= cooling
        _copy(here, length, trial)
        new_length, added = _change(game, trial, length, trial_runs, room)
        if new_length < 0:
            continue
        # The dice are thrown first, so that a change that loses can be dropped half-way.
        allowed = (-heat * np.log(1.0 - np.random.random()) - added) / weight
        legal = np.int64(-1)
        if allowed >= -over:
            most = over + np.int64(min(allowed, 4e18 - over))
            legal = measure(game, trial, 0, new_length, after, before, later, most, memory, alive, seen)
        if legal >= 0:
            here, trial = trial, here
            length, over, cost = new_length, legal, cost + added
            _copy(trial_runs, len(counts), counts)
            if over < best_over or (over == best_over and cost < best_cost - 1e-12 * abs(best_cost)):
                best_length, best_cost, best_over = length, cost, over
                _copy(here, length, best)
        else:
            _copy(counts, len(counts), trial_runs)
    return best[:best_length].copy(), best_cost, best_over
