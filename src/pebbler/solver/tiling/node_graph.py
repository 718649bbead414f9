"""The *nodes* of a search over orders: groups of ops that stay together.

Without recomputation every op is a node. A value that is recomputed is computed right before the op that needs it, in that
op's node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pebbler.arrays import Ints
from pebbler.game.dataflow import NONE, Rows
from pebbler.game.graph import Graph
from pebbler.game.ready_list import ReadyList, schedule_by_key
from pebbler.game.tile_meta import origin
from pebbler.solver.tiling.kernels.node_anneal import Nodes, spread

__all__ = ["NodeGraph", "op_ranks"]


@dataclass(frozen=True)
class NodeGraph:
    """A graph's ops as nodes in a legal order: node 0 first."""

    graph: Graph
    arrays: Nodes

    @classmethod
    def of(cls, graph: Graph, recomputed: Mapping[str, int] | None = None) -> NodeGraph | None:
        """Return the ops of a graph as nodes, with some temps recomputed; None if that has no legal order.

        `recomputed` names temps (with all their tiles) and from which rank of ops on (`op_ranks`) readers get them recomputed.

        >>> from pebbler.workloads import mlp
        >>> nodes = NodeGraph.of(mlp(), {"h": 4})  # fwd_linear1, fwd_relu, fwd_linear2, fwd_loss, bwd_loss, ...
        >>> nodes.order(np.arange(len(nodes)))[5:7].tolist()  # fwd_relu once more before bwd_dW2
        [1, 5]
        """
        flow, ranks = graph.dataflow, op_ranks(graph)
        content: list[list[int]] = [[op] for op in range(flow.ops)]
        edges: set[tuple[int, int]] = {(a, b) for b, before in enumerate(flow.predecessors()) for a in before}
        # Where a value is read: (rank, node); recomputation below adds readers.
        readers = [[(ranks[op], op) for op in row.tolist()] for row in flow.value_readers]
        for value in range(flow.values - 1, -1, -1):
            begin = (recomputed or {}).get(origin(graph.tensors[flow.value_tensor[value]]))
            maker = int(flow.value_maker[value])
            if begin is None or not flow.value_can_be_remade[value]:
                continue
            served = sorted((at, node) for at, node in readers[value] if at >= begin)
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
        return _in_legal_order(graph, content, edges)

    @classmethod
    def of_order(cls, graph: Graph, order: Ints) -> NodeGraph:
        """Return every run of a legal order as a node, ops that run again included; node 0 is the first run.

        >>> from pebbler.workloads import mlp
        >>> nodes = NodeGraph.of_order(mlp(), np.array([*range(5), 1, *range(5, 15)]))  # fwd_relu once more before bwd_dW2
        >>> nodes.arrays.before[nodes.arrays.before_start[6] : nodes.arrays.before_start[7]].tolist()
        [4, 5]
        """
        flow, runs = graph.dataflow, order.tolist()
        reads, writes, destroys = flow.op_reads.lists(), flow.op_writes.lists(), flow.op_destroys.lists()
        made: dict[int, int] = {}
        users: dict[int, list[int]] = {}  # of each value: the runs that make or read it
        rows: list[list[int]] = []
        for run, op in enumerate(runs):
            before = {made[value] for value in reads[op] if value in made}
            for value in destroys[op]:
                before |= set(users.get(value, ()))
            rows.append(sorted(before))
            for value in writes[op]:
                made[value] = run
            for value in (*reads[op], *writes[op]):
                users.setdefault(value, []).append(run)
        before_rows = Rows.of(rows)
        after = before_rows.transposed(len(runs))
        start = np.arange(len(runs) + 1)
        return cls(graph, Nodes(start, order, before_rows.start, before_rows.items, after.start, after.items))

    def __len__(self) -> int:
        return len(self.arrays.start) - 1

    def order(self, sequence: Ints) -> Ints:
        """Return the ops of a sequence of nodes, as positions in program order."""
        return spread(self.arrays, np.ascontiguousarray(sequence, np.int64))  # type: ignore[no-any-return]


def op_ranks(graph: Graph) -> list[int]:
    """Return, per op, the rank of its source op, in the order in which the program first runs a tile of each.

    >>> from pebbler.game.transform import tile
    >>> from pebbler.workloads import mlp
    >>> op_ranks(tile(mlp(), "hidden", 500))[:6]
    [0, 0, 1, 1, 2, 2]
    """
    rank: dict[str, int] = {}
    return [rank.setdefault(origin(op), len(rank)) for op in graph.ops]


def _in_legal_order(graph: Graph, content: list[list[int]], edges: set[tuple[int, int]]) -> NodeGraph | None:
    """Return the nodes numbered in a legal order, as near to program order as the edges allow."""
    count = len(content)
    after: list[list[int]] = [[] for _ in range(count)]
    waits = [0] * count
    for a, b in edges:
        after[a].append(b)
        waits[b] += 1
    if any(a > b for a, b in edges):
        order = schedule_by_key(ReadyList(waits, after))
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
    after_rows = Rows.of([sorted(row) for row in followers])
    return NodeGraph(graph, Nodes(ops.start, ops.items, before.start, before.items, after_rows.start, after_rows.items))
