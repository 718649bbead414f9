"""Calls of libraries (products, convolutions, attention) as a CUDA device runs them: seconds, and memory beside their results.

A roofline is far off for some of them, such as convolutions channel by channel, and says nothing of workspaces. There are few
different ones in a model, and each takes milliseconds. On a CPU nothing is measured, so the same model gives the same plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import flop_registry

from pebbler.run.torch.cost.peak_memory import PeakWatch

__all__ = ["MeasuredCall", "measured_call"]

_RUNS = 4
_UNKNOWN_SIZE = 4096  # what torch's own partitioner takes where a size depends on data


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
            seconds = min(_timed(target, real, named, device) for _ in range(_RUNS))
        except (RuntimeError, NotImplementedError, TypeError):  # no memory, or an operator that wants other values
            return None
    return MeasuredCall(seconds, max(0, most - sum(results)))


def _timed(target: Any, args: list[Any], kwargs: dict[str, Any], device: str) -> float:
    from time import perf_counter

    if not device.startswith("cuda"):
        began = perf_counter()
        target(*args, **kwargs)
        return perf_counter() - began
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    target(*args, **kwargs)
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) / 1e3
