"""The cost of a schedule on caches, by level: a graph and a machine as the rules see them, and one function per rule.

Under `explicit` the moves say where everything is (`explicit_play`). Under `recency` and `lru` the moves are computes only
and the price follows from their order.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from pebbler.arrays import Floats, Ints
from pebbler.game.dataflow import NONE
from pebbler.game.graph import Graph
from pebbler.game.machine import Machine
from pebbler.referee.kernels.books import Books
from pebbler.referee.kernels.cache_price import LruGame
from pebbler.referee.kernels.recency_rank import RecencyGame, price_prefix
from pebbler.referee.lru_window import price_window
from pebbler.referee.touches import Touches, touches_of_ops

__all__ = ["UNBOUNDED", "cache_game", "capacities", "price_lru", "price_recency", "prices"]

UNBOUNDED = 2**62


def capacities(machine: Machine) -> Ints:
    """Return the capacity of every level; unbounded ones get a number larger than any sum of sizes."""
    return np.array([UNBOUNDED if level.capacity is None else level.capacity for level in machine.level], np.int64)


def prices(machine: Machine, which: Literal["read", "write"]) -> Floats:
    """Return the read or write price of every level."""
    return np.array([getattr(level, which) for level in machine.level], np.float64)


def cache_game(graph: Graph, machine: Machine, *, steady: bool) -> LruGame | RecencyGame:
    """Return the graph as the machine's rule sees it; the machine is in the graph's unit.

    `kernels.cache_price.price` prices an order of it: the total alone, in microseconds.

    >>> from pebbler import machine, workloads
    >>> from pebbler.referee.kernels.cache_price import price
    >>> price(cache_game(workloads.mlp(), machine("notes"), steady=True), np.arange(15))
    12743390.0
    """
    return _recency_game(graph, machine) if machine.management == "recency" else _lru_game(graph, machine, steady)


def price_recency(graph: Graph, machine: Machine, order: Ints) -> Books:
    """Return the cost of running the ops in `order` by note 000's rule: a tensor's level is its recency rank.

    >>> from pebbler import workloads, machine
    >>> graph = workloads.note_mlp()
    >>> price_recency(graph, machine("notes-recency"), np.arange(15)).by_level.tolist()
    [50.0, 300040.0, 10704400.0, 0.0]
    """
    machine = machine.in_unit(graph.unit)
    books = Books.empty(len(machine.level), len(graph.tensors), len(graph.ops), len(order))
    order = np.ascontiguousarray(order, np.int64)
    books.by_kind[0] = price_prefix(_recency_game(graph, machine), order, len(order), True, books)[0]
    return books


def price_lru(graph: Graph, machine: Machine, order: Ints, *, steady: bool) -> Books:
    """Return the cost of running the ops in `order` on hardware LRU caches with write-back.

    A write-back is charged to the write that made the line dirty; a steady plan is one repetition of an endless loop.

    >>> from pebbler import workloads, machine
    >>> import msgspec
    >>> own = msgspec.structs.replace(machine("notes"), allocator="own")
    >>> int(price_lru(workloads.mlp(), own, np.arange(15), steady=True).by_level.sum())
    12843490
    """
    flow = graph.dataflow
    machine = machine.in_unit(graph.unit)
    game = _lru_game(graph, machine, steady)
    books = Books.empty(len(machine.level), len(graph.tensors), len(graph.ops), len(order))
    order = np.ascontiguousarray(order, np.int64)
    touches = Touches.of(game.touches, order)
    runs, touched, _ = touches.in_lines(machine.line)
    step = touches.step[touched]
    if len(runs.item):
        priced = price_window(runs, game.reach, game.read, game.store, steady=steady, detail=True)
        assert priced.touches is not None
        paid = priced.touches.read + priced.touches.write + priced.touches.owned_write_back
        books.by_level[:] = np.array(priced.read_units) * game.read
        books.by_level[:] += (np.array(priced.write_units) + np.array(priced.write_back_units)) * game.store
        np.add.at(books.by_tensor, touches.tensor[touched], paid)
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


def _lru_game(graph: Graph, machine: Machine, steady: bool) -> LruGame:
    return LruGame(
        touches=touches_of_ops(graph, machine.allocator, machine.line),
        cost=graph.dataflow.op_cost,
        reach=np.cumsum(capacities(machine)[:-1]) // machine.line,
        read=prices(machine, "read"),
        store=prices(machine, "write"),
        steady=steady,
    )


def _recency_game(graph: Graph, machine: Machine) -> RecencyGame:
    flow = graph.dataflow
    return RecencyGame(
        cost=flow.op_cost,
        read=prices(machine, "read"),
        store=prices(machine, "write"),
        read_start=flow.op_reads.start,
        read_tensor=flow.value_tensor[flow.op_reads.items],
        write_start=flow.op_writes.start,
        write_tensor=flow.value_tensor[flow.op_writes.items],
        size=flow.tensor_size,
        initial=flow.start_value != NONE,
        capacity=capacities(machine),
    )
