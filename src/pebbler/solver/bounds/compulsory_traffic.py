"""Compulsory traffic: what every legal plan pays to have its values written and read at all."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pebbler.game.dataflow import NONE
from pebbler.solver.problem import Problem

__all__ = ["ValuePrices", "compulsory_traffic"]


@dataclass(frozen=True)
class ValuePrices:
    """A problem's prices per value: where it fits, where it starts, how often it is read, and by whom it can be made again."""

    fastest: bool
    read: list[float]
    write: list[float]
    fits: list[list[int]]  # per value: the levels that are large enough for what becomes of it
    # Per value: the levels where it starts; None for what is made, and for params of a steady step.
    start: list[list[int] | None]
    reads: npt.NDArray[np.int64]  # per value: how many reads there are when every op runs once
    again: list[float]  # per value: its share of what another run of its maker costs, infinite when there can be none

    @classmethod
    def of(cls, problem: Problem) -> ValuePrices:
        """Return the prices of a problem."""
        flow, levels = problem.graph.dataflow, problem.machine.level
        sizes = flow.value_size.tolist()
        reads = np.bincount(flow.op_reads.items, minlength=flow.values)
        # A result that may go over what is dropped right after may be dropped itself, if nothing needs it.
        brief = (reads == 0) & ~flow.value_must_survive & (problem.machine.results == "over")
        fits = [
            [i for i, level in enumerate(levels) if level.capacity is None or size <= level.capacity or at_once]
            for size, at_once in zip(sizes, brief.tolist(), strict=True)
        ]
        start: list[list[int] | None] = [None] * flow.values
        for tensor, where in problem.start_choices().items():
            start[flow.start_value[tensor]] = where
        fastest = problem.machine.operands == "fastest"
        # Elsewhere another run reads its operands once more, in the cheapest level at best.
        floor = 0.0 if fastest else min(level.read for level in levels)
        again = [math.inf] * flow.values
        for value in np.flatnonzero(flow.value_can_be_remade).tolist():
            maker = flow.value_maker[value]
            operands = floor * float(flow.value_size[flow.op_reads.row(maker)].sum())
            again[value] = (float(flow.op_cost[maker]) + operands) / len(flow.op_writes.row(maker))
        return cls(
            fastest=fastest,
            read=[level.read for level in levels],
            write=[level.write for level in levels],
            fits=fits,
            start=start,
            reads=reads,
            again=again,
        )

    def base(self, value: int, made: bool) -> float:
        """Return the least that a unit of a value costs in the whole plan, whatever happens to it."""
        count, start = int(self.reads[value]), self.start[value]
        if self.fastest:
            if start is None or count == 0 or 0 in start:
                return 0.0
            return min(self.read[level] for level in start) + self.write[0]
        if made:
            # Reads come from one cheapest level, into which the value was once written.
            return min((self.write[at] + count * self.read[at] for at in self.fits[value]), default=math.inf)
        if start is None:
            return min(count * self.read[at] for at in self.fits[value])
        out = min(self.read[level] for level in start)
        elsewhere = min(out + self.write[at] + count * self.read[at] for at in self.fits[value])
        return min(count * out, elsewhere)


def compulsory_traffic(problem: Problem, prices: ValuePrices) -> float:
    """Return what every plan pays: each op once, and for each value the least that its writes and reads can cost.

    >>> from pebbler import machine, workloads
    >>> problem = Problem.of(workloads.chain(6), machine("red-blue"))
    >>> compulsory_traffic(problem, ValuePrices.of(problem))
    113.0
    """
    flow = problem.graph.dataflow
    total = float(flow.op_cost.sum())
    for value, size in enumerate(flow.value_size.tolist()):
        if size and prices.fits[value]:
            total += size * prices.base(value, bool(flow.value_maker[value] != NONE))
    return total
