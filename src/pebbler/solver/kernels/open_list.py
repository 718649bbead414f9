"""The open list of a best-first search: a heap in three flat arrays, least estimate first, then the one that has paid most."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pebbler.arrays import Array
from pebbler.compiled import inner_kernel

__all__ = ["OpenList", "least_open", "push", "remove_first"]

inner = inner_kernel(forceinline=False)


class OpenList(NamedTuple):
    """Nodes to be looked at: what a plan through each costs at least, and what is paid so far. The first is at place 0."""

    estimate: Array  # float64
    paid: Array  # float64
    node: Array  # int32
    used: Array  # int64, one number: the entries

    @classmethod
    def room(cls, entries: int) -> OpenList:
        """Return an empty list with room for so many entries."""
        return cls(np.empty(entries), np.empty(entries), np.empty(entries, np.int32), np.zeros(1, np.int64))

    def copy_to(self, other: OpenList) -> None:
        """Copy the entries to an empty list with more room."""
        for old, new in zip(self, other, strict=True):
            new[: len(old)] = old


def least_open(entries: OpenList, otherwise: float) -> float:
    """Return the least estimate of the entries, or something else if there is none.

    >>> least_open(OpenList.room(3), 7.0)
    7.0
    """
    return float(entries.estimate[0]) if entries.used[0] else otherwise


@inner
def _before(entries: OpenList, a: int, b: int) -> bool:
    """Whether entry a comes before b: least estimate first, then the one that has paid most."""
    if entries.estimate[a] != entries.estimate[b]:
        return bool(entries.estimate[a] < entries.estimate[b])
    return bool(entries.paid[a] > entries.paid[b])


@inner
def _swap(entries: OpenList, a: int, b: int) -> None:
    estimate, paid, node = entries.estimate, entries.paid, entries.node
    estimate[a], estimate[b] = estimate[b], estimate[a]
    paid[a], paid[b] = paid[b], paid[a]
    node[a], node[b] = node[b], node[a]


@inner
def push(entries: OpenList, estimate: float, paid: float, node: int) -> None:
    """Enter a node."""
    i = entries.used[0]
    entries.used[0] += 1
    entries.estimate[i], entries.paid[i], entries.node[i] = estimate, paid, node
    while i > 0 and _before(entries, i, (i - 1) >> 1):
        _swap(entries, i, (i - 1) >> 1)
        i = (i - 1) >> 1


@inner
def remove_first(entries: OpenList) -> None:
    """Take the first entry out."""
    entries.used[0] -= 1
    last = entries.used[0]
    i = np.int64(0)
    _swap(entries, i, last)
    while True:
        child = 2 * i + 1
        if child >= last:
            return
        if child + 1 < last and _before(entries, child + 1, child):
            child += 1
        if not _before(entries, child, i):
            return
        _swap(entries, child, i)
        i = child
