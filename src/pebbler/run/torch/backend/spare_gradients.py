"""Outputs without a gradient: a model that returns its loss often also returns logits, which are not differentiated.

Autograd does not know that beforehand. It fills a gradient of zeros for every output, as large as the output, and the compiled
backward adds it. So where a graph returns one scalar, it is compiled as if nothing came back through its other outputs. If
something does, the graph is run again, call by call, for those gradients: slower, with the right result, and from then on they
are expected.

Graphs that cannot be rerun, such as those with dropout, rerun only their last layers (`LastLayers`). Logits come from a linear
layer of something far smaller. So the graph returns that operand too, and if a gradient comes back through the logits after all,
the layer alone is run again: its operand's gradient goes into the graph's own backward, with the masks that were drawn. Where
none comes, the price is a gradient of zeros for the operand. Outputs that do not come from such a layer, such as the last state of
an encoder, are expected to get gradients, as torch expects it of all.
"""

from __future__ import annotations

import contextlib
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.nn import functional

from pebbler.run.torch.backend.dynamo_copies import copy_graph
from pebbler.run.torch.backend.graph_rows import is_cast, is_elementwise, is_layout, is_linear, shaped, undisturbed
from pebbler.run.torch.backend.joint_step import runs_alike

__all__ = [
    "LastLayers",
    "NotRepeatable",
    "SpareGradients",
    "drops_values",
    "expects_nothing",
    "output_values",
    "refuse_unrepeatable",
]

_SWITCHES = ("autocast", "grad_enabled", "grad_mode")


class NotRepeatable(Exception):
    """A graph that would not do the same a second time: it draws random numbers, changes its inputs, or has other effects."""


def refuse_unrepeatable(graph: fx.Graph) -> None:
    """Raise `NotRepeatable` where running the graph again would not give the same gradients."""
    if not runs_alike(graph):
        raise NotRepeatable


def drops_values(graph: fx.Graph) -> bool:
    """Return whether a graph of Dynamo's surely draws random numbers, which is known before it is traced; others may, too."""
    return any(_drops(node) for node in graph.nodes)


def _drops(node: fx.Node) -> bool:
    if node.target is functional.scaled_dot_product_attention:
        share = node.args[4] if len(node.args) > 4 else node.kwargs.get("dropout_p", 0.0)
        return isinstance(share, float) and share > 0
    if node.target is not functional.dropout:
        return False
    told = dict(zip(("input", "p", "training"), node.args, strict=False)) | dict(node.kwargs)
    share = told.get("p", 0.5)
    return told.get("training", True) is True and isinstance(share, float) and share > 0


def output_values(gm: fx.GraphModule) -> list[Any]:
    """Return the values that a graph returns, node by node."""
    return list(gm.graph.output_node().args[0])


def expects_nothing(gm: fx.GraphModule) -> list[int]:
    """Return the places of outputs that are expected to get no gradient: all but the loss, where there is one scalar."""
    if any(node.op in ("get_attr", "call_module") for node in gm.graph.nodes):
        return []  # weights that are not inputs would be out of reach
    values = [node.meta.get("example_value") if isinstance(node, fx.Node) else None for node in output_values(gm)]
    places = [i for i, x in enumerate(values) if isinstance(x, torch.Tensor) and x.requires_grad]
    scalars = [i for i in places if values[i].dim() == 0]  # type: ignore[union-attr]
    return [i for i in places if i not in scalars] if len(scalars) == 1 else []


