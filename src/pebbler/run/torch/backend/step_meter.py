"""Measuring the peak of a step from within its graphs: forward and backward calls are seen, the code between them is not ours.

A CUDA device is asked for the most that it held since the step began, whoever held it. A CPU has no such counter: what graphs were
given is added up, and the allocator is watched while they run. So on a CPU what eager code holds between graphs is missing,
gradients of outputs apart.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim import Optimizer
from torch.utils._python_dispatch import _disable_current_modes

from pebbler.run.torch.cost.peak_memory import PeakWatch

__all__ = [
    "StepMeter",
    "compiled_node",
    "held_now",
    "most_since_reset",
    "open_workspaces",
    "optimizer_meter",
    "step_meter",
]


class StepMeter:
    """The peak of one step on a CPU, in spans: every call of a graph, every backward of one."""

    def __init__(self) -> None:
        self._given: dict[int, int] = {}  # bytes by storage
        self._held = self._most = self._besides = 0
        self._watch: PeakWatch | None = None
        self._made: list[tuple[StorageWeakRef, int]] = []  # results of graphs, with their bytes

    def note(self, args: Sequence[Any], first: bool) -> None:
        """Count what a graph is given: everything by the first one, later only parameters, since the rest was made in this step."""
        for x in args:
            if isinstance(x, torch.Tensor) and (first or isinstance(x, torch.nn.Parameter)):
                for tensor in (x, x.grad if x.is_leaf else None):
                    if tensor is not None and tensor.device.type == "cpu":
                        storage = tensor.untyped_storage()
                        self._given.setdefault(storage._cdata, storage.nbytes())

    def open(self, besides: int = 0) -> None:
        """Begin a span; `besides` are bytes that are held during it and were not made in a span."""
        if self._watch is None:
            self._held -= sum(size for made, size in self._made if made.expired())
            self._made = [(made, size) for made, size in self._made if not made.expired()]
            self._watch, self._besides = PeakWatch("cpu"), besides

    def close(self) -> None:
        """End the span."""
        if self._watch is not None:
            watch, self._watch = self._watch, None
            self._most = max(self._most, self._held + self._besides + watch.stop())
            self._held += watch.left

    def results(self, outputs: Sequence[Any]) -> None:
        """Remember what a graph returned: whoever called may let it go before backward."""
        storages = {
            x.untyped_storage()._cdata: x for x in outputs if isinstance(x, torch.Tensor) and x.device.type == "cpu"
        }
        for place, x in storages.items():
            if place not in self._given:
                self._made.append((StorageWeakRef(x.untyped_storage()), x.untyped_storage().nbytes()))

    def peak(self) -> int:
        """Return the most bytes that the step held."""
        self.close()
        return sum(self._given.values()) + self._most


class _DeviceMeter(StepMeter):
    """The peak of one step on a CUDA device."""

    def __init__(self, device: str, anew: bool = True) -> None:
        super().__init__()
        self.device = device
        torch.cuda.synchronize(device)
        if anew:
            torch.cuda.reset_peak_memory_stats(device)

    def note(self, args: Sequence[Any], first: bool) -> None:
        """The device counts what it holds."""

    def open(self, besides: int = 0) -> None:
        """The device counts on between spans."""

    def close(self) -> None:
        """The device counts on between spans."""

    def results(self, outputs: Sequence[Any]) -> None:
        """The device counts what it holds."""

    def peak(self) -> int:
        """Return the most bytes that the device held since the step began."""
        return most_since_reset(self.device)


def most_since_reset(device: str) -> int:
    """Return the most bytes that a CUDA device held since its record was reset; asking takes no time."""
    return int(torch.cuda.max_memory_allocated(device))


def held_now(device: str) -> int:
    """Return the bytes that a CUDA device holds; 0 for others, whose steps are counted by what they are given."""
    return int(torch.cuda.memory_allocated(device)) if device.startswith("cuda") else 0


def open_workspaces(device: str) -> None:
    """Have small products computed forward and backward: their workspaces stay, and are there when what is held is counted."""
    with (
        _disable_current_modes(),
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast(torch.device(device).type, enabled=False),
        contextlib.suppress(RuntimeError),  # what a device cannot compute needs no workspace
    ):
        for dtype in (torch.float32, torch.bfloat16):
            x, weight, bias = (torch.ones(shape, device=device, dtype=dtype) for shape in ((16, 16), (16, 16), (16,)))
            torch.nn.functional.linear(x, weight.requires_grad_(), bias.requires_grad_()).sum().backward()


def step_meter(device: str) -> StepMeter:
    """Return what measures a step that begins now on a device such as `cpu` or `cuda:0`."""
    return _DeviceMeter(device) if device.startswith("cuda") else StepMeter()


def optimizer_meter(device: str, optimizer: Optimizer) -> StepMeter:
    """Return what measures an optimizer's step: a CUDA device counts on since the step began, on a CPU it is counted for itself."""
    meter = StepMeter() if device == "cpu" else _DeviceMeter(device, anew=False)
    meter.note([p for group in optimizer.param_groups for p in group["params"]], first=True)
    meter.note([value for state in optimizer.state.values() for value in state.values()], first=True)
    return meter


def compiled_node(node: Any) -> Any:
    """Return autograd's node of the compiled graph that an output came from; views of outputs are made after it."""
    while node is not None and not isinstance(node, BackwardCFunction):
        node = node.next_functions[0][0] if node.next_functions else None
    return node
