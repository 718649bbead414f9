"""Recomputation that is unavoidable on one level of memory, around some first runs: the formula `milestones`.

Pick *milestones*: ops of which each must first run after the one before. Their first runs cut any plan, of any order and with any
number of runs, into stages. What is said of a stage: which ops run in it at least once, and which values are there right after the
milestone that ends it (at the end of the plan for the last stage). Every legal plan satisfies these rows:

- `runs`: every op runs; what must run before a milestone does so by then; what can run only once does. No op runs in a stage whose
  milestone must come before it, and none before the stage that it ends.
- `read`, `there`: what a run reads, and what is there at a milestone, was there at the last one or is made in the stage.
- `room`: what is there at a milestone fits, with what the milestone itself reads and makes.
- `lies`, `beside`: what was there at the last milestone, is there at the next and is not made in between lies there all the time;
  it shares the memory with every run of the stage.
- `gone`, `over`: what has been overwritten is not there, is not read and not made any more.

The order of runs inside a stage is left out. A plan costs at least what the ops that run in each stage cost once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from pebbler.game.dataflow import NONE
from pebbler.game.energy_scale import EnergyScale
from pebbler.game.starts import PlayedGraph
from pebbler.referee.certificates import NotProven, short
from pebbler.referee.programs.compulsory_traffic import exactly
from pebbler.referee.programs.fact_program import FactProgram, Key, tree_bound

__all__ = ["MilestoneProgram", "prove_milestones"]

_MOST_OPS = 5_000  # sets of ops are whole numbers of so many bits
_MOST_BESIDE = 2_000_000  # terms of rows `beside`


class Term:
    """A variable by its number, or 0 or 1."""

    __slots__ = ("constant", "variable")

    def __init__(self, constant: int = 0, variable: int | None = None) -> None:
        self.constant, self.variable = constant, variable


_NO, _YES = Term(0), Term(1)


def prove_milestones(task: PlayedGraph, certificate: Mapping[str, Any], ends: float) -> Fraction:
    """Return the bound that a certificate of the formula `milestones` proves."""
    milestones = certificate.get("milestones")
    if not MilestoneProgram.known_of(task):
        raise NotProven("milestones are known in graphs of some thousand ops on one level of memory")
    flow = task.graph.dataflow
    if not isinstance(milestones, Sequence) or any(type(op) is not int or not 0 <= op < flow.ops for op in milestones):
        raise NotProven(f"{short(milestones)} are no ops")
    for earlier, later in pairwise(milestones):
        if not flow.ancestors[later] >> earlier & 1:
            raise NotProven(f"op {later} need not come after op {earlier}")
    built = MilestoneProgram(task, milestones, beside=certificate.get("beside") is not False)
    quantum = Fraction(EnergyScale.of(task.graph, task.machine).quantum)
    return tree_bound(built.program, certificate, quantum, ends)


class MilestoneProgram:
    """The program of some milestones; stage j ends with milestone j, the last one with the plan.

    >>> from pebbler.game.machine import Level, Machine
    >>> from pebbler.referee.rows.task import Task
    >>> from pebbler.workloads import chain
    >>> one = Machine("one", "pebble", (Level("fast", 0, 0, capacity=4),))
    >>> built = MilestoneProgram(Task(chain(6), one, steady=False), [6])
    >>> len(built.program.costs), len(built.program.rows)
    (26, 61)
    """

    def __init__(self, task: PlayedGraph, milestones: Sequence[int], *, beside: bool = True) -> None:
        self.task, self.flow = task, task.graph.dataflow
        self.milestones, self.last = list(milestones), len(milestones)
        self.program = FactProgram()
        self.size = self.flow.value_size.tolist()
        self.maker = self.flow.value_maker.tolist()
        capacity = task.machine.level[0].capacity
        assert capacity is not None
        self.capacity = capacity
        self.cost = run_costs(task)
        self.reads = [sorted(set(self.flow.op_reads.row(op).tolist())) for op in range(self.flow.ops)]
        self.runs = [self._stage_runs(stage) for stage in range(self.last + 1)]
        self.there = [self._milestone_values(stage) for stage in range(self.last + 1)]
        self._every_op_runs()
        self._everything_comes_from_somewhere()
        self._everything_fits(beside=beside)
        self._overwriting()

    @staticmethod
    def known_of(task: PlayedGraph) -> bool:
        """Return whether the formula applies: one bounded level, and results that do not overwrite operands."""
        machine, level = task.machine, task.machine.level[0]
        explicit = machine.management == "explicit" and machine.results == "apart"
        return explicit and len(machine.level) == 1 and level.capacity is not None and len(task.graph.ops) <= _MOST_OPS

    def held(self, op: int) -> set[int]:
        """Return the values in memory right after an op has run: its reads and results, less the values that it overwrites."""
        return {*self.reads[op], *self.flow.op_writes.row(op).tolist()} - {*self.flow.op_destroys.row(op).tolist()}

    def _row(self, name: Key, terms: Iterable[tuple[Term, int]], least: int) -> None:
        """Add a row, unless it holds trivially."""
        found = []
        for term, factor in terms:
            if term.variable is None:
                least -= term.constant * factor
            else:
                found.append((term.variable, factor))
        if found or least > 0:
            self.program.row(name, found, least)

    def _stage_runs(self, stage: int) -> dict[int, Term]:
        """Return a variable per op that can run in a stage."""
        flow, again = self.flow, self.flow.op_can_rerun
        ends = self.milestones[stage] if stage < self.last else None
        done = self.milestones[stage - 1] if stage else None
        later = set(self.milestones[stage + 1 :])
        runs: dict[int, Term] = {}
        for op in range(flow.ops):
            if ends is not None and (flow.ancestors[op] >> ends & 1 or op in later):
                continue
            if not again[op] and done is not None and (op == done or flow.ancestors[done] >> op & 1):
                continue
            if op == ends:
                runs[op] = _YES
                self.program.constant += self.cost[op]
            else:
                runs[op] = Term(variable=self.program.variable(("runs", stage, op), self.cost[op]))
        return runs

    def _milestone_values(self, stage: int) -> dict[int, Term]:
        """Return a variable per value that can be there when a stage ends."""
        if stage == self.last:
            return {int(v): _YES for v in np.flatnonzero(self.flow.value_must_survive)}
        milestone = self.milestones[stage]
        held, gone = self.held(milestone), {*self.flow.op_destroys.row(milestone).tolist()}
        there: dict[int, Term] = {}
        for value, maker in enumerate(self.maker):
            if value in held:
                there[value] = _YES
            elif value not in gone and (maker == NONE or any(maker in self.runs[i] for i in range(stage + 1))):
                there[value] = Term(variable=self.program.variable(("there", stage, value)))
        return there

    def _before(self, stage: int, value: int) -> Term:
        if stage == 0:
            return _YES if self.maker[value] == NONE else _NO
        return self.there[stage - 1].get(value, _NO)

    def _made(self, stage: int, value: int) -> Term:
        return self.runs[stage].get(self.maker[value], _NO)

    def _every_op_runs(self) -> None:
        for op in range(self.flow.ops):
            runs = [stage[op] for stage in self.runs if op in stage]
            self._row(("runs", op), [(run, 1) for run in runs], 1)
            if not self.flow.op_can_rerun[op]:
                self._row(("once", op), [(run, -1) for run in runs], -1)
            for stage, milestone in enumerate(self.milestones):
                if self.flow.ancestors[milestone] >> op & 1:
                    early = [(self.runs[i][op], 1) for i in range(stage + 1) if op in self.runs[i]]
                    self._row(("by then", op), early, 1)
                    break

    def _everything_comes_from_somewhere(self) -> None:
        for stage, runs in enumerate(self.runs):
            for op, run in runs.items():
                for value in self.reads[op]:
                    found = [(self._before(stage, value), 1), (self._made(stage, value), 1), (run, -1)]
                    self._row(("read", stage, op, value), found, 0)
            for value, there in self.there[stage].items():
                found = [(self._before(stage, value), 1), (self._made(stage, value), 1), (there, -1)]
                self._row(("there", stage, value), found, 0)

    def _everything_fits(self, *, beside: bool) -> None:
        size, capacity, terms = self.size, self.capacity, 0
        for stage, runs in enumerate(self.runs):
            held = [(there, -size[value]) for value, there in self.there[stage].items() if size[value]]
            self._row(("room", stage), held, -capacity)
            through: dict[int, Term] = {}
            for value, there in self.there[stage].items():
                before = self._before(stage, value)
                if size[value] and before is not _NO and beside:
                    lies = through[value] = Term(variable=self.program.variable(("lies", stage, value)))
                    made = self._made(stage, value)
                    self._row(("lies", stage, value), [(lies, 1), (before, -1), (there, -1), (made, 1)], -1)
            for op, run in runs.items() if through else ():
                if run is _YES:
                    continue
                own = self.held(op) | {*self.flow.op_destroys.row(op).tolist()}
                others = {value: lies for value, lies in through.items() if value not in own}
                total = sum(size[value] for value in others)
                over = total + sum(size[value] for value in self.held(op)) - capacity
                if over > 0 and terms < _MOST_BESIDE:
                    terms += len(others)
                    found = [(lies, -size[value]) for value, lies in others.items()]
                    self._row(("beside", stage, op), [*found, (run, -over)], -total)

    def _overwriting(self) -> None:
        flow = self.flow
        for value in flow.destroyed_values().tolist():
            destroyer, maker = int(flow.value_destroyer[value]), self.maker[value]
            for stage in range(self.last + 1):
                gone = [(self.runs[i][destroyer], -1) for i in range(stage) if destroyer in self.runs[i]]
                now = [(self.runs[stage][destroyer], -1)] if destroyer in self.runs[stage] else []
                if value in self.there[stage]:
                    self._row(("gone", stage, value), [(self.there[stage][value], -1), *gone, *now], -1)
                for op in [maker, *flow.value_readers.row(value).tolist()]:
                    if op in self.runs[stage] and op != destroyer:
                        self._row(("over", stage, value, op), [(self.runs[stage][op], -1), *gone], -1)


def run_costs(task: PlayedGraph) -> list[int | Fraction]:
    """Return the cost of a run of each op in one level: there all reads and writes are where they are."""
    flow, level = task.graph.dataflow, task.machine.level[0]
    costs = [exactly(cost) for cost in flow.op_cost.tolist()]
    if task.machine.operands == "any":
        read, write = exactly(level.read), exactly(level.write)
        for op in range(flow.ops):
            costs[op] += read * int(flow.value_size[flow.op_reads.row(op)].sum())
            costs[op] += write * int(flow.value_size[flow.op_writes.row(op)].sum())
    return costs
