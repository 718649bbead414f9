"""Measuring the peak of a step: from the first call of a compiled graph to the end of backward, eager code between them included.

A CUDA device is asked for the most that it held since the step began, whoever held it. A CPU has no such counter: what graphs were
given is added up with the parameters that backward reaches, and the allocator is watched. So on a CPU other tensors from before
the first graph, such as targets of an eager loss or what eager layers before that graph have saved, are not counted.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction
from torch.optim import Optimizer
from torch.utils._python_dispatch import _disable_current_modes

from pebbler.run.torch.backend.step_timeline import StepMoment
from pebbler.run.torch.cost.peak_memory import PeakWatch

__all__ = [
    "StepMeter",
    "can_watch",
    "compiled_node",
    "held_now",
    "most_since_reset",
    "open_workspaces",
    "optimizer_meter",
    "step_meter",
]


class StepMeter:
    """The peak of one step on a CPU.

    It is watched without a pause: a `record_function` of the user's that is open while a profiler begins anew crashes when it ends.
    """

    def __init__(self) -> None:
        self._before: dict[int, int] = {}  # bytes by address, of what was there when the step began
        self._there = 0  # bytes of that, freed or not
        self._noted: dict[int, int] = {}  # bytes by address, of what was there or was made in the step
        self._most = 0  # above what was there
        self._watch: PeakWatch | None = None
        self._thread = threading.get_ident()
        self._moments: list[tuple[str, int, int]] = []  # what begins or ends, for which graph, and what it is given
        self.marks: list[StepMoment] = []  # what is known of them, once the peak was asked for

    def mark(self, kind: str, graph: int, given: int = 0) -> None:
        """Note that a part of a graph begins or ends; so many bytes that are `given` to it count as its own."""
        self._moments.append((kind, graph, given))
        torch.empty(_MARK, dtype=torch.uint8)  # is seen among the other allocations

    @property
    def elsewhere(self) -> bool:
        """Whether this is not the thread that began to watch: only that one can end it."""
        return self._watch is not None and self._thread != threading.get_ident()

    def note(self, args: Sequence[Any]) -> None:
        """Count the inputs of a graph, unless they are made in this step."""
        for x in args:
            if isinstance(x, torch.Tensor):
                for tensor in (x, x.grad if x.is_leaf else None):
                    if tensor is not None and tensor.device.type == "cpu":
                        storage = tensor.untyped_storage()
                        plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)  # others may have no address
                        self._noted.setdefault(storage.data_ptr() if plain else storage._cdata, storage.nbytes())

    def note_trained(self, roots: Sequence[Any]) -> None:
        """Count the parameters that a backward pass from these tensors reaches, whoever read them."""
        rest = [getattr(root, "grad_fn", None) or getattr(root, "node", None) for root in roots]
        seen = set()
        while rest:
            node = rest.pop()
            if node is not None and node not in seen:
                seen.add(node)
                rest += [source for source, _ in node.next_functions]
                self.note([getattr(node, "variable", None)])

    def open(self) -> None:
        """Begin to watch."""
        self._count_noted(())
        self._watch, self._thread = PeakWatch("cpu"), threading.get_ident()

    def close(self) -> None:
        """Stop watching, and count the memory."""
        watch, self._watch = self._watch, None
        if watch is None:
            return
        if self._thread != threading.get_ident():
            _LEFT.setdefault(self._thread, []).append(watch)
            warnings.warn(
                "forward and backward run in different threads: on a CPU such a step is not measured, and its budget not verified",
                stacklevel=2,
            )
            return
        watch.stop()
        moves = watch.allocations()
        self._count_noted({address for address, size in moves if size > 0})
        made: dict[int, int] = {}
        ours: set[int] = set()  # addresses of marks
        held = most = 0
        moments = iter(self._moments if sum(size == _MARK for _, size in moves) == len(self._moments) else ())
        for address, size in moves:
            if size == _MARK and (moment := next(moments, None)) is not None:
                kind, graph, given = moment
                self.marks.append(StepMoment(kind, graph, held - given, most))
                most = 0
                ours.add(address)
            elif size == -_MARK and address in ours:
                ours.remove(address)
            elif size > 0:
                made[address] = size
                held += size
                most = max(most, held)
                self._most = max(self._most, held)
            elif address in made:
                held -= made.pop(address)
            else:
                self._count(address, -size)
                held -= self._before.pop(address)
        self.marks.append(StepMoment("end", 0, held, most))
        self.marks = [replace(mark, held=mark.held + self._there, most=mark.most + self._there) for mark in self.marks]

    def _count_noted(self, made: Container[int]) -> None:
        noted, self._noted = self._noted, {}
        for address, size in noted.items():
            if address not in made:
                self._count(address, size)

    def _count(self, address: int, size: int) -> None:
        if address not in self._before:
            self._before[address] = size
            self._there += size

    @property
    def there(self) -> int:
        """Bytes held when the step began, once its peak was asked for."""
        return self._there

    def peak(self) -> int:
        """Return the most bytes that the step held."""
        self.close()
        return self._there + self._most


_MARK = 7919  # bytes
_LEFT: dict[int, list[PeakWatch]] = {}  # watches that another thread should have ended, by the thread that can


def can_watch() -> bool:
    """Return whether a step can be measured now: a thread has one profiler, and it may be somebody else's."""
    for watch in _LEFT.pop(threading.get_ident(), []):
        watch.stop()
    return not torch.autograd._profiler_enabled()


