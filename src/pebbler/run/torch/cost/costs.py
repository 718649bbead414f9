"""The cost of every op, and the roofline (bytes and flops) of a described device."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.flop_counter import flop_registry

from pebbler.errors import InputError, near_matches, quoted
from pebbler.game.machine import measured_device
from pebbler.game.measured_device import MeasuredDevice
from pebbler.run.torch.capture.call_groups import CallGroup
from pebbler.run.torch.capture.calls import Call, Record, TensorInfo, TensorRef, unique_refs
from pebbler.run.torch.capture.captured import Captured
from pebbler.run.torch.capture.operand_trees import map_leaves
from pebbler.run.torch.capture.phases import Phase
from pebbler.run.torch.cost.op_energy import MeasuredEnergy

if TYPE_CHECKING:
    from pebbler.run.torch.cost.op_prices import OpPrices

__all__ = [
    "DEVICES",
    "LEAST_COPY",
    "Cost",
    "Costs",
    "Device",
    "Link",
    "calibrated_device",
    "estimate",
    "find_device",
    "has_flops",
    "nearest_device",
    "operator_flops",
    "roofline",
]

LEAST_COPY = 2**20  # bytes: to begin a copy on a stream of its own and to wait for it takes as long as to move these


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
    static_watts: float = 0.0  # drawn whatever runs; the prices above count beyond it
    joules_per_launch: float = 0.0
    dtypes: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # flops per second, joules per flop
    overlap: bool = True  # whether copies over the link run beside kernels

    def rate(self, dtype: str) -> tuple[float, float]:
        """Return flops per second and joules per flop of a dtype such as `float32`."""
        return self.dtypes.get(dtype, (self.flops, self.joules_per_flop))

    def kernel(self, moved: float, flops: Iterable[tuple[str, float]] = ()) -> tuple[float, float]:
        """Return seconds and joules of one kernel that moves so many bytes, with its flops by dtype: the roofline.

        >>> plain = Device("plain", 100.0, 10.0, 1.0, 5.0, 0.5, 0.25, 0.0, static_watts=2.0)
        >>> plain.kernel(40, [("float32", 200.0)]), plain.kernel(0)  # bytes take 4 s, flops 2 s; a launch alone 1 s
        ((4.0, 118.0), (1.0, 2.0))
        """
        computing, spent = 0.0, moved * self.joules_per_byte + self.joules_per_launch
        for dtype, count in flops:
            rate, price = self.rate(dtype)
            computing += count / rate
            spent += count * price
        seconds = max(self.launch, moved / self.bandwidth, computing)
        return seconds, spent + seconds * self.static_watts

    def unit_costs(self, objective: str) -> tuple[float, float]:
        """Return the cost of one byte more in a kernel that memory bounds, and what a launch costs: seconds, or joules."""
        if objective == "time":
            return 1 / self.bandwidth, self.launch
        return self.joules_per_byte + self.static_watts / self.bandwidth, self.kernel(0.0)[1]

    @property
    def host_link(self) -> Link:
        """The link to the host's memory; on a CPU the host is a file, and nothing runs beside a copy to it."""
        each = 1 / self.link
        return Link(each, each, self.overlap, self.joules_per_link_byte, LEAST_COPY if self.overlap else 0)


def calibrated_device(measured: MeasuredDevice) -> Device:
    """Return a measured device as the roofline sees it; joules are nan where there was no counter."""

    def known(value: float | None) -> float:
        return math.nan if value is None else value

    dtypes = {name: (rate.flops, known(rate.joules_per_flop)) for name, rate in measured.rates.items()}
    best = max(dtypes, key=lambda name: dtypes[name][0])
    return Device(
        measured.name, *dtypes[best][:1], measured.bandwidth, measured.launch, measured.link or measured.bandwidth,
        dtypes[best][1], known(measured.joules_per_byte), known(measured.joules_per_link_byte or measured.joules_per_byte),
        known(measured.static_watts), measured.joules_per_launch or 0.0, dtypes, measured.kind == "cuda",
    )  # fmt: skip


