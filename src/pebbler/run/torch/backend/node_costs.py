"""Sizes of a joint graph's nodes, and what they cost on a device: bytes that are read and written, flops, launches."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import flop_registry

from pebbler.run.torch.backend.node_kinds import seeded_operators
from pebbler.run.torch.cost.costs import Device, operator_flops
from pebbler.run.torch.cost.op_time import time_run
from pebbler.run.torch.cost.peak_memory import PeakWatch

__all__ = [
    "MeasuredCall",
    "all_bytes",
    "call_cost",
    "drawing_cost",
    "drawing_flops",
    "fused_cost",
    "hinted",
    "is_symbol",
    "measured_call",
    "scratch_bytes",
]

_RUNS = 4
_SLOWER = 4.0  # times as long as a flop: a step in whole numbers
# Flops in whose time Philox makes a random number, by its steps. A kernel that draws and does nothing else takes half of that on
# an H200 (2.95 ps); planned with all of it, a T5 with dropout took 54.8 ms within 8.81 GiB, planned with bytes alone 64.1.
_DRAWING = 70 * _SLOWER
_UNKNOWN_SIZE = 4096  # what torch's own partitioner takes where a size depends on data
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


def drawing_flops(node: fx.Node) -> float:
    """Return the float32 flops in whose time a fused node draws its random numbers; 0 for other nodes."""
    value = node.meta.get("val")
    if node.target not in seeded_operators() or not isinstance(value, torch.Tensor) or value.dim() == 0:
        return 0.0
    return _DRAWING * _numbers(value)


def drawing_cost(node: fx.Node, device: Device, objective: str) -> float:
    """Return the cost of drawing random numbers beyond that of writing them: dropout that runs again is slower than its bytes."""
    written, flops = all_bytes([node.meta.get("val")]), drawing_flops(node)
    seconds = device.kernel(written, [("float32", flops)])[0] - device.kernel(written)[0]
    if objective == "time":
        return seconds
    return flops / _SLOWER * device.rate("float32")[1] + seconds * device.static_watts


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


# Calls of libraries (products, convolutions, attention) as a CUDA device runs them ----------------------------------------
# A roofline is far off for some of them, such as convolutions channel by channel, and says nothing of workspaces. There are few
# different ones in a model, and each takes milliseconds. On a CPU nothing is measured, so the same model gives the same plan.


@dataclass(frozen=True)
class MeasuredCall:
    """The seconds of a call, and the bytes that it holds while it runs besides operands and results."""

    seconds: float
    scratch: int


@dataclass(frozen=True)
class _Operand:
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def make(self) -> torch.Tensor:
        """Return a tensor like it; whole numbers are zeros, which are in range wherever they point."""
        made = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)
        return made.normal_() if self.dtype.is_floating_point else made.zero_()


_KNOWN: dict[str, MeasuredCall | None] = {}


def measured_call(
    node: fx.Node, strides: Mapping[fx.Node, tuple[int, ...]] | None = None, kinds: tuple[str, ...] = ("cuda",)
) -> MeasuredCall | None:
    """Return the measured time of a library call on its device; None for other nodes and devices, and where it fails.

    `strides` says of operands how they are laid out where their nodes do not.
    """
    target: Any = node.target
    if getattr(target, "overloadpacket", None) not in flop_registry:
        return None

    def operand(leaf: Any) -> Any:
        if not isinstance(leaf, fx.Node):
            return leaf
        value = leaf.meta.get("val")
        if not isinstance(value, torch.Tensor):
            return number(value)
        shape = tuple(number(n) for n in value.shape)
        stride = (strides or {}).get(leaf) or tuple(number(n) for n in value.stride())
        return _Operand(shape, stride, value.dtype, value.device)

    args, kwargs = tree_map(operand, (list(node.args), dict(node.kwargs)))
    operands = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, _Operand)]
    if not operands or operands[0].device.type not in kinds:
        return None
    key = repr((str(target), args, sorted(kwargs.items())))
    if key not in _KNOWN:
        _KNOWN[key] = _measure(target, args, kwargs, str(operands[0].device))
    return _KNOWN[key]


def number(value: Any) -> Any:
    """Return a number without symbols, asking no question that would become a guard.

    >>> number(3)
    3
    """
    if isinstance(value, torch.SymInt):
        hint = value.node.hint if value.node.has_hint() else None
        return _UNKNOWN_SIZE if hint is None else int(hint)
    return 1 if isinstance(value, torch.SymFloat | torch.SymBool) else value


def _measure(target: Any, args: list[Any], kwargs: dict[str, Any], device: str) -> MeasuredCall | None:
    with (
        _disable_current_modes(),
        torch.inference_mode(False),
        torch.no_grad(),
        torch.autocast(torch.device(device).type, enabled=False),
    ):
        try:
            real, named = tree_map(lambda x: x.make() if isinstance(x, _Operand) else x, (args, kwargs))
            target(*real, **named)  # what is loaded once is loaded now
            watch = PeakWatch(device)
            result = target(*real, **named)
            most = watch.stop()
            results = [x.untyped_storage().nbytes() for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
            del result
            seconds = min(time_run(lambda: target(*real, **named), device) for _ in range(_RUNS))
        except (RuntimeError, NotImplementedError, TypeError):  # no memory, or an operator that wants other values
            return None
    return MeasuredCall(seconds, max(0, most - sum(results)))
