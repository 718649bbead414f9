"""Measuring what every op costs on the device where a step runs, and how much memory its kernels hold besides their results."""

from __future__ import annotations

import statistics
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal, get_args

import torch

from pebbler.errors import InputError, quoted
from pebbler.joules.counters import NoCounter
from pebbler.joules.meter import EnergyMeter
from pebbler.run.torch.capture.call_groups import CallGroup
from pebbler.run.torch.capture.calls import Record, Scalar, TensorRef
from pebbler.run.torch.capture.captured import Captured
from pebbler.run.torch.capture.operators import CTC
from pebbler.run.torch.capture.phases import Phase
from pebbler.run.torch.capture.random_state import is_state_call
from pebbler.run.torch.cost.costs import Cost, Costs, Device, Link, estimate, find_device, find_link, nearest_device
from pebbler.run.torch.cost.op_energy import MeasuredEnergy, OpMeter, meter_of
from pebbler.run.torch.cost.peak_memory import foreign_bytes, measure_peak
from pebbler.run.torch.fuse.fusion import kernels_of
from pebbler.run.torch.fuse.group_execution import own_random_numbers, run_group, sample_operands
from pebbler.run.torch.fuse.inductor import Kernel, KernelInterface, Kernels

__all__ = ["EnergySource", "measure_link", "profile", "profile_for"]

EnergySource = Literal["described", "measured"]

_LINK_BYTES = 64 * 2**20  # copied to measure a link
_SLEEP = 2_000_000  # cycles, about a millisecond
_SMALL_REST = 0.02  # of the time of a step: ops that take less together are not worth a counter


