"""The least cost of reads beyond their floor under `recency`: start values never leave the ranking.

A value is touched, then start values are, then it is read: all of these lie above it at the read, unless the value was touched in
between, which costs too. `docs/tiling.md` has the proof.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pebbler.arrays import Bools, Floats, Ints
from pebbler.game.dataflow import NONE
from pebbler.referee import pricing
from pebbler.solver.kernels.touch_windows import sum_in_windows, touch_windows
from pebbler.solver.problem import Problem
from pebbler.solver.structure.kernels.longest_paths import longest_paths

__all__ = ["rank_costs"]


def rank_costs(problem: Problem) -> float:
    """Return the energy beyond the floor of every plan on a `recency` machine: of first reads of start values, and of windows.

    >>> from pebbler import machine, workloads
    >>> rank_costs(Problem.of(workloads.mlp(), machine("notes-recency"), steady=False))
    162390.0
    """
    ranks = _Ranks.of(problem)
    windows, reads, units = ranks.windows()
    return float(ranks.first_reads().sum() + ranks.costs(windows[:, 0], reads, units).sum())


@dataclass(frozen=True)
class _Ranks:
    """One graph on one machine; arrays are per value unless they say otherwise."""

    problem: Problem
    size: Ints
    reach: Ints  # per level but the last: units down to its end
    price: Floats  # per level: the least of it and all below

    @classmethod
    def of(cls, problem: Problem) -> _Ranks:
        machine = problem.machine
        read = pricing.prices(machine, "read")
        reach = np.cumsum(pricing.capacities(machine)[:-1])
        return cls(problem, problem.graph.dataflow.value_size, reach, np.minimum.accumulate(read[::-1])[::-1])

    def level(self, depth: Ints) -> Ints:
        """Return the level that something lies in, all above it and itself being so many units."""
        found: Ints = np.searchsorted(self.reach, depth, "left")
        return found

    def first_reads(self) -> Floats:
        """Return, per tensor, the cost of the first read of its start value beyond the floor: all before it lie above it."""
        flow = self.problem.graph.dataflow
        begins = flow.start_value != NONE
        depth = np.cumsum(np.where(begins, flow.tensor_size, 0))
        read = np.zeros(len(begins), np.bool_)
        read[begins] = np.diff(flow.value_readers.start)[flow.start_value[begins]] > 0
        beyond = self.price[self.level(depth)] - self.price[self.level(flow.tensor_size)]
        return np.where(read, flow.tensor_size * beyond, 0.0)

    def places(self) -> tuple[Ints, Ints, Ints]:
        """Return the places of ops on a longest path (NONE beside it), of the path's op before each, and of that after it."""
        flow = self.problem.graph.dataflow
        before, ones = flow.before, np.ones(len(flow.before.items), np.int64)
        none = np.zeros(flow.ops, np.int64)
        height = longest_paths(before.start, before.items, ones, none, True)
        place = np.full(flow.ops, NONE, np.int64)
        op, count = int(np.argmax(height)), 0
        while op >= 0:
            place[op], count = count, count + 1
            later = flow.after.row(op)
            op = int(later[np.argmax(height[later])]) if len(later) else NONE
        zero = np.zeros_like(ones)
        reached = np.asarray(longest_paths(before.start, before.items, zero, place, False))
        beyond = np.where(place == NONE, -count, -place)
        awaited = -np.asarray(longest_paths(before.start, before.items, zero, beyond, True))
        # Of the op itself that is its own place; what counts are the ops before and after it.
        low, high = np.full(flow.ops, NONE, np.int64), np.full(flow.ops, count, np.int64)
        target = np.repeat(np.arange(flow.ops), np.diff(before.start))
        np.maximum.at(low, target, reached[before.items])
        np.minimum.at(high, before.items, awaited[target])
        return place, low, high

    def windows(self) -> tuple[Ints, Ints, Floats]:
        """Return windows between first runs that touch a value (the value and both ops), its first reads there, and other units."""
        flow, begins = self.problem.graph.dataflow, self.problem.graph.dataflow.start_value != NONE
        place, low, high = self.places()
        touching, touched = self._touches(begins)
        own = np.zeros(flow.ops)
        np.add.at(own, touching, flow.tensor_size[touched])
        windows, reads, owned = touch_windows(
            flow.value_maker, flow.value_readers.start, flow.value_readers.items, low, high, own
        )
        first, last = high[windows[:, 1]], low[windows[:, 2]]
        low, high = np.where(place == NONE, low, place), np.where(place == NONE, high, place)
        within = (low[touching] >= 0) & (high[touching] < len(flow.before))
        touching, touched = touching[within], touched[within]
        rows, order = np.argsort(high[touching], kind="stable"), np.argsort(last, kind="stable")
        units = np.empty(len(windows))
        units[order] = sum_in_windows(
            touched[rows], low[touching[rows]], high[touching[rows]], flow.tensor_size.astype(np.float64),
            first[order], last[order], int(place.max(initial=0)) + 1,
        )  # fmt: skip
        return windows, reads, np.maximum(0.0, units - owned)

    def _touches(self, begins: Bools) -> tuple[Ints, Ints]:
        """Return ops and the tensors with start values that they touch, each pair once."""
        flow = self.problem.graph.dataflow
        pairs = []
        for rows in (flow.op_reads, flow.op_writes):
            op, tensor = np.repeat(np.arange(flow.ops), np.diff(rows.start)), flow.value_tensor[rows.items]
            pairs.append((op * len(begins) + tensor)[begins[tensor]])
        both = np.unique(np.concatenate(pairs))
        return both // len(begins), both % len(begins)

    def costs(self, value: Ints, reads: Ints, units: Floats) -> Floats:
        """Return the least cost beyond the floor of touches of a value so that what is touched between them adds up to some units.

        Between one touch and the next there are at most as many units as the level of the next one has room for beside the value.
        So many `reads` are paid by the floor, at the price of the first level that holds the value; other reads are of reruns.
        """
        size, last = self.size[value], len(self.reach)
        home = self.level(size)
        floor = size * self.price[home]
        room = self._room(home, size)
        left = np.where(home < last, units - reads * room, 0.0)
        found = np.minimum(self._again()[value], size * self.price[-1] - floor)
        # Some units at a time: further reads, from that level or one further down, or reads of the floor from further down.
        changes = [(np.where(room > 0, floor, np.inf), room)]
        for level in range(last):
            reach, price = self._room(np.full(len(value), level), size), size * self.price[level]
            for cost, more in ((price - floor, reach - room), (price, reach)):
                changes.append((np.where((level > home) & (more > 0), cost, np.inf), more))
        rate = np.min([_per(cost, more) for cost, more in changes], axis=0)
        rate[np.isinf(rate)] = 0.0  # then there are no changes at all
        found = np.minimum(found, np.where(room > 0, floor, np.inf) * np.maximum(1.0, np.ceil(_per(left, room))))
        for cost, more in changes[1:]:
            found = np.minimum(found, cost + np.where(left > more, rate * (left - more), 0.0))
        return np.where(left > 0, np.maximum(0.0, found), 0.0)

    def _room(self, level: Ints, size: Ints) -> Floats:
        """Return the units that may lie above a value in a level that is not the last."""
        reach = np.append(self.reach, 0)[level]
        return np.maximum(0, reach - size).astype(np.float64)

    def _again(self) -> Floats:
        """Return the cost of making each value again: a part where the maker makes several, and without reads."""
        flow, capacity = self.problem.graph.dataflow, pricing.capacities(self.problem.machine)
        made, maker = flow.value_can_be_remade, flow.value_maker[flow.value_can_be_remade]
        fits = np.minimum(np.argmax(self.size[:, None] <= capacity[None, :], axis=1), len(capacity) - 1)
        found = np.full(flow.values, np.inf)
        found[made] = flow.op_cost[maker] / np.diff(flow.op_writes.start)[maker]
        found += self.size * pricing.prices(self.problem.machine, "write")[fits]
        return found


def _per(cost: Floats, units: Floats) -> Floats:
    """Return a cost per unit; infinite where there are none."""
    found: Floats = np.divide(cost, units, out=np.full(len(cost), np.inf), where=units > 0)
    return found
