"""Measuring what every op costs on the device where a step runs, and how much memory its kernels hold besides their results."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_map

from pebbler.run.torch.aliases import Group
from pebbler.run.torch.capture import Captured, Phase
from pebbler.run.torch.costs import Cost, Costs, Link, estimate, find_link, nearest_device
from pebbler.run.torch.inductor import Interface, Kernel, Kernels
from pebbler.run.torch.memory import foreign_bytes, measure_peak
from pebbler.run.torch.program import take_view
from pebbler.run.torch.record import Constant, Record, Scalar, TensorRef
from pebbler.run.torch.scalars import evaluate

__all__ = ["compile_kernels", "measure_link", "profile"]

_LINK_BYTES = 64 * 2**20  # copied to measure a link
_SLEEP = 2_000_000  # cycles, about a millisecond


def profile(captured: Captured, *, repeats: int = 3, power: float | None = None) -> Costs:
    """Return every op's cost measured on the device the step runs on, with made-up operands of the same shapes.

    Ops alike are measured once, so memory for one op at a time is enough. Seconds are the median of `repeats`; joules are `power`
    watts times that, or what the described device nearest to this one says of bytes and flops; scratch is what the kernel holds
    beyond its results. Fused ops are compiled first; one of a single operator only if that makes it faster.

    >>> from pebbler.run.torch.capture import capture
    >>> (cost,), = profile(capture(lambda x: x.sort().values, torch.ones(1000)))
    >>> cost.seconds > 0, cost.scratch >= 0
    (True, True)
    """
    seen: dict[str, Cost] = {}
    # The costs outlive the step and must not keep its tensors, so they know nothing else of what was captured.
    kernels, device = captured.kernels, captured.device

    def price(phase: Phase, group: Group) -> Cost:
        key = _likeness(phase.record, group)
        if key not in seen:
            with _own_random_numbers(device):
                cost = _measure(phase, group, kernels, device, repeats)
            described = estimate(phase.record, group, nearest_device(device)).joules
            seen[key] = replace(cost, joules=described if power is None else cost.seconds * power)
        return seen[key]

    rows = [[price(phase, group) for group in phase.groups] for phase in captured.phases]
    foreign = foreign_bytes(captured.world.lasting_tensors(), device)
    return Costs(rows, measure_link(device), price, foreign)


def compile_kernels(captured: Captured, groups: Iterable[tuple[Phase, Group]]) -> None:
    """Compile the kernels of fused groups that have not been compiled yet."""
    if captured.kernels is not None:
        with _own_random_numbers(captured.device):
            for phase, group in groups:
                captured.kernels.kernel(phase.record, group, partial(_made_up_one, phase))


def _own_random_numbers(device: str) -> AbstractContextManager[None]:
    """Keep made-up operands and trial runs from moving on the generators that a training loop has seeded."""
    place = torch.device(device)
    return torch.random.fork_rng([place] if place.type == "cuda" else [])  # type: ignore[no-any-return]


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


def _likeness(record: Record, group: Group) -> str:
    """Return a text that groups with the same cost share: storages are numbered as they come."""
    order: dict[int, int] = {}
    parts = []
    for call in group.calls:
        parts.append(call.name)
        for leaf in record.leaves(call):
            if isinstance(leaf, TensorRef):
                info = record.tensors[leaf.number]
                number = order.setdefault(info.storage, len(order))
                parts.append(f"{info.dtype}{info.shape}{info.stride}@{number}")
            else:
                parts.append("scalar" if isinstance(leaf, Scalar) else repr(leaf))
    parts += [f"-> {record.storages[s].bytes}" for s in sorted(group.makes)]
    return " ".join(parts)


def _measure(phase: Phase, group: Group, kernels: Kernels | None, device: str, repeats: int) -> Cost:
    if all(call.scalar is not None for call in group.calls):
        return Cost(1e-6, 0.0, 0)
    record = phase.record
    roots = _made_up_all(phase, sorted(Interface(record, group).reads))
    kernel = None if kernels is None else kernels.kernel(record, group, roots.__getitem__)
    cost = _run_repeatedly(record, group, roots, kernel, device, repeats)
    if kernels is not None and kernel is not None and len(group.calls) == 1:
        plain = _run_repeatedly(record, group, roots, None, device, repeats)
        if plain.seconds <= cost.seconds:
            kernels.refuse(record, group)
            return plain
    return replace(cost, compiled=kernel is not None)


def _run_repeatedly(
    record: Record, group: Group, roots: dict[int, torch.Tensor], kernel: Kernel | None, device: str, repeats: int
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


def _made_up_all(phase: Phase, storages: list[int]) -> dict[int, torch.Tensor]:
    """Return tensors in place of storages; workspaces, masks and indices come from the call that makes them."""
    record = phase.record
    made: dict[int, torch.Tensor] = {}
    for s in storages:
        opaque = not record.tensors[record.storages[s].root].dtype.is_floating_point
        maker = next((g for g in phase.groups if s in g.makes and len(g.makes) > 1), None) if opaque else None
        if maker is not None and s not in made:
            made.update(run_group(record, maker, _made_up_all(phase, sorted(Interface(record, maker).reads))))
    return {s: made[s] if s in made else _made_up(record, s) for s in storages}


def _made_up_one(phase: Phase, storage: int) -> torch.Tensor:
    return _made_up_all(phase, [storage])[storage]


def _made_up(record: Record, storage: int) -> torch.Tensor:
    """Return a tensor in place of a storage: small random numbers, and zeros for whole numbers, which may be indices."""
    known = record.storages[storage]
    info = record.tensors[known.root]
    root = torch.empty_strided(info.shape, info.stride, dtype=info.dtype, device=known.device)
    return root.normal_(0, 0.5) if info.dtype.is_floating_point else root.zero_()


def run_group(
    record: Record, group: Group, roots: dict[int, torch.Tensor], kernel: Kernel | None = None
) -> dict[int, torch.Tensor]:
    """Run the calls of a group, or their kernel, on given storages; return the storages that it makes."""
    made: dict[int, torch.Tensor] = {}
    if kernel is not None:
        interface = Interface(record, group)
        inputs = [roots[s] for s in interface.reads] + [record.constants[n] for n in interface.constants]
        with torch.no_grad(), torch._C._AutoDispatchBelowAutograd():
            return dict(zip(interface.makes, kernel(*inputs), strict=True))

    def operand(leaf: Any) -> Any:
        if isinstance(leaf, TensorRef):
            info = record.tensors[leaf.number]
            root_info = record.tensors[record.storages[info.storage].root]
            root = made[info.storage] if info.storage in made else roots[info.storage]
            if (info.shape, info.stride, info.offset) == (root_info.shape, root_info.stride, root_info.offset):
                return root
            return take_view(root, info.shape, info.stride, info.offset - root_info.offset)
        if isinstance(leaf, Scalar):
            return evaluate(leaf.expression, _AnyNumber())
        return record.constants[leaf.number] if isinstance(leaf, Constant) else leaf

    for call in group.calls:
        if call.scalar is not None:
            continue
        with torch.set_grad_enabled(call.grad), torch._C._AutoDispatchBelowAutograd():
            args, kwargs = tree_map(operand, (call.args, call.kwargs))
            result = call.func(*args, **kwargs)
        for storage, _, index in record.results(call):
            made[storage] = result if index is None else result[index]
    return {s: tensor for s, tensor in made.items() if s in group.makes}


class _AnyNumber(dict[str, float]):
    """Stands for learning rates and step counters where only the time counts."""

    def __missing__(self, key: str) -> float:
        return 0.001 if key.startswith("lr") else 3.0
