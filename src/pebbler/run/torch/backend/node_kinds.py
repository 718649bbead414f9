"""Kinds of nodes in a joint graph, as Inductor treats them: no code, inlined into other kernels, stored by a kernel, or a call."""

from __future__ import annotations

import operator
from functools import cache
from typing import Any

import torch
from torch import fx

from pebbler.run.torch.backend.kernels.step_arrays import CALL, GIVEN, INLINED, STORED, VIEW

__all__ = ["maker", "node_kind", "seeded_operators"]

_CALLS = {"mm", "addmm", "bmm", "baddbmm", "convolution", "_scaled_mm", "_int_mm", "_grouped_mm", "sort", "topk"}
_REDUCTIONS = {
    "sum", "mean", "amax", "amin", "max", "min", "var", "var_mean", "std", "std_mean", "argmax", "argmin", "any", "all",
    "prod", "logsumexp", "prepare_softmax_online", "xor_sum", "cat", "index_put", "_unsafe_index_put", "scatter",
    "scatter_add", "scatter_reduce", "index_add", "slice_scatter", "select_scatter", "as_strided_scatter",
}  # fmt: skip


@cache
def seeded_operators() -> frozenset[Any]:
    """Return Inductor's random operators that compute their numbers from a seed: running them again gives the same numbers."""
    import torch._inductor.inductor_prims

    names = ("inductor_lookup_seed", "inductor_random", "inductor_randint")
    return frozenset(getattr(torch.ops.prims, name).default for name in names if hasattr(torch.ops.prims, name))


def maker(node: fx.Node) -> fx.Node:
    """Return the operator that makes a value: an element of a tuple is made with the tuple."""
    while node.target is operator.getitem and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node


def node_kind(node: fx.Node) -> int:
    """Return the way Inductor computes a node; elements of tuples have the kind of the node that makes the tuple."""
    node = maker(node)
    if node.op in ("placeholder", "get_attr"):
        return GIVEN
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return INLINED if not _holds_tensor(node) else CALL
    if _is_view(target):
        return VIEW
    name = target._schema.name.partition("::")[2]
    if name in _CALLS or not (_has_lowering(target) or target in seeded_operators()):
        return CALL
    return STORED if name in _REDUCTIONS and not _elementwise(node) else INLINED


def _is_view(target: torch._ops.OpOverload) -> bool:
    returns = target._schema.returns
    alias = returns[0].alias_info if returns else None
    return (alias is not None and not alias.is_write) or target is torch.ops.aten._unsafe_view.default


@cache
def _has_lowering(target: torch._ops.OpOverload) -> bool:
    from torch._inductor import lowering

    known = target in lowering.lowerings or target.overloadpacket in lowering.lowerings
    return known and target not in lowering.fallbacks and target.overloadpacket not in lowering.fallbacks


def _elementwise(node: fx.Node) -> bool:
    """Return whether `max` or `min` compares two tensors."""
    target: Any = node.target
    return target.overloadpacket in (torch.ops.aten.max, torch.ops.aten.min) and len(node.all_input_nodes) == 2


def _holds_tensor(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) or (isinstance(value, (tuple, list)) and len(value) > 0)
