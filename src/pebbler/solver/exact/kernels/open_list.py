"""The open list of a best-first search: a heap in three flat arrays, least estimate first, then the one that has paid most."""

from __future__ import annotations

import numpy as np

from pebbler.arrays import Array
from pebbler.solver.exact.kernels.astar_estimate import inner

__all__ = ["push", "remove_first"]


@inner
def _before(heap_f: Array, heap_g: Array, a: int, b: int) -> bool:
    """Whether heap entry a comes before b: least f first, then the one that has paid most."""
    if heap_f[a] != heap_f[b]:
        return bool(heap_f[a] < heap_f[b])
    return bool(heap_g[a] > heap_g[b])


@inner
def _swap(heap_f: Array, heap_g: Array, heap_node: Array, a: int, b: int) -> None:
    f, g, node = heap_f[a], heap_g[a], heap_node[a]
    heap_f[a], heap_g[a], heap_node[a] = heap_f[b], heap_g[b], heap_node[b]
    heap_f[b], heap_g[b], heap_node[b] = f, g, node


@inner
def push(heap_f: Array, heap_g: Array, heap_node: Array, counters: Array, f: float, g: float, node: int) -> None:
    """Enter a node; `counters[1]` is the number of entries."""
    i = counters[1]
    counters[1] += 1
    heap_f[i], heap_g[i], heap_node[i] = f, g, node
    while i > 0 and _before(heap_f, heap_g, i, (i - 1) >> 1):
        _swap(heap_f, heap_g, heap_node, i, (i - 1) >> 1)
        i = (i - 1) >> 1


@inner
def remove_first(heap_f: Array, heap_g: Array, heap_node: Array, counters: Array) -> None:
    """Take the first entry out."""
    counters[1] -= 1
    last = counters[1]
    i = np.int64(0)
    _swap(heap_f, heap_g, heap_node, i, last)
    while True:
        child = 2 * i + 1
        if child >= last:
            return
        if child + 1 < last and _before(heap_f, heap_g, child + 1, child):
            child += 1
        if not _before(heap_f, heap_g, child, i):
            return
        _swap(heap_f, heap_g, heap_node, child, i)
        i = child