def profile(
    captured: Captured,
    *,
    repeats: int = 3,
    power: float | None = None,
    energy: EnergySource = "described",
    meter: EnergyMeter | None = None,
    device: str | Device | None = None,
    seconds: float = 60.0,
) -> Costs:
    """Return every op's cost measured on the device the step runs on, with sample operands of the same shapes.

    Ops alike are measured once, so memory for one op at a time is enough. Seconds are the median of `repeats`; scratch is what
    the kernel holds beyond its results. Fused ops are compiled first; one of a single operator only if that makes it faster.

    Joules are `power` watts times seconds, or what a device says of bytes and flops: `device`, by default the described one
    nearest to this one. With `energy="measured"` they are the energy counter's (`meter`, or that of the device): each kind of op is
    kept running, those that take most of the step first, for about `seconds` altogether; `device` gives those that are left.
    `Costs.energy` says which share is which. Raises `NoCounter` where there is no counter.

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
    prices = _Prices(kernels_of(captured), place, repeats, power, described, op_meter)
    rows = [[prices.price(phase, group) for group in phase.groups] for phase in captured.phases]
    measured = None
    if op_meter is not None:
        measured = prices.measure_joules(captured.phases[-1], seconds)
        rows = [[prices.price(phase, group) for group in phase.groups] for phase in captured.phases]
    foreign = foreign_bytes(captured.state.lasting_tensors(), place)
    link = replace(measure_link(place), joules_per_byte=described.joules_per_link_byte)
    return Costs(rows, link, prices.price, foreign, measured, prices.measured_price)


def profile_for(captured: Captured, objective: str) -> Costs:
    """Return costs measured here for an objective: joules by the energy counter where they are what counts and there is one.

    >>> from pebbler.run.torch.capture.captured import capture
    >>> len(profile_for(capture(lambda x: x + 1, torch.ones(10)), "time")[0])
    1
    """
    if objective == "energy":
        with suppress(NoCounter):
            return profile(captured, energy="measured")
    return profile(captured)


class _Prices:
    """Costs of groups of calls, each kind measured once.

    The costs outlive the step and must not keep its tensors, so this knows nothing else of what was captured.
    """

    def __init__(
        self,
        kernels: Kernels | None,
        place: str,
        repeats: int,
        power: float | None,
        described: Device,
        op_meter: OpMeter | None,
    ) -> None:
        self._kernels, self._place, self._repeats, self._power = kernels, place, repeats, power
        self._described, self._op_meter = described, op_meter
        self._seen: dict[str, Cost] = {}
        self._counted: set[str] = set()  # kinds whose joules are the counter's

    def price(self, phase: Phase, group: CallGroup) -> Cost:
        """Return what a group costs, its joules by the counter if they were measured before."""
        key = _likeness(phase.record, group)
        if key not in self._seen:
            with own_random_numbers(self._place):
                cost = _measure(phase, group, self._kernels, self._place, self._repeats)
            self._seen[key] = replace(cost, joules=self._model(phase, group, cost.seconds))
        return self._seen[key]

    def _model(self, phase: Phase, group: CallGroup, seconds: float) -> float:
        """Return joules without a counter: of given watts, or of bytes and flops and, where it is known, of static power."""
        if self._power is not None:
            return seconds * self._power
        described = estimate(phase.record, group, self._described)
        watts = self._described.static_watts
        if self._op_meter is None:
            return described.joules
        return described.joules - watts * described.seconds + (watts or self._op_meter.static_watts) * seconds

    def measured_price(self, phase: Phase, group: CallGroup) -> Cost:
        """Return what a group costs, its joules and its time while it is kept running by the counter, if there is one."""
        key, cost = _likeness(phase.record, group), self.price(phase, group)
        if self._op_meter is None or key in self._counted or _is_free(group):
            return cost
        kernel = None
        if self._kernels is not None and cost.compiled:
            kernel = self._kernels.known(phase.record, group)
        with own_random_numbers(self._place):
            reading = self._op_meter.measure(phase, group, kernel)
        self._seen[key] = replace(cost, seconds=reading.seconds, joules=reading.joules)
        self._counted.add(key)
        return self._seen[key]

    def measure_joules(self, phase: Phase, seconds: float) -> MeasuredEnergy:
        """Measure the ops of a phase by the counter, those kinds first that take most of its time, for about `seconds`."""
        assert self._op_meter is not None
        kinds: dict[str, list[CallGroup]] = {}
        for group in phase.groups:
            kinds.setdefault(_likeness(phase.record, group), []).append(group)
        weight = {key: len(alike) * self._seen[key].seconds for key, alike in kinds.items()}
        clock, left = self._op_meter.meter.clock, sum(weight.values())
        total, ends = left, clock() + seconds
        for key in sorted(kinds, key=lambda key: -weight[key]):
            if left < _SMALL_REST * total or clock() > ends:
                break
            self.measured_price(phase, kinds[key][0])
            left -= weight[key]
        counted = sum(len(alike) * self._seen[key].joules for key, alike in kinds.items() if key in self._counted)
        modelled = sum(len(alike) * self._seen[key].joules for key, alike in kinds.items() if key not in self._counted)
        return MeasuredEnergy(
            counted, modelled, len(self._counted & set(kinds)), len(kinds), self._op_meter.static_watts
        )


def measure_link(device: str) -> Link:
    """Return the link of the device where a step runs, measured with pinned memory on CUDA, described on a CPU.

    >>> measure_link("cpu").out
    10000000000.0
    """
    if not device.startswith("cuda"):
        return find_link(nearest_device(device))
    there = torch.empty(_LINK_BYTES, dtype=torch.uint8, device=device)
    host = torch.empty(_LINK_BYTES, dtype=torch.uint8, pin_memory=True)
    return replace(find_link(nearest_device(device)), out=_rate(host, there, device), into=_rate(there, host, device))


def _rate(target: torch.Tensor, source: torch.Tensor, device: str) -> float:
    """Return the bytes per second of a copy."""

    def copy() -> None:
        target.copy_(source, non_blocking=True)

    copy()
    seconds = statistics.median(_time(copy, device) for _ in range(5))
    return float(target.nbytes) / seconds


def _likeness(record: Record, group: CallGroup) -> str:
    """Return a text that groups with the same cost share: storages are numbered as they come."""
    order: dict[int, int] = {}
    parts = []
    for call in group.calls:
        parts.append(call.name)
        for leaf in call.leaves:
            if isinstance(leaf, TensorRef):
                info = record.tensors[leaf.number]
                number = order.setdefault(info.storage, len(order))
                parts.append(f"{info.dtype}{info.shape}{info.stride}@{number}")
            else:
                parts.append("scalar" if isinstance(leaf, Scalar) else repr(leaf))
    parts += [f"-> {record.storages[s].bytes}" for s in sorted(group.makes)]
    return " ".join(parts)


def _is_free(group: CallGroup) -> bool:
    """Whether a group runs nothing on a device: numbers, and states of generators."""
    return all(call.scalar is not None or is_state_call(call.func) for call in group.calls)


def _measure(phase: Phase, group: CallGroup, kernels: Kernels | None, device: str, repeats: int) -> Cost:
    if _is_free(group):
        return Cost(1e-6, 0.0, 0)
    record = phase.record
    if any(call.func in CTC for call in group.calls):
        # Estimated, with as much scratch memory as it reads.
        scratch = sum(record.storages[s].bytes for s in group.reads if record.storages[s].device == device)
        return replace(estimate(record, group, nearest_device(device)), scratch=scratch)
    roots = sample_operands(phase, sorted(KernelInterface(record, group).reads))
    kernel = None if kernels is None else kernels.kernel(record, group, roots.__getitem__)
    cost = _run_repeatedly(record, group, roots, kernel, device, repeats)
    if kernels is not None and kernel is not None and len(group.calls) == 1:
        plain = _run_repeatedly(record, group, roots, None, device, repeats)
        if plain.seconds <= cost.seconds:
            kernels.refuse(record, group)
            return plain
    return replace(cost, compiled=kernel is not None)


def _run_repeatedly(
    record: Record, group: CallGroup, roots: dict[int, torch.Tensor], kernel: Kernel | None, device: str, repeats: int
) -> Cost:
    run_group(record, group, dict(roots), kernel)  # the first run sets kernels up
    results: dict[int, torch.Tensor] = {}

    def run() -> None:
        results.clear()
        results.update(run_group(record, group, dict(roots), kernel))

    _, peak = measure_peak(run, device=device)
    sizes = tuple(results[s].untyped_storage().nbytes() if s in results else 0 for s in sorted(group.makes))
    made = sum(size for s, size in zip(sorted(group.makes), sizes, strict=True) if record.storages[s].device == device)
    seconds = statistics.median(_time(run, device) for _ in range(repeats))
    return Cost(seconds, 0.0, max(0, peak - made), sizes)


def _time(run: Any, device: str) -> float:
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
