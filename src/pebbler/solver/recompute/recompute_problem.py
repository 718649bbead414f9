"""A problem on one level of memory: sequences of ops in, moves out.

A machine of one level cannot store anything away, so a plan is a sequence of ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pebbler.errors import InputError
from pebbler.game.dataflow import NONE, Dataflow, Rows
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.moves import COMPUTE, DROP, Moves
from pebbler.solver.problem import Problem
from pebbler.solver.recompute.kernels.sequence_memory import RecomputeArrays, list_moves, measure

__all__ = ["ENDLESS", "PartMeasure", "RecomputeProblem", "SequenceMeasure", "program_order_peak"]

ENDLESS = 2**62
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class SequenceMeasure:
    """The cost and the memory of a sequence of ops."""

    cost: float
    legal: bool  # apart from room
    over: int  # units above capacity, summed over the runs
    memory: Ints  # units held at every run

    @property
    def fits(self) -> bool:
        """Whether the sequence can be played as it is."""
        return self.legal and self.over == 0


class PartMeasure(NamedTuple):
    """The memory of a part of a sequence."""

    over: int  # units above capacity, summed over the runs; negative if it is not legal
    needed: Bools  # per value: whether it must be there before
    later: Bools  # per op: whether it runs from the start of the part on
    memory: Ints  # units held at every run


@dataclass(frozen=True)
class RecomputeProblem:
    """The flat form of a one-level problem.

    >>> from pebbler.game.machine import Level, Machine
    >>> from pebbler.workloads import chain
    >>> one = Machine("one", "pebble", (Level("fast", 0, 0, capacity=4),))
    >>> game = RecomputeProblem.of(Problem.of(chain(2), one))
    >>> game.measure(game.program).memory.tolist()
    [2, 3, 3, 3, 2]
    """

    original: Problem
    arrays: RecomputeArrays

    @classmethod
    def of(cls, problem: Problem, capacity: int | None = None) -> RecomputeProblem:
        """Return the game of a problem whose machine has one level, or of the same with another capacity."""
        levels = problem.machine.level
        if len(levels) != 1:
            raise InputError(f"the recomputation game has one level of memory, machine has {len(levels)}")
        flow = problem.graph.dataflow
        reads = _distinct(flow.op_reads)
        writes = flow.op_writes
        cost = flow.op_cost.copy()
        if problem.machine.operands == "any":
            # Reads are priced each time they are named, as the referee does.
            cost += levels[0].read * _sums(flow.op_reads, flow.value_size)
            cost += levels[0].write * _sums(writes, flow.value_size)
        if capacity is None:
            capacity = ENDLESS if levels[0].capacity is None else levels[0].capacity
        arrays = RecomputeArrays(
            np.int64(capacity), flow.value_size, flow.value_maker, flow.value_destroyer, flow.value_must_survive,
            cost, flow.op_can_rerun,
            reads.start, reads.items, writes.start, writes.items, flow.op_destroys.start, flow.op_destroys.items,
        )  # fmt: skip
        return cls(problem, arrays)

    @property
    def flow(self) -> Dataflow:
        """The values of the graph and its hazards."""
        return self.original.graph.dataflow

    @property
    def level(self) -> str:
        """The name of the one level."""
        return self.original.machine.names[0]

    @property
    def capacity(self) -> int:
        """Units that fit."""
        return int(self.arrays.capacity)

    @property
    def ops(self) -> int:
        """The number of ops."""
        return self.flow.ops

    @property
    def program(self) -> Ints:
        """Program order as a sequence."""
        return np.arange(self.ops, dtype=np.int64)

    @cached_property
    def base_cost(self) -> float:
        """The cost of all ops, run once each."""
        return float(self.arrays.cost.sum())

    @cached_property
    def at_start(self) -> Bools:
        """Per value: whether it is there at the start."""
        return np.equal(self.flow.value_maker, NONE)

    @cached_property
    def reads(self) -> Rows:
        """The values that each op reads, each once."""
        return Rows(self.arrays.r_start, self.arrays.r_items)

    @cached_property
    def op_units(self) -> Ints:
        """Per op: the units that its reads and results take together."""
        size = self.arrays.size
        kept = _sums(self.reads, size) + _sums(self.flow.op_writes, size)
        for op in np.flatnonzero(self.flow.op_in_place).tolist():
            gone = np.intersect1d(self.reads.row(op), self.flow.op_destroys.row(op))
            kept[op] -= size[gone].sum()
        return kept

    def measure(self, sequence: Sequence[int] | Ints) -> SequenceMeasure:
        """Return the cost and the memory of a sequence."""
        runs = np.ascontiguousarray(sequence, np.int64)
        counts = np.bincount(runs, minlength=self.ops)
        legal = bool(np.all(counts >= 1)) and bool(np.all(self.arrays.again | (counts <= 1)))
        part = self.measure_part(runs, 0, len(runs), self.arrays.survive, self.at_start, np.zeros(self.ops, np.bool_))
        return SequenceMeasure(float(self.arrays.cost[runs].sum()), legal and part.over >= 0, part.over, part.memory)

    def measure_rest(self, sequence: Ints, first: int) -> PartMeasure:
        """Return the memory of a sequence from a run on, whatever values it finds there."""
        everything, nothing = np.ones(self.flow.values, np.bool_), np.zeros(self.ops, np.bool_)
        return self.measure_part(sequence, first, len(sequence), self.arrays.survive, everything, nothing)

    def measure_part(
        self, sequence: Ints, first: int, last: int, after: Bools, before: Bools, later: Bools, most: int = ENDLESS
    ) -> PartMeasure:
        """Return the memory of `sequence[first:last]`; `after` are the values needed after it, `later` the ops that run then.

        `before` are the values that it may find; more than `most` units above capacity count as illegal.
        """
        memory = np.zeros(last, np.int64)
        needed, seen = np.zeros(self.flow.values, np.bool_), np.zeros(self.ops, np.bool_)
        over = measure(self.arrays, sequence, first, last, after, before, later, most, memory, needed, seen)
        return PartMeasure(int(over), needed, seen, memory)

    def moves(self, sequence: Sequence[int] | Ints) -> Moves:
        """Return a legal sequence as moves: every value is dropped as soon as no run reads it before it is made again."""
        runs = np.ascontiguousarray(sequence, np.int64)
        kind, subject = list_moves(self.arrays, runs, self.at_start, COMPUTE, DROP)
        dropped = kind == DROP
        subject[dropped] = self.flow.value_tensor[subject[dropped]]
        return Moves.numbered(self.original.graph, self.original.machine, kind, subject)


def program_order_peak(graph: Graph) -> int:
    """Return the most units that program order holds at once when every value is freed after its last use.

    >>> from pebbler.workloads import chain
    >>> program_order_peak(chain(6))
    7
    """
    endless = Machine("memory", graph.unit, (Level("memory", 0, 0),))
    game = RecomputeProblem.of(Problem.of(graph, endless))
    return int(game.measure(game.program).memory.max(initial=1))


def _distinct(rows: Rows) -> Rows:
    """Return the rows with every item once, in the order in which they come first."""
    row = np.repeat(np.arange(len(rows)), np.diff(rows.start))
    top = int(rows.items.max(initial=0)) + 1
    _, first = np.unique(row * top + rows.items, return_index=True)
    first.sort()
    return Rows.flat(np.bincount(row[first], minlength=len(rows)), rows.items[first])


def _sums(rows: Rows, weight: Ints) -> Ints:
    total = np.concatenate([np.zeros(1, np.int64), np.cumsum(weight[rows.items])])
    return np.asarray(total[rows.start[1:]] - total[rows.start[:-1]], np.int64)
