"""Chains: the forward and backward pass of note 001's pebble game."""

from __future__ import annotations

from pebbler.game.graph import Graph
from pebbler.workloads.arguments import require_whole

__all__ = ["chain"]

# As a graph, a layer takes some 4 KB; `pebbler chain` streams longer ones.
MOST_LAYERS = 1_000_000


def chain(length: int = 100) -> Graph:
    """A chain of `length` layers, forward and backward: the pebble game of note 001.

    Nodes N0 .. N`length` of one pebble each; `c5` computes N5 from N4; `b5` needs N5 and N6. A gradient takes no room: it is
    there so that the backward steps keep their order.

    >>> [op.name for op in chain(2).ops]
    ['c1', 'c2', 'b2', 'b1', 'b0']
    """
    require_whole("chain", MOST_LAYERS, length=length)
    graph = Graph(f"chain:length={length}", unit="pebble")
    graph.tensor("N0", 1, kind="input")
    for i in range(1, length + 1):
        graph.tensor(f"N{i}", 1)
    for i in range(length, -1, -1):
        graph.tensor(f"g{i}", 0, kind="output" if i == 0 else "temp")
    for i in range(1, length + 1):
        graph.op(f"c{i}", reads=[f"N{i - 1}"], writes=[f"N{i}"], cost=1)
    graph.op(f"b{length}", reads=[f"N{length}"], writes=[f"g{length}"], cost=1)
    for i in range(length - 1, -1, -1):
        graph.op(f"b{i}", reads=[f"N{i}", f"N{i + 1}", f"g{i + 1}"], writes=[f"g{i}"], cost=1)
    return graph
