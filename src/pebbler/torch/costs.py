"""What every op costs: a roofline of a described device, or a measurement on it; and the scratch memory of its kernels."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import flop_registry

from pebbler.errors import InputError, near_matches, quoted
from pebbler.torch.aliases import Group
from pebbler.torch.capture import Captured, Phase
from pebbler.torch.inductor import Interface, Kernel
from pebbler.torch.memory import measure_peak
from pebbler.torch.program import take_view
from pebbler.torch.record import Call, Constant, Record, Scalar, TensorInfo, TensorRef, unique_refs
from pebbler.torch.scalars import evaluate

__all__ = [
    "DEVICES",
    "Cost",
    "Costs",
    "Device",
    "Link",
    "find_device",
    "find_link",
    "measure_link",
    "profile",
    "roofline",
]

_LINK_BYTES = 64 * 2**20  # copied to measure a link
_SLEEP = 2_000_000  # cycles, about a millisecond


@dataclass(frozen=True)
class Device:
    """A device as the roofline sees it. Seconds and joules; rates are those that real kernels reach."""

    name: str
    flops: float  # per second
    bandwidth: float  # bytes per second, reads and writes together
    launch: float  # seconds that a kernel takes at least
    link: float  # bytes per second to host memory, one way
    joules_per_flop: float
    joules_per_byte: float
    joules_per_link_byte: float


# H200: 989 Tflop/s dense bf16 and 4.8 TB/s by its data sheet, of which large kernels reach about 65 and 85 %; PCIe 5 x16 moves
# about 50 GB/s. 123 pJ per byte was measured with its energy counter; 0.6 pJ per flop is 700 W less what memory takes at full rate.
DEVICES = {
    "h200": Device("h200", 640e12, 4.1e12, 4e-6, 50e9, 0.6e-12, 123e-12, 300e-12),
    "a100": Device("a100", 200e12, 1.6e12, 5e-6, 24e9, 1.2e-12, 150e-12, 300e-12),
    "cpu": Device("cpu", 50e9, 15e9, 2e-6, 10e9, 40e-12, 160e-12, 160e-12),
}


def find_device(name: str | Device) -> Device:
    """Return a described device by name.

    >>> find_device("h200").link
    50000000000.0
    """
    if isinstance(name, Device):
        return name
    if name in DEVICES:
        return DEVICES[name]
    raise InputError(f"unknown device {quoted(name)}{near_matches(name, DEVICES)}")


@dataclass(frozen=True)
class Cost:
    """Seconds and joules of one run, bytes of scratch memory during it, and bytes of its results where they were measured.

    A few operators make opaque workspaces whose size is known only after a run.
    """

    seconds: float
    joules: float
    scratch: int
    results: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Link:
    """The way to the host's memory: bytes per second out and in, joules per byte, and whether copies run beside kernels."""

    out: float
    into: float
    joules_per_byte: float
    overlap: bool


class Costs(list[list[Cost]]):
    """What every op costs, per phase, and the link to the host's memory of the same device."""

    def __init__(
        self,
        rows: Iterable[list[Cost]],
        link: Link | None = None,
        price: Callable[[Phase, Group], Cost] | None = None,
    ) -> None:
        super().__init__(rows)
        self.link, self.price = link, price


def find_link(device: str | Device) -> Link:
    """Return the link of a described device; on a CPU the host is a file, and nothing runs beside a copy to it.

    >>> find_link("h200").overlap, find_link("cpu").overlap
    (True, False)
    """
    known = find_device(device)
    return Link(known.link, known.link, known.joules_per_link_byte, overlap=known.name != "cpu")


def roofline(captured: Captured, device: str | Device) -> Costs:
    """Return every op's cost from its bytes and flops alone. Scratch memory counts as none: state headroom instead.

    >>> weight = torch.ones(1000, 1000)
    >>> from pebbler.torch.capture import capture
    >>> captured = capture(lambda x: x @ weight, torch.ones(1000, 1000))
    >>> [round(cost.seconds * 1e3) for cost in roofline(captured, "cpu")[0]]  # 2 Gflop at 50 Gflop/s
    [40]
    """
    known = find_device(device)
    def price(phase: Phase, group: Group) -> Cost:
        return _roofline(phase.record, group, known)

    rows = ([price(phase, group) for group in phase.groups] for phase in captured.phases)
    return Costs(rows, find_link(known), price)


def _roofline(record: Record, group: Group, device: Device) -> Cost:
    seconds = joules = 0.0
    if group.fused:  # only what comes in and goes out moves
        flops = sum(_flops(record, call) for call in group.calls)
        moved = sum(record.storages[s].bytes for s in (*group.reads, *group.makes, *group.mutates))
        seconds = max(device.launch, moved / device.bandwidth, flops / device.flops)
        return Cost(seconds, moved * device.joules_per_byte + flops * device.joules_per_flop, 0)
    for call in group.calls:
        if call.scalar is not None:
            continue
        moved = _bytes(record, call)
        flops = _flops(record, call)
        seconds += max(device.launch, moved / device.bandwidth, flops / device.flops)
        joules += moved * device.joules_per_byte + flops * device.joules_per_flop
    return Cost(seconds, joules, 0)


