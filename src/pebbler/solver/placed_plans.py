"""Plans of any order where operands may be anywhere: run in one level, then every value put where it costs least."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pebbler.arrays import Floats, Ints
from pebbler.game.machine import Machine
from pebbler.game.moves import COMPUTE, COPY, Moves
from pebbler.game.plan import Plan
from pebbler.referee import pricing
from pebbler.solver.greedy_plans import GreedyPlanner
from pebbler.solver.kernels.greedy_state import GreedyGame
from pebbler.solver.kernels.lifted_values import find_stays, move_stays, place_stays, price_moves
from pebbler.solver.problem import Problem

__all__ = ["PlacedPlanner"]


@dataclass(frozen=True)
class PlacedPlanner:
    """Plans of one problem with `operands = "any"`, made from greedy runs with all operands in one level.

    >>> from pebbler import machine, workloads
    >>> planner = PlacedPlanner.of(Problem.of(workloads.note_mlp(), machine("notes-explicit")), 2)
    >>> rows = planner.run(np.arange(15), keen=0.5, remake=True, seed=0)
    >>> from pebbler.referee.judgement import check
    >>> planner.price(rows) == check(planner.plan_of(rows)).energy
    True
    """

    problem: Problem
    level: int
    greedy: GreedyPlanner

    @classmethod
    def of(cls, problem: Problem, level: int, *, fast_params: bool = False) -> PlacedPlanner | None:
        """Return the planner that works in a level; None where something starts above it."""
        flow, machine = problem.graph.dataflow, problem.machine
        if any(levels and min(levels) < level for levels in problem.start_choices().values()):
            return None
        below = Machine(machine.name, machine.unit, machine.level[level:])
        greedy = GreedyPlanner.of(replace(problem, machine=below), fast_params=fast_params)
        cost = flow.op_cost.astype(np.float64)
        for rows, price in ((flow.op_reads, below.level[0].read), (flow.op_writes, below.level[0].write)):
            op = np.repeat(np.arange(flow.ops), np.diff(rows.start))
            np.add.at(cost, op, price * flow.value_size[rows.items])
        return cls(problem, level, replace(greedy, game=greedy.game._replace(cost=cost)))

    @property
    def game(self) -> GreedyGame:
        """The game with all operands in one level."""
        return self.greedy.game

    def run(self, order: Ints, *, keen: float, remake: bool, seed: int, costs: Floats | None = None) -> Ints | None:
        """Return the moves of an order as `GreedyPlanner.run` does."""
        rows = self.greedy.run(order, keen=keen, remake=remake, seed=seed, costs=costs)
        return None if rows is None else self._lifted(rows)

    def belady(self, order: Ints) -> Ints | None:
        """Return the moves of an order as `GreedyPlanner.belady` does."""
        rows = self.greedy.belady(order)
        return None if rows is None else self._lifted(rows)

    def _lifted(self, rows: Ints) -> Ints:
        flow, machine, game = self.problem.graph.dataflow, self.problem.machine, self.game
        rows = rows.copy()
        rows[:, 2] += self.level
        rows[rows[:, 0] == COPY, 3] += self.level
        stays = find_stays(
            rows, self.level, (game.start & 1).astype(np.bool_), game.r_start, game.r_items, game.w_start, game.w_items,
            game.d_start, game.d_items,
        )  # fmt: skip
        read, write = pricing.prices(machine, "read"), pricing.prices(machine, "write")
        single = np.diff(flow.op_writes.start) == 1
        placed, given_up = place_stays(
            rows, self.level, stays, game.size, single, pricing.capacities(machine), read, write
        )
        return rows if len(stays.value) == 0 else move_stays(rows, self.level, stays, placed, given_up)

    def price(self, rows: Ints) -> float:
        """Return what the moves cost."""
        flow, game, machine = self.problem.graph.dataflow, self.game, self.problem.machine
        return float(
            price_moves(
                rows,
                game.start << self.level,
                game.size,
                flow.op_cost,
                flow.op_reads.start,
                flow.op_reads.items,
                game.w_start,
                game.w_items,
                game.d_start,
                game.d_items,
                pricing.prices(machine, "read"),
                pricing.prices(machine, "write"),
            )
        )

    def plan_of(self, rows: Ints) -> Plan:
        """Return the plan of the moves."""
        flow, kind = self.problem.graph.dataflow, rows[:, 0]
        subject = np.where(kind == COMPUTE, rows[:, 1], flow.value_tensor[np.where(kind == COMPUTE, 0, rows[:, 1])])
        moves = Moves.numbered(self.problem.graph, self.problem.machine, kind, subject, rows[:, 2], rows[:, 3])
        return self.problem.plan(moves, self.greedy.start)
