"""Outputs without a gradient in graphs that cannot be rerun, such as those with dropout: only their last layers are.

Logits come from a linear layer of something far smaller. So the graph returns that operand too, and if a gradient comes back
through the logits after all, the layer alone is run again: its operand's gradient goes into the graph's own backward, with the
masks that were drawn. Where none comes, the price is a gradient of zeros for the operand.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from pebbler.run.torch.backend.graph_rows import is_cast, is_elementwise, is_layout, is_linear, shaped, undisturbed
from pebbler.run.torch.backend.spare_gradients import SpareGradients, output_values

__all__ = ["LastLayers"]

_SWITCHES = ("autocast", "grad_enabled", "grad_mode")


class LastLayers(SpareGradients):
    """A graph without the gradients of some outputs, which come from their last linear layers if somebody wants them."""

    repeats = "the last layer of this step was computed twice"
    whole = False

    def __init__(
        self, gm: fx.GraphModule, places: Sequence[int], layers: Sequence[list[fx.Node]], missed: Callable[[], None]
    ) -> None:
        inputs = dict.fromkeys(node for layer in layers for node in layer[0].all_input_nodes)
        super().__init__(gm, places, missed)
        self._tail = _tail(gm, list(inputs), layers)
        number = {node: i for i, node in enumerate(gm.graph.find_nodes(op="placeholder"))}
        self._given = [number.get(node) for node in inputs]  # which argument of the graph; None for its own values
        self._operands = [node.name for node in inputs if node not in number]

    @classmethod
    def of(cls, spare: SpareGradients) -> LastLayers | None:
        """Return the same outputs' gradients by way of their last layers; None where one has no such layer."""
        gm = spare.graph
        values = output_values(gm)
        layers = [_last_layer(values[place], gm.graph) for place in spare.places]
        if not spare.whole or any(_switches(node) for node in gm.graph.nodes):
            return None
        found = [layer for layer in layers if layer is not None]
        return cls(gm, spare.places, found, spare.missed) if len(found) == len(layers) else None

    def without(self) -> fx.GraphModule:
        """Return a copy of the graph that lets no gradient in through these outputs, and returns the layers' operands too."""
        gm = super().without()
        named = {node.name: node for node in gm.graph.nodes}
        gm.graph.output_node().args = ((*output_values(gm), *(named[name] for name in self._operands)),)
        gm.recompile()
        return gm

    def attach(self, args: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
        """Return the outputs of the graph as it was, with a way back from those that have none."""
        count = len(outputs) - len(self._operands)
        operands = iter(outputs[count:])
        given = [next(operands) if place is None else args[place] for place in self._given]
        return self._attached(self._tail, given, list(range(len(self.places))), list(outputs[:count]))


def _switches(node: fx.Node) -> bool:
    """Return whether a node switches autocast or gradients, so that a layer would not do the same outside of the graph."""
    name = str(getattr(node.target, "__name__", node.target))
    return any(word in name for word in _SWITCHES)


def _last_layer(node: Any, graph: fx.Graph) -> list[fx.Node] | None:
    """Return the nodes from the last linear layer to an output; None where there is none, or something else happens between."""
    nodes: list[fx.Node] = []
    while isinstance(node, fx.Node):
        nodes.insert(0, node)
        if is_linear(node):
            operand = shaped(node.args[0])
            weights = node.all_input_nodes[1:]
            plain = operand is not None and operand.requires_grad and all(w.op == "placeholder" for w in weights)
            return nodes if plain and undisturbed(node, graph.output_node()) else None
        taken = node.target is operator.getitem and shaped(node) is not None
        if not (taken or is_cast(node) or is_layout(node) or is_elementwise(node)) or len(node.all_input_nodes) != 1:
            return None
        node = node.args[0]
    return None


def _tail(gm: fx.GraphModule, inputs: Sequence[fx.Node], layers: Sequence[list[fx.Node]]) -> fx.GraphModule:
    """Return the last layers as a graph of their own."""
    graph = fx.Graph()
    new = {node: graph.placeholder(node.name) for node in inputs}
    for node in dict.fromkeys(node for layer in layers for node in layer):
        new[node] = graph.node_copy(node, lambda old: new[old])
    graph.output(tuple(new[layer[-1]] for layer in layers))
    return fx.GraphModule(gm, graph)
