"""The numpy kernels of the built-in workloads, by name.

An op names its kernel in `meta["kernel"]`; arrays carry the names of their axes, so that one kernel serves a single sample, a
batch and a tile alike. The set of kernels is fixed: a file can name a kernel but cannot contain one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from pebbler.arrays import Floats
from pebbler.errors import InputError, quoted
from pebbler.game.graph import Graph, Op

__all__ = ["KERNELS", "Named", "has_kernels", "initial_values", "run_op"]

Axes = tuple[str, ...]
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Named:
    """An array and the names of its axes."""

    data: Floats
    axes: Axes

    def along(self, axes: Axes) -> Floats:
        """Return the array shaped to broadcast against one with the given axes."""
        index = tuple(slice(None) if axis in self.axes else np.newaxis for axis in axes)
        order = [self.axes.index(axis) for axis in axes if axis in self.axes]
        return self.data.transpose(order)[index]


def contract(operands: Sequence[Named], axes: Axes) -> Floats:
    """Return the product of the operands, summed over every axis that the result does not have.

    >>> contract([Named(np.ones((2, 3)), ("i", "j")), Named(np.ones(3), ("j",))], ("i",)).tolist()
    [3.0, 3.0]
    """
    letter = {axis: _LETTERS[i] for i, axis in enumerate(dict.fromkeys(a for one in operands for a in one.axes))}
    inputs = ",".join("".join(letter[axis] for axis in one.axes) for one in operands)
    result: Floats = np.einsum(f"{inputs}->{''.join(letter[axis] for axis in axes)}", *(one.data for one in operands))
    return result


def _linear(reads: Sequence[Named], axes: Axes, meta: Mapping[str, Any]) -> Floats:
    weights, x, *bias = reads  # a tile that adds to a sum has no bias to add
    product = contract([weights, x], axes)
    return product + bias[0].along(axes) if bias else product


def _relu(reads: Sequence[Named], axes: Axes, meta: Mapping[str, Any]) -> Floats:
    return np.maximum(reads[0].data, 0.0)


def _relu_grad(reads: Sequence[Named], axes: Axes, meta: Mapping[str, Any]) -> Floats:
    return np.where(reads[1].data > 0, reads[0].data, 0.0)


def _hinge(reads: Sequence[Named], axes: Axes, meta: Mapping[str, Any]) -> Floats:
    return np.maximum(1.0 - reads[0].data * reads[1].data, 0.0)


def _hinge_grad(reads: Sequence[Named], axes: Axes, meta: Mapping[str, Any]) -> Floats:
    _, out, y = reads
    return np.where(out.data * y.data < 1, -y.data * float(meta["scale"]), 0.0)


def _product(reads: Sequence[Named], axes: Axes, meta: Mapping[str, Any]) -> Floats:
    return contract(reads, axes)


def _add(reads: Sequence[Named], axes: Axes, meta: Mapping[str, Any]) -> Floats:
    total: Floats = reads[0].along(axes)
    for read in reads[1:]:
        total = total + read.along(axes)
    return total


def _sgd(reads: Sequence[Named], axes: Axes, meta: Mapping[str, Any]) -> Floats:
    param, grad = (one.data for one in reads)
    result: Floats = param - float(meta["lr"]) * (grad + float(meta["wd"]) * param)
    return result


def _softmax(reads: Sequence[Named], axes: Axes, meta: Mapping[str, Any]) -> Floats:
    scores = reads[0].along(axes) * float(meta["scale"])
    along = axes.index(meta["axis"])
    result = np.exp(scores - scores.max(axis=along, keepdims=True))
    normed: Floats = result / result.sum(axis=along, keepdims=True)
    return normed


def _softmax_grad(reads: Sequence[Named], axes: Axes, meta: Mapping[str, Any]) -> Floats:
    grad, weight = (one.along(axes) for one in reads)
    inner: Floats = (grad * weight).sum(axis=axes.index(meta["axis"]), keepdims=True)
    result: Floats = weight * (grad - inner) * float(meta["scale"])
    return result


def _squared_error(reads: Sequence[Named], axes: Axes, meta: Mapping[str, Any]) -> Floats:
    difference = Named(reads[0].data - reads[1].along(reads[0].axes), reads[0].axes)
    return contract([difference, difference], axes)


def _squared_error_grad(reads: Sequence[Named], axes: Axes, meta: Mapping[str, Any]) -> Floats:
    return float(meta["scale"]) * (reads[0].along(axes) - reads[1].along(axes))


_MALFORMED = (KeyError, TypeError, AttributeError)  # what a graph's `meta`, which may hold anything, can lead to
Kernel = Callable[[Sequence[Named], Axes, Mapping[str, Any]], Floats]
KERNELS: dict[str, Kernel] = {
    "add": _add,
    "hinge": _hinge,
    "hinge_grad": _hinge_grad,
    "linear": _linear,
    "product": _product,
    "relu": _relu,
    "relu_grad": _relu_grad,
    "sgd": _sgd,
    "softmax": _softmax,
    "softmax_grad": _softmax_grad,
    "squared_error": _squared_error,
    "squared_error_grad": _squared_error_grad,
    "sum": _product,
}


def has_kernels(graph: Graph) -> bool:
    """Return whether every op names a kernel and every tensor its axes, so that the graph can run on numbers.

    >>> from pebbler.workloads import chain, mlp
    >>> has_kernels(mlp()), has_kernels(chain())
    (True, False)
    """
    return all(_names_kernel(op.meta) for op in graph.ops) and all(tensor.axes is not None for tensor in graph.tensors)


def _names_kernel(meta: Mapping[str, Any]) -> bool:
    """Whether an op, and every op that was fused or gathered into it, names a kernel."""
    try:
        inner = [*meta.get("parts", ()), *([meta["gather"]["op"]] if "gather" in meta else [])]
        return all(_names_kernel(part.get("meta", {})) for part in inner) if inner else "kernel" in meta
    except _MALFORMED:
        return False


def run_op(graph: Graph, op: Op, reads: Sequence[Floats]) -> list[Floats]:
    """Return the results of one op on arrays; pieces of tiled and fused graphs run as `pebbler.game.transform` marks them."""
    axes = {name: tuple(axis for axis, _ in graph.tensor_named(name).axes or ()) for name in (*op.reads, *op.writes)}
    try:
        return _evaluate(op, reads, axes)
    except (*_MALFORMED, ValueError, IndexError, msgspec.ValidationError) as error:
        raise InputError(f"op {quoted(op.name)}: its kernel does not fit its tensors: {error}") from None


def _evaluate(op: Op, reads: Sequence[Floats], axes: Mapping[str, Axes]) -> list[Floats]:
    if "parts" in op.meta:
        return _evaluate_parts(op, reads, axes)
    if "gather" in op.meta:
        return _evaluate_gather(op, reads)
    old = op.meta.get("accumulates", ())
    fresh = len(reads) - len(old)
    named = [Named(data, axes[name]) for data, name in zip(reads[:fresh], op.reads, strict=False)]
    kernel = KERNELS.get(op.meta.get("kernel", ""))
    if kernel is None:
        raise KeyError(f"no kernel {op.meta.get('kernel')!r}")
    results = [np.asarray(kernel(named, axes[name], op.meta)) for name in op.writes]
    sums = dict(zip(old, reads[fresh:], strict=True))
    return [result + sums[name] if name in sums else result for name, result in zip(op.writes, results, strict=True)]


def _evaluate_parts(op: Op, reads: Sequence[Floats], axes: Mapping[str, Axes]) -> list[Floats]:
    known = dict(zip(op.reads, reads, strict=True))
    axes = {**axes, **{name: tuple(inner) for name, inner in op.meta["inner"].items()}}
    for part in (msgspec.convert(part, Op) for part in op.meta["parts"]):
        results = _evaluate(part, [known[name] for name in part.reads], axes)
        known |= dict(zip(part.writes, results, strict=True))
    return [known[name] for name in op.writes]


def _evaluate_gather(op: Op, reads: Sequence[Floats]) -> list[Floats]:
    gather = op.meta["gather"]
    whole = msgspec.convert(gather["op"], Op)
    axes = {name: tuple(inner) for name, inner in gather["axes"].items()}
    known = dict(zip(op.reads, reads, strict=True))
    inputs = []
    for name in whole.reads:
        pieces = [known[piece] for piece in gather["pieces"][name]]
        inputs.append(pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axes[name].index(gather["axis"])))
    results = []
    for name, result in zip(whole.writes, _evaluate(whole, inputs, axes), strict=True):
        pieces = gather["pieces"][name]
        if len(pieces) == 1:
            results.append(result)
        else:
            results += np.split(result, gather["cuts"], axes[name].index(gather["axis"]))
    return results


def initial_values(graph: Graph, seed: int = 0) -> dict[str, Floats]:
    """Return random inputs and params: signs for inputs, small normal numbers for params."""
    rng = np.random.default_rng(seed)
    values = {}
    for tensor in graph.tensors:
        shape = tuple(extent for _, extent in tensor.axes or ())
        if tensor.kind == "input":
            values[tensor.name] = rng.choice([-1.0, 1.0], shape)
        elif tensor.kind == "param":
            values[tensor.name] = rng.normal(0, 0.1, shape)
    return values
