"""A lower bound for one graph on caches that holds for every order and any recomputation.

Before an op runs for the first time, what it reads was last touched by some other op that does not depend on it, or lies where it
was at the start. What that op touched afterwards and what this op has read already lies above it in the stack. The cheapest of the
possible last touches gives a price that the read cannot fall below.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np

from pebbler.arrays import Floats
from pebbler.game.dataflow import NONE
from pebbler.referee import pricing
from pebbler.referee.certificates import NotProven, in_time
from pebbler.referee.rows.row import Number
from pebbler.referee.rows.task import Task

__all__ = ["order_bound", "order_floors", "prove_last_touches"]

_MOST_OPS = 4_000  # which ops depend on which is kept as bits


def prove_last_touches(task: Task, certificate: Mapping[str, Any], ends: float) -> Fraction:
    """Return the bound of the formula `last touches`, which has no arguments: each touch is found again."""
    if not task.caches:
        raise NotProven("last touches are known of caches alone")
    return Fraction(sum(_floors(task, ends)))


def order_bound(task: Task) -> float:
    """Return an energy that no plan of a graph on a cache falls below; plans of its tilings may.

    >>> from pebbler import machine, workloads
    >>> order_bound(Task(workloads.note_mlp(), machine("notes-recency"), steady=False))
    10764315.0
    """
    return float(sum(_floors(task)))


def order_floors(task: Task) -> Floats:
    """Return a lower bound on the first run of each op on this cache, whatever runs before it and however often.

    >>> from pebbler import machine, workloads
    >>> order_floors(Task(workloads.note_mlp(), machine("notes-recency"), steady=False))[:2].tolist()
    [2122000.0, 120000.0]
    """
    return np.array([float(floor) for floor in _floors(task)])


def _floors(task: Task, ends: float = math.inf) -> list[Number]:
    bound, found = _OrderBound(task), []
    for op in range(bound.flow.ops):
        in_time(ends, op, "ops")
        found.append(bound.floor(op))
    return found


def _exact(price: float) -> Number:
    return int(price) if price.is_integer() else Fraction(price)


class _OrderBound:
    """One graph on one cache."""

    def __init__(self, task: Task) -> None:
        self.task, self.flow, self.machine = task, task.graph.dataflow, task.machine
        self.ranked = self.machine.management == "recency"
        self.read, self.store = [_exact(price) for price in task.read], [_exact(price) for price in task.write]
        self.capacity = pricing.capacities(self.machine)
        self.line = 1 if self.ranked else self.machine.line  # ranks are of whole tensors, in units
        self.reach = np.cumsum(self.capacity[:-1]) // self.line
        self.cheapest = list(accumulate(self.read[::-1], min))[::-1]
        flow = self.flow
        self.sizes = flow.tensor_size
        self.starts = flow.start_value != NONE
        self.descendants = flow.descendants if flow.ops <= _MOST_OPS else None
        # What lies in the stack: tensors by rank, storages in lines on caches.
        self.place = np.arange(len(self.sizes)) if self.ranked else flow.storage
        self.lines = -(-self.sizes // self.line)
        self.least = np.full(len(self.sizes), pricing.UNBOUNDED, np.int64)
        np.minimum.at(self.least, self.place, self.lines)
        fixed = self.starts if self.ranked or self.machine.allocator == "reuse" else np.ones(len(self.sizes), np.bool_)
        self.fixed = np.zeros(len(self.sizes), np.bool_)  # by place: always at the same address, or always live
        self.fixed[self.place[fixed]] = True
        if self.ranked:
            self.first_maker = self._first_makers()
            self.read_from = self._tensors_read_from()

    def _first_makers(self) -> list[int]:
        """Return, per tensor, the op that writes it first; NONE if no op writes it."""
        found = [NONE] * len(self.sizes)
        for op in range(self.flow.ops - 1, -1, -1):
            for tensor in self.flow.value_tensor[self.flow.op_writes.row(op)].tolist():
                found[tensor] = op
        return found

    def _tensors_read_from(self) -> list[int]:
        """Return, per op, the tensors that it or an op after it reads, as the bits of an integer."""
        flow = self.flow
        found = [0] * flow.ops
        for op in range(flow.ops - 1, -1, -1):
            for tensor in flow.value_tensor[flow.op_reads.row(op)].tolist():
                found[op] |= 1 << tensor
            if flow.ops <= _MOST_OPS:
                for later in flow.after.row(op).tolist():
                    found[op] |= found[later]
        return found

    def floor(self, op: int) -> Number:
        """Return a lower bound on the cost of an op's first run."""
        values = self.flow.op_reads.row(op).tolist()
        energy = _exact(float(self.flow.op_cost[op]))
        energy += sum(self._read_price(op, values[:position], value) for position, value in enumerate(values))
        return energy + sum(self._write_price(value) for value in self.flow.op_writes.row(op).tolist())

    def _read_price(self, op: int, earlier: list[int], value: int) -> Number:
        flow, tensor = self.flow, int(self.flow.value_tensor[value])
        size = int(self.sizes[tensor])
        if value in earlier:
            return size * self.cheapest[self._level(int(self.least[self.place[tensor]])) if self.ranked else 0]
        above = [int(self.place[flow.value_tensor[other]]) for other in earlier]
        found: list[Number] = []
        if flow.value_maker[value] == NONE:
            if not self.ranked and not self.task.steady:
                found.append(self.read[-1])  # never touched
            else:
                before = np.flatnonzero(self.starts[:tensor]).tolist() if self.ranked else []
                found.append(self._price_at(tensor, above, before))
        candidates = {int(flow.value_maker[value]), *flow.value_readers.row(value).tolist()} - {NONE, op}
        for other in sorted(candidates):
            if not (self.descendants and self.descendants[op] >> other & 1):
                found.append(self._price_at(tensor, above, self._touched_after(other, value, op)))
        return size * min(found)

    def _touched_after(self, op: int, value: int, reader: int) -> list[int]:
        """Return the places that are above a value once an op that touches it has run, until another's first run reads it."""
        flow, tensor = self.flow, int(self.flow.value_tensor[value])
        touched = [*flow.op_reads.row(op).tolist(), *flow.op_writes.row(op).tolist()]
        tensors = flow.value_tensor[touched].tolist()
        if self.ranked:
            # All touched in one step tie, and ties go to what was there first.
            return [t for t in tensors if t != tensor and self._stays(t, reader) and self._came_before(t, tensor)]
        last = max(i for i, other in enumerate(touched) if other == value)
        return [int(self.place[t]) for t in tensors[last + 1 :]]

    def _stays(self, tensor: int, reader: int) -> bool:
        """Whether a tensor that was in the ranking is still there when an op runs first: it always is, or is read then or later."""
        return bool(self.starts[tensor] or self.read_from[reader] >> tensor & 1)

    def _came_before(self, tensor: int, other: int) -> bool:
        """Whether a tensor came into the ranking before another one in every order."""
        if self.starts[tensor] or self.starts[other]:
            return bool(self.starts[tensor] and (not self.starts[other] or tensor < other))
        makers = self.first_maker[tensor], self.first_maker[other]
        if makers[0] == makers[1]:
            written = self.flow.value_tensor[self.flow.op_writes.row(makers[0])].tolist()
            return bool(written.index(tensor) < written.index(other))
        return bool(self.descendants and self.descendants[makers[0]] >> makers[1] & 1)

    def _price_at(self, tensor: int, above: list[int], before: list[int]) -> Number:
        """Return the price of reading a tensor with these places above it; temps of the two lists may share addresses."""
        own = int(self.place[tensor])
        first, second = set(above) - {own}, set(before) - {own}
        if self.ranked:
            depth = sum(int(self.lines[t]) for t in first | second)
        else:
            always = {place for place in first | second if self.fixed[place]}
            depth = sum(int(self.least[place]) for place in always)
            depth += max(sum(int(self.least[place]) for place in places - always) for places in (first, second))
        return self.cheapest[self._level(depth + int(self.least[own]))]

    def _level(self, depth: int) -> int:
        return int(np.searchsorted(self.reach, depth, "left"))

    def _write_price(self, value: int) -> Number:
        flow, tensor = self.flow, int(self.flow.value_tensor[value])
        size = int(self.sizes[tensor])
        if self.ranked:
            fits = [level for level, room in enumerate(self.capacity.tolist()) if size <= room]
            return size * self.store[fits[0] if fits else -1]
        energy = size * self.store[0]
        stays = self.task.steady and value == flow.final_value[tensor] and self.starts[flow.storage[tensor]]
        if len(flow.value_readers.row(value)) or stays:
            # The next touch finds it under all of itself, so it has been written back that far.
            own = int(self.least[self.place[tensor]])
            energy += own * self.line * sum(self.store[1 : self._level(own) + 1])
        return energy
