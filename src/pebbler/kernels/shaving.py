"""Fitting a sequence of ops into memory by making values again: peak by peak, the cheapest room first."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from pebbler.kernels.recompute import Arrays, measure

__all__ = ["shave"]


@njit(cache=True)
def _closure(game, value, alive, depth, stack, marks, chosen):
    """List the runs that make `value` again from what is alive, at most `depth` makers deep; return how many, makers first.

    Deeper makers are not run again: what they made must then live on until here.
    """
    count, top = 0, 1
    stack[0, 0], stack[0, 1] = game.maker[value], 1
    marks[stack[0, 0]] = 1
    while top > 0:
        op, level = stack[top - 1, 0], stack[top - 1, 1]
        if marks[op] == 2:
            top -= 1
            chosen[count] = op
            count += 1
            marks[op] = 3
            continue
        if marks[op] == 3:
            top -= 1
            continue
        marks[op] = 2
        if level < depth:
            for k in range(game.r_start[op], game.r_start[op + 1]):
                u = game.r_items[k]
                maker = game.maker[u]
                if not alive[u] and maker >= 0 and game.again[maker] and marks[maker] < 2:
                    marks[maker] = 1
                    stack[top, 0], stack[top, 1] = maker, level + 1
                    top += 1
    for k in range(count):
        marks[chosen[k]] = 0
    return count


@njit(cache=True)
def _splice(sequence, length, at, runs, count, result):
    result[:at] = sequence[:at]
    result[at : at + count] = runs[:count]
    result[at + count : length + count] = sequence[at:length]


@njit(cache=True, nogil=True)
def shave(
    game: Arrays, start: npt.NDArray, at_start: npt.NDArray, wanted: int, rounds: int, noise: float, seed: int
) -> tuple[npt.NDArray, int]:
    """Return the sequence with runs added until it fits, and the units that it still needs above capacity, summed.

    Every round looks at the highest peak, tries to make the values that only lie there again right before their next use,
    and takes what frees most room for its cost; `wanted` values are tried per peak, `noise` blurs their ranking.
    """
    np.random.seed(seed)
    values, ops = len(game.size), len(game.cost)
    room = 4 * len(start) + 64
    here, trial, best = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    memory, trial_memory = np.empty(room, np.int64), np.empty(room, np.int64)
    alive, there, seen = np.empty(values, np.bool_), np.empty(values, np.bool_), np.empty(ops, np.bool_)
    nothing, anything = np.zeros(ops, np.bool_), np.ones(values, np.bool_)
    stack, marks, chosen = np.empty((4 * values + 16, 2), np.int64), np.zeros(ops, np.int8), np.empty(ops, np.int64)
    next_use = np.empty(values, np.int64)
    candidates, scores = np.empty(values, np.int64), np.empty(values, np.float64)
    tiny = max(1e-9 * game.cost.sum(), 1e-300)
    length = len(start)
    here[:length] = start
    over = measure(game, here, length, game.survive, at_start, nothing, memory, alive, seen)
    failures = 0
    for _ in range(rounds):
        if over <= 0 or failures > 20:
            break
        peak = 0
        for p in range(length):
            if memory[p] > memory[peak]:
                peak = p
        if failures:
            peak = np.random.randint(length)
            if memory[peak] <= game.capacity:
                failures += 0.25
                continue
        # What lies at the peak without being touched there, and when it is read next.
        measure(game, here[peak + 1 :], length - peak - 1, game.survive, anything, nothing, trial_memory, alive, seen)
        op = here[peak]
        for k in range(game.r_start[op], game.r_start[op + 1]):
            alive[game.r_items[k]] = False
        for k in range(game.w_start[op], game.w_start[op + 1]):
            alive[game.w_items[k]] = False
        next_use[:] = -1
        for p in range(length - 1, peak, -1):
            op = here[p]
            for k in range(game.r_start[op], game.r_start[op + 1]):
                next_use[game.r_items[k]] = p
        count = 0
        for v in range(values):
            maker = game.maker[v]
            if alive[v] and maker >= 0 and game.again[maker] and game.size[v] > 0:
                if next_use[v] < 0:
                    next_use[v] = length
                candidates[count] = v
                blur = 1.0 + noise * (np.random.random() - 0.5)
                scores[count] = blur * game.size[v] / (game.cost[maker] + tiny)
                count += 1
        best_ratio, best_length = 0.0, 0
        for _rank in range(min(count, wanted)):
            pick = 0
            for k in range(1, count):
                if scores[k] > scores[pick]:
                    pick = k
            scores[pick] = -1.0
            v = candidates[pick]
            at = next_use[v]
            measure(game, here[at:], length - at, game.survive, anything, nothing, trial_memory, there, seen)
            there[v] = False
            last = 0
            for depth in (1, 2, 4, 8, 64):
                added = _closure(game, v, there, depth, stack, marks, chosen)
                if added == last or length + added >= room:
                    break
                last = added
                cost = tiny
                for k in range(added):
                    cost += game.cost[chosen[k]]
                _splice(here, length, at, chosen, added, trial)
                left = measure(game, trial, length + added, game.survive, at_start, nothing, trial_memory, alive, seen)
                if left >= 0 and (over - left) / cost > best_ratio:
                    best_ratio, best_length = (over - left) / cost, length + added
                    best[:best_length] = trial[:best_length]
        if best_length == 0:
            failures += 1
            continue
        failures = 0
        length = best_length
        here[:length] = best[:length]
        over = measure(game, here, length, game.survive, at_start, nothing, memory, alive, seen)
    return here[:length].copy(), over
