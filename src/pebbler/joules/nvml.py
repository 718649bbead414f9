"""The total-energy counters of NVIDIA GPUs, through NVML (the package nvidia-ml-py, extra "joules")."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any

__all__ = ["NvmlCounter", "nvml_counters"]


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
