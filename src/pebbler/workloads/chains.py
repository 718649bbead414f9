"""Chains: the forward and backward pass of note 001's pebble game."""

from __future__ import annotations

from collections.abc import Sequence

from pebbler.game.graph import Graph
from pebbler.limits import beyond, limits
from pebbler.workloads.arguments import require_whole

__all__ = ["chain", "chain_of"]

MOST_LAYERS = 10_000_000


def chain(length: int = 100) -> Graph:
    """A chain of `length` layers, forward and backward: the pebble game of note 001.

    Nodes N0 .. N`length` of one pebble each; `c5` computes N5 from N4; `b5` needs N5 and N6. A gradient takes no room: it is
    there so that the backward steps keep their order.

    >>> [op.name for op in chain(2).ops]
    ['c1', 'c2', 'b2', 'b1', 'b0']
    """
    require_whole("chain", MOST_LAYERS, length=length)
    if length > limits.layers:
        raise beyond(
            "layers", f"workload chain: length={length:,} is too long for a graph (`pebbler chain` takes longer ones)"
        )
    ones = [1] * (length + 1)
    return chain_of(f"chain:length={length}", ones, ones, ones)


def chain_of(
    name: str, sizes: Sequence[int], forward: Sequence[float], backward: Sequence[float], *, adjoint: bool = False
) -> Graph:
    """Return a chain whose nodes may differ; `adjoint` backward steps need their own node only."""
    last = len(sizes) - 1
    graph = Graph(name, unit="pebble")
    for i, size in enumerate(sizes):
        graph.tensor(f"N{i}", size, kind="temp" if i else "input")
    for i in range(last, -1, -1):
        graph.tensor(f"g{i}", 0, kind="temp" if i else "output")
    for i in range(1, last + 1):
        graph.op(f"c{i}", reads=[f"N{i - 1}"], writes=[f"N{i}"], cost=forward[i])
    for i in range(last, -1, -1):
        above = [] if adjoint or i == last else [f"N{i + 1}"]
        gradient = [] if i == last else [f"g{i + 1}"]
        graph.op(f"b{i}", reads=[f"N{i}", *above, *gradient], writes=[f"g{i}"], cost=backward[i])
    return graph
