"""Calibration of this machine: its GPU if it has one, otherwise its CPU."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from pebbler.errors import InputError, quoted
from pebbler.files import write_text
from pebbler.game.machine import Machine
from pebbler.joules.calibration import calibrate_bench
from pebbler.joules.cpu_bench import CpuBench
from pebbler.joules.energy_counters import EnergyCounter, NoCounter, find_counters
from pebbler.joules.machine_file import machine_toml
from pebbler.joules.meter import EnergyMeter
from pebbler.joules.probes import Bench
from pebbler.version import VERSION

__all__ = ["calibrate", "save_machine"]


def calibrate(
    device: str | None = None,
    *,
    seconds: float = 0.6,
    meter: EnergyMeter | None = None,
    report: Callable[[str, float], None] | None = None,
) -> Machine:
    """Return this machine with measured prices: `cuda` or `cuda:1` for a GPU, `cpu`; by default the GPU where PyTorch sees one.

    Prices are joules by the device's energy counter. Where it has none, on most virtual machines say, they are times, and the
    machine says so: `prices` is `ns`, and nothing in it is in joules. `save_machine` writes the file that `pebbler calibrate` does.
    """
    if not seconds > 0 or seconds > 60:
        raise InputError(f"every probe runs for more than 0 and at most 60 seconds, got {seconds:g}")
    device = ("cuda" if _has_cuda() else "cpu") if device is None else device
    if device == "cpu":
        bench: Bench = CpuBench()
        counters = _cpu_counters() if meter is None else ()
    elif device.startswith("cuda"):
        if not _has_cuda():
            raise InputError(f"device {quoted(device)}: PyTorch sees no CUDA device here")
        from pebbler.run.torch.cost.cuda_bench import CudaBench, device_uuid

        bench = CudaBench(device)
        counters = () if meter is not None else tuple(find_counters([device_uuid(device)]))
    else:
        raise InputError(f"device must be cpu, cuda or cuda:N, got {quoted(device)}")
    return calibrate_bench(
        bench, meter or (EnergyMeter(counters) if counters else None), seconds=seconds, report=report
    )


def save_machine(machine: Machine, path: str | Path) -> None:
    """Write a machine as TOML, whole or not at all."""
    write_text(path, machine_toml(machine, f"Measured by pebbler {VERSION}, `pebbler calibrate`. {machine.about}."))


def _has_cuda() -> bool:
    if find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


def _cpu_counters() -> tuple[EnergyCounter, ...]:
    try:
        return tuple(counter for counter in find_counters() if counter.name.startswith("CPU"))
    except NoCounter:
        return ()