def _bytes(record: Record, call: Call) -> int:
    def size(info: TensorInfo) -> int:
        count = 1
        for n, step in zip(info.shape, info.stride, strict=True):
            count *= n if step else 1  # an expanded dimension is stored once
        return count * int(info.dtype.itemsize)

    read = sum(size(record.tensors[n]) for n in unique_refs((call.args, call.kwargs)))
    made = sum(record.storages[s].bytes for s in (*call.makes, *call.mutates))
    return read + made if call.name != "empty_strided" else 0


def _flops(record: Record, call: Call) -> float:
    count = flop_registry.get(getattr(call.func, "overloadpacket", None))
    if count is None:
        return 0.0

    def meta(leaf: Any) -> Any:
        if not isinstance(leaf, TensorRef):
            return leaf
        info = record.tensors[leaf.number]
        return torch.empty_strided(info.shape, info.stride, dtype=info.dtype, device="meta")

    args, kwargs, out = tree_map(meta, (call.args, call.kwargs, call.outputs))
    return float(count(*args, **kwargs, out_val=out))


def profile(captured: Captured, *, repeats: int = 3, power: float = 0.0) -> Costs:
    """Return every op's cost measured on the device the step runs on, with made-up operands of the same shapes.

    Ops alike are measured once, so memory for one op at a time is enough. Seconds are the median of `repeats`; joules are `power`
    watts times that; scratch is what the kernel holds beyond its results.

    >>> from pebbler.torch.capture import capture
    >>> (cost,), = profile(capture(lambda x: x.sort().values, torch.ones(1000)))
    >>> cost.seconds > 0, cost.scratch >= 0
    (True, True)
    """
    seen: dict[str, Cost] = {}

    def price(phase: Phase, group: Group) -> Cost:
        key = _likeness(phase.record, group)
        if key not in seen:
            seen[key] = _measure(phase, group, captured, repeats, power)
        return seen[key]

    rows = [[price(phase, group) for group in phase.groups] for phase in captured.phases]
    return Costs(rows, measure_link(captured.device), price)


def compile_kernels(captured: Captured, groups: Iterable[tuple[Phase, Group]]) -> None:
    """Compile the kernels of fused groups that have not been compiled yet."""
    if captured.kernels is not None:
        for phase, group in groups:
            captured.kernels.kernel(phase.record, group, lambda s, phase=phase: _made_up_all(phase, [s])[s])


def measure_link(device: str) -> Link:
    """Return the link of the device where a step runs, measured with pinned memory on CUDA, described on a CPU.

    >>> measure_link("cpu").out
    10000000000.0
    """
    if not device.startswith("cuda"):
        return find_link("cpu")
    there = torch.empty(_LINK_BYTES, dtype=torch.uint8, device=device)
    host = torch.empty(_LINK_BYTES, dtype=torch.uint8, pin_memory=True)
    return replace(find_link("h200"), out=_rate(host, there, device), into=_rate(there, host, device))


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


def _measure(phase: Phase, group: Group, captured: Captured, repeats: int, power: float) -> Cost:
    if all(call.scalar is not None for call in group.calls):
        return Cost(1e-6, 1e-6 * power, 0)
    record, device = phase.record, captured.device
    roots = _made_up_all(phase, sorted(group.reads))
    kernel = None if captured.kernels is None else captured.kernels.kernel(record, group, roots.__getitem__)
    cost = _run_repeatedly(record, group, roots, kernel, device, repeats)
    if captured.kernels is not None and kernel is not None and len(group.calls) == 1:
        plain = _run_repeatedly(record, group, roots, None, device, repeats)
        if plain.seconds <= cost.seconds:
            captured.kernels.refuse(record, group)
            cost = plain
    return replace(cost, joules=cost.seconds * power)


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
            made.update(run_group(record, maker, _made_up_all(phase, sorted(maker.reads))))
    return {s: made[s] if s in made else _made_up(record, s) for s in storages}


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
        refs = [call.outputs] if isinstance(call.outputs, TensorRef) else call.outputs or []
        values = [result] if isinstance(call.outputs, TensorRef) else result or []
        for ref, value in zip(refs, values, strict=True):
            if value is not None and isinstance(ref, TensorRef) and record.tensors[ref.number].storage in call.makes:
                made.setdefault(record.tensors[ref.number].storage, value)
    return {s: tensor for s, tensor in made.items() if s in group.makes}


class _AnyNumber(dict[str, float]):
    """Stands for learning rates and step counters where only the time counts."""

    def __missing__(self, key: str) -> float:
        return 0.001 if key.startswith("lr") else 3.0
