"""Graphs of networkx: every node a value, computed from its predecessors."""

from __future__ import annotations

import networkx
import pytest

from pebbler import Graph, InputError, check, solve


def test_nodes_become_values_and_edges_reads() -> None:
    digraph = networkx.DiGraph()
    digraph.add_node("y", cost=3)  # first in the digraph, last in any order
    digraph.add_node("w", kind="param", size=4)
    digraph.add_edges_from([("x", "h"), ("w", "h"), ("h", "y"), ("x", "y")])
    graph = Graph.from_networkx(digraph, name="mine", unit="float32")
    assert {tensor.name: (tensor.kind, tensor.size) for tensor in graph.tensors} == {
        "w": ("param", 4), "x": ("input", 1), "h": ("temp", 1), "y": ("output", 1),
    }  # fmt: skip
    assert [(op.name, set(op.reads), op.cost) for op in graph.ops] == [("op_h", {"x", "w"}, 1), ("op_y", {"h", "x"}, 3)]


def test_a_pyramid_is_solved() -> None:
    digraph = networkx.DiGraph(((row, i), (row + 1, j)) for row in range(3) for j in range(3 - row) for i in (j, j + 1))
    plan = solve(Graph.from_networkx(digraph), time_limit=5)
    assert check(plan).legal
    assert plan.status == "optimal"


def test_what_is_no_computation_is_refused() -> None:
    with pytest.raises(InputError, match="has a cycle, near node a"):
        Graph.from_networkx(networkx.DiGraph([("a", "b"), ("b", "a")]))
    with pytest.raises(InputError, match="two nodes are called 1"):
        Graph.from_networkx(networkx.DiGraph([(1, 2), ("1", 2)]))
    with pytest.raises(InputError, match="whose edges have a direction"):
        Graph.from_networkx(networkx.Graph([(1, 2)]))
