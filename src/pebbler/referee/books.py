"""What a schedule costs under each management, and where: one function per rule set.

Under `explicit` the moves say where everything is, so the referee's own kernel keeps the books. Under `recency` and `lru` the
moves are computes only and the price follows from their order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from pebbler.game.dataflow import NONE, Dataflow
from pebbler.game.graph import Graph
from pebbler.game.machine import Machine
from pebbler.referee.kernels import recency_rank as recency
from pebbler.referee.touches import touch
from pebbler.trace.lru import lru_energy

__all__ = ["UNBOUNDED", "Books", "capacities", "price_lru", "price_recency", "prices"]

UNBOUNDED = 2**62
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Books:
    """Energy by level, tensor, op and kind of move, and of every single move."""

    by_level: Floats
    by_tensor: Floats
    by_op: Floats
    by_kind: Floats
    step_energy: Floats

    @classmethod
    def empty(cls, levels: int, flow: Dataflow, steps: int) -> Books:
        """Return books with nothing in them yet."""
        return cls(*(np.zeros(n) for n in (levels, len(flow.tensor_names), flow.ops, 3, steps)))


def capacities(machine: Machine) -> npt.NDArray[np.int64]:
    """Return the capacity of every level; unbounded ones get a number larger than any sum of sizes."""
    return np.array([UNBOUNDED if level.capacity is None else level.capacity for level in machine.level], np.int64)


def prices(machine: Machine, which: Literal["read", "write"]) -> Floats:
    """Return the read or write price of every level."""
    return np.array([getattr(level, which) for level in machine.level], np.float64)


def price_recency(graph: Graph, machine: Machine, order: npt.NDArray[np.int64]) -> Books:
    """Return what running the ops in `order` costs by note 000's rule: a tensor's level is its recency rank.

    >>> from pebbler import workloads, machine
    >>> graph = workloads.note_mlp()
    >>> price_recency(graph, machine("notes-recency"), np.arange(15)).by_level.tolist()
    [50.0, 300040.0, 10704400.0, 0.0]
    """
    flow = graph.dataflow
    machine = machine.in_unit(graph.unit)
    books = Books.empty(len(machine.level), flow, len(order))
    reads, writes = flow.op_reads, flow.op_writes
    books.by_kind[0] = recency.price(
        np.ascontiguousarray(order, np.int64),
        reads.start, flow.value_tensor[reads.items], writes.start, flow.value_tensor[writes.items],
        np.array([tensor.size for tensor in graph.tensors], np.int64), flow.start_value != NONE, flow.op_cost,
        capacities(machine), prices(machine, "read"), prices(machine, "write"),
        books.by_level, books.by_tensor, books.by_op, books.step_energy,
    )  # fmt: skip
    return books


def price_lru(graph: Graph, machine: Machine, order: npt.NDArray[np.int64], *, steady: bool) -> Books:
    """Return what running the ops in `order` costs on hardware LRU caches with write-back.

    A write-back is charged to the write that made the line dirty; a steady plan is one repetition of an endless loop.

    >>> from pebbler import workloads, machine
    >>> import msgspec
    >>> own = msgspec.structs.replace(machine("notes"), allocator="own")
    >>> int(price_lru(workloads.mlp(), own, np.arange(15), steady=True).by_level.sum())
    12843490
    """
    flow = graph.dataflow
    machine = machine.in_unit(graph.unit)
    books = Books.empty(len(machine.level), flow, len(order))
    touches = touch(graph, order, machine.allocator, machine.line)
    item, lines, units, run = touches.in_lines(machine.line)
    reads, writes = prices(machine, "read"), prices(machine, "write")
    step = touches.step[run]
    if len(item):
        caps = [level.capacity for level in machine.level]
        priced = lru_energy(
            item, touches.write[run], caps, reads.tolist(), writes.tolist(),
            sizes=lines, line=machine.line, units=units, steady=steady, detail=True,
        )  # fmt: skip
        assert priced.touches is not None
        paid = priced.touches.read + priced.touches.write + priced.touches.owned_write_back
        books.by_level[:] = np.array(priced.read_units) * reads
        books.by_level[:] += (np.array(priced.write_units) + np.array(priced.write_back_units)) * writes
        np.add.at(books.by_tensor, touches.tensor[run], paid)
        np.add.at(books.by_op, order[step], paid)
        np.add.at(books.step_energy, step, paid)
    costs = flow.op_cost[order]
    books.by_level[0] += costs.sum()
    np.add.at(books.by_op, order, costs)
    books.step_energy[:] += costs
    named = [(row[0] if len(row) else flow.op_reads.row(op)[0]) for op, row in enumerate(flow.op_writes)]
    if len(named):
        np.add.at(books.by_tensor, flow.value_tensor[np.array(named)[order]], costs)
    books.by_kind[0] = books.step_energy.sum()
    return books
