"""Conversion of networkx graphs to pebbler graphs. networkx itself is not imported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pebbler.errors import InputError, quoted

if TYPE_CHECKING:
    from pebbler.game.graph import Graph

__all__ = ["fill_from"]


def fill_from(digraph: Any, graph: Graph) -> None:
    """Give an empty graph a value for every node, and an op for every node that is computed: `Graph.from_networkx`."""
    if not (hasattr(digraph, "predecessors") and hasattr(digraph, "successors")):
        raise InputError("from_networkx: expected a networkx.DiGraph, whose edges have a direction")
    labels: dict[str, Any] = {}
    for node in _sorted_nodes(digraph):
        if (label := str(node)) in labels:
            raise InputError(f"from_networkx: two nodes are called {quoted(label)}")
        labels[label] = node
    for label, node in labels.items():
        data = digraph.nodes[node]
        source, sink = (
            not any(True for _ in digraph.predecessors(node)),
            not any(True for _ in digraph.successors(node)),
        )
        kind = data.get("kind", "input" if source else "output" if sink else "temp")
        graph.tensor(label, data.get("size", 1), kind=kind)
    for label, node in labels.items():
        if graph.tensors[graph.tensor_numbers[label]].kind in ("input", "param"):
            continue
        reads = [str(other) for other in digraph.predecessors(node)]
        graph.op(f"op_{label}", reads=reads, writes=[label], cost=digraph.nodes[node].get("cost", 1))


def _sorted_nodes(digraph: Any) -> list[Any]:
    """Return the nodes, each after those that it needs, otherwise in the digraph's own order."""
    missing = {node: len(set(digraph.predecessors(node))) for node in digraph.nodes}
    ready, found = [node for node, count in missing.items() if count == 0], []
    while ready:
        node = ready.pop(0)
        found.append(node)
        for after in dict.fromkeys(digraph.successors(node)):
            missing[after] -= 1
            if missing[after] == 0:
                ready.append(after)
    if len(found) < len(missing):
        left = next(node for node in missing if node not in set(found))
        raise InputError(f"from_networkx: the graph has a cycle, near node {quoted(str(left))}; a computation has none")
    return found
