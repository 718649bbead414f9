"""Better levels for a layout whose copies stay as they are: for two levels at a time the best exchange, exactly.

A *residence* is a copy of a value in one level, from when it comes to when it goes; how often it is read there is known. Of the
residences in two levels, which should be in the nearer one? Those that are there at the same time must fit, and the others must
fit into the farther one. Residences are intervals of time, so the most reads that can be brought near are a flow of least cost:
the units of room flow through time, and each goes along residences or waits. Flows are whole numbers, and intervals of which never
more than `r` overlap fit into `r` cells, so nothing is lost between a flow and a layout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from ortools.graph.python import min_cost_flow

from pebbler.arrays import Bools, Floats, Ints
from pebbler.extras.layout.kernels.value_route import ANYWHERE, LayoutArrays, Routes

__all__ = ["MOST_SWEEPS", "Residences", "can_exchange", "exchange_levels", "nested_bound", "residences_of"]

_APART = (1, 2, 3, 5, 8)  # levels that exchange residences, by how many places they are apart
MOST_SWEEPS = 20


@dataclass(frozen=True)
class Residences:
    """Copies of values, each in one level from slot `first` to before `end`, and how often it is read there."""

    first: Ints
    end: Ints
    reads: Ints
    level: Ints
    near: Ints  # per segment of a route: the residence in the nearer level, and the one in the other or -1
    far: Ints


def can_exchange(arrays: LayoutArrays) -> bool:
    """Return whether levels can be exchanged: units of one size, free starts, prices of writes that are all the same."""
    same = bool((arrays.write == arrays.write[0]).all())
    return same and bool((arrays.size == 1).all()) and bool((arrays.begin == ANYWHERE).all())


def residences_of(arrays: LayoutArrays, routes: Routes) -> Residences:
    """Return the residences of all routes."""
    first: list[int] = []
    end: list[int] = []
    reads: list[int] = []
    level: list[int] = []
    near, far = np.full(len(routes.near), -1), np.full(len(routes.near), -1)
    nears, fars, uses, times = (x.tolist() for x in (routes.near, routes.far, arrays.use, arrays.times))
    starts, parts = arrays.use_start.tolist(), arrays.parts
    for value, (begin, last) in enumerate(zip(arrays.first.tolist(), arrays.end.tolist(), strict=True)):
        base, at = parts * starts[value] + value, begin
        held: dict[int, int] = {}
        for k in range(parts * (starts[value + 1] - starts[value]) + 1):
            use, part = starts[value] + k // parts, k % parts
            if part == 0:
                till = 2 * uses[use] if use < starts[value + 1] else last
            else:
                till = min(2 * uses[use] + (2 if parts == 2 or part == 2 else 1), last)
            here = [x for x in (nears[base + k], fars[base + k]) if x >= 0]
            new = [x for x in here if x not in held]
            if new and held:  # copies are read where the value was nearest
                reads[held[min(held)]] += len(new)
            held = {x: held.get(x, -1) for x in here}
            for x in new:
                held[x] = len(level)
                first.append(at)
                end.append(at)
                reads.append(0)
                level.append(x)
            for x in here:
                end[held[x]] = max(end[held[x]], till)
            near[base + k] = held[here[0]]
            far[base + k] = held[here[1]] if len(here) > 1 else -1
            if part == 1:
                reads[held[min(here)]] += times[use]
            at = max(at, till)
    begun, gone, count, where = (np.array(x, np.int64) for x in (first, end, reads, level))
    return Residences(begun, gone, count, where, near, far)


def exchange_levels(
    arrays: LayoutArrays, routes: Routes, capacity: Ints, left: Callable[[], float], sweeps: int = MOST_SWEEPS
) -> float:
    """Exchange residences between levels, two at a time, while it pays and seconds are left; return the saving.

    All pairs of levels have their turn so many times, unless one time saves nothing.
    """
    found = residences_of(arrays, routes)
    before = float((found.reads * arrays.read[found.level]).sum())
    pairs = [(nearer, nearer + apart) for apart in _APART for nearer in range(len(arrays.read) - apart)]
    for _ in range(sweeps):
        if sum(_exchange(found, capacity, *pair) for pair in pairs if left() > 0) == 0:
            break
    one, other = found.level[found.near], np.where(found.far >= 0, found.level[found.far], -1)
    two = (other >= 0) & (other != one)  # two copies in one level are one
    routes.near[:] = np.where(two, np.minimum(one, other), one)
    routes.far[:] = np.where(two, np.maximum(one, other), -1)
    found = residences_of(arrays, routes)
    return before - float((found.reads * arrays.read[found.level]).sum())


def _exchange(found: Residences, capacity: Ints, nearer: int, farther: int) -> int:
    """Let the best residences of two levels have the nearer one; return how many reads come nearer."""
    some = np.flatnonzero(((found.level == nearer) | (found.level == farther)) & (found.end > found.first))
    if not (found.level[some] == farther).any():
        return 0
    slots = np.unique(np.concatenate([found.first[some], found.end[some]]))
    begin, end = np.searchsorted(slots, found.first[some]), np.searchsorted(slots, found.end[some])
    change = np.bincount(begin, minlength=len(slots)) - np.bincount(end, minlength=len(slots))
    crowd = np.maximum(0, np.cumsum(change)[:-1] - int(capacity[farther]))  # how many must be nearer
    room = int(capacity[nearer])
    near = _flow(begin, end, found.reads[some], room - crowd, room)
    gain = int(found.reads[some][near].sum() - found.reads[some][found.level[some] == nearer].sum())
    if gain > 0:
        found.level[some] = np.where(near, nearer, farther)
    return max(0, gain)


def _flow(begin: Ints, end: Ints, reads: Ints, waits: Ints, room: int) -> Bools:
    """Return the intervals along a flow of most reads; `waits` of `room` units may pass a slot outside of them."""
    flow = min_cost_flow.SimpleMinCostFlow()
    ahead = np.arange(len(waits))
    flow.add_arcs_with_capacity_and_unit_cost(ahead, ahead + 1, waits, np.zeros(len(waits), np.int64))
    arcs = flow.add_arcs_with_capacity_and_unit_cost(begin, end, np.ones(len(begin), np.int64), -reads)
    flow.set_node_supply(0, room)
    flow.set_node_supply(len(waits), -room)
    if flow.solve() != flow.OPTIMAL:
        raise AssertionError("residences that fit have a flow")
    along: Bools = np.asarray(flow.flows(arcs)) > 0
    return along


def nested_bound(first: Ints, end: Ints, reads: Ints, capacity: Ints, read: Floats) -> float:
    """Return a lower bound on any levels for these residences: the fewest reads outside of the first levels, summed over them.

    A read costs the price of the nearest level and every step of prices up to its own. How many reads are inside of the first
    levels at most is a flow; that the residences inside of fewer levels are also inside of more is not asked for.

    >>> one = np.array([0, 0]), np.array([2, 2]), np.array([3, 1])
    >>> nested_bound(*one, capacity=np.array([1, 9]), read=np.array([1.0, 2.0]))
    5.0
    """
    some = (reads > 0) & (end > first)
    slots = np.unique(np.concatenate([first[some], end[some]]))
    begin, till, count = np.searchsorted(slots, first[some]), np.searchsorted(slots, end[some]), reads[some]
    change = np.bincount(begin, minlength=len(slots)) - np.bincount(till, minlength=len(slots))
    peak, room, total = int(np.cumsum(change).max(initial=0)), 0, float(reads.sum()) * float(read[0])
    for level in range(len(read) - 1):
        room += int(capacity[level])
        if room >= peak:
            break
        inside = _flow(begin, till, count, np.full(len(slots) - 1, room), room)
        total += float(count[~inside].sum()) * float(read[level + 1] - read[level])
    return total
