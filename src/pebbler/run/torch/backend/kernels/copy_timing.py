"""Start and end times of host copies that run beside kernels, on flat arrays: one engine copies out, one in, each in order."""

from __future__ import annotations

import numpy as np

from pebbler.arrays import Array, Bools, Ints
from pebbler.compiled import kernel

__all__ = ["NO_COPY", "time_loads", "time_stores"]

NO_COPY = -1


@kernel
def time_stores(
    order: Ints, size: Ints, sent: Bools, seconds: Array, out: float, overlap: bool, ahead: int
) -> tuple[Ints, float]:
    """Return for every value that is sent the place in forward's order after which its copy is done, and the time spent waiting.

    A copy begins when its value is made, and takes `out` per byte. Where more than `ahead` would be under way, the oldest is
    waited for; the rest at the end.
    """
    left = np.full(len(size), NO_COPY, np.int64)
    queue, end = np.empty(len(order), np.int64), np.zeros(len(size), np.float64)
    head, tail = 0, 0
    now, free, work = 0.0, 0.0, 0.0
    for t in range(len(order)):
        node = order[t]
        now += seconds[node]
        work += seconds[node]
        while head < tail and end[queue[head]] <= now:
            left[queue[head]] = t
            head += 1
        if not sent[node]:
            continue
        if not overlap:
            now += size[node] * out
            left[node] = t
            continue
        if tail - head == ahead:
            now = max(now, end[queue[head]])
            left[queue[head]] = t
            head += 1
        free = max(now, free) + size[node] * out
        end[node] = free
        queue[tail] = node
        tail += 1
    for k in range(head, tail):
        now = max(now, end[queue[k]])
        left[queue[k]] = len(order) - 1
    return left, now - work


@kernel
def time_loads(
    order: Ints, use: Ints, size: Ints, seconds: Array, into: float, overlap: bool, ahead: int
) -> tuple[Ints, float]:
    """Return for every value that comes back the place in backward's order before which its copy begins, and the time of waiting.

    `use` is the place of its first reader. A copy begins as late as it may to be there in time, and never while more than
    `ahead` others wait to be read.
    """
    begin = np.zeros(len(order) + 1, np.float64)
    for t in range(len(order)):
        begin[t + 1] = begin[t] + seconds[order[t]]
    values = np.flatnonzero(use >= 0)
    values = values[np.argsort(use[values], kind="mergesort")]
    fetched = np.full(len(size), NO_COPY, np.int64)
    start = np.inf
    for j in range(len(values) - 1, -1, -1):
        value = values[j]
        last = use[value]
        start = min(begin[last], start) - size[value] * into
        t = np.searchsorted(begin[: last + 1], start, side="right") - 1
        if j >= ahead:
            t = max(t, use[values[j - ahead]])
        fetched[value] = max(0, min(t, last)) if overlap else last
    now, free = 0.0, 0.0
    end = np.zeros(len(size), np.float64)
    begun, read = 0, 0
    for t in range(len(order)):
        while begun < len(values) and fetched[values[begun]] == t:
            free = max(now, free) + size[values[begun]] * into
            end[values[begun]] = free
            begun += 1
        while read < len(values) and use[values[read]] == t:
            now = max(now, end[values[read]])
            read += 1
        now += seconds[order[t]]
    return fetched, now - begin[len(order)]
