"""Orders with reruns for caches: what a careful runtime would make again instead of waiting for it, found by a greedy run.

A cache decides by itself what it keeps; an order decides what it is asked for. The greedy planner of explicit games is given a
machine of two levels, the cache down to the end of one level and all that lies below, and the ops of its plan, reruns included,
are an order. The cache's own rule prices it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pebbler.arrays import Floats, Ints
from pebbler.game.machine import Level, Machine
from pebbler.game.moves import COMPUTE
from pebbler.referee import pricing
from pebbler.solver.greedy_plans import GreedyPlanner
from pebbler.solver.problem import Problem

__all__ = ["RerunPlanner", "RerunSetting"]


@dataclass(frozen=True)
class RerunSetting:
    """What a greedy run goes by."""

    share: float  # of the room above the boundary
    keen: float  # how much the distance of the next use counts
    care: float  # how much of what a rerun touches counts as its cost
    factor: Floats  # per op: its cost is made to look this many times as high
    seed: int


@dataclass(frozen=True)
class RerunPlanner:
    """Orders for one boundary of a cache: above it are the levels down to `level`."""

    planner: GreedyPlanner
    touched: Floats  # per op: what its touches cost in the fastest level
    reach: int  # units above the boundary
    least: int  # units that the ops need at once, at most

    @classmethod
    def of(cls, problem: Problem, level: int) -> RerunPlanner:
        """Return the planner of the boundary below `level`; what passes it costs what the cache charges beyond its fastest level.

        >>> from pebbler import machine, workloads
        >>> planner = RerunPlanner.of(Problem.of(workloads.mlp(n=2, hidden=8), machine("notes")), 0)
        >>> planner.reach, planner.least
        (64, 48)
        """
        flow, machine = problem.graph.dataflow, problem.machine
        read, write = pricing.prices(machine, "read"), pricing.prices(machine, "write")
        reach = int(np.cumsum(pricing.capacities(machine)[:-1])[level])
        slow = Level("slow", max(0.0, float(read[level + 1] - read[0])), float(write[1 : level + 2].sum()))
        two = Machine("boundary", machine.unit, (Level("fast", 0, 0, capacity=reach), slow))
        planner = GreedyPlanner.of(Problem(problem.graph, two, False))
        touched = np.zeros(flow.ops)
        room = np.zeros(flow.ops, np.int64)
        for rows, price in ((flow.op_reads, read[0]), (flow.op_writes, write[0])):
            op = np.repeat(np.arange(flow.ops), np.diff(rows.start))
            np.add.at(touched, op, price * flow.value_size[rows.items])
            np.add.at(room, op, flow.value_size[rows.items])
        return cls(planner, touched, reach, int(room.max(initial=0)))

    def sequence(self, order: Ints, setting: RerunSetting) -> Ints | None:
        """Return an order with reruns; None where the greedy run gets stuck."""
        game, room = self.planner.game, max(1, int(setting.share * self.reach))
        capacity = np.array([room, game.capacity[1]], np.int64)
        planner = GreedyPlanner(self.planner.problem, game._replace(capacity=capacity), self.planner.start)
        costs = (game.cost + setting.care * self.touched) * setting.factor
        rows = planner.run(order, keen=setting.keen, remake=True, seed=setting.seed, costs=costs)
        return None if rows is None else np.ascontiguousarray(rows[rows[:, 0] == COMPUTE, 1])
