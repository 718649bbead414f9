"""Joules of single ops by an energy counter: each kind of op is kept running, with operands that the caches do not hold.

In a step an op finds most of its operands in memory, not in a cache, because other ops ran since they were made. So copies of the
operands take turns, enough of them to be larger than the caches. What is measured is gross: static power during an op is in
its joules, so ops that follow one another without a gap add up to a step.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from pebbler.joules.counters import find_counters
from pebbler.joules.meter import EnergyMeter
from pebbler.joules.power import CallWork, PowerReading, Work, measure_power
from pebbler.run.torch.capture.call_groups import CallGroup
from pebbler.run.torch.capture.phases import Phase
from pebbler.run.torch.cost.cuda_bench import device_uuid
from pebbler.run.torch.cost.cuda_work import CudaWork
from pebbler.run.torch.fuse.group_execution import run_group, sample_operands
from pebbler.run.torch.fuse.inductor import Kernel, KernelInterface

__all__ = ["MeasuredEnergy", "OpMeter", "meter_of"]

_CACHES = (
    3 * 60 * 2**20
)  # bytes that copies of operands take together: three times the largest cache of a GPU that we know
_MOST_COPIES = 16
_CPU_LAUNCH = 0.004  # seconds


def meter_of(device: str) -> EnergyMeter:
    """Return a meter of the device where a step runs: that GPU alone, or the CPU. Raises `NoCounter` where there is none."""
    if device.startswith("cuda"):
        return EnergyMeter(find_counters([device_uuid(device)]))
    return EnergyMeter([counter for counter in find_counters() if counter.name.startswith("CPU")])


@dataclass(frozen=True)
class MeasuredEnergy:
    """How the joules of a step's ops came about: by the counter, or by a model where an op takes too little time to matter.

    `static_watts` is what the device draws while it is awake and does nothing: what a gap between ops costs.
    """

    measured_joules: float
    modelled_joules: float
    kinds: int  # of ops that were measured
    all_kinds: int
    static_watts: float

    @property
    def measured_share(self) -> float:
        """The share of the joules that the counter gave."""
        total = self.measured_joules + self.modelled_joules
        return self.measured_joules / total if total > 0 else 0.0


class OpMeter:
    """Measures groups of calls one at a time, each for about `seconds`."""

    def __init__(self, meter: EnergyMeter, device: str, seconds: float = 0.3) -> None:
        self.meter, self.device, self.seconds = meter, device, seconds
        self.static_watts = self._static()

    def _static(self) -> float:
        """Return the power of a device that is awake and does nothing: a GPU counts cycles, a CPU waits."""
        if self.device.startswith("cuda"):
            spin = CudaWork([functools.partial(torch.cuda._sleep, 2_000_000)], self.device)
            return measure_power(spin, self.meter, seconds=self.seconds).watts
        return measure_power(
            CallWork(functools.partial(self.meter.sleep, 0.001)), self.meter, seconds=self.seconds
        ).watts

    def measure(self, phase: Phase, group: CallGroup, kernel: Kernel | None) -> PowerReading:
        """Return power and time of a group of calls, or of its kernel."""
        most = 2 * self.seconds
        with torch.no_grad():
            reading = measure_power(
                self._work(phase, group, kernel), self.meter, seconds=self.seconds, most_seconds=most
            )
        if self.device.startswith("cuda"):
            torch.cuda.empty_cache()  # recorded work keeps memory of its own
        return reading

    def _work(self, phase: Phase, group: CallGroup, kernel: Kernel | None) -> Work:
        reads = sorted(KernelInterface(phase.record, group).reads)
        size = sum(phase.record.storages[s].bytes for s in (*reads, *group.makes))
        copies = 1
        if self.device.startswith("cuda"):
            copies = max(1, min(_MOST_COPIES, math.ceil(_CACHES / max(size, 1))))

        def call() -> Callable[[], object]:
            roots = sample_operands(phase, reads)
            return lambda: run_group(phase.record, group, dict(roots), kernel)

        calls = [call() for _ in range(copies)]
        if self.device.startswith("cuda"):
            return CudaWork(calls, self.device)
        began = time.perf_counter()
        calls[0]()
        return CallWork(calls[0], max(1, int(_CPU_LAUNCH / max(time.perf_counter() - began, 1e-6))))
