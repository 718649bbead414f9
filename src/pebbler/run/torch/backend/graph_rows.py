"""Rows in graphs of Dynamo's: which nodes compute every row of their result from one row of their operands."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx
from torch.nn import functional

__all__ = ["ELEMENTWISE", "is_cast", "is_elementwise", "is_layout", "is_linear", "shaped", "undisturbed"]

_CASTS = ("float", "to", "type", "bfloat16", "double")
_LAYOUTS = ("view", "reshape", "flatten", "contiguous")
ELEMENTWISE = frozenset(
    (
        *(operator.mul, operator.add, operator.sub, operator.truediv, operator.neg),
        *(torch.mul, torch.add, torch.sub, torch.div, torch.true_divide, torch.pow, torch.square),
        *(torch.tanh, torch.sigmoid, torch.exp, torch.relu, torch.erf, torch.sin),
        *(
            functional.gelu,
            functional.silu,
            functional.relu,
            functional.elu,
            functional.softplus,
            functional.leaky_relu,
        ),
        *(
            functional.tanh,
            functional.sigmoid,
            functional.mish,
            functional.relu6,
            functional.hardswish,
            functional.logsigmoid,
        ),
    )
)
_IN_PLACE = ("iadd", "isub", "imul", "itruediv", "ipow", "imatmul", "iand", "ior", "ixor", "ifloordiv", "imod")
_METHODS = ("tanh", "sigmoid", "pow", "square", "exp", "relu", "mul", "add", "div", "sub", "erf")


def shaped(node: Any) -> torch.Tensor | None:
    """Return the shape and type of a node's result, if all of its sizes are known."""
    value = node.meta.get("example_value") if isinstance(node, fx.Node) else None
    return value if isinstance(value, torch.Tensor) and all(isinstance(n, int) for n in value.shape) else None


def is_linear(node: Any) -> bool:
    """Return whether a node is a linear layer's product."""
    return isinstance(node, fx.Node) and node.target in (functional.linear, torch._C._nn.linear)


def is_cast(node: fx.Node) -> bool:
    """Return whether a node changes the type of its operand's numbers and nothing else."""
    before, after = shaped(node.args[0]) if node.args else None, shaped(node)
    if node.op != "call_method" or node.target not in _CASTS or before is None or after is None:
        return False
    rest = (*node.args[1:], *node.kwargs.values())
    return (
        before.device == after.device
        and after.dtype.is_floating_point
        and not any(isinstance(x, fx.Node) for x in rest)
    )


def is_layout(node: fx.Node) -> bool:
    """Return whether a node sorts the same rows into other leading dimensions."""
    named = node.op == "call_method" and node.target in _LAYOUTS
    before, after = shaped(node.args[0]) if node.args else None, shaped(node)
    if not (named or node.target in (torch.flatten, torch.reshape)) or before is None or after is None:
        return False
    return bool(before.dim() > 0 and after.dim() > 0 and before.shape[-1] == after.shape[-1])


def is_elementwise(node: fx.Node) -> bool:
    """Return whether a node computes number by number from operands of its own shape, and from constants."""
    named = node.op == "call_method" and node.target in _METHODS
    after = shaped(node)
    if not (named or (node.op == "call_function" and node.target in ELEMENTWISE)) or after is None:
        return False
    if _changes(node):
        return False
    sources = [shaped(source) for source in node.all_input_nodes]
    return bool(sources) and all(x is not None and x.shape == after.shape for x in sources)


def _changes(node: fx.Node) -> bool:
    """Return whether a node may change an operand of its in place."""
    name = str(getattr(node.target, "__name__", node.target))
    told = (*node.args[1:], node.kwargs.get("inplace"))
    return (
        (name.endswith("_") and not name.endswith("__"))
        or (getattr(node.target, "__module__", "") == "_operator" and (name == "setitem" or name in _IN_PLACE))
        or any(x is True for x in told)
        or node.kwargs.get("out") is not None
    )


def undisturbed(first: fx.Node, last: fx.Node) -> bool:
    """Return whether nothing between two nodes switches autocast, gradients or the like, or changes a tensor in place."""
    node = first
    while node is not last:
        node = node.next
        name = str(getattr(node.target, "__name__", node.target))
        if (
            node.op == "root"
            or any(word in name for word in ("autocast", "grad_enabled", "grad_mode"))
            or _changes(node)
        ):
            return False
    return True
