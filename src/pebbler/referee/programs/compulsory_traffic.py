"""Compulsory traffic: what every legal plan pays to have its values written and read at all.

Amounts are exact: whole numbers, or fractions where prices are none. Only what can never be paid is an infinite float.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from pebbler.game.dataflow import NONE
from pebbler.game.starts import PlayedGraph, start_choices

__all__ = ["Amount", "ValuePrices", "compulsory_traffic", "exactly", "run_cost"]

Amount = float | Fraction  # an int, a Fraction, or an infinite float


def exactly(amount: float) -> int | Fraction:
    """Return a double as the number that it is.

    >>> exactly(3.0), exactly(0.75)
    (3, Fraction(3, 4))
    """
    return int(amount) if float(amount).is_integer() else Fraction(amount)


def run_cost(task: PlayedGraph) -> Amount:
    """Return the cost of running every op once."""
    return sum((exactly(cost) for cost in task.graph.dataflow.op_cost.tolist()), 0)


@dataclass(frozen=True)
class ValuePrices:
    """A problem's prices per value: where it fits, where it starts, how often it is read, and by whom it can be made again."""

    fastest: bool
    read: list[int | Fraction]
    write: list[int | Fraction]
    fits: list[list[int]]  # per value: the levels that are large enough for what becomes of it
    # Per value: the levels where it starts; None for what is made, and for params of a steady step.
    start: list[list[int] | None]
    reads: npt.NDArray[np.int64]  # per value: how many reads there are when every op runs once
    again: list[Amount]  # per value: its share of what another run of its maker costs, infinite when there can be none

    @classmethod
    def of(cls, task: PlayedGraph) -> ValuePrices:
        """Return the prices of a task."""
        flow, levels = task.graph.dataflow, task.machine.level
        sizes = flow.value_size.tolist()
        reads = np.bincount(flow.op_reads.items, minlength=flow.values)
        # A result that may go over what is dropped right after may be dropped itself, if nothing needs it.
        brief = (reads == 0) & ~flow.value_must_survive & (task.machine.results == "over")
        fits = [
            [i for i, level in enumerate(levels) if level.capacity is None or size <= level.capacity or at_once]
            for size, at_once in zip(sizes, brief.tolist(), strict=True)
        ]
        start: list[list[int] | None] = [None] * flow.values
        for tensor, where in start_choices(task).items():
            start[flow.start_value[tensor]] = where
        fastest = task.machine.operands == "fastest"
        # Elsewhere another run reads its operands once more, in the cheapest level at best.
        floor = 0 if fastest else min(exactly(level.read) for level in levels)
        again: list[Amount] = [math.inf] * flow.values
        for value in np.flatnonzero(flow.value_can_be_remade).tolist():
            maker = flow.value_maker[value]
            operands = floor * int(flow.value_size[flow.op_reads.row(maker)].sum())
            again[value] = Fraction(exactly(float(flow.op_cost[maker])) + operands) / len(flow.op_writes.row(maker))
        return cls(
            fastest=fastest,
            read=[exactly(level.read) for level in levels],
            write=[exactly(level.write) for level in levels],
            fits=fits,
            start=start,
            reads=reads,
            again=again,
        )

    def base(self, value: int, made: bool) -> Amount:
        """Return the least that a unit of a value costs in the whole plan, whatever happens to it."""
        count, start = int(self.reads[value]), self.start[value]
        if self.fastest:
            if start is None or count == 0 or 0 in start:
                return 0
            return min(self.read[level] for level in start) + self.write[0]
        if made:
            # Reads come from one cheapest level, into which the value was once written.
            return min((self.write[at] + count * self.read[at] for at in self.fits[value]), default=math.inf)
        if start is None:
            return min(count * self.read[at] for at in self.fits[value])
        out = min(self.read[level] for level in start)
        elsewhere = min(out + self.write[at] + count * self.read[at] for at in self.fits[value])
        return min(count * out, elsewhere)


def compulsory_traffic(task: PlayedGraph, prices: ValuePrices) -> Amount:
    """Return the cost that every plan pays: each op once, and for each value the least that its writes and reads can cost.

    >>> from pebbler import machine, workloads
    >>> from pebbler.referee.rows.task import Task
    >>> task = Task(workloads.chain(6), machine("red-blue"), steady=False)
    >>> compulsory_traffic(task, ValuePrices.of(task))
    113
    """
    flow = task.graph.dataflow
    total = run_cost(task)
    for value, size in enumerate(flow.value_size.tolist()):
        if size and prices.fits[value]:
            total += size * prices.base(value, bool(flow.value_maker[value] != NONE))
    return total
