"""Measuring how much memory a call really uses: torch's own allocator, asked while it runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._C._profiler import _EventType
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

__all__ = ["PeakWatch", "foreign_bytes", "measure_peak"]


def measure_peak(function: Callable[..., Any], *args: Any, device: str = "cpu") -> tuple[Any, int]:
    """Return the result of a call, and its peak of bytes above those held before, including temporaries of kernels.

    On CUDA this is `max_memory_allocated`; on a CPU the allocator's events are recorded and added up.

    >>> result, peak = measure_peak(lambda: torch.ones(1000).add(1).sum())
    >>> result.item(), 8000 <= peak < 8200
    (2000.0, True)
    """
    watch = PeakWatch(device)
    try:
        result = function(*args)
    finally:
        peak = watch.stop()
    return result, peak


class PeakWatch:
    """The peak in bytes above the memory held at the start, until `stop`; `left` is the memory held at the end.

    On a CPU it must be stopped by the same thread, and by the same call of autograd's engine, that made it.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.left = 0
        self._before = 0
        self._recording: Any = None
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)
            torch.cuda.reset_peak_memory_stats(device)
            self._before = torch.cuda.memory_allocated(device)
            return
        self._recording = profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True)
        older = torch.empty(1)
        with _silent_stderr():
            self._recording.start()
            del (
                older
            )  # the allocator warns of the first block that it did not see allocated, and then of every thousandth

    def stop(self) -> int:
        """Return the peak, and measure no longer."""
        if self._recording is None:
            torch.cuda.synchronize(self.device)
            self.left = int(torch.cuda.memory_allocated(self.device)) - self._before
            return int(torch.cuda.max_memory_allocated(self.device)) - self._before
        with _silent_stderr():
            self._recording.stop()
        events = [e for e in self._recording.profiler.kineto_results.events() if e.name() == "[memory]"]
        held = most = 0
        for event in sorted(events, key=lambda e: e.start_ns()):
            if event.device_type() == DeviceType.CPU:
                held += event.nbytes()
                most = max(most, held)
        self.left = held
        return most

    def allocations(self) -> list[tuple[int, int]]:
        """Return the events of the CPU's allocator until `stop`, in order: addresses with their bytes, negative when freed.

        Memory from before is only listed when it is freed, and only if some watch saw it allocated.
        """
        rest = self._recording.profiler.kineto_results.experimental_event_tree()
        found = []
        while rest:
            event = rest.pop()
            rest += event.children
            if event.tag == _EventType.Allocation and event.extra_fields.device.type == "cpu":
                found.append((event.start_time_ns, event.extra_fields.ptr, event.extra_fields.alloc_size))
        return [(address, size) for _, address, size in sorted(found)]


def foreign_bytes(tensors: Iterable[torch.Tensor], device: str) -> int:
    """Return the number of bytes that a CUDA device holds besides these tensors, such as workspaces of libraries.

    >>> foreign_bytes([torch.ones(3)], "cpu")
    0
    """
    if not device.startswith("cuda") or not torch.cuda.is_available():
        return 0
    there = [t.untyped_storage() for t in tensors if str(t.device) == device and not isinstance(t, FakeTensor)]
    own: int = sum({storage.data_ptr(): storage.nbytes() for storage in there}.values())
    return max(0, int(torch.cuda.memory_allocated(device)) - own)


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Keep the profiler's library, which greets on every start and stop, from writing to the terminal."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
