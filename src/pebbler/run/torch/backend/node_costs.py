"""Sizes of a joint graph's nodes, and what they cost on a device: bytes that are read and written, flops, launches."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves, tree_map

from pebbler.run.torch.backend.measured_calls import measured_call, number
from pebbler.run.torch.cost.costs import Device, operator_flops

__all__ = [
    "all_bytes",
    "call_cost",
    "fused_cost",
    "hinted",
    "is_symbol",
    "scratch_bytes",
]

_ATTENTION = {f"_scaled_dot_product_{way}_attention_backward" for way in ("flash", "efficient", "cudnn")}  # on CUDA


def hinted(value: Any) -> Any:
    """Return a number without symbols, asking no question that would become a guard; tensors become tensors of that size.

    >>> hinted(3), hinted(torch.ones(2, 3)).device.type
    (3, 'meta')
    """
    if isinstance(value, torch.Tensor):
        shape = [hinted(n) for n in value.shape]
        return torch.empty(shape, dtype=value.dtype, device="meta")
    return number(value)


def is_symbol(node: fx.Node) -> bool:
    """Return whether a node is a number and no tensor."""
    return isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool)


def all_bytes(values: Sequence[Any]) -> int:
    """Return the bytes of all tensors among values, tuples of tensors included.

    >>> all_bytes([torch.ones(2, 3), (torch.ones(1), 7)])
    28
    """
    return sum(_tensor_bytes(value) for value in tree_leaves(list(values)) if isinstance(value, torch.Tensor))


def _tensor_bytes(value: torch.Tensor) -> int:
    return _numbers(value) * int(value.dtype.itemsize)


def _numbers(value: torch.Tensor) -> int:
    count = 1
    for n in value.shape:
        count *= hinted(n)
    return count


def call_cost(
    node: fx.Node,
    device: Device,
    objective: str,
    moved: int | None = None,
    strides: Mapping[fx.Node, tuple[int, ...]] | None = None,
) -> float:
    """Return the cost of a node that is a call of its own: as measured, or by a roofline of bytes and flops.

    `moved` says how many bytes it moves and `strides` how operands are laid out, where that is known better than from the nodes.
    """
    if node.op != "call_function" or node.target is operator.getitem or is_symbol(node):
        return 0.0
    measured = measured_call(node, strides) if objective == "time" else None
    if measured is not None:
        return measured.seconds
    if moved is None:
        moved = all_bytes([node.meta.get("val"), *(source.meta.get("val") for source in node.all_input_nodes)])
    args, kwargs, out = tree_map(_operand, (list(node.args), dict(node.kwargs), node.meta.get("val")))
    flops = operator_flops(node.target, args, kwargs, out)
    dtypes = [source.meta["val"].dtype for source in node.all_input_nodes if hasattr(source.meta.get("val"), "dtype")]
    seconds, joules = device.kernel(moved, [(str(dtypes[0]).removeprefix("torch.") if dtypes else "", flops)])
    return seconds if objective == "time" else joules


def fused_cost(node: fx.Node, byte_cost: float, stored: bool) -> float:
    """Return the approximate cost of rerunning a fused node: a minimum cut adds up nodes and sees no kernels.

    A reduction reads everything again; a pointwise value is made while its reader runs, and stored if that is not fused.
    """
    if node.op != "call_function" or node.target is operator.getitem or is_symbol(node):
        return 0.0
    results = all_bytes([node.meta.get("val")])
    read = all_bytes([source.meta.get("val") for source in node.all_input_nodes])
    return byte_cost * (read if results * 4 < read else results if stored else results / 20)


def scratch_bytes(node: fx.Node, strides: Mapping[fx.Node, tuple[int, ...]] | None = None) -> int:
    """Return the bytes that an operator holds while it runs besides operands and results: measured, or by known rules.

    Attention adds up a query's gradient in float32.
    """
    measured = measured_call(node, strides)
    if measured is not None:
        return measured.scratch
    if (
        not isinstance(node.target, torch._ops.OpOverload)
        or node.target._schema.name.partition("::")[2] not in _ATTENTION
    ):
        return 0
    query: Any = node.args[1]
    return 4 * _numbers(query.meta["val"])


def _operand(leaf: Any) -> Any:
    return hinted(leaf.meta.get("val") if isinstance(leaf, fx.Node) else leaf)
