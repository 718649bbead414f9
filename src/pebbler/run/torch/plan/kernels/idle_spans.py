"""Idle spans, on flat arrays: the times between two touches of a value over which nothing uses it and it could be elsewhere.

A sequence of ops says how long every value stays in memory. An idle span is named by the touch before it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pebbler.arrays import Array, Floats, Ints
from pebbler.compiled import kernel
from pebbler.solver.recompute.kernels.sequence_memory import RecomputeArrays

__all__ = ["DEAD", "END", "Timeline", "choose_spans", "span_end", "timeline"]

DEAD, END = np.int64(-1), np.int64(-2)  # what comes after a touch: nothing, or the end of the plan


class Timeline(NamedTuple):
    """A sequence of ops with every touch of a value: reads first, then writes, run by run."""

    t_start: Ints  # per run: its first touch
    t_value: Ints
    t_run: Ints
    t_next: Ints  # the next touch of the same copy, DEAD or END
    first: Ints  # per value that is there at the start: its first touch, DEAD or END
    reads: Ints  # per run: how many of its touches are reads
    memory: Ints  # per run: units held after it when nothing is sent away
    most: Ints  # per run: the same before or after it, whichever is more
    began: Floats  # per run: when it would begin if nothing waited


@kernel
def timeline(game: RecomputeArrays, sequence: Array) -> Timeline:
    """Return the touches of a legal sequence."""
    runs, values = len(sequence), len(game.size)
    t_start, reads = np.zeros(runs + 1, np.int64), np.zeros(runs, np.int64)
    began = np.zeros(runs)
    clock = 0.0
    for p in range(runs):
        op = sequence[p]
        reads[p] = game.r_start[op + 1] - game.r_start[op]
        t_start[p + 1] = t_start[p] + reads[p] + game.w_start[op + 1] - game.w_start[op]
        began[p] = clock
        clock += game.cost[op]
    count = t_start[runs]
    t_value, t_run, t_next = np.zeros(count, np.int64), np.zeros(count, np.int64), np.full(count, DEAD)
    after = np.where(game.survive, END, DEAD)
    change = np.zeros(runs + 1, np.int64)  # of the memory held, from run to run
    shrink = np.zeros(runs, np.int64)  # by how much an op's results are less than what they overwrite
    for p in range(runs - 1, -1, -1):
        op = sequence[p]
        i = t_start[p] + reads[p]
        for k in range(game.w_start[op], game.w_start[op + 1]):
            v = game.w_items[k]
            t_value[i], t_run[i], t_next[i] = v, p, after[v]
            after[v] = DEAD
            change[p] += game.size[v]
            change[p + 1 if t_next[i] == DEAD else _free_after(t_run, t_next[i], runs)] -= game.size[v]
            shrink[p] -= game.size[v]
            i += 1
        i = t_start[p]
        for k in range(game.r_start[op], game.r_start[op + 1]):
            v = game.r_items[k]
            t_value[i], t_run[i] = v, p
            if game.destroyer[v] == op:
                change[p] -= game.size[v]  # what overwrites it uses its memory
                change[p + 1] += game.size[v]
                shrink[p] += game.size[v]
            elif after[v] != DEAD:
                t_next[i] = after[v]
                change[p + 1] += game.size[v]
                change[_free_after(t_run, after[v], runs)] -= game.size[v]
            after[v] = i
            i += 1
    first = np.full(values, DEAD)
    for v in range(values):
        if game.maker[v] < 0:
            first[v] = after[v]
            if after[v] != DEAD:
                change[0] += game.size[v]
                change[_free_after(t_run, after[v], runs)] -= game.size[v]
    memory = np.cumsum(change)[:runs]
    return Timeline(t_start, t_value, t_run, t_next, first, reads, memory, memory + np.maximum(shrink, 0), began)


@kernel
def _free_after(t_run: Array, touch: int, runs: int) -> int:
    """Return the run from which on the memory of a value is free that is touched next by `touch`."""
    return runs if touch == END else t_run[touch] + 1


@kernel
def span_end(t: Timeline, i: int) -> int:
    """Return the run at which the idle span after touch `i` ends."""
    return len(t.memory) if t.t_next[i] == END else t.t_run[t.t_next[i]]


@kernel
def choose_spans(
    t: Timeline, size: Array, spans: Array, chosen: Array, capacity: int, price: float, lateness: float, factor: Array
) -> bool:
    """Choose spans over which values are away until what is held without them fits; return whether it does.

    Each time the span is chosen that takes away the most of the excess, for its bytes and for the time that its copies need
    beyond its own length. With `lateness` spans that begin late cost more, for their copies wait for those before; `factor`
    multiplies the score of every span.
    """
    runs = len(t.memory)
    held = t.most.copy()
    total = max(t.began[runs - 1], 1e-9) if runs else 1.0
    for i in range(len(chosen)):
        if chosen[i]:
            held[t.t_run[i] + 1 : span_end(t, i)] -= size[t.t_value[i]]
    over, units = np.zeros(runs + 1, np.int64), np.zeros(runs + 1)
    while True:
        for q in range(runs):
            excess = max(0, held[q] - capacity)
            over[q + 1] = over[q] + (1 if excess else 0)
            units[q + 1] = units[q] + excess
        if over[runs] == 0:
            return True
        best, at = 0.0, -1
        for g in range(len(spans)):
            i = spans[g]
            if chosen[i]:
                continue
            a, b = t.t_run[i] + 1, span_end(t, i)
            covered = over[b] - over[a]
            if covered == 0:
                continue
            weight = float(size[t.t_value[i]])
            gain = min(covered * weight, units[b] - units[a])
            idle = (t.began[b] if b < runs else total) - t.began[a]
            short = max(0.0, weight * price - idle)  # time that nothing hides
            loss = weight * (1.0 + lateness * t.began[a] / total) + (short / price if price > 0 else 0.0)
            score = gain / loss * factor[g]
            if score > best:
                best, at = score, i
        if at < 0:
            return False
        chosen[at] = True
        held[t.t_run[at] + 1 : span_end(t, at)] -= size[t.t_value[at]]
