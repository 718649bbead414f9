"""Costs of kinds of ops, each measured once: seconds and scratch memory, and joules by a counter, alone or with others."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import torch

from pebbler.joules.power import PowerReading
from pebbler.run.torch.capture.call_groups import CallGroup
from pebbler.run.torch.capture.calls import Record, Scalar, TensorRef, unique_refs
from pebbler.run.torch.capture.operators import CTC
from pebbler.run.torch.capture.phases import Phase
from pebbler.run.torch.capture.random_state import is_state_call
from pebbler.run.torch.capture.views import take_view, view_call
from pebbler.run.torch.cost.costs import Cost, Device, estimate, has_flops, nearest_device
from pebbler.run.torch.cost.op_energy import MeasuredEnergy, NotRecorded, OpMeter, OpRun
from pebbler.run.torch.cost.op_time import time_run
from pebbler.run.torch.cost.peak_memory import measure_peak
from pebbler.run.torch.fuse.group_execution import own_random_numbers, run_group, sample_operands
from pebbler.run.torch.fuse.inductor import Kernel, KernelInterface, Kernels

__all__ = ["OpPrices"]

_SMALL_REST = 0.02  # of the time of a step: kinds of ops that take less together are measured together
_TOGETHER = {"cuda": 8 * 2**30, "cpu": 2**28}  # bytes of operands that may be there at once
_MIXED = 5.0  # times as long as the window of one kind: that of all kinds in a mixture
_FUSED = "fused"  # begins the text of groups that may run as a compiled kernel
_HALVINGS = 4  # of a mixture that cannot run as a whole; what cannot run then stays out of it


@dataclass(frozen=True)
class _Kind:
    """Ops of a phase that cost the same: one of them, and how often it runs."""

    key: str
    group: CallGroup
    count: int


@dataclass(frozen=True)
class _Mixed:
    """The costs of ops in a mixture with others, as multiples of their separate costs."""

    seconds: float
    joules: float


class OpPrices:
    """Costs of groups of calls, each kind measured once.

    They outlive the step and must not keep its tensors, so this knows nothing else of what was captured.
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
        self._seen: dict[str, Cost] = {}  # apart from each other
        self._counted: dict[str, str] = {}  # how a kind's joules were measured: alone or together
        self._mixed = _Mixed(1.0, 1.0)

    def take(self, known: OpPrices) -> None:
        """Take over earlier measurements on the same device, of kinds of ops that run in the same way."""
        alike = {key: cost for key, cost in known._seen.items() if not key.startswith(_FUSED)}
        self._seen |= alike
        self._counted |= {key: how for key, how in known._counted.items() if key in alike}

    def price(self, phase: Phase, group: CallGroup) -> Cost:
        """Return the cost of a group in a step, its joules by the counter if they were measured before."""
        cost = self._apart(phase, group)
        return replace(cost, seconds=self._mixed.seconds * cost.seconds, joules=self._mixed.joules * cost.joules)

    def _apart(self, phase: Phase, group: CallGroup) -> Cost:
        """Return the cost of a group by itself."""
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

    def measure(self, phase: Phase, groups: Iterable[CallGroup], seconds: float = 0.0) -> None:
        """Measure groups of calls by the counter, as often as they come: for about `seconds` one kind at a time, the largest first.

        Kinds that there is no time for are run together, in the proportions in which they come, those with matrix products and
        those without: the counter gives their common power, and their own times share it out.
        """
        meter = self._op_meter
        assert meter is not None
        kinds = [
            kind for kind in self._kinds(phase, groups) if kind.key not in self._counted and not _is_free(kind.group)
        ]
        weight = {kind.key: kind.count * self._seen[kind.key].seconds for kind in kinds}
        kinds.sort(key=lambda kind: -weight[kind.key])
        total = left = sum(weight.values())
        ends = meter.meter.clock() + seconds
        alone = 0
        while alone < len(kinds) and left > _SMALL_REST * total and meter.meter.clock() < ends:
            kind = kinds[alone]
            reading = meter.measure([self._run(phase, kind)], copies=True)
            self._keep([kind], reading.watts, reading.seconds, "alone")
            left -= weight[kind.key]
            alone += 1
        for products in (True, False):
            for part in _parts(
                phase, [kind for kind in kinds[alone:] if has_flops(kind.group) == products], self._place
            ):
                self._measure_together(phase, part)

    def mix(self, phase: Phase, groups: Iterable[CallGroup]) -> None:
        """Run all measured kinds in one window, in their own proportions, and scale all prices to its total.

        Apart, an op that draws more than a GPU's power limit is slowed down until it does not; in a step, ops that draw less make
        room for it, so it runs at a higher clock, sooner and for more joules. And a step that never pauses is warmer than
        windows with pauses between them. Both are in a mixture as they are in a step.
        """
        kinds = [kind for kind in self._kinds(phase, groups) if kind.key in self._counted]
        found = self._mixture(phase, kinds)
        if not found:
            return
        apart = [(kind.count, self._seen[kind.key]) for mixed, _ in found for kind in mixed]
        seconds = sum(reading.seconds for _, reading in found) / sum(count * cost.seconds for count, cost in apart)
        joules = sum(reading.joules for _, reading in found) / sum(count * cost.joules for count, cost in apart)
        self._mixed = _Mixed(seconds, joules)

    def _mixture(
        self, phase: Phase, kinds: Sequence[_Kind], halvings: int = _HALVINGS
    ) -> list[tuple[Sequence[_Kind], PowerReading]]:
        """Return windows of many kinds each: one of all if they fit into memory and can be recorded, else of every other one."""
        assert self._op_meter is not None
        if len(kinds) < 2:
            return []  # alone, which has been measured
        if sum(_bytes(phase, kind) for kind in kinds) <= _room(self._place):
            with suppress(torch.OutOfMemoryError, NotRecorded):
                return [(kinds, self._op_meter.measure([self._run(phase, kind) for kind in kinds], longer=_MIXED))]
        if not halvings:
            return []
        return [window for part in (kinds[::2], kinds[1::2]) for window in self._mixture(phase, part, halvings - 1)]

    def _measure_together(self, phase: Phase, kinds: Sequence[_Kind]) -> None:
        """Measure kinds of ops in one window; if they do not fit into memory together, they stay modelled."""
        assert self._op_meter is not None
        runs = [self._run(phase, kind) for kind in kinds]
        try:
            reading = self._op_meter.measure(runs)
        except torch.OutOfMemoryError:
            return
        except NotRecorded:
            half = len(kinds) // 2
            self._measure_together(phase, kinds[:half])
            self._measure_together(phase, kinds[half:])
            return
        self._keep(kinds, reading.watts, reading.seconds, "together")

    def _run(self, phase: Phase, kind: _Kind) -> OpRun:
        kernel = None
        if self._kernels is not None and self._seen[kind.key].compiled:
            kernel = self._kernels.known(phase.record, kind.group)
        return OpRun(phase, kind.group, kernel, kind.count)

    def _keep(self, kinds: Sequence[_Kind], watts: float, seconds: float, how: str) -> None:
        """Share the power and the time of a window out among its kinds, by the time that each takes alone."""
        apart = sum(kind.count * self._seen[kind.key].seconds for kind in kinds)
        runs = 1 if how == "together" else kinds[0].count  # alone, the window is of one run
        for kind in kinds:
            taken = self._seen[kind.key].seconds * seconds * runs / apart
            self._seen[kind.key] = replace(self._seen[kind.key], seconds=taken, joules=watts * taken)
            self._counted[kind.key] = how

    def _kinds(self, phase: Phase, groups: Iterable[CallGroup]) -> list[_Kind]:
        alike: dict[str, list[CallGroup]] = {}
        for group in groups:
            self._apart(phase, group)
            alike.setdefault(_likeness(phase.record, group), []).append(group)
        return [_Kind(key, found[0], len(found)) for key, found in alike.items()]

    def told(self, phase: Phase) -> MeasuredEnergy:
        """Return the origin of the joules of a phase's ops."""
        assert self._op_meter is not None
        joules = {"alone": 0.0, "together": 0.0, "modelled": 0.0}
        kinds = self._kinds(phase, phase.groups)
        for kind in kinds:
            joules[self._counted.get(kind.key, "modelled")] += kind.count * self.price(phase, kind.group).joules
        alone = sum(self._counted.get(kind.key) == "alone" for kind in kinds)
        return MeasuredEnergy(
            joules["alone"], joules["together"], joules["modelled"], alone, len(kinds), self._op_meter.static_watts,
            self._mixed.joules, self._mixed.seconds,
        )  # fmt: skip


