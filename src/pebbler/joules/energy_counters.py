"""The interface of energy counters: monotonic joules, one counter per device.

Energy is never estimated here. If no counter can be read, `find_counters` gives the reason for every kind of counter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Protocol

from pebbler.errors import InputError
from pebbler.joules.nvml import nvml_counters
from pebbler.joules.rapl import rapl_counters

__all__ = ["EnergyCounter", "NoCounter", "RecordedCounter", "find_counters"]


class EnergyCounter(Protocol):
    """An energy counter: of a GPU, a CPU package, or its memory."""

    @property
    def name(self) -> str:
        """The name of the counted device, such as `GPU 0 (NVIDIA H200)`."""

    def read(self) -> float:
        """Return joules since some moment in the past; never less than before."""


class NoCounter(InputError):
    """There is no energy counter that can be read here; the message says what was looked for."""


class RecordedCounter:
    """A counter that repeats what another one showed: readings of a real machine, for tests and for looking at them again.

    `readings` are pairs of seconds and joules in order of time; between two of them the counter shows the earlier one, as real
    counters do between their updates.

    >>> now = iter([0.0, 0.15, 0.2])
    >>> counter = RecordedCounter("GPU 0", [(0.0, 10.0), (0.1, 60.0), (0.2, 110.0)], clock=lambda: next(now))
    >>> counter.read(), counter.read(), counter.read()
    (10.0, 60.0, 110.0)
    """

    def __init__(self, name: str, readings: Sequence[tuple[float, float]], clock: Callable[[], float]) -> None:
        pairs = list(readings)
        for (before, low), (after, high) in pairwise(pairs):
            if after < before or high < low:
                raise InputError(
                    f"readings of {name}: time and joules must not fall, got {low} at {before}, {high} at {after}"
                )
        if not pairs:
            raise InputError(f"readings of {name}: there are none")
        self.name, self._readings, self._clock = name, pairs, clock

    def read(self) -> float:
        """Return the joules of the last reading until now, or of the first if none was made yet."""
        now = self._clock()
        return next((joules for seconds, joules in reversed(self._readings) if seconds <= now), self._readings[0][1])


def find_counters(uuids: Sequence[str] | None = None) -> list[EnergyCounter]:
    """Return the counters of this machine: every visible GPU (or those with these UUIDs), and the CPU's where it may be read.

    Raises `NoCounter` where there is none.
    """
    gpus, no_gpu = nvml_counters(uuids)
    packages, no_package = ([], "") if uuids is not None else rapl_counters()
    found: list[EnergyCounter] = [*gpus, *packages]
    if not found:
        reasons = "; ".join(reason for reason in (no_gpu, no_package) if reason)
        raise NoCounter(f"no energy counter can be read here, so there are no joules to report: {reasons}")
    return found
