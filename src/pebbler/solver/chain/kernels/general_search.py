"""Cheapest way through every position of a small chain game, by Dijkstra's algorithm.

A position is how far the first sweep or the backward pass has come, the red set and the blue set; in the adjoint convention
also the node that the running state holds. A node is stored when it is first computed or not at all, which loses nothing: slow
memory is unbounded and a later store costs the same. Everything else is tried, so the answer holds for any sizes and costs.
"""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

from pebbler.arrays import Floats, Ints
from pebbler.compiled import kernel

__all__ = ["BACKWARD", "COMPUTE", "DROP", "LOAD", "RESTORE", "SNAP", "STORE", "search"]

COMPUTE, LOAD, STORE, DROP, BACKWARD, SNAP, RESTORE = range(7)


@kernel
def search(
    size: Ints, forward: Floats, backward: Floats, store: Floats, load: Floats, memory: int, adjoint: bool, limit: float
) -> tuple[float, Ints, Ints]:
    """Return the least energy below `limit` (infinity if there is none), and the moves as kinds and nodes."""
    nodes = size.size if not adjoint else size.size - 1
    last = nodes - 1
    full = (1 << nodes) - 1
    runs = nodes + 1 if adjoint else 1
    # A position packs (stage, running node + 1, red set, blue set). Stages count the nodes the first sweep has computed, and
    # from the top node on the backward steps done: no backward step comes before it.
    count = (2 * nodes * runs) << (2 * nodes)
    least = np.full(count, np.inf)
    before = np.full(count, -1, np.int64)
    by = np.zeros(count, np.int8)
    start = _pack(0, 1, 0, 0, nodes, runs) if adjoint else _pack(0, 0, 1, 0, nodes, runs)
    least[start] = 0.0
    heap = [(0.0, start)]
    while len(heap) > 0:
        cost, here = heapq.heappop(heap)
        if cost > least[here]:
            continue
        blue = here & full
        red = (here >> nodes) & full
        rest = here >> (2 * nodes)
        run = rest % runs - 1
        stage = rest // runs
        step = min(last, 2 * last - stage)
        if step < 0:
            return cost, *_walk(here, start, before, by)
        used = 0
        for k in range(nodes):
            if red >> k & 1:
                used += size[k]
        ready = run == step if adjoint else red >> step & 1 == 1 and (step == last or red >> (step + 1) & 1 == 1)
        if ready and stage >= last:
            there = _pack(stage + 1, run + 1, red, blue, nodes, runs)
            _relax(heap, least, before, by, here, there, cost + backward[step], limit, BACKWARD, step)
        for k in range(nodes):
            is_red, is_blue = red >> k & 1 == 1, blue >> k & 1 == 1
            held = run == k if adjoint else is_red
            # A store comes right after the node is first there, before the next one is computed.
            if held and not is_blue and stage == k:
                there = _pack(stage, run + 1, red, blue | 1 << k, nodes, runs)
                _relax(heap, least, before, by, here, there, cost + store[k], limit, STORE, k)
            if is_red:
                there = _pack(stage, run + 1, red & ~(1 << k), blue, nodes, runs)
                _relax(heap, least, before, by, here, there, cost, limit, DROP, k)
            fits = not is_red and used + size[k] <= memory
            if adjoint:
                if held and fits:
                    there = _pack(stage, run + 1, red | 1 << k, blue, nodes, runs)
                    _relax(heap, least, before, by, here, there, cost, limit, SNAP, k)
                if not held:
                    there = _pack(stage, k + 1, red, blue, nodes, runs)
                    if is_red:
                        _relax(heap, least, before, by, here, there, cost, limit, RESTORE, k)
                    elif is_blue:
                        _relax(heap, least, before, by, here, there, cost + load[k], limit, LOAD, k)
                    if k > 0 and run == k - 1:
                        there = _pack(max(stage, k), k + 1, red, blue, nodes, runs)
                        _relax(heap, least, before, by, here, there, cost + forward[k], limit, COMPUTE, k)
            elif fits:
                if k > 0 and red >> (k - 1) & 1:
                    there = _pack(max(stage, k), 0, red | 1 << k, blue, nodes, runs)
                    _relax(heap, least, before, by, here, there, cost + forward[k], limit, COMPUTE, k)
                if is_blue:
                    there = _pack(stage, 0, red | 1 << k, blue, nodes, runs)
                    _relax(heap, least, before, by, here, there, cost + load[k], limit, LOAD, k)
    return np.inf, np.empty(0, np.int64), np.empty(0, np.int64)


@kernel
def _pack(stage: int, run: int, red: int, blue: int, nodes: int, runs: int) -> int:
    return (stage * runs + run) << (2 * nodes) | red << nodes | blue


@kernel
def _relax(
    heap: list[tuple[float, int]],
    least: Floats,
    before: Ints,
    by: npt.NDArray[np.int8],
    here: int,
    there: int,
    cost: float,
    limit: float,
    kind: int,
    node: int,
) -> None:
    if cost < least[there] and cost < limit:
        least[there] = cost
        before[there] = here
        by[there] = kind * 16 + node
        heapq.heappush(heap, (cost, there))


@kernel
def _walk(here: int, start: int, before: Ints, by: npt.NDArray[np.int8]) -> tuple[Ints, Ints]:
    count, at = 0, here
    while at != start:
        at = before[at]
        count += 1
    kinds, nodes = np.empty(count, np.int64), np.empty(count, np.int64)
    at = here
    while at != start:
        count -= 1
        kinds[count], nodes[count] = by[at] // 16, by[at] % 16
        at = before[at]
    return kinds, nodes
