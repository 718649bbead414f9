"""The time of one run on a device, without the time that the CPU takes to queue it."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

__all__ = ["time_run"]

_SLEEP = 2_000_000  # cycles, about a millisecond


def time_run(run: Callable[[], object], device: str) -> float:
    """Return the seconds that a run takes on a device.

    >>> 0 < time_run(lambda: torch.ones(10), "cpu") < 1
    True
    """
    if device.startswith("cuda"):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(_SLEEP)  # while it sleeps everything is queued, so that no time of the CPU is measured
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) / 1e3
    began = time.perf_counter()
    run()
    return time.perf_counter() - began
