"""Calibration of this machine: its GPU if it has one, otherwise its CPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from pebbler.errors import InputError, quoted
from pebbler.files import write_text
from pebbler.game.machine import Machine
from pebbler.joules.calibration import calibrate_bench
from pebbler.joules.cpu_bench import CpuBench
from pebbler.joules.energy_counters import EnergyCounter, NoCounter, find_counters
from pebbler.joules.meter import EnergyMeter
from pebbler.joules.probes import Bench
from pebbler.version import VERSION

__all__ = ["calibrate", "machine_toml", "save_machine"]


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


def machine_toml(machine: Machine, comment: str = "") -> str:
    """Return a machine's file; `comment` stands above it.

    >>> from pebbler.game.machine import Level
    >>> print(machine_toml(Machine("two", "byte", (Level("fast", 1, 1, 8), Level("slow", 9, 9.5))), "Made by hand."))
    # Made by hand.
    name = "two"
    unit = "byte"
    <BLANKLINE>
    [[level]]
    name = "fast"
    read = 1
    write = 1
    capacity = 8
    <BLANKLINE>
    [[level]]
    name = "slow"
    read = 9
    write = 9.5
    <BLANKLINE>
    """
    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    _write_table(lines, "", msgspec.to_builtins(machine))
    return "\n".join(lines).lstrip("\n") + "\n"


def _write_table(lines: list[str], path: str, table: dict[str, Any]) -> None:
    """Append a table: its plain values first, then the tables inside it."""
    inner = {key: value for key, value in table.items() if _is_table(value)}
    lines += [
        f"{_key(key)} = {_value(value)}" for key, value in table.items() if key not in inner and value is not None
    ]
    for key, value in inner.items():
        name = f"{path}.{_key(key)}" if path else _key(key)
        for one in value if isinstance(value, list | tuple) else [value]:
            lines += ["", f"[[{name}]]" if isinstance(value, list | tuple) else f"[{name}]"]
            _write_table(lines, name, one)


def _is_table(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return bool(value) and isinstance(value[0], dict)
    return isinstance(value, dict)


def _key(key: str) -> str:
    plain = key != "" and all(c.isascii() and (c.isalnum() or c in "_-") for c in key)
    return key if plain else json.dumps(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        shown = f"{value:.6g}"
        return shown if set(shown) & set(".en") else f"{shown}.0"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(one) for one in value)}]"
    return str(value) if isinstance(value, int) else json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
