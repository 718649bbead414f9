"""A relaxation of the recomputation game that bounds every legal plan, solved by CP-SAT.

Pick *milestones*: ops of which each must first run after the one before. Their first runs cut any plan, of any order and with any
number of runs, into stages. Two facts per stage are enough for a bound: which ops run in it at least once, and which values
are there at the milestone that ends it. What a milestone finds must fit; what is there came from the stage or was there at the
last milestone; what a run reads likewise; and what lies through a whole stage shares the memory with every run in it. The
order inside a stage is left out, so the cheapest such summary costs no more than the cheapest plan. Checkmate (Jain et al.,
MLSys 2020) plans with one stage per op of a fixed order; here the stages are few and the order is free.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from ortools.sat.python import cp_model

from pebbler.game.bit_sets import as_matrix
from pebbler.game.dataflow import NONE
from pebbler.solver.cp_sat import confirmed_infeasible, new_solver
from pebbler.solver.recompute.recompute_problem import RecomputeProblem

__all__ = ["Relaxation", "RelaxationResult", "StageModel", "spread_runs"]

Term = Any  # a CP-SAT variable, or 0 or 1; ortools' own types are not followed
_MOST_COST = 2**50  # sums stay exact in doubles, and rounding costs down loses far less than the referee's tolerance


@dataclass(frozen=True)
class RelaxationResult:
    """The result of the relaxation for some milestones."""

    bound: float  # no legal plan costs less
    sequence: list[int] | None  # the summary spread out as a sequence, which may be too large for the memory
    solved: bool  # proven, not cut off
    impossible: bool = False  # no plan is legal at all
    none_cheaper: bool = False  # no legal plan costs less than the cutoff
    branches: int = 0  # that CP-SAT took


class Relaxation:
    """The relaxations of one problem, for any milestones.

    >>> from pebbler.game.machine import Level, Machine
    >>> from pebbler.solver.problem import Problem
    >>> from pebbler.workloads import chain
    >>> one = Machine("one", "pebble", (Level("fast", 0, 0, capacity=4),))
    >>> relaxation = Relaxation(RecomputeProblem.of(Problem.of(chain(6), one)))
    >>> relaxation.problem.base_cost, relaxation.solve([6]).bound
    (13.0, 16.0)
    """

    def __init__(self, problem: RecomputeProblem) -> None:
        self.problem = problem
        size = problem.arrays.size
        unit = math.gcd(*size.tolist()) or 1
        # Sums that fit still fit when every size and the capacity are rounded down.
        unit *= max(1, -(-int(size.sum()) // unit // 2**40))
        self.size = (size // unit).tolist()
        self.capacity = problem.capacity // unit
        self.op_units = [sum(self.size[v] for v in self.held(op)) for op in range(problem.ops)]
        self.cost, self.scale, self.exact = _integer_costs(problem.arrays.cost)

    def held(self, op: int) -> list[int]:
        """Return the values in memory while an op runs: its reads and results, less the values that it overwrites."""
        flow = self.problem.flow
        gone = set(flow.op_destroys.row(op).tolist())
        return sorted(({*self.problem.reads.row(op).tolist()} | {*flow.op_writes.row(op).tolist()}) - gone)

    @cached_property
    def ancestors(self) -> npt.NDArray[np.bool_]:
        """`ancestors[a, b]`: whether b must first run before a does."""
        return as_matrix(self.problem.flow.ancestors)

    @cached_property
    def live_units(self) -> npt.NDArray[np.int64]:
        """Per op: the units held at its first run if nothing were ever recomputed."""
        problem, flow = self.problem, self.problem.flow
        total = problem.op_units.copy()
        for value in range(flow.values):
            maker = int(flow.value_maker[value])
            made = np.ones(problem.ops, np.bool_) if maker == NONE else self.ancestors[:, maker].copy()
            readers = flow.value_readers.row(value)
            if flow.value_must_survive[value]:
                needed = made.copy()
            else:
                needed = made & self.ancestors[readers].any(axis=0) if len(readers) else np.zeros(problem.ops, np.bool_)
            # Already in `op_units`, or gone by the time the op is done.
            needed[readers] = False
            if maker != NONE:
                needed[maker] = False
            total[needed] += flow.value_size[value]
        return total

    def tight(self) -> list[int]:
        """Return the ops at which some value must be recomputed, the tightest first."""
        over = np.flatnonzero(self.live_units > self.problem.capacity)
        return [int(op) for op in sorted(over, key=lambda op: (-self.live_units[op], op))]

    def chained(self, milestones: Sequence[int], op: int) -> list[int] | None:
        """Return the milestones with one more in its place, or None if it has no fixed place among them."""
        if op in milestones:
            return None
        before = [other for other in milestones if self.ancestors[op, other]]
        after = [other for other in milestones if self.ancestors[other, op]]
        return [*before, op, *after] if len(before) + len(after) == len(milestones) else None

    def solve(
        self,
        milestones: Sequence[int],
        *,
        cheaper_than: float = math.inf,
        seconds: float = math.inf,
        effort: float = math.inf,
        seed: int = 0,
    ) -> RelaxationResult:
        """Return the bound for some milestones, each of which must come after the one before.

        Only summaries that cost less than `cheaper_than` are looked for; `effort` limits the work in CP-SAT's deterministic time.
        """
        stages = StageModel(self, milestones)
        cutoff = math.isfinite(cheaper_than)
        if cutoff:
            most = (cheaper_than - self.problem.base_cost) * self.scale
            stages.model.add(
                stages.extra <= (math.ceil(most * (1 - 1e-14) - 1e-6) - 1 if self.exact else math.floor(most))
            )
        stages.model.minimize(stages.extra)
        solver = new_solver(seconds, effort, seed)
        status = solver.solve(stages.model)
        if status == cp_model.INFEASIBLE:
            if not confirmed_infeasible(stages.model, seconds, effort, seed):  # a plan may exist, or it took too long
                return RelaxationResult(self.problem.base_cost, None, False)
            bound = cheaper_than if cutoff else math.inf
            return RelaxationResult(bound, None, True, not cutoff, cutoff, solver.num_branches)
        extra = max(0, math.ceil(solver.best_objective_bound - 1e-6))
        bound = min(self.problem.base_cost + extra / self.scale, cheaper_than)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return RelaxationResult(bound, None, False, branches=solver.num_branches)
        solved = status == cp_model.OPTIMAL
        return RelaxationResult(bound, stages.spread(solver), solved, branches=solver.num_branches)


class StageModel:
    """The CP-SAT model for one list of milestones; stage j ends with milestone j, the last one with the plan."""

    def __init__(self, relaxation: Relaxation, milestones: Sequence[int]) -> None:
        self.relaxation, self.problem = relaxation, relaxation.problem
        self.milestones = list(milestones)
        self.last = len(self.milestones)
        self.model = cp_model.CpModel()
        self.runs: list[dict[int, Term]] = [self._stage_runs(stage) for stage in range(self.last + 1)]
        self.there: list[dict[int, Term]] = [self._milestone_values(stage) for stage in range(self.last + 1)]
        self._every_op_runs()
        self._everything_comes_from_somewhere()
        self._everything_fits()
        self._overwriting()
        cost = relaxation.cost
        runs = sum(cost[op] * run for stage in self.runs for op, run in stage.items() if cost[op])
        self.extra = runs - sum(cost)

    def _stage_runs(self, stage: int) -> dict[int, Term]:
        """Return a variable per op that can run in a stage."""
        ancestors, again = self.relaxation.ancestors, self.problem.arrays.again
        runs: dict[int, Term] = {}
        for op in range(self.problem.ops):
            if stage < self.last and (ancestors[op, self.milestones[stage]] or op in self.milestones[stage + 1 :]):
                continue
            done = self.milestones[stage - 1] if stage else None
            if not again[op] and done is not None and (op == done or ancestors[done, op]):
                continue
            first = stage < self.last and op == self.milestones[stage]
            runs[op] = 1 if first else self.model.new_bool_var("")
        return runs

    def _milestone_values(self, stage: int) -> dict[int, Term]:
        """Return a variable per value that can be there when a stage ends."""
        flow, survive = self.problem.flow, self.problem.arrays.survive
        if stage == self.last:
            return {int(v): 1 for v in np.flatnonzero(survive)}
        there: dict[int, Term] = {}
        for value, maker in enumerate(flow.value_maker.tolist()):
            if maker == NONE or any(maker in self.runs[i] for i in range(stage + 1)):
                there[value] = self.model.new_bool_var("")
        there.update(dict.fromkeys(self.relaxation.held(self.milestones[stage]), 1))
        for value in flow.op_destroys.row(self.milestones[stage]).tolist():
            there.pop(value, None)
        return there

    def _before(self, stage: int, value: int) -> Term:
        if stage == 0:
            return int(self.problem.flow.value_maker[value] == NONE)
        return self.there[stage - 1].get(value, 0)

    def _made(self, stage: int, value: int) -> Term:
        return self.runs[stage].get(int(self.problem.flow.value_maker[value]), 0)

    def _every_op_runs(self) -> None:
        for op in range(self.problem.ops):
            runs = [stage[op] for stage in self.runs if op in stage]
            self.model.add(sum(runs) >= 1)
            if not self.problem.arrays.again[op]:
                self.model.add(sum(runs) <= 1)
            for stage, milestone in enumerate(self.milestones):
                if self.relaxation.ancestors[milestone, op]:
                    self.model.add(sum(self.runs[i].get(op, 0) for i in range(stage + 1)) >= 1)
                    break

    def _everything_comes_from_somewhere(self) -> None:
        for stage, runs in enumerate(self.runs):
            for op, run in runs.items():
                for value in self.problem.reads.row(op).tolist():
                    self.model.add(run <= self._before(stage, value) + self._made(stage, value))
            for value, there in self.there[stage].items():
                self.model.add(there <= self._before(stage, value) + self._made(stage, value))

    def _everything_fits(self) -> None:
        size, capacity = self.relaxation.size, self.relaxation.capacity
        for stage, runs in enumerate(self.runs):
            self.model.add(sum(size[v] * there for v, there in self.there[stage].items()) <= capacity)
            through: dict[int, Term] = {}
            for value, there in self.there[stage].items():
                before = self._before(stage, value)
                if size[value] and not (isinstance(before, int) and before == 0):
                    lies = self.model.new_bool_var("")
                    self.model.add(lies >= before + there - 1 - self._made(stage, value))
                    through[value] = lies
            total = sum(size[v] for v in through)
            for op, run in runs.items():
                if stage < self.last and op == self.milestones[stage]:
                    continue
                own = {*self.relaxation.held(op), *self.problem.flow.op_destroys.row(op).tolist()}
                need = self.relaxation.op_units[op]
                if need + total - sum(size[v] for v in own if v in through) > capacity:
                    others = sum(size[v] * lies for v, lies in through.items() if v not in own)
                    self.model.add(others + (need * run) <= capacity).only_enforce_if(run)

    def _overwriting(self) -> None:
        flow = self.problem.flow
        for value in flow.destroyed_values().tolist():
            destroyer, maker = int(flow.value_destroyer[value]), int(flow.value_maker[value])
            for stage in range(self.last + 1):
                gone = sum(self.runs[i].get(destroyer, 0) for i in range(stage))
                now = self.runs[stage].get(destroyer, 0)
                if value in self.there[stage]:
                    self.model.add(self.there[stage][value] + gone + now <= 1)
                for op in [maker, *flow.value_readers.row(value).tolist()]:
                    if op in self.runs[stage] and op != destroyer:
                        self.model.add(self.runs[stage][op] + gone <= 1)

    def spread(self, solver: cp_model.CpSolver) -> list[int]:
        """Return the summary as a sequence."""
        stages = [
            {op for op, run in runs.items() if (run if isinstance(run, int) else solver.boolean_value(run))}
            for runs in self.runs
        ]
        return spread_runs(self.problem, self.milestones, stages)


def spread_runs(problem: RecomputeProblem, milestones: Sequence[int], stages: Sequence[set[int]]) -> list[int]:
    """Return the runs of each stage as a sequence: first runs in program order, reruns right before the ops that need them."""
    sequence: list[int] = []
    ran: set[int] = set()
    for stage, runs in enumerate(stages):
        pending = set(runs)
        milestone = milestones[stage] if stage < len(milestones) else None
        fresh = sorted(pending - ran - {milestone})

        def emit(op: int, pending: set[int] = pending) -> None:
            stack = [(op, False)]
            while stack:
                here, ready = stack.pop()
                if ready:
                    sequence.append(here)
                elif here in pending:
                    pending.discard(here)
                    stack.append((here, True))
                    makers = problem.flow.value_maker[problem.reads.row(here)].tolist()
                    stack.extend((maker, False) for maker in reversed(makers))

        for op in fresh:
            emit(op)
        for op in sorted(pending - {milestone}):
            emit(op)
        if milestone is not None:
            emit(milestone)
        ran.update(sequence)
    return sequence


def _integer_costs(cost: npt.NDArray[np.float64]) -> tuple[list[int], float, bool]:
    """Return costs as whole numbers, how many of them make one unit of cost, and whether none had to be rounded (down).

    >>> _integer_costs(np.array([4.0, 6.0])), _integer_costs(np.array([1 / 3, 0.25]))
    (([2, 3], 0.5, True), ([4, 3], 12.0, True))
    """
    parts = [Fraction(c).limit_denominator(10**6) for c in cost.tolist()]
    close = all(abs(float(part) - c) <= 1e-15 * c for part, c in zip(parts, cost.tolist(), strict=True))
    scale = math.lcm(*(part.denominator for part in parts)) if close else 0
    whole = [int(part * scale) for part in parts]
    unit = math.gcd(*whole) or 1
    if close and sum(whole) // unit <= _MOST_COST:
        return [c // unit for c in whole], scale / unit, True
    ratio = _MOST_COST / float(cost.sum())
    return [math.floor(c * ratio) for c in cost.tolist()], ratio, False
