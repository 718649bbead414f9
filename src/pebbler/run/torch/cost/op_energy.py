"""Joules of single ops by an energy counter: each kind of op is kept running, with operands that the caches do not hold.

In a step an op finds most of its operands in memory, not in a cache, because other ops ran since they were made. So copies of the
operands take turns, enough of them to be larger than the caches. What is measured is gross: static power during an op is in
its joules, so ops that follow one another without a gap add up to a step.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from pebbler.joules.energy_counters import find_counters
from pebbler.joules.meter import EnergyMeter
from pebbler.joules.power import CallWork, PowerReading, Work, measure_power
from pebbler.run.torch.capture.call_groups import CallGroup
from pebbler.run.torch.capture.phases import Phase
from pebbler.run.torch.cost.cuda_bench import device_uuid
from pebbler.run.torch.cost.cuda_work import CudaWork
from pebbler.run.torch.fuse.group_execution import run_group, sample_operands
from pebbler.run.torch.fuse.inductor import Kernel, KernelInterface

__all__ = ["MeasuredEnergy", "NotRecorded", "OpMeter", "OpRun", "meter_of"]

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
    """The origin of the joules of a step's ops: measured for one kind of op, measured for several together, or modelled.

    Then all kinds ran in one mixture: `mixed_joules` and `mixed_seconds` say what it took, as multiples of what its ops took
    apart, and every op's price is that multiple of its own. `static_watts` is what the device draws while it is awake and does
    nothing: what a gap between ops costs.
    """

    alone_joules: float  # of kinds of ops measured one at a time
    together_joules: float  # of kinds that ran together, and share their power
    modelled_joules: float
    kinds: int  # of ops that were measured alone
    all_kinds: int
    static_watts: float
    mixed_joules: float = 1.0
    mixed_seconds: float = 1.0

    @property
    def measured_share(self) -> float:
        """The share of the joules that the counter gave for one kind of op at a time."""
        total = self.alone_joules + self.together_joules + self.modelled_joules
        return self.alone_joules / total if total > 0 else 0.0


class NotRecorded(Exception):
    """One of several runs cannot be recorded: queued from Python, all of them would wait for it and for the CPU."""


class OpMeter:
    """Measures groups of calls, one at a time or some together, for about `seconds`."""

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

    def measure(self, runs: Sequence[OpRun], *, copies: bool = False, longer: float = 1.0) -> PowerReading:
        """Return power and time of some runs together, one of each as often as it says; of one alone if there is only one.

        With `copies` there are so many copies of the operands that caches do not hold them all. The window, and the run before it
        in which clocks and temperature settle, are `longer` times as long as usual. Raises `NotRecorded` if the runs cannot go
        together.
        """
        window = longer * self.seconds
        with torch.no_grad():
            work, calls = self._work(runs, copies)
            if isinstance(work, CudaWork) and work.graph is None and len(runs) > 1:
                raise NotRecorded
            reading = measure_power(work, self.meter, seconds=window, most_seconds=2 * window, settle=window / 3)
        del work
        if self.device.startswith("cuda"):
            torch.cuda.empty_cache()  # recorded work keeps memory of its own
        return replace(reading, seconds=reading.seconds * calls)

    def _work(self, runs: Sequence[OpRun], copies: bool) -> tuple[Work, int]:
        """Return work for the meter, and the number of its calls in one reading."""
        each = [run.call() for run in runs]
        # In turns, so that what an op touched is out of the caches when it comes again.
        rounds = 1 if copies else max(run.count for run in runs)
        calls = [call for turn in range(rounds) for run, call in zip(runs, each, strict=True) if turn < run.count]
        count = len(calls)
        if self.device.startswith("cuda"):
            if copies:
                wanted = max(1, min(_MOST_COPIES, math.ceil(_CACHES / max(runs[0].bytes, 1))))
                calls += [runs[0].call() for _ in range(wanted - 1)]
            return CudaWork(calls, self.device), count
        began = time.perf_counter()
        for call in calls:
            call()
        repeats = max(1, int(_CPU_LAUNCH / max(time.perf_counter() - began, 1e-6)))

        def all_calls() -> None:
            for call in calls:
                call()

        return CallWork(all_calls, repeats), 1


@dataclass(frozen=True)
class OpRun:
    """A group of calls, or its kernel, to be run `count` times."""

    phase: Phase
    group: CallGroup
    kernel: Kernel | None
    count: int = 1

    @property
    def bytes(self) -> int:
        """Bytes that it reads and makes."""
        storages = self.phase.record.storages
        return sum(
            storages[s].bytes for s in (*KernelInterface(self.phase.record, self.group).reads, *self.group.makes)
        )

    def call(self) -> Callable[[], object]:
        """Return a call that runs it once, on sample operands of its own."""
        record = self.phase.record
        roots = sample_operands(self.phase, sorted(KernelInterface(record, self.group).reads))
        return lambda: run_group(record, self.group, dict(roots), self.kernel)
