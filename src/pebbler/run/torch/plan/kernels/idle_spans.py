"""Gaps in the use of values, on flat arrays: stretches over which a value lies idle and could be elsewhere.

A sequence of ops says how long every value lies in memory. A *gap* is a stretch between two touches
of a value in which nothing uses it; it is named by the touch before it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pebbler.compiled import kernel

__all__ = ["DEAD", "END", "Timeline", "choose_spans", "timeline"]

DEAD, END = np.int64(-1), np.int64(-2)  # what comes after a touch: nothing, or the end of the plan


class Timeline(NamedTuple):
    """A sequence of ops with every touch of a value: reads first, then writes, run by run."""

    t_start: npt.NDArray[np.int64]  # per run: its first touch
    t_value: npt.NDArray[np.int64]
    t_run: npt.NDArray[np.int64]
    t_next: npt.NDArray[np.int64]  # the next touch of the same copy, DEAD or END
    first: npt.NDArray[np.int64]  # per value that is there at the start: its first touch, DEAD or END
    reads: npt.NDArray[np.int64]  # per run: how many of its touches are reads
    memory: npt.NDArray[np.int64]  # per run: units held when nothing is sent away
    began: npt.NDArray[np.float64]  # per run: when it would begin if nothing waited


@kernel
def timeline(
    sequence: npt.NDArray,
    size: npt.NDArray,
    maker: npt.NDArray,
    destroyer: npt.NDArray,
    survive: npt.NDArray,
    cost: npt.NDArray,
    r_start: npt.NDArray,
    r_items: npt.NDArray,
    w_start: npt.NDArray,
    w_items: npt.NDArray,
) -> Timeline:
    """Return the touches of a legal sequence."""
    runs, values = len(sequence), len(size)
    t_start, reads = np.zeros(runs + 1, np.int64), np.zeros(runs, np.int64)
    began = np.zeros(runs)
    clock = 0.0
    for p in range(runs):
        op = sequence[p]
        reads[p] = r_start[op + 1] - r_start[op]
        t_start[p + 1] = t_start[p] + reads[p] + w_start[op + 1] - w_start[op]
        began[p] = clock
        clock += cost[op]
    count = t_start[runs]
    t_value, t_run, t_next = np.zeros(count, np.int64), np.zeros(count, np.int64), np.full(count, DEAD)
    after = np.where(survive, END, DEAD)
    change = np.zeros(runs + 1, np.int64)  # of the memory held, from run to run
    for p in range(runs - 1, -1, -1):
        op = sequence[p]
        i = t_start[p] + reads[p]
        for k in range(w_start[op], w_start[op + 1]):
            v = w_items[k]
            t_value[i], t_run[i], t_next[i] = v, p, after[v]
            after[v] = DEAD
            change[p] += size[v]
            change[runs if t_next[i] == END else p + 1 if t_next[i] == DEAD else t_run[t_next[i]] + 1] -= size[v]
            i += 1
        i = t_start[p]
        for k in range(r_start[op], r_start[op + 1]):
            v = r_items[k]
            t_value[i], t_run[i] = v, p
            if destroyer[v] == op:
                change[p] -= size[v]  # what takes its place takes its room
                change[p + 1] += size[v]
            elif after[v] != DEAD:
                t_next[i] = after[v]
                change[p + 1] += size[v]
                change[runs if after[v] == END else t_run[after[v]] + 1] -= size[v]
            after[v] = i
            i += 1
    first = np.full(values, DEAD)
    for v in range(values):
        if maker[v] < 0:
            first[v] = after[v]
            if after[v] != DEAD:
                change[0] += size[v]
                change[runs if after[v] == END else t_run[after[v]] + 1] -= size[v]
    return Timeline(t_start, t_value, t_run, t_next, first, reads, np.cumsum(change)[:runs], began)


@kernel
def choose_spans(
    s: Timeline,
    size: npt.NDArray,
    gaps: npt.NDArray,
    chosen: npt.NDArray,
    capacity: int,
    price: float,
    lateness: float,
    taste: npt.NDArray,
) -> bool:
    """Choose gaps until what is held without them fits; return whether it does.

    Each time the gap that takes away the most of what is too much, for its bytes and for the time that its copies need beyond its
    own length. `lateness` makes gaps that begin late dearer, for their copies wait for those before; `taste` is a factor per gap.
    """
    runs = len(s.memory)
    held = s.memory.copy()
    total = max(s.began[runs - 1], 1e-9) if runs else 1.0
    for i in range(len(chosen)):
        if chosen[i]:
            for q in range(s.t_run[i] + 1, runs if s.t_next[i] == END else s.t_run[s.t_next[i]]):
                held[q] -= size[s.t_value[i]]
    over, units = np.zeros(runs + 1, np.int64), np.zeros(runs + 1)
    while True:
        for q in range(runs):
            excess = max(0, held[q] - capacity)
            over[q + 1] = over[q] + (1 if excess else 0)
            units[q + 1] = units[q] + excess
        if over[runs] == 0:
            return True
        best, at = 0.0, -1
        for g in range(len(gaps)):
            i = gaps[g]
            if chosen[i]:
                continue
            a = s.t_run[i] + 1
            b = runs if s.t_next[i] == END else s.t_run[s.t_next[i]]
            covered = over[b] - over[a]
            if covered == 0:
                continue
            weight = float(size[s.t_value[i]])
            gain = min(covered * weight, units[b] - units[a])
            idle = (s.began[b] if b < runs else total) - s.began[a]
            short = max(0.0, weight * price - idle)  # time that nothing hides
            dear = weight * (1.0 + lateness * s.began[a] / total) + (short / price if price > 0 else 0.0)
            score = gain / dear * taste[g]
            if score > best:
                best, at = score, i
        if at < 0:
            return False
        chosen[at] = True
        for q in range(s.t_run[at] + 1, runs if s.t_next[at] == END else s.t_run[s.t_next[at]]):
            held[q] -= size[s.t_value[at]]