def _parts(phase: Phase, kinds: Sequence[_Kind], place: str) -> list[list[_Kind]]:
    """Return kinds in parts whose operands and results may be in memory at the same time."""
    most = _TOGETHER["cuda" if place.startswith("cuda") else "cpu"]
    parts: list[list[_Kind]] = []
    room = 0
    for kind in kinds:
        size = _bytes(phase, kind)
        if not parts or size > room:
            parts.append([])
            room = most
        parts[-1].append(kind)
        room -= size
    return parts


def _bytes(phase: Phase, kind: _Kind) -> int:
    return sum(phase.record.storages[s].bytes for s in kind.group.touches)


def _room(place: str) -> int:
    """Return the number of bytes that the operands of a mixture may take: half of a GPU's free memory."""
    return torch.cuda.mem_get_info(place)[0] // 2 if place.startswith("cuda") else _TOGETHER["cpu"]


def _likeness(record: Record, group: CallGroup) -> str:
    """Return a key shared by groups of equal cost: storages are numbered in order of appearance."""
    order: dict[int, int] = {}
    parts = [_FUSED] if group.fused else []
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
    seconds = statistics.median(time_run(run, device) for _ in range(repeats))
    launch = (
        min(_launch_seconds(record, group, dict(roots), kernel) for _ in range(repeats)) if _beside(device) else 0.0
    )
    return Cost(seconds, 0.0, max(0, peak - made), sizes, launch=launch)


def _beside(device: str) -> bool:
    """Whether a device computes asynchronously to Python."""
    return device.startswith("cuda")


def _launch_seconds(record: Record, group: CallGroup, roots: dict[int, torch.Tensor], kernel: Kernel | None) -> float:
    """Return the seconds that Python takes for a group in a program: its calls, and a view for every operand that needs one."""
    spent: list[float] = []
    run_group(record, group, roots, kernel, spent)
    if kernel is not None:
        return sum(spent)
    operands = (number for call in group.calls for number in unique_refs((call.args, call.kwargs)))
    views = sum(view_call(record, number) is not None for number in operands)
    return sum(spent) + views * _view_seconds()


@functools.cache
def _view_seconds() -> float:
    """Return the seconds of one view."""
    root = torch.empty(64)
    times = []
    for _ in range(50):
        began = time.perf_counter()
        take_view(root, [8, 4], [4, 1], 2)
        times.append(time.perf_counter() - began)
    return statistics.median(times)
