"""Work on a GPU that repeats without the CPU in its way: calls recorded as a CUDA graph and replayed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["CudaWork"]

_LAUNCH = 0.02  # seconds that one launch takes about: short beside a counter's period, long beside what launching takes
_MOST_RUNS = 1024


class CudaWork:
    """Calls queued on a GPU, one after the other; those that cannot be recorded are queued from Python each time.

    The calls take turns, so that copies of one call's operands keep each other out of the caches.
    """

    def __init__(self, calls: Sequence[Callable[[], object]], device: str, *, recorded: bool = True) -> None:
        self._calls, self._device = calls, device
        self._events: deque[Any] = deque()
        for call in calls:  # the first run sets kernels up
            call()
        each = self._time()
        rounds = max(1, min(_MOST_RUNS, round(_LAUNCH / max(each, 1e-6))) // len(calls))
        self.runs = rounds * len(calls)
        self.graph = self._record(rounds) if recorded else None
        self._rounds = rounds

    def _time(self) -> float:
        """Return the seconds of one call, roughly."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(self._device)
        begin.record()
        for call in self._calls:
            call()
        end.record()
        torch.cuda.synchronize(self._device)
        return float(begin.elapsed_time(end)) / 1e3 / len(self._calls)

    def _record(self, rounds: int) -> Any:
        """Return the calls as a graph, None if one of them cannot be recorded (it waits for the GPU, say)."""
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(self._device)
        stream.wait_stream(torch.cuda.current_stream(self._device))
        try:
            with torch.cuda.stream(stream):
                for call in self._calls:
                    call()  # libraries make workspaces for each stream
                stream.synchronize()
                graph.capture_begin()
                try:
                    for _ in range(rounds):
                        for call in self._calls:
                            call()
                finally:
                    graph.capture_end()
            torch.cuda.synchronize(self._device)
            graph.replay()
            torch.cuda.synchronize(self._device)
        except Exception:  # of a call that a stream cannot record, whoever raises it; the stream is as before
            return None
        return graph

    def launch(self) -> None:
        """Queue all runs."""
        if self.graph is not None:
            self.graph.replay()
        else:
            for _ in range(self._rounds):
                for call in self._calls:
                    call()
        event = torch.cuda.Event()
        event.record()
        self._events.append(event)

    def pending(self) -> int:
        """Return the number of launches that have not ended."""
        while self._events and self._events[0].query():
            self._events.popleft()
        return len(self._events)

    def wait(self) -> None:
        """Wait for all of them."""
        torch.cuda.synchronize(self._device)
        self._events.clear()
