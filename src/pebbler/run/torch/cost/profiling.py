"""Measuring what every op costs on the device where a step runs, and how much memory its kernels hold besides their results."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from typing import Any

import torch

from pebbler.run.torch.capture.call_groups import CallGroup
from pebbler.run.torch.capture.calls import Record, Scalar, TensorRef
from pebbler.run.torch.capture.captured import Captured
from pebbler.run.torch.capture.operators import CTC
from pebbler.run.torch.capture.phases import Phase
from pebbler.run.torch.capture.random_state import is_state_call
from pebbler.run.torch.cost.costs import Cost, Costs, Link, estimate, find_link, nearest_device
from pebbler.run.torch.cost.peak_memory import foreign_bytes, measure_peak
from pebbler.run.torch.fuse.fusion import kernels_of
from pebbler.run.torch.fuse.group_execution import own_random_numbers, run_group, sample_operands
from pebbler.run.torch.fuse.inductor import Kernel, KernelInterface, Kernels

__all__ = ["measure_link", "profile"]

_LINK_BYTES = 64 * 2**20  # copied to measure a link
_SLEEP = 2_000_000  # cycles, about a millisecond


def profile(captured: Captured, *, repeats: int = 3, power: float | None = None) -> Costs:
    """Return every op's cost measured on the device the step runs on, with sample operands of the same shapes.

    Ops alike are measured once, so memory for one op at a time is enough. Seconds are the median of `repeats`; joules are `power`
    watts times that, or what the described device nearest to this one says of bytes and flops; scratch is what the kernel holds
    beyond its results. Fused ops are compiled first; one of a single operator only if that makes it faster.

    >>> from pebbler.run.torch.capture.captured import capture
    >>> (cost,), = profile(capture(lambda x: x.sort().values, torch.ones(1000)))
    >>> cost.seconds > 0, cost.scratch >= 0
    (True, True)
    """
    seen: dict[str, Cost] = {}
    # The costs outlive the step and must not keep its tensors, so they know nothing else of what was captured.
    kernels, device = kernels_of(captured), captured.device

    def price(phase: Phase, group: CallGroup) -> Cost:
        key = _likeness(phase.record, group)
        if key not in seen:
            with own_random_numbers(device):
                cost = _measure(phase, group, kernels, device, repeats)
            described = estimate(phase.record, group, nearest_device(device)).joules
            seen[key] = replace(cost, joules=described if power is None else cost.seconds * power)
        return seen[key]

    rows = [[price(phase, group) for group in phase.groups] for phase in captured.phases]
    foreign = foreign_bytes(captured.state.lasting_tensors(), device)
    return Costs(rows, measure_link(device), price, foreign)


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


def _measure(phase: Phase, group: CallGroup, kernels: Kernels | None, device: str, repeats: int) -> Cost:
    if all(call.scalar is not None or is_state_call(call.func) for call in group.calls):
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
