"""The set of nodes that may run next, as every list scheduler needs it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from pebbler.game.dataflow import Dataflow

__all__ = ["ReadyList", "schedule_by_key"]


class ReadyList:
    """Counts what every node still waits for; `first` are the nodes that wait for nothing.

    >>> ready = ReadyList([0, 0, 2], [[2], [2], []])
    >>> ready.first, ready.run(1), ready.run(0)
    ([0, 1], [], [2])
    """

    def __init__(self, waits: Iterable[int], after: Sequence[Sequence[int]]) -> None:
        """`waits` counts the nodes that must run before each, `after` are the nodes that wait for it."""
        self.waits, self.after = list(waits), after
        self.first = [node for node, count in enumerate(self.waits) if count == 0]

    @classmethod
    def of(cls, flow: Dataflow) -> ReadyList:
        """Return the ready list of a graph's ops."""
        return cls(np.diff(flow.before.start).tolist(), flow.after.lists())

    def run(self, node: int) -> list[int]:
        """Count a node as run; return the nodes that are ready only now."""
        freed = []
        for other in self.after[node]:
            self.waits[other] -= 1
            if self.waits[other] == 0:
                freed.append(other)
        return freed

    def take_back(self, node: int) -> None:
        """Count a node as not run any more."""
        for other in self.after[node]:
            self.waits[other] += 1


def schedule_by_key(ready: ReadyList, key: Callable[[int], Any] = lambda node: 0) -> list[int]:
    """Return the nodes in an order in which each comes after all that it waits for: always the ready one with the least key.

    Ties go to the lower number. Nodes that wait for one another in a circle are left out.

    >>> schedule_by_key(ReadyList([0, 0, 2], [[2], [2], []]), key=lambda node: -node)
    [1, 0, 2]
    """
    heap = [(key(node), node) for node in ready.first]
    heapq.heapify(heap)
    order = []
    while heap:
        _, node = heapq.heappop(heap)
        order.append(node)
        for other in ready.run(node):
            heapq.heappush(heap, (key(other), other))
    return order
