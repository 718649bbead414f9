"""All legal orders of a small graph, and their costs under note 000's pricing."""

from __future__ import annotations

import numpy as np

from pebbler.arrays import Bools, Floats, Ints
from pebbler.game.dataflow import NONE
from pebbler.game.graph import Graph
from pebbler.game.machine import Machine
from pebbler.game.orders import iterate_orders
from pebbler.referee.kernels.cache_price import price
from pebbler.referee.pricing import cache_game
from pebbler.trace.buffer_events import Events

__all__ = ["all_orders", "hazard_free", "order_ards", "order_events", "recency_energies"]


def all_orders(graph: Graph, *, war: bool = True) -> Ints:
    """Return every order of the ops that respects the hazards, one per row; without `war`, only the data flow.

    >>> from pebbler import workloads
    >>> graph = workloads.note_mlp()
    >>> len(all_orders(graph, war=False)), len(all_orders(graph))
    (7560, 7290)
    """
    return np.array(list(iterate_orders(graph, war=war)), dtype=np.int64)


def hazard_free(graph: Graph, orders: Ints) -> Bools:
    """Return the orders that respect every hazard, including those of in-place updates.

    >>> from pebbler import workloads
    >>> graph = workloads.note_mlp()
    >>> int(hazard_free(graph, all_orders(graph, war=False)).sum())
    7290
    """
    position = np.argsort(orders, axis=1)
    free = np.ones(len(orders), dtype=np.bool_)
    for after, befores in enumerate(graph.dataflow.before.lists()):
        for before in befores:
            free &= position[:, before] < position[:, after]
    return free


def recency_energies(graph: Graph, machine: Machine, orders: Ints) -> Floats:
    """Return the cost of each order by note 000's rule, from the referee's kernel, set up once for all orders.

    >>> from pebbler import machine, workloads
    >>> recency_energies(workloads.note_mlp(), machine("notes-recency"), np.arange(15)[None]).tolist()
    [11004490.0]
    """
    game = cache_game(graph, machine.in_unit(graph.unit), steady=False)
    return np.array([price(game, order) for order in orders])


def order_events(graph: Graph, order: list[str] | None = None) -> Events:
    """Return note 000's trace of an order: initial writes, then each op's reads and its write.

    An update writes the parameter itself, whatever the graph calls the result.

    >>> from pebbler import workloads
    >>> order_events(workloads.note_mlp())
    <Events: 30 reads, 21 writes, 144078 floats>
    """
    events = Events()
    for tensor in graph.tensors:
        if tensor.kind in ("input", "param"):
            events.write(tensor.name, tensor.size)
    for op in graph.ops if order is None else [graph.op_named(name) for name in order]:
        for name in op.reads:
            events.read(name)
        for name in op.writes:
            tensor = graph.tensor_named(name)
            events.write(tensor.overwrites or name, tensor.size)
    return events


def order_ards(graph: Graph, orders: Ints) -> Floats:
    """Return the weighted ARD of many hazard-free orders at once, the same as `order_events` gives one by one.

    In such an order a read always sees the version that program order gives it, so its distance is the clock of its op
    less the clock of that version's maker.

    >>> from pebbler import workloads
    >>> order_ards(workloads.note_mlp(), np.arange(15)[None]).tolist()
    [45275.211759463076]
    """
    flow = graph.dataflow
    size, maker = flow.value_size.tolist(), flow.value_maker.tolist()
    start = [value for value in flow.start_value.tolist() if value != NONE]
    stamp = dict(zip(start, np.cumsum([0, *(size[value] for value in start)]).tolist(), strict=False))
    reads, writes = ([row.tolist() for row in rows] for rows in (flow.op_reads, flow.op_writes))
    floats = np.array([sum(size[value] for value in reads[op] + writes[op]) for op in range(flow.ops)])
    clock = np.zeros_like(orders)
    began = sum(size[value] for value in start)
    np.put_along_axis(clock, orders, began + np.cumsum(floats[orders], axis=1) - floats[orders], axis=1)
    moved, total = np.zeros(len(orders), dtype=np.int64), 0
    for op in range(flow.ops):
        now = clock[:, op].copy()
        for value in reads[op]:
            made = maker[value]
            written = stamp[value] if made == NONE else clock[:, made] + _before(value, reads[made], writes[made], size)
            moved += size[value] * (now - written)
            total += size[value]
            now += size[value]
    return moved / total


def _before(value: int, reads: list[int], writes: list[int], size: list[int]) -> int:
    """Return the floats that an op touches before it writes a value."""
    return sum(size[other] for other in reads + writes[: writes.index(value)])