class _DeviceMeter(StepMeter):
    """The peak of one step on a CUDA device."""

    def __init__(self, device: str, anew: bool = True) -> None:
        super().__init__()
        self.device = device
        torch.cuda.synchronize(device)
        if anew:
            torch.cuda.reset_peak_memory_stats(device)
        self._there = held_now(device)

    def note(self, args: Sequence[Any]) -> None:
        """The device counts what it holds."""

    def note_trained(self, roots: Sequence[Any]) -> None:
        """The device counts what it holds."""

    def open(self) -> None:
        """The device counts by itself."""

    def close(self) -> None:
        """The device counts by itself."""

    def mark(self, kind: str, graph: int, given: int = 0) -> None:
        """Note that a part of a graph begins or ends, and begin to look for the most anew."""
        self.marks.append(StepMoment(kind, graph, held_now(self.device) - given, most_since_reset(self.device)))
        torch.cuda.reset_peak_memory_stats(self.device)

    def peak(self) -> int:
        """Return the most bytes that the device held since the step began."""
        self.marks.append(StepMoment("end", 0, held_now(self.device), most_since_reset(self.device)))
        return max(mark.most for mark in self.marks)


def most_since_reset(device: str) -> int:
    """Return the most bytes that a CUDA device held since its record was reset; asking takes no time."""
    return int(torch.cuda.max_memory_allocated(device))


def held_now(device: str) -> int:
    """Return the bytes that a CUDA device holds; 0 for others, whose steps are counted by what they are given."""
    return int(torch.cuda.memory_allocated(device)) if device.startswith("cuda") else 0


def open_workspaces(device: str) -> None:
    """Run small products forward and backward, so that their workspaces exist before held memory is counted."""
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
    """Return the meter of a step that begins now on a device such as `cpu` or `cuda:0`."""
    return _DeviceMeter(device) if device.startswith("cuda") else StepMeter()


def optimizer_meter(device: str, optimizer: Optimizer) -> StepMeter:
    """Return the meter of an optimizer's step: a CUDA device counts on from the step's start, a CPU counts it separately."""
    meter = StepMeter() if device == "cpu" else _DeviceMeter(device, anew=False)
    meter.note([p for group in optimizer.param_groups for p in group["params"]])
    meter.note([value for state in optimizer.state.values() for value in state.values()])
    return meter


def compiled_node(node: Any) -> Any:
    """Return autograd's node of the compiled graph that an output came from; views of outputs are made after it."""
    while node is not None and not isinstance(node, BackwardCFunction):
        node = node.next_functions[0][0] if node.next_functions else None
    return node