class SpareGradients:
    """A graph of Dynamo's without the gradients of some outputs, and the way to get them after all; `missed` is called then."""

    repeats = "this step was computed twice"
    whole = True  # whether the whole graph would run again

    def __init__(self, gm: fx.GraphModule, places: Sequence[int], missed: Callable[[], None]) -> None:
        self.graph, self.places, self.missed = gm, list(places), missed

    def without(self) -> fx.GraphModule:
        """Return a copy of the graph that lets no gradient in through these outputs."""
        gm = copy_graph(self.graph)
        output = gm.graph.output_node()
        values = output_values(gm)
        with gm.graph.inserting_before(output):
            for place in self.places:
                cut = gm.graph.call_method("detach", (values[place],))
                cut.meta = dict(values[place].meta)
                cut.meta["example_value"] = values[place].meta["example_value"].detach()
                values[place] = cut
        output.args = (tuple(values),)
        gm.recompile()
        return gm

    def attach(self, args: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
        """Return the outputs with a way back from those that have none."""
        return self._attached(self.graph, args, self.places, list(outputs))

    def _attached(
        self, graph: fx.GraphModule, args: Sequence[Any], places: Sequence[int], results: list[Any]
    ) -> list[Any]:
        """Return results whose gradients come from running a graph, which returns them at these places."""
        again = _Again(graph, args, places, self)
        again.outputs = tuple(results[place] for place in self.places)
        for place, result in zip(self.places, _SecondRun.apply(again, *again.inputs), strict=True):
            results[place] = result
        return results


class _Again:
    """One call of a graph, to be repeated call by call if gradients come back through outputs that were not expected to get any."""

    def __init__(
        self, graph: fx.GraphModule, args: Sequence[Any], places: Sequence[int], spare: SpareGradients
    ) -> None:
        self.graph, self.args, self.places, self.spare = graph, args, places, spare
        self.outputs: tuple[torch.Tensor, ...] = ()
        self.wanted = [i for i, x in enumerate(args) if isinstance(x, torch.Tensor) and x.requires_grad]
        self.versions = [x._version if isinstance(x, torch.Tensor) else 0 for x in args]
        self.casts = [
            (kind, torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)
        ]

    @property
    def inputs(self) -> list[torch.Tensor]:
        """Inputs that gradients can go to."""
        return [self.args[i] for i in self.wanted]

    def gradients(self, given: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """Return the gradients of the inputs for those of the outputs."""
        if self.versions != [x._version if isinstance(x, torch.Tensor) else 0 for x in self.args]:
            raise RuntimeError(
                "a tensor that is needed for the gradient of a compiled graph's further outputs was changed in place"
            )
        warnings.warn(
            f"gradients came back through outputs of a compiled graph besides its loss: {self.spare.repeats}; the graph is "
            "compiled again to expect them",
            stacklevel=2,
        )
        self.spare.missed()
        args = [x.detach().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x for x in self.args]
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.enable_grad())
            for kind, dtype in self.casts:
                stack.enter_context(torch.autocast(kind, dtype=dtype))
            outputs = self.graph(*args)
        pairs = [(outputs[p], g) for p, g in zip(self.places, given, strict=True) if g is not None]
        found = torch.autograd.grad(
            [x for x, _ in pairs], [args[i] for i in self.wanted], [g for _, g in pairs], allow_unused=True
        )
        return list(found)


class _SecondRun(torch.autograd.Function):  # type: ignore[misc]
    """Gives outputs as they are, and their gradients by running the graph again."""

    @staticmethod
    def forward(ctx: Any, again: _Again, *_inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the outputs; they are results of this function from now on."""
        ctx.again = again
        ctx.set_materialize_grads(False)
        outputs, again.outputs = again.outputs, ()
        return outputs

    @staticmethod
    def backward(ctx: Any, *given: torch.Tensor | None) -> Any:
        """Return the gradients of the inputs."""
        return None, *ctx.again.gradients(given)


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
        """Return the gradients of those outputs that have a last layer by way of it; None where none has."""
        gm = spare.graph
        values = output_values(gm)
        if not spare.whole or any(_switches(node) for node in gm.graph.nodes):
            return None
        layers = {place: _last_layer(values[place], gm.graph) for place in spare.places}
        found = {place: layer for place, layer in layers.items() if layer is not None}
        return cls(gm, list(found), list(found.values()), spare.missed) if found else None

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
