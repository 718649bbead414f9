"""The notes' training step cut into tiles of hidden units by hand, the gradient of W1 fused into its update."""

from __future__ import annotations

from pebbler.game.graph import Graph


def tiled_mlp(n: int, hidden: int, tile: int) -> Graph:
    """One step of the notes' network; the backward pass visits the tiles in reverse."""
    graph = Graph(f"tiled-mlp:n={n},hidden={hidden},tile={tile}")
    tiles = range(hidden // tile)
    for i in tiles:
        graph.tensor(f"W1_{i}", tile * n, "param")
        graph.tensor(f"b1_{i}", tile, "param")
        graph.tensor(f"W2_{i}", tile, "param")
    graph.tensor("b2", 1, "param")
    graph.tensor("x", n, "input")
    graph.tensor("y", 1, "input")
    for name in ("y_hat", "loss", "dy", "db2"):
        graph.tensor(name, 1)
    for i in tiles:
        for name in ("h_pre", "h", "dW2", "dh", "dh_pre", "db1"):
            graph.tensor(f"{name}_{i}", tile)
    for i in tiles:
        graph.op(f"linear1_{i}", [f"W1_{i}", "x", f"b1_{i}"], [f"h_pre_{i}"])
        graph.op(f"relu_{i}", [f"h_pre_{i}"], [f"h_{i}"])
        graph.op(f"linear2_{i}", [f"W2_{i}", f"h_{i}", "y_hat" if i else "b2"], ["y_hat"])
    graph.op("loss", ["y_hat", "y"], ["loss"])
    graph.op("bwd_loss", ["loss", "y_hat", "y"], ["dy"])
    graph.op("bwd_db2", ["dy"], ["db2"])
    graph.op("upd_b2", ["b2", "db2"], ["b2"])
    for i in reversed(tiles):
        graph.op(f"bwd_dW2_{i}", ["dy", f"h_{i}"], [f"dW2_{i}"])
        graph.op(f"bwd_dh_{i}", [f"W2_{i}", "dy"], [f"dh_{i}"])
        graph.op(f"upd_W2_{i}", [f"W2_{i}", f"dW2_{i}"], [f"W2_{i}"])
        graph.op(f"bwd_relu_{i}", [f"dh_{i}", f"h_pre_{i}"], [f"dh_pre_{i}"])
        graph.op(f"upd_W1_{i}", [f"W1_{i}", f"dh_pre_{i}", "x"], [f"W1_{i}"])
        graph.op(f"bwd_db1_{i}", [f"dh_pre_{i}"], [f"db1_{i}"])
        graph.op(f"upd_b1_{i}", [f"b1_{i}", f"db1_{i}"], [f"b1_{i}"])
    return graph
