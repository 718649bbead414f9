"""Annealing of a sequence of ops on one level: runs are added, left out and moved; cost and excess memory are the price."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pebbler.compiled import inner_kernel, kernel
from pebbler.solver.kernels.sequence_edits import assign, delete_at, insert_at, move_block
from pebbler.solver.recompute.kernels.sequence_memory import RecomputeArrays, measure

__all__ = ["anneal"]


@kernel
def _window(arrays: RecomputeArrays, sequence: npt.NDArray, length: int, at: int) -> tuple[int, int]:
    """Return the range within which a run can move: after the last maker of its reads, before the first reader of its results."""
    low, high = at, at
    while low > 0 and not _reads_from(arrays, sequence[at], sequence[low - 1]):
        low -= 1
    while high < length - 1 and not _reads_from(arrays, sequence[high + 1], sequence[at]):
        high += 1
    return low, high


@inner_kernel
def _reads_from(arrays: RecomputeArrays, op: int, other: int) -> bool:
    """Whether an op reads what another one makes."""
    for k in range(arrays.r_start[op], arrays.r_start[op + 1]):
        if arrays.maker[arrays.r_items[k]] == other:
            return True
    return False


@kernel(inline="always")
def _add_runs(
    arrays: RecomputeArrays, sequence: npt.NDArray, length: int, runs: npt.NDArray, room: int
) -> tuple[int, float]:
    """Make one of a run's reads again just before it, and perhaps what that takes."""
    at = np.random.randint(length)
    added, depth = 0.0, 0
    while depth < 4:
        op = sequence[at]
        first, last = arrays.r_start[op], arrays.r_start[op + 1]
        if first == last:
            break
        maker = arrays.maker[arrays.r_items[first + np.random.randint(last - first)]]
        if maker < 0 or not arrays.again[maker] or length >= room:
            break
        insert_at(sequence, length, at, maker)
        length += 1
        runs[maker] += 1
        added += arrays.cost[maker]
        depth += 1
        if np.random.random() < 0.5:
            break
    return (length, added) if depth else (-1, 0.0)


@kernel(inline="always")
def _leave_out_run(arrays: RecomputeArrays, sequence: npt.NDArray, length: int, runs: npt.NDArray) -> tuple[int, float]:
    """Leave out a run of an op that has others."""
    for _ in range(12):
        at = np.random.randint(length)
        op = sequence[at]
        if runs[op] > 1:
            delete_at(sequence, length, at)
            runs[op] -= 1
            return length - 1, -arrays.cost[op]
    return -1, 0.0


@kernel(inline="always")
def _move_run(arrays: RecomputeArrays, sequence: npt.NDArray, length: int) -> tuple[int, float]:
    """Move a run, often as early or as late as it can go."""
    at = np.random.randint(length)
    low, high = _window(arrays, sequence, length, at)
    if low == high:
        return -1, 0.0
    pick = np.random.random()
    to = low if pick < 0.25 else high if pick < 0.5 else low + np.random.randint(high - low + 1)
    if to == at:
        return -1, 0.0
    op = sequence[at]
    delete_at(sequence, length, at)
    insert_at(sequence, length - 1, to, op)
    return length, 0.0


@kernel(inline="always")
def _move_block(sequence: npt.NDArray, length: int) -> tuple[int, float]:
    """Move a block of runs a little."""
    count = 2 + np.random.randint(6)
    if length < count + 2:
        return -1, 0.0
    at = np.random.randint(length - count)
    shift = np.random.randint(-12, 13)
    to = min(max(at + shift, 0), length - count)
    move_block(sequence, at, count, to)
    return length, 0.0


@kernel
def _change(
    arrays: RecomputeArrays, sequence: npt.NDArray, length: int, runs: npt.NDArray, room: int
) -> tuple[int, float]:
    """Change `sequence` at random in place; return (new length, change of cost), a length of -1 for no change."""
    roll = np.random.random()
    if length == 0:
        return -1, 0.0
    if roll < 0.3:
        changed = _add_runs(arrays, sequence, length, runs, room)
    elif roll < 0.6:
        changed = _leave_out_run(arrays, sequence, length, runs)
    elif roll < 0.9:
        changed = _move_run(arrays, sequence, length)
    else:
        changed = _move_block(sequence, length)
    return changed  # type: ignore[no-any-return]


@kernel
def anneal(
    arrays: RecomputeArrays,
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
    alive, seen = np.empty(len(arrays.size), np.bool_), np.empty(len(arrays.cost), np.bool_)
    counts, trial_runs = runs.copy(), runs.copy()
    length = len(start)
    assign(here, start)
    over = measure(arrays, here, 0, length, after, before, later, no_limit, memory, alive, seen)
    cost = 0.0
    for p in range(length):
        cost += arrays.cost[here[p]]
    best, best_length, best_cost, best_over = here.copy(), length, cost, over
    cooling = (cold / hot) ** (1.0 / max(steps, 1))
    heat = hot
    for _ in range(steps):
        heat *= cooling
        assign(trial, here[:length])
        new_length, added = _change(arrays, trial, length, trial_runs, room)
        if new_length < 0:
            continue
        # The dice are thrown first, so that a change that loses can be dropped half-way.
        allowed = (-heat * np.log(1.0 - np.random.random()) - added) / weight
        legal = np.int64(-1)
        if allowed >= -over:
            most = over + np.int64(min(allowed, 4e18 - over))
            legal = measure(arrays, trial, 0, new_length, after, before, later, most, memory, alive, seen)
        if legal >= 0:
            here, trial = trial, here
            length, over, cost = new_length, legal, cost + added
            assign(counts, trial_runs)
            if over < best_over or (over == best_over and cost < best_cost - 1e-12 * abs(best_cost)):
                best_length, best_cost, best_over = length, cost, over
                assign(best, here[:length])
        else:
            assign(trial_runs, counts)
    return best[:best_length].copy(), best_cost, best_over
