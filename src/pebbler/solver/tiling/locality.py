"""Orders by list scheduling: the next op is the one whose operands are nearest, with recomputation where it is asked for.

A search moves *nodes*: runs of ops that stay together. Without recomputation every op is a node; a value that is made
again is made right before the op that needs it, in that op's node.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pebbler.game.dataflow import NONE, Rows
from pebbler.game.graph import Graph
from pebbler.game.machine import Machine
from pebbler.referee import books as pricing
from pebbler.solver.tiling.kernels.cache_order import Nodes, spread
from pebbler.solver.tiling.kernels.locality_order import BY_PRICE, BY_RECENCY, list_schedule

__all__ = ["Program", "family", "nearest_first", "program_of"]

Ints = npt.NDArray[np.int64]
_TILE = re.compile(r"\[\d+\]")


def family(name: str) -> str:
    """Return the name of what a tile is a tile of.

    >>> family("bwd_dW1[3]+upd_W1[3]")
    'bwd_dW1+upd_W1'
    """
    return _TILE.sub("", name)


@dataclass(frozen=True)
class Program:
    """A graph's ops as nodes in a legal order: node 0 first."""

    graph: Graph
    nodes: Nodes

    def __len__(self) -> int:
        return len(self.nodes.start) - 1

    def order(self, sequence: Ints) -> Ints:
        """Return the ops of a sequence of nodes, as positions in program order."""
        return spread(self.nodes, np.ascontiguousarray(sequence, np.int64))  # type: ignore[no-any-return]


def program_of(graph: Graph, again: Mapping[str, int] | None = None) -> Program | None:
    """Return the ops of a graph as nodes, with some temps made a second time; None if that has no legal order.

    `again` names temps (with all their tiles) and from which op family on, counted in the order in which the program
    first names them, readers get the second making.

    >>> from pebbler.workloads import mlp
    >>> program = program_of(mlp(), {"h": 4})  # fwd_linear1, fwd_relu, fwd_linear2, fwd_loss, bwd_loss, ...
    >>> program.order(np.arange(len(program)))[5:7].tolist()  # fwd_relu once more before bwd_dW2
    [1, 5]
    """
    flow = graph.dataflow
    rank: dict[str, int] = {}
    for op in graph.ops:
        rank.setdefault(family(op.name), len(rank))
    ranks = [rank[family(op.name)] for op in graph.ops]
    content: list[list[int]] = [[op] for op in range(flow.ops)]
    edges: set[tuple[int, int]] = {(a, b) for b, before in enumerate(flow.predecessors()) for a in before}
    # Where a value is read: (rank, node); the second makings below add readers of their own.
    readers = [[(ranks[op], op) for op in row.tolist()] for row in flow.value_readers]
    for value in range(flow.values - 1, -1, -1):
        tensor = graph.tensors[flow.value_tensor[value]]
        cut = (again or {}).get(family(tensor.name))
        maker = int(flow.value_maker[value])
        if cut is None or maker == NONE or flow.op_in_place[maker] or flow.op_once[maker]:
            continue
        served = sorted((at, node) for at, node in readers[value] if at >= cut)
        if not served:
            continue
        at, host = served[0]
        content[host].insert(0, maker)
        edges |= {(host, node) for _, node in served[1:]} | {(maker, host)}
        for read in flow.op_reads.row(maker).tolist():
            readers[read].append((at, host))
            edges.add((int(flow.value_maker[read]), host))
            edges.add((host, int(flow.value_destroyer[read])))
        edges |= {(host, int(flow.value_destroyer[made])) for made in flow.op_writes.row(maker).tolist()}
    edges = {(a, b) for a, b in edges if a != b and NONE not in (a, b)}
    return _sorted_program(graph, content, edges)


def _sorted_program(graph: Graph, content: list[list[int]], edges: set[tuple[int, int]]) -> Program | None:
    """Return the nodes numbered in a legal order, as near to program order as the edges allow."""
    count = len(content)
    after: list[list[int]] = [[] for _ in range(count)]
    waits = [0] * count
    for a, b in edges:
        after[a].append(b)
        waits[b] += 1
    if any(a > b for a, b in edges):
        ready = [node for node in range(count) if waits[node] == 0]
        order: list[int] = []
        while ready:
            node = heapq.heappop(ready)
            order.append(node)
            for other in after[node]:
                waits[other] -= 1
                if waits[other] == 0:
                    heapq.heappush(ready, other)
        if len(order) < count:
            return None
    else:
        order = list(range(count))
    number = {node: i for i, node in enumerate(order)}
    rows: list[list[int]] = [[] for _ in range(count)]
    followers: list[list[int]] = [[] for _ in range(count)]
    for a, b in edges:
        rows[number[b]].append(number[a])
        followers[number[a]].append(number[b])
    ops = Rows.of([content[node] for node in order])
    before = Rows.of([sorted(row) for row in rows])
    behind = Rows.of([sorted(row) for row in followers])
    return Program(graph, Nodes(ops.start, ops.items, before.start, before.items, behind.start, behind.items))


def nearest_first(program: Program, machine: Machine, *, by_price: bool = False, rounds: int = 3) -> Ints:
    """Return a sequence of nodes: always the one whose operands are nearest in an LRU stack, or cheapest to read.

    Each round begins with the stack that the one before has left, as the steps of a training loop do.

    >>> from pebbler.game.machine import machine
    >>> from pebbler.game.transform import tile
    >>> from pebbler.workloads import mlp
    >>> tiled = tile(mlp(), "hidden", 250)
    >>> sequence = nearest_first(program_of(tiled), machine("notes"))
    >>> [tiled.ops[i].name for i in sequence if tiled.ops[i].name.startswith("bwd_dh")]
    ['bwd_dh[3]', 'bwd_dh[2]', 'bwd_dh[1]', 'bwd_dh[0]']
    """
    graph, nodes, flow = program.graph, program.nodes, program.graph.dataflow
    storage = flow.storage[flow.value_tensor] if flow.values else np.zeros(0, np.int64)
    touches: list[list[int]] = []
    outside: list[list[int]] = []
    for node in range(len(program)):
        roots: list[int] = []
        marks: list[int] = []
        made: set[int] = set()
        for op in nodes.ops[nodes.start[node] : nodes.start[node + 1]].tolist():
            for value in flow.op_reads.row(op).tolist():
                roots.append(int(storage[value]))
                marks.append(int(value not in made))
            for value in flow.op_writes.row(op).tolist():
                roots.append(int(storage[value]))
                marks.append(0)
                made.add(value)
        touches.append(roots)
        outside.append(marks)
    rows, marked = Rows.of(touches), Rows.of(outside)
    sizes = np.array([tensor.size for tensor in graph.tensors], np.int64)
    reach = np.cumsum(pricing.capacities(machine)[:-1])
    prices = pricing.prices(machine, "read")
    waits = np.diff(nodes.before_start)
    # Start values lie in the order of their declaration, the first one on top.
    touched = np.where(flow.start_value != NONE, -1 - np.arange(len(sizes)), -1 - len(sizes)).astype(np.int64)
    rule = BY_PRICE if by_price else BY_RECENCY
    sequence: Ints = np.arange(len(program), dtype=np.int64)
    for _ in range(rounds):
        sequence = list_schedule(
            rule, waits, nodes.after_start, nodes.after, rows.start, rows.items, marked.items.astype(np.bool_),
            sizes, touched, np.argsort(-touched, kind="stable"), reach, prices,
        )  # fmt: skip
        touched -= int(touched.max(initial=0)) + 1
    return sequence