# The H200 as its energy counter and its clock show it (`pebbler machines h200-measured`). A100: data sheet, 65 and 85 % of it.
DEVICES = {
    "h200": replace(calibrated_device(measured_device("h200-measured")), name="h200"),
    "a100": Device("a100", 200e12, 1.6e12, 5e-6, 24e9, 1.2e-12, 150e-12, 300e-12),
    "cpu": Device("cpu", 50e9, 15e9, 2e-6, 10e9, 40e-12, 160e-12, 160e-12, overlap=False),
}


def find_device(name: str | Device) -> Device:
    """Return a described device by name, or the one in a file that `pebbler calibrate` wrote.

    >>> find_device("a100").link
    24000000000.0
    """
    if isinstance(name, Device):
        return name
    if name in DEVICES:
        return DEVICES[name]
    if name.endswith(".toml"):
        return calibrated_device(measured_device(name))
    raise InputError(f"unknown device {quoted(name)}{near_matches(name, DEVICES)}")


def nearest_device(place: str) -> Device:
    """Return the described device that is most like the one at a place such as `cpu` or `cuda:0`.

    >>> nearest_device("cpu").name
    'cpu'
    """
    if not place.startswith("cuda"):
        return DEVICES["cpu"]
    name = torch.cuda.get_device_name(place).lower() if torch.cuda.is_available() else ""
    return DEVICES["a100" if "a100" in name else "h200"]


@dataclass(frozen=True)
class Cost:
    """Seconds and joules of one run, bytes of scratch memory during it, and bytes of its results where they were measured.

    A few operators make opaque workspaces whose size is known only after a run.
    """

    seconds: float
    joules: float
    scratch: int
    results: tuple[int, ...] | None = None
    compiled: bool = False  # whether this is what a compiled kernel costs
    launch: float = 0.0  # seconds that Python takes to launch it while a GPU computes something else


@dataclass(frozen=True)
class Link:
    """The way to the host's memory: what a byte costs out and in, and whether copies run beside kernels.

    Costs are seconds, or those of a graph's ops (`in_unit`). Values of fewer than `least` bytes stay, unless nothing else keeps
    the capacity: only the bytes of a copy are priced, and small copies cost more than that.
    """

    out: float
    into: float
    overlap: bool
    joules_per_byte: float = 0.0
    least: int = 0

    def in_unit(self, scale: float, objective: str) -> Link:
        """Return the link of a device with a byte's seconds, or its joules, times `scale`; joules add up, whatever overlaps.

        >>> link = Link(0.5, 0.25, overlap=True, joules_per_byte=3.0, least=8)
        >>> link.in_unit(10.0, "time")
        Link(out=5.0, into=2.5, overlap=True, joules_per_byte=3.0, least=8)
        >>> link.in_unit(10.0, "energy")
        Link(out=30.0, into=30.0, overlap=False, joules_per_byte=3.0, least=0)
        """
        if objective == "energy":
            each = scale * self.joules_per_byte
            return Link(each, each, False, self.joules_per_byte)
        return replace(self, out=scale * self.out, into=scale * self.into)


class Costs(list[list[Cost]]):
    """The cost of every op, per phase; the link to the host's memory; the other bytes on the device during the measurement.

    `price` tells the cost of any other group of calls, such as ops that run as one kernel; `measure`, where joules are by the
    energy counter, makes it those of some groups too. `energy` says how joules came about, None where all are described.
    """

    def __init__(
        self,
        rows: Iterable[list[Cost]],
        link: Link | None = None,
        price: Callable[[Phase, CallGroup], Cost] | None = None,
        foreign: int = 0,
        energy: MeasuredEnergy | None = None,
        measure: Callable[[Phase, list[CallGroup]], None] | None = None,
    ) -> None:
        super().__init__(rows)
        self.link, self.price, self.foreign = link, price, foreign
        self.energy, self.measure = energy, measure
        self.measured_ops: OpPrices | None = None  # what profiling knows of kinds of ops
        self.static_watts = 0.0 if energy is None else energy.static_watts


