"""Lower bounds of large graphs on caches, for every order and any recomputation, in time linear in the graph per moment.

The *floor*: every op runs once and touches every line of its operands; a line lies no higher than its own storage is long, and one
that was never touched lies in the last level. A *moment*: what was made before an op and is read after it cannot all lie in the
first lines of the stack just then; a line only sinks until it is touched again, so the rest is read from below, after having been
written back there, or its maker runs again. `docs/tiling.md` has the proof.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pebbler.arrays import Floats
from pebbler.game.dataflow import NONE
from pebbler.referee import pricing
from pebbler.referee.kernels.reachability import mark_reachable
from pebbler.solver.bounds import Bound, product_bounds
from pebbler.solver.bounds.priced_room import cheapest_excess
from pebbler.solver.problem import Problem

__all__ = ["cache_bounds"]

_MOMENTS = 48


def cache_bounds(problem: Problem, seconds_left: Callable[[], float]) -> list[Bound]:
    """Return lower bounds for every plan of the graph as it is on a cache, as far as time allows.

    >>> from pebbler import machine, workloads
    >>> problem = Problem.of(workloads.mlp(), machine("notes"), steady=False)
    >>> [round(bound.value) for bound in cache_bounds(problem, lambda: 1.0)]
    [21094250]
    """
    floor_proof = "every op runs once, and no line lies higher than its storage is long"
    floor = _Floor(problem)
    if floor.ranked:  # what dies leaves the ranking, so a tensor may rise without being touched
        return [Bound(problem.scale.lowered(float(floor.runs().sum())), floor_proof)]
    best = Bound(problem.scale.lowered(floor.total()), floor_proof)
    for level in range(len(problem.machine.level) - 1):
        extra = floor.extra(level)
        for op in floor.moments(extra):
            if seconds_left() <= 0:
                break
            found = problem.scale.lowered(floor.total() + floor.gain(op, extra, level))
            if found > best.value:
                names = " and ".join(problem.machine.names[: level + 1])
                best = Bound(
                    found, f"{floor_proof}; what is alive across {problem.graph.op_names[op]} cannot all be in {names}"
                )
    return [max([best, *product_bounds(problem)], key=lambda bound: bound.value)]


class _Floor:
    """One graph on one cache; arrays are per value."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.flow = problem, problem.graph.dataflow
        machine, flow = problem.machine, self.flow
        self.read, self.store = pricing.prices(machine, "read"), pricing.prices(machine, "write")
        self.ranked = machine.management == "recency"
        self.line = 1 if self.ranked else machine.line  # ranks are of whole tensors, in units
        capacity = pricing.capacities(machine)
        self.reach = np.cumsum(capacity[:-1]) // self.line
        self.cheapest = np.minimum.accumulate(self.read[::-1])[::-1]  # of a level or any below it
        lines = -(-flow.tensor_size // self.line)
        if not self.ranked:
            # Tensors of one storage may differ in size; then a touch of the smallest is all that is known.
            least = np.full(len(lines), pricing.UNBOUNDED, np.int64)
            np.minimum.at(least, flow.storage, lines)
            lines = least[flow.storage]
        self.lines = lines[flow.value_tensor]
        self.level = np.searchsorted(self.reach, self.lines, "left")
        self.size = flow.value_size.astype(np.float64)
        self.reads = np.diff(flow.value_readers.start)
        self.price = self.cheapest[self.level]
        self.made = flow.value_maker != NONE
        # Under `recency` a write goes to the first level that holds the tensor.
        fits = np.minimum(np.argmax(flow.value_size[:, None] <= capacity[None, :], axis=1), len(capacity) - 1)
        self.write = self.store[fits] if self.ranked else np.full(flow.values, self.store[0])
        self.stored = np.concatenate([np.zeros(1), np.cumsum(self.store[1:])])  # by level: written back down to it

    def total(self) -> float:
        """Return the floor."""
        flow = self.flow
        energy = float(flow.op_cost.sum()) + float((self.reads * self.size * self.price).sum())
        energy += float((self.size * self.write)[self.made].sum())
        if not self.problem.steady:
            # Nobody has touched a start value before its first read.
            cold = ~self.made & (self.reads > 0)
            energy += float((self.size * (self.read[-1] - self.price))[cold].sum())
        found = self.made & (self.reads > 0)
        return energy + float((self.lines * self.line * self.stored[self.level])[found].sum())

    def runs(self) -> Floats:
        """Return, per op, what a run of it costs at least; what it reads twice counts once."""
        flow = self.flow
        floors = flow.op_cost.astype(np.float64)
        readers = np.repeat(np.arange(flow.values), self.reads)
        np.add.at(floors, flow.value_readers.items, (self.size * self.price)[readers])
        np.add.at(floors, flow.value_maker[self.made], (self.size * self.write)[self.made])
        return floors

    def extra(self, level: int) -> Floats:
        """Return what a value pays beyond its floor if, alive and to be read, it lies below a level at some moment."""
        flow = self.flow
        below = float(self.cheapest[level + 1])
        cost = self.size * np.maximum(0.0, below - self.price)
        sunk = np.maximum(0.0, self.stored[level + 1] - self.stored[self.level])
        cost += np.where(self.made, self.size * sunk, 0.0)
        again = np.full(flow.values, np.inf)
        run = self.runs()
        results = np.diff(flow.op_writes.start)
        maker = flow.value_maker[flow.value_can_be_remade]
        again[flow.value_can_be_remade] = run[maker] / np.maximum(1, results[maker])
        cost = np.minimum(cost, again)
        cost[(self.reads == 0) | (self.size == 0)] = 0.0
        return np.asarray(cost)

    def moments(self, extra: Floats) -> list[int]:
        """Return ops to look at: spread over program order, and those with most at stake there."""
        flow, rows = self.flow, self.flow.value_readers
        alive = extra > 0
        if not alive.any():
            return []
        first = np.where(self.made, flow.value_maker, 0)[alive]
        last = rows.items[rows.start[1:][alive] - 1]
        change = np.zeros(flow.ops + 1)
        np.add.at(change, first, self.size[alive])
        np.add.at(change, last, -self.size[alive])
        held = np.cumsum(change[: flow.ops])
        parts = [part for part in np.array_split(np.arange(flow.ops), _MOMENTS // 2) if len(part)]
        chosen = np.unique([*(part[np.argmax(held[part])] for part in parts), *(part[0] for part in parts)])
        return [int(op) for op in chosen[np.argsort(-held[chosen], kind="stable")]]

    def gain(self, op: int, extra: Floats, level: int) -> float:
        """Return what must be paid at the least because not all that is alive across an op's first run is above the boundary."""
        flow = self.flow
        ran = mark_reachable(flow.before.start, flow.before.items, op, -1)
        ran[op] = True
        waiting = mark_reachable(flow.after.start, flow.after.items, op, 1)
        alive = (extra > 0) & self.flow.read_by(waiting)
        alive[self.made] &= ran[flow.value_maker[self.made]]
        alive[~self.made] &= self.flow.read_by(ran)[~self.made]
        chosen = np.flatnonzero(alive)
        return cheapest_excess(self.size[chosen], extra[chosen], float(self.reach[level] * self.line))
