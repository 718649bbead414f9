"""The interface of energy counters: monotonic joules, one counter per device.

Energy is never estimated here. If no counter can be read, `find_counters` gives the reason for every kind of counter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from pebbler.errors import InputError

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


# The energy counters of CPU packages and their memory, through Linux's powercap (RAPL) --------------------------------


POWERCAP = Path("/sys/class/powercap")
_MICRO = 1e-6


class RaplCounter:
    """Joules of one package, or of the memory behind it. The register wraps; read once per round, it loses nothing."""

    wraps = True

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self._file = name, folder / "energy_uj"
        self._range = int((folder / "max_energy_range_uj").read_text())
        self._last, self._rounds = self._microjoules(), 0

    def read(self) -> float:
        """Return the joules so far."""
        now = self._microjoules()
        if now < self._last:
            self._rounds += 1
        self._last = now
        return (now + self._rounds * self._range) * _MICRO

    def _microjoules(self) -> int:
        return int(self._file.read_text())


def rapl_counters(root: Path = POWERCAP) -> tuple[list[RaplCounter], str]:
    """Return a counter for every package and for memory beside it, and why there is none where there is none.

    Cores and the like lie inside their package and are not counted again; `psys` covers the packages themselves and is left out.
    """
    if not root.is_dir():
        return [], f"CPU: there is no {root} (RAPL is Linux's, and virtual machines have none)"
    counters, failures = [], []
    # Zones that talk through memory-mapped registers (intel-rapl-mmio) count the same packages again.
    for folder in sorted(root.glob("intel-rapl:*")):
        try:
            name = (folder / "name").read_text().strip()
            if name.startswith("package") or name == "dram":
                counters.append(RaplCounter(_shown(name, folder), folder))
        except (OSError, ValueError) as error:
            failures.append(f"{folder.name}/energy_uj: {getattr(error, 'strerror', None) or error}")
    if failures:
        return [], f"CPU: {'; '.join(failures)} (often readable for root only)"
    return counters, "" if counters else f"CPU: no package in {root}"


def _shown(name: str, folder: Path) -> str:
    package = folder.name.split(":")[1]
    return f"CPU {package} memory" if name == "dram" else f"CPU {package}"


# The total-energy counters of NVIDIA GPUs, through NVML (the package nvidia-ml-py, extra "joules") --------------------


class NvmlCounter:
    """Joules that one GPU has drawn since its driver was loaded, memory and board included, in steps of a millijoule."""

    def __init__(self, nvml: Any, handle: Any, name: str) -> None:
        self.name, self._nvml, self._handle = name, nvml, handle

    def read(self) -> float:
        """Return the joules so far."""
        return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)) / 1e3


def nvml_counters(uuids: Sequence[str] | None = None, nvml: Any = None) -> tuple[list[NvmlCounter], str]:
    """Return a counter for every GPU, and why there is none where there is none.

    `uuids` chooses GPUs; without it, `CUDA_VISIBLE_DEVICES` does, whose numbers are taken in PCI order. `nvml` is the module
    pynvml, or what stands for it.
    """
    if nvml is None:
        try:
            nvml = import_module("pynvml")
        except ImportError:
            return [], "NVIDIA GPUs: nvidia-ml-py is not installed (pip install 'pebbler[joules]')"
    try:
        nvml.nvmlInit()
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        return [], f"NVIDIA GPUs: NVML says {_said(error)}"
    counters, failures = [], []
    for index in range(count):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        if count > 1 and not _is_chosen(index, _text(nvml.nvmlDeviceGetUUID(handle)), uuids):
            continue  # the only GPU there is needs no choosing: inside a virtual machine it may go by another UUID
        counter = NvmlCounter(nvml, handle, f"GPU {index} ({_text(nvml.nvmlDeviceGetName(handle))})")
        try:
            counter.read()
        except nvml.NVMLError as error:
            failures.append(f"{counter.name} has no energy counter: {_said(error)}")
        else:
            counters.append(counter)
    if counters and failures:
        return [], f"NVIDIA GPUs: {'; '.join(failures)}"  # a sum that leaves one out would be wrong
    return counters, "" if counters else f"NVIDIA GPUs: {'; '.join(failures) or 'none is visible'}"


def _is_chosen(index: int, uuid: str, uuids: Sequence[str] | None) -> bool:
    if uuids is None:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        if visible is None:
            return True
        uuids = [word.strip() for word in visible.split(",") if word.strip()]
    plain = uuid.removeprefix("GPU-")
    return any(one == str(index) or (len(one) > 3 and plain.startswith(one.removeprefix("GPU-"))) for one in uuids)


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