def roofline(captured: Captured, device: str | Device) -> Costs:
    """Return every op's cost from its bytes and flops alone. Scratch memory counts as none: state headroom instead.

    >>> weight = torch.ones(1000, 1000)
    >>> from pebbler.run.torch.capture.captured import capture
    >>> captured = capture(lambda x: x @ weight, torch.ones(1000, 1000))
    >>> [round(cost.seconds * 1e3) for cost in roofline(captured, "cpu")[0]]  # 2 Gflop at 50 Gflop/s
    [40]
    """
    known = find_device(device)

    def price(phase: Phase, group: CallGroup) -> Cost:
        return estimate(phase.record, group, known)

    rows = ([price(phase, group) for group in phase.groups] for phase in captured.phases)
    costs = Costs(rows, known.host_link, price)
    costs.static_watts = known.static_watts
    return costs


def estimate(record: Record, group: CallGroup, device: Device) -> Cost:
    """Return the cost of a group on a described device."""
    calls = [call for call in group.calls if call.scalar is None]
    launched = [(_bytes(record, call), [call]) for call in calls]
    if group.fused:  # only what comes in and goes out moves
        launched = [(sum(record.storages[s].bytes for s in (*group.reads, *group.makes, *group.mutates)), calls)]
    seconds = joules = 0.0
    for moved, together in launched:
        taken, spent = device.kernel(moved, ((_dtype(record, call), _flops(record, call)) for call in together))
        seconds += taken
        joules += spent
    return Cost(seconds, joules, 0, compiled=group.fused and len(group.calls) > 1)


def _dtype(record: Record, call: Call) -> str:
    """Return the dtype of a call's first operand."""
    first = next(iter(unique_refs((call.args, call.kwargs))), None)
    return "" if first is None else str(record.tensors[first].dtype).removeprefix("torch.")


def _bytes(record: Record, call: Call) -> int:
    def size(info: TensorInfo) -> int:
        # An expanded dimension is stored once.
        stored = math.prod(n for n, step in zip(info.shape, info.stride, strict=True) if step)
        return stored * int(info.dtype.itemsize)

    read = sum(size(record.tensors[n]) for n in unique_refs((call.args, call.kwargs)))
    made = sum(record.storages[s].bytes for s in (*call.makes, *call.mutates))
    return read + made if call.name != "empty_strided" else 0


def _flops(record: Record, call: Call) -> float:
    def meta(leaf: Any) -> Any:
        if not isinstance(leaf, TensorRef):
            return leaf
        info = record.tensors[leaf.number]
        return torch.empty_strided(info.shape, info.stride, dtype=info.dtype, device="meta")

    if getattr(call.func, "overloadpacket", None) not in flop_registry:
        return 0.0  # before operands are made for nothing
    return operator_flops(call.func, *map_leaves(meta, (call.args, call.kwargs, call.outputs)))


def has_flops(group: CallGroup) -> bool:
    """Whether some call of a group is a matrix product or the like."""
    return any(getattr(call.func, "overloadpacket", None) in flop_registry for call in group.calls)


def operator_flops(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], results: Any) -> float:
    """Return the number of flops of a call; tensors may be on the device `meta`, since only their shapes are read.

    >>> x = torch.empty(10, 20, device="meta")
    >>> operator_flops(torch.ops.aten.mm.default, [x, x.t()], {}, torch.empty(10, 10, device="meta"))
    4000.0
    """
    count = flop_registry.get(getattr(operator, "overloadpacket", None))
    if count is None:
        return 0.0
    if "scaled_dot_product" in str(operator):
        args = _with_all_heads(args)
    return float(count(*args, **kwargs, out_val=results))


def _with_all_heads(args: Sequence[Any]) -> list[Any]:
    """Return the operands of attention with keys and values for every head: where heads share them, torch's counter gives up.

    >>> query, key = torch.empty(2, 8, 5, 4, device="meta"), torch.empty(2, 2, 5, 4, device="meta")
    >>> [tuple(x.shape) for x in _with_all_heads([query, key])]
    [(2, 8, 5, 4), (2, 8, 5, 4)]
    """
    heads = max((x.shape[1] for x in args if isinstance(x, torch.Tensor) and x.dim() == 4), default=1)

    def widened(x: Any) -> Any:
        few = isinstance(x, torch.Tensor) and x.dim() == 4 and x.shape[1] < heads and heads % x.shape[1] == 0
        return x.repeat_interleave(heads // x.shape[1], 1) if few else x

    return [widened(x) for x in args]
