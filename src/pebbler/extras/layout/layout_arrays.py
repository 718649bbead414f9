"""A graph in a fixed order as arrays: when every value is there and when it is read, and which levels are of use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pebbler.arrays import Ints
from pebbler.extras.layout.kernels.value_route import ANYWHERE, LayoutArrays
from pebbler.game.dataflow import NONE, Dataflow
from pebbler.referee import pricing
from pebbler.solver.problem import Problem

__all__ = ["LayoutGame", "can_lay_out"]

_SPARE = 1.3  # room for further copies, of what all live values take


def can_lay_out(problem: Problem) -> bool:
    """Return whether layouts of this problem can be made: operands anywhere, prices that rise, no loop, one result per op.

    >>> from pebbler import machine, workloads
    >>> can_lay_out(Problem.of(workloads.matmul(2, 2, 2), machine("grid")))
    True
    """
    flow, machine = problem.graph.dataflow, problem.machine
    if machine.management != "explicit" or machine.operands != "any" or len(machine.level) == 1:
        return False
    sized = np.bincount(
        np.repeat(np.arange(flow.ops), np.diff(flow.op_writes.start))[flow.value_size[flow.op_writes.items] > 0],
        minlength=flow.ops,
    )
    rising = bool((np.diff(pricing.prices(machine, "read")) >= 0).all())
    return flow.ops > 0 and not problem.steady and rising and bool((sized <= 1).all())


@dataclass(frozen=True)
class LayoutGame:
    """The arrays of an order, and the meaning of their numbers."""

    arrays: LayoutArrays
    values: Ints  # the graph's values, by the numbers that the arrays have for them
    levels: Ints  # the machine's levels, likewise
    capacity: Ints
    order: Ints

    @classmethod
    def of(cls, problem: Problem, order: Ints) -> LayoutGame:
        """Return the problem's graph with its ops run in an order, every op once."""
        flow = problem.graph.dataflow
        position = np.empty(flow.ops, np.int64)
        position[order] = np.arange(flow.ops) + 1  # position 0 is the start
        over = problem.machine.results == "over"
        first, end = _lives(flow, position, over)
        values = np.flatnonzero((flow.value_size > 0) & (end > first))
        peak = _peak(first[values], end[values], flow.value_size[values], 2 * flow.ops + 3)
        levels = _levels(problem, peak)
        number = np.full(flow.values, NONE)
        number[values] = np.arange(len(values))
        rank = {int(level): i for i, level in enumerate(levels)}
        begin = np.full(flow.values, ANYWHERE)
        for tensor, where in problem.start_choices().items():
            if where is not None:
                begin[flow.start_value[tensor]] = min(rank[level] for level in where)
        uses = _uses(flow, position, number)
        touched = _touched(flow, order, number)
        arrays = LayoutArrays(
            read=pricing.prices(problem.machine, "read")[levels],
            write=pricing.prices(problem.machine, "write")[levels],
            slots=2 * flow.ops + 3,
            parts=3 if over else 2,
            size=flow.value_size[values],
            first=first[values],
            end=end[values],
            begin=begin[values],
            made=flow.value_maker[values] != NONE,
            use_start=uses[0],
            use=uses[1],
            times=uses[2],
            touch_start=touched[0],
            touch=touched[1],
        )
        return cls(arrays, values, levels, pricing.capacities(problem.machine)[levels], order)


def _lives(flow: Dataflow, position: Ints, over: bool) -> tuple[Ints, Ints]:
    """Return per value the slot in which it is first there, and the first in which it is no longer needed."""
    made = flow.value_maker != NONE
    first = np.where(made, 2 * position[flow.value_maker] + 1, 0)
    end = np.where(
        made, first + (0 if over else 1), 0
    )  # what is made is there, needed or not, unless it is dropped at once
    reader = np.repeat(np.arange(flow.ops), np.diff(flow.op_reads.start))
    np.maximum.at(end, flow.op_reads.items, 2 * position[reader] + (1 if over else 2))
    gone = flow.value_destroyer != NONE
    end[gone] = np.minimum(end[gone], 2 * position[flow.value_destroyer[gone]] + 1)
    end[flow.value_must_survive] = 2 * flow.ops + 3
    return first, end


def _peak(first: Ints, end: Ints, size: Ints, slots: int) -> int:
    """Return the most units that are there at a time."""
    change = np.zeros(slots + 1, np.int64)
    np.add.at(change, first, size)
    np.add.at(change, end, -size)
    return int(np.cumsum(change).max(initial=0))


def _levels(problem: Problem, peak: int) -> Ints:
    """Return the levels that are of use: the first, as far as they are needed, those where something starts, and the last."""
    capacity = pricing.capacities(problem.machine).tolist()
    last = len(capacity) - 1
    chosen, room = {last}, 0
    for level in range(last):
        if room < _SPARE * peak + 1:
            chosen.add(level)
            room += capacity[level]
    for where in problem.start_choices().values():
        chosen |= set(where or ())
    return np.array(sorted(chosen), np.int64)


def _uses(flow: Dataflow, position: Ints, number: Ints) -> tuple[Ints, Ints, Ints]:
    """Return rows of uses per value in the order of time: positions, and how often the op reads the value."""
    reader = position[np.repeat(np.arange(flow.ops), np.diff(flow.op_reads.start))]
    value = number[flow.op_reads.items]
    places = flow.ops + 1
    pairs, times = np.unique((value * places + reader)[value != NONE], return_counts=True)
    start = np.searchsorted(pairs // places, np.arange(int((number != NONE).sum()) + 1))
    return start.astype(np.int64), pairs % places, times.astype(np.int64)


def _touched(flow: Dataflow, order: Ints, number: Ints) -> tuple[Ints, Ints]:
    """Return rows of values per position: what the op there reads or makes."""
    rows = [np.zeros(0, np.int64)]
    for op in order.tolist():
        row = number[np.concatenate([flow.op_reads.row(op), flow.op_writes.row(op)])]
        rows.append(np.unique(row[row != NONE]))
    start = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return start, np.concatenate(rows)
