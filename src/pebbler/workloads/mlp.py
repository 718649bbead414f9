"""Training steps of multi-layer perceptrons with a hinge loss: the network of the notes, and deeper ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from pebbler.game.graph import Graph
from pebbler.limits import beyond, limits
from pebbler.workloads.arguments import require_whole

__all__ = ["deep_mlp", "mlp", "note_mlp"]

Axes = Sequence[tuple[str, int]]
LEARNING = {"lr": 0.1, "wd": 0.01}


def note_mlp() -> Graph:
    """The 15-op training step of note 000: n=20, hidden=1000, functional updates that overwrite the old parameters.

    >>> note_mlp().tensor_named("W2_new").overwrites
    'W2'
    """
    return _StepBuilder(Graph("note-mlp"), n=20, hidden=1000, layers=1, batch=None, functional=True).build()


def mlp(n: int = 20, hidden: int = 1000, batch: int | None = None) -> Graph:
    """One training step of the notes' network with in-place updates, ready to be tiled and fused.

    >>> mlp(n=20, hidden=1000).op_named("upd_W1").writes
    ('W1',)
    """
    require_whole("mlp", 1_000_000, n=n, hidden=hidden, batch=batch)
    spec = f"mlp:n={n},hidden={hidden}" + (f",batch={batch}" if batch else "")
    return _StepBuilder(Graph(spec), n=n, hidden=hidden, layers=1, batch=batch).build()


def deep_mlp(n: int = 20, hidden: int = 1000, layers: int = 8, batch: int | None = None) -> Graph:
    """The same step with `layers` hidden layers; each but the first has hidden x hidden weights.

    >>> deep_mlp(layers=3).tensor_named("W2").size
    1000000
    """
    require_whole("deep-mlp", 100_000, n=n, hidden=hidden, layers=layers, batch=batch)
    if 4 * layers > limits.layers:  # a layer has four times the ops of one of a chain
        raise beyond("layers", f"workload deep-mlp: layers={layers:,}, each of which counts four times")
    spec = f"deep-mlp:n={n},hidden={hidden},layers={layers}" + (f",batch={batch}" if batch else "")
    return _StepBuilder(Graph(spec), n=n, hidden=hidden, layers=layers, batch=batch).build()


@dataclass
class _StepBuilder:
    """Writes the step op by op; with one hidden layer the names are exactly those of note 000."""

    graph: Graph
    n: int
    hidden: int
    layers: int
    batch: int | None
    functional: bool = False
    updates: list[tuple[str, Axes]] = field(default_factory=list)

    def build(self) -> Graph:
        graph, top = self.graph, self.layers + 1
        for layer in range(1, top + 1):
            self.param(f"W{layer}", [*self.units(layer), *self.units(layer - 1)])
            self.param(f"b{layer}", self.units(layer))
        self.tensor("x", [*self.samples, ("n", self.n)], "input")
        self.tensor("y", self.samples, "input")
        below = "x"
        for layer in range(1, top):
            pre, post = self.named("h_pre", layer), self.named("h", layer)
            self.tensor(pre, [*self.samples, *self.units(layer)])
            self.tensor(post, [*self.samples, *self.units(layer)])
            graph.op(f"fwd_linear{layer}", [f"W{layer}", below, f"b{layer}"], [pre], meta=self.linear(layer))
            graph.op(self.named("fwd_relu", layer), [pre], [post], pointwise=True, meta={"kernel": "relu"})
            below = post
        for name in ("y_hat", "loss", "dy"):
            self.tensor(name, self.samples)
        graph.op(f"fwd_linear{top}", [f"W{top}", below, f"b{top}"], ["y_hat"], meta=self.linear(top))
        graph.op("fwd_loss", ["y_hat", "y"], ["loss"], pointwise=True, meta={"kernel": "hinge"})
        scale = {"kernel": "hinge_grad", "scale": 1 / (self.batch or 1)}
        graph.op("bwd_loss", ["loss", "y_hat", "y"], ["dy"], pointwise=True, meta=scale)
        self.backward(top, "dy", self.named("h", self.layers))
        for layer in range(self.layers, 0, -1):
            above = "dy" if layer == self.layers else self.named("dh_pre", layer + 1)
            grad, grad_pre = self.named("dh", layer), self.named("dh_pre", layer)
            self.tensor(grad, [*self.samples, *self.units(layer)])
            self.tensor(grad_pre, [*self.samples, *self.units(layer)])
            alone = layer == self.layers and not self.batch  # then W and dh have the same axes
            reads = [f"W{layer + 1}", above]
            graph.op(self.named("bwd_dh", layer), reads, [grad], pointwise=alone, meta={"kernel": "product"})
            reads = [grad, self.named("h_pre", layer)]
            graph.op(self.named("bwd_relu", layer), reads, [grad_pre], pointwise=True, meta={"kernel": "relu_grad"})
            self.backward(layer, grad_pre, self.named("h", layer - 1) if layer > 1 else "x")
        for name, axes in self.updates:
            self.update(name, axes)
        return graph

    @property
    def samples(self) -> Axes:
        return [("batch", self.batch)] if self.batch else []

    def units(self, layer: int) -> Axes:
        """Return the axes of a layer's units: the inputs at layer 0, none for the single output on top."""
        if layer == 0:
            return [("n", self.n)]
        return [(self.named("hidden", layer), self.hidden)] if layer <= self.layers else []

    def named(self, name: str, layer: int) -> str:
        return name if self.layers == 1 else f"{name}{layer}"

    def linear(self, layer: int) -> dict[str, object]:
        return {"kernel": "linear", "adds": [f"b{layer}"]}

    def tensor(self, name: str, axes: Axes, kind: str = "temp", overwrites: str | None = None) -> None:
        size = math.prod(extent for _, extent in axes)
        meta = {"role": "gradient"} if name.startswith("d") else {}
        self.graph.tensor(name, size, kind, axes=axes, overwrites=overwrites, meta=meta)  # type: ignore[arg-type]

    def param(self, name: str, axes: Axes) -> None:
        self.tensor(name, axes, "param")
        self.updates.append((name, axes))

    def backward(self, layer: int, grad: str, below: str) -> None:
        """Gradients of one layer's weights and bias from the gradient of its output and the layer below."""
        self.tensor(f"dW{layer}", [*self.units(layer), *self.units(layer - 1)])
        self.tensor(f"db{layer}", self.units(layer))
        single = not self.batch
        pointwise = single and not self.units(layer)  # dW of the single output has the axes of the layer below
        self.graph.op(f"bwd_dW{layer}", [grad, below], [f"dW{layer}"], pointwise=pointwise, meta={"kernel": "product"})
        self.graph.op(f"bwd_db{layer}", [grad], [f"db{layer}"], pointwise=single, meta={"kernel": "sum"})

    def update(self, name: str, axes: Axes) -> None:
        result = name
        if self.functional:
            result = f"{name}_new"
            self.tensor(result, axes, "output", overwrites=name)
        meta = {"kernel": "sgd", **LEARNING}
        self.graph.op(f"upd_{name}", [name, f"d{name}"], [result], pointwise=True, meta=meta)
