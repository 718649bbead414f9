"""When copies to the host and back begin and end beside kernels, on flat arrays: one engine copies out, one in, in turn."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pebbler.arrays import Array, Bools, Ints
from pebbler.compiled import kernel

__all__ = ["NO_COPY", "CopyArrays", "time_loads", "time_stores"]

NO_COPY = -1


class CopyArrays(NamedTuple):
    """Which nodes' values go to the host, how long nodes and bytes take, and how many copies are under way at most."""

    sent: Bools
    seconds: Array
    out: float  # seconds of a byte
    into: float
    overlap: bool  # whether copies run beside kernels
    ahead: int


@kernel
def time_stores(order: Ints, size: Ints, copies: CopyArrays) -> tuple[Ints, float]:
    """Return for every value that is sent the place in forward's order after which its copy is done, and the time spent waiting.

    A copy begins when its value is made. Where too many are under way, the oldest is waited for; the rest at the end.
    """
    left = np.full(len(size), NO_COPY, np.int64)
    queue, end = np.empty(len(order), np.int64), np.zeros(len(size), np.float64)
    head, tail = 0, 0
    now, free, work = 0.0, 0.0, 0.0
    for t in range(len(order)):
        node = order[t]
        now += copies.seconds[node]
        work += copies.seconds[node]
        while head < tail and end[queue[head]] <= now:
            left[queue[head]] = t
            head += 1
        if not copies.sent[node]:
            continue
        if not copies.overlap:
            now += size[node] * copies.out
            left[node] = t
            continue
        if tail - head == copies.ahead:
            now = max(now, end[queue[head]])
            left[queue[head]] = t
            head += 1
        free = max(now, free) + size[node] * copies.out
        end[node] = free
        queue[tail] = node
        tail += 1
    for k in range(head, tail):
        now = max(now, end[queue[k]])
        left[queue[k]] = len(order) - 1
    return left, now - work


@kernel
def time_loads(order: Ints, use: Ints, size: Ints, copies: CopyArrays) -> tuple[Ints, float]:
    """Return for every value that comes back the place in backward's order before which its copy begins, and the time of waiting.

    `use` is the place of its first reader. A copy begins as late as it may to be there in time, and never while more than so many
    others wait to be read.
    """
    begin = np.zeros(len(order) + 1, np.float64)
    for t in range(len(order)):
        begin[t + 1] = begin[t] + copies.seconds[order[t]]
    values = np.flatnonzero(use >= 0)
    values = values[np.argsort(use[values], kind="mergesort")]
    fetched = np.full(len(size), NO_COPY, np.int64)
    start = np.inf
    for j in range(len(values) - 1, -1, -1):
        value = values[j]
        last = use[value]
        start = min(begin[last], start) - size[value] * copies.into
        t = np.searchsorted(begin[: last + 1], start, side="right") - 1
        if j >= copies.ahead:
            t = max(t, use[values[j - copies.ahead]])
        fetched[value] = max(0, min(t, last)) if copies.overlap else last
    now, free = 0.0, 0.0
    end = np.zeros(len(size), np.float64)
    begun, read = 0, 0
    for t in range(len(order)):
        while begun < len(values) and fetched[values[begun]] == t:
            free = max(now, free) + size[values[begun]] * copies.into
            end[values[begun]] = free
            begun += 1
        while read < len(values) and use[values[read]] == t:
            now = max(now, end[values[read]])
            read += 1
        now += copies.seconds[order[t]]
    return fetched, now - begin[len(order)]
