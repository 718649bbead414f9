"""Clock and temperature of a GPU while something runs on it: what explains that the same op takes other joules elsewhere."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Sequence
from importlib import import_module
from types import TracebackType
from typing import Any

__all__ = ["GpuState", "find_nvml"]

_BUSY = 0.5  # of the highest power seen: below it, a GPU waits
Reading = tuple[float, float, float]  # SM clock in MHz, temperature in degrees Celsius, power in watts


def find_nvml() -> tuple[Any, Any] | None:
    """Return NVML and the handle of the first GPU, None where there is none."""
    try:
        nvml = import_module("pynvml")
        nvml.nvmlInit()
        return nvml, nvml.nvmlDeviceGetHandleByIndex(0)
    except Exception:  # of a module that is not there, or a driver: then there is nothing to tell
        return None


class GpuState:
    """Looks at the GPU several times a second while a block runs; `told` has what it saw on average."""

    def __init__(self, nvml: tuple[Any, Any] | None, period: float = 0.15) -> None:
        self._nvml, self._period = nvml, period
        self._readings: list[Reading] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> GpuState:
        if self._nvml is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._nvml is not None:
            self._thread.join()

    def _look(self) -> None:
        assert self._nvml is not None
        nvml, handle = self._nvml
        while not self._stop.wait(self._period):
            self._readings.append(
                (
                    float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
                    float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
                    float(nvml.nvmlDeviceGetPowerUsage(handle)) / 1e3,
                )
            )

    @property
    def told(self) -> dict[str, float]:
        """Averages by name, with units; nothing where nothing was seen."""
        return summary(self._readings)


def summary(readings: Sequence[Reading]) -> dict[str, float]:
    """Return averages, leaving out what the GPU shows while it has nothing to do.

    >>> summary([(1980.0, 40.0, 120.0), (1500.0, 50.0, 700.0), (1600.0, 60.0, 680.0)])
    {'clock_mhz': 1550.0, 'celsius': 55.0, 'busy_readings': 2}
    >>> summary([])
    {}
    """
    busy = [one for one in readings if one[2] > _BUSY * max(power for _, _, power in readings)]
    if not busy:
        return {}
    clocks, degrees, _ = zip(*busy, strict=True)
    return {"clock_mhz": statistics.mean(clocks), "celsius": statistics.mean(degrees), "busy_readings": len(busy)}
