"""Measuring what every op costs on the device where a step runs, and how much memory its kernels hold besides their results."""

from __future__ import annotations

import statistics
from contextlib import suppress
from dataclasses import replace
from typing import Literal, get_args

import torch

from pebbler.errors import InputError, quoted
from pebbler.joules.energy_counters import NoCounter
from pebbler.joules.meter import EnergyMeter
from pebbler.run.torch.capture.captured import Captured
from pebbler.run.torch.cost.costs import Costs, Device, Link, find_device, nearest_device
from pebbler.run.torch.cost.op_energy import OpMeter, meter_of
from pebbler.run.torch.cost.op_prices import OpPrices
from pebbler.run.torch.cost.op_time import time_run
from pebbler.run.torch.cost.peak_memory import foreign_bytes
from pebbler.run.torch.fuse.fusion import kernels_of

__all__ = ["EnergySource", "measure_link", "profile", "profile_for"]

EnergySource = Literal["described", "measured"]

_LINK_BYTES = 64 * 2**20  # copied to measure a link


def profile(
    captured: Captured,
    *,
    repeats: int = 3,
    power: float | None = None,
    energy: EnergySource = "described",
    meter: EnergyMeter | None = None,
    device: str | Device | None = None,
    seconds: float = 60.0,
    known: Costs | None = None,
) -> Costs:
    """Return every op's cost measured on the device the step runs on, with sample operands of the same shapes.

    Ops alike are measured once, so memory for one op at a time is enough. Seconds are the median of `repeats`; scratch is what
    the kernel holds beyond its results. Fused ops are compiled first; one of a single operator only if that makes it faster.

    Joules are `power` watts times seconds, or what a device says of bytes and flops: `device`, by default the described one
    nearest to this one. With `energy="measured"` they are the energy counter's (`meter`, or that of the device): each kind of op is
    kept running, those that take most of the step first, for about `seconds` altogether; those that are left run together, and
    share their power. Then all run in one mixture, as often as they come in a step, and prices are scaled to what that takes.
    `Costs.energy` says which share is which. Kinds of ops that are in `known`, profiled in this process on the same device (of the
    step before it was fused, say), are not measured again. Raises `NoCounter` where there is no counter.

    >>> from pebbler.run.torch.capture.captured import capture
    >>> (cost,), = profile(capture(lambda x: x.sort().values, torch.ones(1000)))
    >>> cost.seconds > 0, cost.scratch >= 0
    (True, True)
    """
    if energy not in get_args(EnergySource):
        raise InputError(f"energy must be {' or '.join(get_args(EnergySource))}, got {quoted(energy)}")
    place = captured.device
    described = nearest_device(place) if device is None else find_device(device)
    op_meter = None if energy == "described" else OpMeter(meter_of(place) if meter is None else meter, place)
    prices = OpPrices(kernels_of(captured), place, repeats, power, described, op_meter)
    if known is not None and known.measured_ops is not None:
        prices.take(known.measured_ops)
    rows = [[prices.price(phase, group) for group in phase.groups] for phase in captured.phases]
    measured = None
    if op_meter is not None:
        prices.measure(captured.phases[-1], captured.phases[-1].groups, seconds)
        prices.mix(captured.phases[-1], captured.phases[-1].groups)
        measured = prices.told(captured.phases[-1])
        rows = [[prices.price(phase, group) for group in phase.groups] for phase in captured.phases]
    foreign = foreign_bytes(captured.state.lasting_tensors(), place)
    link = replace(measure_link(place), joules_per_byte=described.joules_per_link_byte)
    costs = Costs(rows, link, prices.price, foreign, measured, prices.measure if op_meter is not None else None)
    costs.measured_ops = prices
    return costs


def profile_for(captured: Captured, objective: str) -> Costs:
    """Return costs measured here for an objective: joules by the energy counter if they are asked for and there is one.

    >>> from pebbler.run.torch.capture.captured import capture
    >>> len(profile_for(capture(lambda x: x + 1, torch.ones(10)), "time")[0])
    1
    """
    if objective == "energy":
        with suppress(NoCounter):
            return profile(captured, energy="measured")
    return profile(captured)


def measure_link(device: str) -> Link:
    """Return the link of the device where a step runs, measured with pinned memory on CUDA, described on a CPU.

    >>> measure_link("cpu").out  # seconds of a byte
    1e-10
    """
    if not device.startswith("cuda"):
        return nearest_device(device).host_link
    there = torch.empty(_LINK_BYTES, dtype=torch.uint8, device=device)
    host = torch.empty(_LINK_BYTES, dtype=torch.uint8, pin_memory=True)
    out, into = _byte_seconds(host, there, device), _byte_seconds(there, host, device)
    return replace(nearest_device(device).host_link, out=out, into=into)


def _byte_seconds(target: torch.Tensor, source: torch.Tensor, device: str) -> float:
    """Return the seconds of a copy per byte."""

    def copy() -> None:
        target.copy_(source, non_blocking=True)

    copy()
    return statistics.median(time_run(copy, device) for _ in range(5)) / float(target.nbytes)
