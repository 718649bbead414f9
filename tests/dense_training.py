"""A training step of dense layers, as long as a test wants it."""

from __future__ import annotations

from pebbler.game.graph import Graph

__all__ = ["training"]


def training(layers: int) -> Graph:
    """A network of dense layers with dropout, its backward pass and updates in place: seven ops per layer."""
    graph = Graph(f"dense-{layers}", unit="pebble").tensor("x0", 8, kind="input")
    for i in range(layers):
        graph.tensor(f"W{i}", 3, kind="param").tensor(f"h{i}", 8).tensor(f"d{i}", 8).tensor(f"x{i + 1}", 8)
        graph.op(f"mul{i}", [f"x{i}", f"W{i}"], [f"h{i}"], 8)
        graph.op(f"drop{i}", [f"h{i}"], [f"d{i}"], 2, once=i % 5 == 0)
        graph.op(f"add{i}", [f"d{i}", f"x{i}"], [f"x{i + 1}"], 2)
    graph.tensor(f"g{layers}", 8).op("loss", [f"x{layers}"], [f"g{layers}"], 1)
    for i in range(layers - 1, -1, -1):
        graph.tensor(f"e{i}", 8).tensor(f"w{i}", 3).tensor(f"g{i}", 8)
        graph.op(f"bdrop{i}", [f"g{i + 1}", f"d{i}"], [f"e{i}"], 2)
        graph.op(f"bw{i}", [f"e{i}", f"x{i}"], [f"w{i}"], 8)
        graph.op(f"bx{i}", [f"e{i}", f"W{i}", f"g{i + 1}"], [f"g{i}"], 8)
        graph.op(f"upd{i}", [f"w{i}", f"W{i}"], [f"W{i}"], 1)
    return graph
