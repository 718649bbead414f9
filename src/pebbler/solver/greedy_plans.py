"""Plans of a given order in near-linear time, as made by a careful runtime that knows the order; for graphs of any size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pebbler.game.moves import COMPUTE, Moves
from pebbler.game.plan import Plan
from pebbler.referee import pricing
from pebbler.solver.kernels.greedy_run import run_greedily
from pebbler.solver.kernels.greedy_state import GreedyGame
from pebbler.solver.problem import Problem, Start
from pebbler.solver.structure.kernels.belady_moves import run_belady

__all__ = ["GreedyPlanner", "greedy_pays"]

Ints = npt.NDArray[np.int64]
_MOST_MOVES = 60  # per op
_WORK, _LEAST_SECONDS = 6e6, 0.25  # of evictions, in a second
_FEW = 60  # ops up to which other methods do without greedy runs


def greedy_pays(problem: Problem) -> bool:
    """Return whether greedy runs are tried before the other methods for explicit machines."""
    return problem.machine.management == "explicit" and len(problem.graph.ops) > _FEW


@dataclass(frozen=True)
class GreedyPlanner:
    """Plans of one problem; all operands are in the fastest level when they are used.

    >>> from pebbler import machine, workloads
    >>> problem = Problem.of(workloads.chain(12), machine("red-blue"))
    >>> planner = GreedyPlanner.of(problem)
    >>> list(planner.plan(np.arange(25)).moves)[:3]
    [Copy('N0', 'slow', 'fast'), Compute('c1'), Compute('c2')]
    """

    problem: Problem
    game: GreedyGame
    start: Start

    @classmethod
    def of(cls, problem: Problem, *, fast_params: bool = False) -> GreedyPlanner:
        """Return the planner of a problem; params of a steady step start and end in the slowest level, or in the fastest."""
        flow, machine = problem.graph.dataflow, problem.machine
        home = 0 if fast_params else len(machine.level) - 1
        begin, end = np.zeros(flow.values, np.int64), np.zeros(flow.values, np.int64)
        chosen = dict(problem.start)
        for tensor, levels in problem.start_choices().items():
            begin[flow.start_value[tensor]] = sum(1 << level for level in levels or [home])
            if levels is None:
                chosen[flow.tensor_names[tensor]] = machine.names[home]
            elif problem.steady:
                chosen.pop(flow.tensor_names[tensor], None)
        if len(machine.level) > 1:
            end[flow.final_value[problem.looped_params]] = 1 << home
        row = np.repeat(np.arange(flow.ops), np.diff(flow.op_reads.start))
        reads = flow.value_readers.transposed(flow.ops)
        cost = flow.op_cost.copy()
        if machine.operands == "any":  # on one level
            np.add.at(cost, row, machine.level[0].read * flow.value_size[flow.op_reads.items])
            made = np.repeat(np.arange(flow.ops), np.diff(flow.op_writes.start))
            np.add.at(cost, made, machine.level[0].write * flow.value_size[flow.op_writes.items])
        game = GreedyGame(
            np.minimum(pricing.capacities(machine), 2**60), pricing.prices(machine, "read"), pricing.prices(machine, "write"),
            flow.value_size, flow.value_maker, flow.value_destroyer, flow.value_must_survive, begin, end,
            cost, flow.op_can_rerun, reads.start, reads.items, flow.op_writes.start, flow.op_writes.items,
            flow.op_destroys.start, flow.op_destroys.items, flow.value_readers.start, flow.value_readers.items,
        )  # fmt: skip
        return cls(problem, game, chosen)

    def run(
        self,
        order: Ints,
        *,
        keen: float,
        remake: bool,
        seed: int,
        costs: npt.NDArray[np.float64] | None = None,
        bound: float = np.inf,
        seconds: float = np.inf,
    ) -> Ints | None:
        """Return the moves of an order as rows of numbers: kind, op or value, level, to; None where it gets stuck.

        `costs` are what ops seem to cost when there is a choice. None also where copies alone cost more than `bound`, and where it
        takes about so many `seconds`, but for the quarter of one that there always is.
        """
        game = self.game if costs is None else self.game._replace(cost=costs)
        most = _MOST_MOVES * len(self.game.cost) + len(self.game.size) + 100
        work = _WORK * max(seconds, _LEAST_SECONDS)
        moves, fits = run_greedily(
            game, np.ascontiguousarray(order, np.int64), most, keen, remake, seed, float(bound), work
        )
        return moves if fits else None

    def belady(self, order: Ints) -> Ints | None:
        """Return the moves of an order by Belady's rule as `run` does; None where it does not fit, or params stay fast."""
        most = 4 * (len(self.game.r_items) + len(self.game.w_items) + len(self.game.size)) + len(order)
        moves, cost = run_belady(self.game, np.ascontiguousarray(order, np.int64), most, np.inf)
        return moves if cost < np.inf else None

    def plan(self, order: Ints, *, keen: float = 0.5, remake: bool = True, seed: int = 0) -> Plan | None:
        """Return the plan of an order; None where the greedy run gets stuck."""
        rows = self.run(order, keen=keen, remake=remake, seed=seed)
        return None if rows is None else self.plan_of(rows)

    def price(self, rows: Ints) -> float:
        """Return the cost of the moves."""
        game = self.game
        computes, copies = rows[rows[:, 0] == COMPUTE, 1], rows[rows[:, 0] == 1]
        units = game.size[copies[:, 1]]
        return float(game.cost[computes].sum() + (units * (game.read[copies[:, 2]] + game.write[copies[:, 3]])).sum())

    def plan_of(self, rows: Ints) -> Plan:
        """Return the plan of the moves."""
        flow, kind = self.problem.graph.dataflow, rows[:, 0]
        subject = np.where(kind == COMPUTE, rows[:, 1], flow.value_tensor[np.where(kind == COMPUTE, 0, rows[:, 1])])
        moves = Moves.numbered(self.problem.graph, self.problem.machine, kind, subject, rows[:, 2], rows[:, 3])
        return self.problem.plan(moves, self.start)
