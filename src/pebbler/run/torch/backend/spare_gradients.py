"""Outputs without a gradient: a model that returns its loss often also returns logits, which are not differentiated.

Autograd does not know that beforehand. It fills a gradient of zeros for every output, as large as the output, and the compiled
backward adds it. So where a graph returns one scalar, it is compiled as if nothing came back through its other outputs. If
something does, the graph is run again, call by call, for those gradients: slower, with the right result, and from then on they
are expected.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from pebbler.run.torch.backend.joint_step import runs_alike

__all__ = ["NotRepeatable", "SpareGradients", "expects_nothing", "output_values", "refuse_unrepeatable"]


class NotRepeatable(Exception):
    """A graph that would not do the same a second time: it draws random numbers, changes its inputs, or has other effects."""


def refuse_unrepeatable(graph: fx.Graph) -> None:
    """Raise `NotRepeatable` where running the graph again would not give the same gradients."""
    if not runs_alike(graph):
        raise NotRepeatable


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
        gm = copy.deepcopy(self.graph)
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
