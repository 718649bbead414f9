"""Orders by list scheduling: of all nodes that are ready, the next is the nearest one, or that of the lowest tile."""

from __future__ import annotations

import numpy as np

from pebbler.arrays import Bools, Ints
from pebbler.game.dataflow import NONE, Rows
from pebbler.game.machine import Machine
from pebbler.game.ready_list import ReadyList, schedule_by_key
from pebbler.game.tile_meta import tile_numbers
from pebbler.referee import pricing
from pebbler.solver.tiling.kernels.nearest_order import BY_PRICE, BY_RECENCY, nearest_order
from pebbler.solver.tiling.node_graph import NodeGraph

__all__ = ["forward_sweeps", "nearest_first"]


def nearest_first(nodes: NodeGraph, machine: Machine, *, by_price: bool = False, rounds: int = 3) -> Ints:
    """Return a sequence of nodes: always the one whose operands are nearest in an LRU stack, or cheapest to read.

    Each round begins with the stack that the one before has left, as the steps of a training loop do.

    >>> from pebbler.game.machine import machine
    >>> from pebbler.game.transform import tile
    >>> from pebbler.workloads import mlp
    >>> tiled = tile(mlp(), "hidden", 250)
    >>> sequence = nearest_first(NodeGraph.of(tiled), machine("notes"))
    >>> [tiled.ops[i].name for i in sequence if tiled.ops[i].name.startswith("bwd_dh")]
    ['bwd_dh[3]', 'bwd_dh[2]', 'bwd_dh[1]', 'bwd_dh[0]']
    """
    arrays, flow = nodes.arrays, nodes.graph.dataflow
    touched_by_node, outside = _node_touches(nodes)
    sizes = flow.tensor_size
    reach = np.cumsum(pricing.capacities(machine)[:-1])
    prices = pricing.prices(machine, "read")
    waits = np.diff(arrays.before_start)
    # Start values lie in the order of their declaration, the first one on top.
    touched = np.where(flow.start_value != NONE, -1 - np.arange(len(sizes)), -1 - len(sizes)).astype(np.int64)
    rule = BY_PRICE if by_price else BY_RECENCY
    sequence: Ints = np.arange(len(nodes), dtype=np.int64)
    for _ in range(rounds):
        sequence = nearest_order(
            rule, waits, arrays.after_start, arrays.after, touched_by_node.start, touched_by_node.items, outside,
            sizes, touched, np.argsort(-touched, kind="stable"), reach, prices,
        )  # fmt: skip
        touched -= int(touched.max(initial=0)) + 1
    return sequence


def _node_touches(nodes: NodeGraph) -> tuple[Rows, Bools]:
    """Return the storages that each node touches in turn, and whether each is an operand that the node does not make itself."""
    arrays, flow = nodes.arrays, nodes.graph.dataflow
    storage = flow.storage[flow.value_tensor] if flow.values else np.zeros(0, np.int64)
    touches: list[list[int]] = []
    outside: list[bool] = []
    for node in range(len(nodes)):
        touched: list[int] = []
        made: set[int] = set()
        for op in arrays.ops[arrays.start[node] : arrays.start[node + 1]].tolist():
            reads, writes = flow.op_reads.row(op).tolist(), flow.op_writes.row(op).tolist()
            touched += [int(storage[value]) for value in (*reads, *writes)]
            outside += [value not in made for value in reads] + [False] * len(writes)
            made.update(writes)
        touches.append(touched)
    return Rows.of(touches), np.array(outside, np.bool_)


def forward_sweeps(nodes: NodeGraph) -> Ints:
    """Return the sequence that always runs the ready node of the lowest tile, in program order within a tile.

    >>> from pebbler.game.transform import tile
    >>> from pebbler.workloads import mlp
    >>> nodes = NodeGraph.of(tile(mlp(), "hidden", 500))
    >>> [nodes.graph.ops[op].name for op in nodes.order(forward_sweeps(nodes))][:4]
    ['fwd_linear1[0]', 'fwd_relu[0]', 'fwd_linear2[0]', 'fwd_linear1[1]']
    """
    arrays, numbers = nodes.arrays, [tuple(at.values()) for at in tile_numbers(nodes.graph)]
    tile = [numbers[arrays.ops[end - 1]] for end in arrays.start[1:].tolist()]
    after = Rows(arrays.after_start, arrays.after).lists()
    ready = ReadyList(np.diff(arrays.before_start).tolist(), after)
    return np.array(schedule_by_key(ready, key=lambda node: tile[node]), np.int64)
