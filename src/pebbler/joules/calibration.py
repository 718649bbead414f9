"""Calibration: run probes, separate the memory levels, and fit prices to the energy counter."""

from __future__ import annotations

import math
import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import msgspec
import numpy as np

from pebbler.arrays import Floats
from pebbler.errors import InputError
from pebbler.game.machine import Level, Machine
from pebbler.game.measured_device import CalibrationRow, Coefficient, DtypeRate, MeasuredDevice
from pebbler.joules.meter import EnergyMeter
from pebbler.joules.power import PowerReading, measure_idle, measure_power, time_work
from pebbler.joules.probes import Bench, Probe

__all__ = ["ProbeReading", "calibrate_bench", "fitted_machine"]

# Times the size of a cache: up to here a footprint is still partly in it. Behind the next cache that matters less than in memory.
_NEXT, _MEMORY = 1.25, 5.0
_WRITTEN = 0.6  # of the size of a cache: up to here what is written fits too
_UNITS = {"awake": "s", "launch": "launch"}


@dataclass(frozen=True)
class ProbeReading:
    """A probe with its seconds per run and, where there is a counter, its power."""

    probe: Probe
    seconds: float
    power: PowerReading | None = None

    @property
    def moved(self) -> int:
        """Bytes read and written by one run."""
        return self.probe.reads + self.probe.writes


def calibrate_bench(
    bench: Bench,
    meter: EnergyMeter | None,
    *,
    seconds: float = 0.6,
    report: Callable[[str, float], None] | None = None,
) -> Machine:
    """Return a device as a machine, its measurements in `device`; without a meter prices are times, and `about` says so.

    Every probe runs for `seconds`, and up to twice as long while its standard error is above 2 %. `report` gets the name of each
    probe and the share of them that is done.
    """
    before = None if meter is None else measure_idle(meter)
    period = None if meter is None else meter.find_period()
    probes = list(bench.probes())
    readings = []
    for i, probe in enumerate(probes):
        if report is not None:
            report(probe.name, i / len(probes))
        readings.append(_read(probe, meter, seconds))
    idle = None if meter is None or before is None else (before, measure_idle(meter))
    return fitted_machine(bench, readings, idle, period)


def _read(probe: Probe, meter: EnergyMeter | None, seconds: float) -> ProbeReading:
    if meter is None:
        return ProbeReading(probe, time_work(probe.work, time.perf_counter, seconds / 3))
    power = measure_power(probe.work, meter, seconds=seconds, most_seconds=2 * seconds)
    return ProbeReading(probe, power.seconds, power)


@dataclass(frozen=True)
class _SeenLevel:
    """A level that the sweeps tell apart; `private` if only work in which every core stays in its own part sees it."""

    name: str
    capacity: int | None
    cost: float
    private: bool = False


def fitted_machine(
    bench: Bench, readings: Sequence[ProbeReading], idle: tuple[float, float] | None, period: float | None = None
) -> Machine:
    """Return the machine that readings of a bench show; `idle` (watts before and after) is None where there was no counter.

    A level whose price the fit cannot tell from that of the level before it is none, and no cache costs more than memory.
    """
    levels = _see_levels(bench, readings)
    fit = None if idle is None else _PriceFit(readings, levels)
    while fit is not None and (same := _not_told_apart(fit, levels)) is not None:
        levels = _named(bench, [level for i, level in enumerate(levels) if i != same])
        fit = _PriceFit(readings, levels)

    def priced(level: _SeenLevel) -> Level:
        read, write = (_price(readings, levels, level, way, fit) for way in ("read", "write"))
        return Level(level.name, read, write, level.capacity)

    how = (
        "measured with its energy counter" if fit else "TIMES, not energy: there was no counter; prices are ns per byte"
    )
    seen = _below_memory([priced(level) for level in levels])
    return Machine(
        _word(bench.name), "byte", seen, management="lru", operands="any", prices="pJ" if fit else "ns",
        about=f"{bench.name}, {how}", device=_device(bench, readings, levels, fit, idle, period),
    )  # fmt: skip


def _below_memory(levels: Sequence[Level]) -> tuple[Level, ...]:
    """Return levels with no price above that of memory: few probes write within a far cache alone, and some write past it.

    >>> [level.write for level in _below_memory([Level("L2", 50, 60, 10), Level("far", 70, 142, 20), Level("HBM", 114, 115)])]
    [60, 115, 115]
    """
    read, write = levels[-1].read, levels[-1].write
    return tuple(
        msgspec.structs.replace(level, read=min(level.read, read), write=min(level.write, write)) for level in levels
    )


def _see_levels(bench: Bench, readings: Sequence[ProbeReading]) -> list[_SeenLevel]:
    """Return the levels that the sweeps show: by joules per byte where they were measured, else by seconds."""
    # A first look, before anything is fitted: what the least hungry probe draws is drawn by all of them.
    static = min((r.power.watts for r in readings if r.power is not None), default=0.0)

    def cost(reading: ProbeReading) -> float:
        power = reading.power
        spent = reading.seconds if power is None else max(power.joules - 0.9 * static * reading.seconds, 1e-30)
        return spent / reading.moved

    def swept(sweep: str) -> list[_SeenLevel]:
        rows = [reading for reading in readings if reading.probe.sweep == sweep]
        found = find_levels([r.probe.footprint for r in rows], [cost(r) for r in rows]) if len(rows) > 3 else []
        return [_SeenLevel("", level.capacity, level.cost, sweep == "private") for level in found]

    shared, private = swept("shared"), swept("private")
    if not shared:
        raise InputError("a calibration needs a sweep over at least four footprints")
    own = private[:1] if len(private) > 1 and private[0].cost * 1.4 < shared[0].cost else []
    return _named(bench, [*own, *shared])


def _named(bench: Bench, levels: Sequence[_SeenLevel]) -> list[_SeenLevel]:
    """Return levels with names: what only one core's work sees is its own cache, the last is memory."""
    shared = [level for level in levels if not level.private]
    spare = (f"cache {i + 1}" for i in range(len(levels)))
    names = [bench.own_cache] * (len(levels) - len(shared))
    names += [name for name, _ in zip(chain(bench.caches, spare), shared[:-1], strict=False)]
    return [replace(level, name=name) for level, name in zip(levels, [*names, bench.memory], strict=True)]


def _not_told_apart(fit: _PriceFit, levels: Sequence[_SeenLevel]) -> int | None:
    """Return the first level whose bytes cost nothing, or no more than those of the level before; None if prices rise."""
    before = 0.0
    for i, level in enumerate(levels):
        price = fit.price(f"{level.name} read") or fit.price(f"{level.name} write") or 0.0
        if price <= before and len(levels) > 1:
            return i if i < len(levels) - 1 else i - 1  # there is always a memory
        before = price
    return None


def _price(
    readings: Sequence[ProbeReading], levels: Sequence[_SeenLevel], level: _SeenLevel, way: str, fit: _PriceFit | None
) -> float:
    """Return a price per byte, in pJ or, without a fit, ns; where one way was not told apart, that of the other."""
    if fit is None:
        ways = [r for r in readings if r.moved and not r.probe.flops and _level_of(r.probe, levels) is level]
        each = [r.seconds / r.moved for r in ways if (r.probe.writes if way == "write" else r.probe.reads)]
        return float(f"{1e9 * (statistics.median(each) if each else level.cost):.4g}")
    joules = next((price for one in (way, "read", "write") if (price := fit.price(f"{level.name} {one}"))), 0.0)
    return float(f"{1e12 * joules:.4g}")


class _PriceFit:
    """Joules as a sum of prices: static power, bytes of every level, flops of every dtype, launches, bytes of the link."""

    def __init__(self, readings: Sequence[ProbeReading], levels: Sequence[_SeenLevel]) -> None:
        self.rows = [reading for reading in readings if reading.power is not None and _is_pure(reading.probe, levels)]
        amounts = [_amounts(reading, levels) for reading in self.rows]
        self.columns = list(dict.fromkeys(name for row in amounts for name, amount in row.items() if amount))
        matrix = np.array([[row.get(name, 0.0) for name in self.columns] for row in amounts])
        fit = fit_non_negative(matrix, np.array([r.power.joules for r in self.rows if r.power is not None]))
        self.values = dict(zip(self.columns, fit.values.tolist(), strict=True))
        self.errors = dict(zip(self.columns, fit.errors.tolist(), strict=True))
        self.residuals = {r.probe.name: left for r, left in zip(self.rows, fit.residuals.tolist(), strict=True)}

    def price(self, name: str) -> float | None:
        """Return joules per unit of a column, None where nothing was measured of it."""
        return self.values.get(name)

    @property
    def coefficients(self) -> tuple[Coefficient, ...]:
        """All prices with their standard errors."""
        return tuple(
            Coefficient(name, _unit(name), self.values[name], None if math.isnan(self.errors[name]) else self.errors[name])
            for name in self.columns
        )  # fmt: skip


def _unit(column: str) -> str:
    return _UNITS.get(column) or ("flop" if column.startswith("flop") else "byte")


def _level_of(probe: Probe, levels: Sequence[_SeenLevel]) -> _SeenLevel:
    """Return the first level that holds what a probe touches and that it can see."""
    seen = [level for level in levels if not level.private or probe.sweep == "private"]
    return next(level for level in seen if level.capacity is None or probe.footprint <= level.capacity)


def _is_pure(probe: Probe, levels: Sequence[_SeenLevel]) -> bool:
    """Whether what a probe moves comes from one level: above a level's size some of it still comes from there.

    Sizes are those that reads show; what is written takes more room.
    """
    if probe.footprint == 0 or probe.flops:  # what a product moves hardly counts beside what it computes
        return True
    level = _level_of(probe, levels)
    if probe.sweep == "private" and any(one.private for one in levels):
        return level.private
    if probe.writes and level.capacity is not None and probe.footprint > _WRITTEN * level.capacity:
        return False
    caches = [one.capacity for one in levels if not one.private and one.capacity]
    smaller = max((size for size in caches if level.capacity is None or size < level.capacity), default=0)
    return probe.footprint >= (_NEXT if level.capacity else _MEMORY) * smaller


def _amounts(reading: ProbeReading, levels: Sequence[_SeenLevel]) -> dict[str, float]:
    """Return the amounts of one run of a probe, by column."""
    probe = reading.probe
    amounts: dict[str, float] = {"awake": reading.seconds, "launch": probe.launches, "link": probe.link_bytes}
    if reading.moved:
        level = _level_of(probe, levels).name
        amounts |= {f"{level} read": probe.reads, f"{level} write": probe.writes}
    return amounts | ({f"flop {probe.dtype}": probe.flops} if probe.dtype else {})


def _device(
    bench: Bench,
    readings: Sequence[ProbeReading],
    levels: Sequence[_SeenLevel],
    fit: _PriceFit | None,
    idle: tuple[float, float] | None,
    period: float | None,
) -> MeasuredDevice:
    """Return the table that goes with the machine: rates, prices, and every probe."""
    last = levels[-1].name

    def rates(dtype: str) -> DtypeRate:
        reached = max(r.probe.flops / r.seconds for r in readings if r.probe.dtype == dtype)
        return DtypeRate(reached, None if fit is None else fit.price(f"flop {dtype}"))

    def priced(*columns: str) -> float | None:
        known = [fit.price(name) for name in columns] if fit is not None else []
        values = [price for price in known if price is not None]
        return sum(values) / len(values) if values else None

    memory = [r for r in readings if r.moved and not r.probe.flops and _level_of(r.probe, levels).name == last]
    memory = [r for r in memory if _is_pure(r.probe, levels)] or memory
    linked = [r.probe.link_bytes / r.seconds for r in readings if r.probe.link_bytes]
    launched = [r.seconds / r.probe.launches for r in readings if r.probe.launches and not r.moved]
    residuals = [] if fit is None else [abs(left) for left in fit.residuals.values()]
    return MeasuredDevice(
        bench.name, bench.kind, max(r.moved / r.seconds for r in memory),
        {dtype: rates(dtype) for dtype in dict.fromkeys(r.probe.dtype for r in readings if r.probe.dtype)},
        launch=min(launched, default=0.0), link=min(linked, default=None), idle_watts=idle, static_watts=priced("awake"),
        joules_per_byte=priced(f"{last} read", f"{last} write"), joules_per_launch=priced("launch"),
        joules_per_link_byte=priced("link"), period=period,
        mean_residual=sum(residuals) / len(residuals) if residuals else None, worst_residual=max(residuals, default=None),
        notes=tuple(bench.notes), coefficient=fit.coefficients if fit else (),
        row=tuple(_row(reading, fit) for reading in readings),
    )  # fmt: skip


def _row(reading: ProbeReading, fit: _PriceFit | None) -> CalibrationRow:
    power, name = reading.power, reading.probe.name
    if power is None or fit is None:
        return CalibrationRow(name, reading.seconds)
    sure = None if math.isinf(power.error) else power.error
    return CalibrationRow(name, reading.seconds, power.watts, sure, fit.residuals.get(name))


def _word(name: str) -> str:
    """Return a name that can be typed: small letters, digits and dashes.

    >>> _word("NVIDIA H200 (SXM)")
    'nvidia-h200-sxm'
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "device"


# Non-negative least squares with standard errors, for prices, which cannot be negative --------------------------------


@dataclass(frozen=True)
class Fit:
    """Coefficients, none negative, their standard errors, and the residuals as fractions of what was measured."""

    values: Floats
    errors: Floats
    residuals: Floats


def fit_non_negative(amounts: Floats, measured: Floats) -> Fit:
    """Return the x >= 0 that makes `amounts` x nearest to `measured` in relative terms: every row counts the same.

    Lawson and Hanson's active set. A coefficient that stays at 0 has no standard error (nan): its row of amounts is explained by
    the others.

    >>> fit = fit_non_negative(np.array([[1.0, 0.0], [1.0, 2.0], [0.0, 4.0]]), np.array([3.0, 13.0, 20.0]))
    >>> fit.values.round(6).tolist(), bool(abs(fit.residuals).max() < 1e-9)
    ([3.0, 5.0], True)
    """
    weighted = amounts / measured[:, None]
    scale = np.linalg.norm(weighted, axis=0)
    scale[scale == 0] = 1.0
    a, b = weighted / scale, np.ones(len(measured))
    x = np.zeros(a.shape[1])
    active = np.zeros(a.shape[1], bool)
    for _ in range(3 * a.shape[1] + 3):
        gradient = a.T @ (b - a @ x)
        gradient[active] = -np.inf
        if active.all() or gradient.max() <= 1e-12:
            break
        active[int(gradient.argmax())] = True
        while True:
            trial = np.zeros_like(x)
            trial[active] = np.linalg.lstsq(a[:, active], b, rcond=None)[0]
            if trial[active].min() > 0:
                x = trial
                break
            falling = active & (trial <= 0)
            x_falling, trial_falling = x[falling], trial[falling]
            step = float(np.min(x_falling / np.maximum(x_falling - trial_falling, 1e-300)))
            x = x + step * (trial - x)
            active &= x > 1e-14
            x[~active] = 0.0
            if not active.any():
                break
    residual = a @ x - b
    errors = np.full(len(x), np.nan)
    free = len(b) - int(active.sum())
    if active.any() and free > 0:
        variance = float(residual @ residual) / free
        covariance = variance * np.linalg.pinv(a[:, active].T @ a[:, active])
        errors[active] = np.sqrt(np.maximum(np.diag(covariance), 0.0)) / scale[active]
    return Fit(x / scale, errors, residual)


# Memory levels found from the cost per byte at each footprint: plateaus, and the sizes where they end -----------------


_APART = 1.4  # two levels differ by more than this factor, or they are one
_NEAR = 1.1  # of its plateau: up to here a footprint fits


@dataclass(frozen=True)
class FoundLevel:
    """A plateau: what a byte costs there, and the largest footprint that still costs no more (None: the last level)."""

    cost: float
    capacity: int | None


def find_levels(footprints: Sequence[int], costs: Sequence[float]) -> list[FoundLevel]:
    """Return the levels that a sweep over footprints shows, fastest first; `costs` are per byte, in any unit.

    No footprint counts as costing more than a larger one: whatever else ran made it cost more. Costs are then cut into the
    plateaus that explain their logarithms best, each of two points or more, as long as another plateau halves what is
    left unexplained and neighbours differ by two fifths.

    >>> sizes = [2**k for k in range(10, 22)]
    >>> found = find_levels(sizes, [1.0 if size <= 2**13 else 3.0 if size <= 2**18 else 10.0 for size in sizes])
    >>> [(round(level.cost, 9), level.capacity) for level in found]
    [(1.0, 8192), (3.0, 262144), (10.0, None)]
    """
    order = np.argsort(np.asarray(footprints), kind="stable")
    sizes = [int(footprints[i]) for i in order]
    logs = np.log(np.minimum.accumulate(np.asarray(costs, float)[order][::-1])[::-1])
    best = [(0, len(logs))]
    unexplained = _spread(logs, best)
    for count in range(2, len(logs) // 2 + 1):
        cuts = _segments(logs, count)
        left = _spread(logs, cuts)
        if left > 0.5 * unexplained or unexplained < 1e-6:
            break
        best, unexplained = cuts, left
    plateaus = [float(np.exp(np.median(logs[begin:end]))) for begin, end in best]
    kept: list[tuple[int, int]] = []
    for cut, cost in zip(best, plateaus, strict=True):
        if kept and cost < _APART * float(np.exp(np.median(logs[slice(*kept[-1])]))):
            kept[-1] = (kept[-1][0], cut[1])
        else:
            kept.append(cut)
    costs_kept = [float(np.exp(np.median(logs[begin:end]))) for begin, end in kept]
    found = []
    for i, (cost, (_, end)) in enumerate(zip(costs_kept, kept, strict=True)):
        fits = [size for size, log in zip(sizes, logs, strict=True) if np.exp(log) <= _NEAR * cost]
        found.append(FoundLevel(cost, None if i == len(kept) - 1 else max(fits, default=sizes[end - 1])))
    return found


def _segments(logs: np.ndarray, count: int) -> list[tuple[int, int]]:
    """Return the cut into `count` segments of at least two points with the least squared distance to their means."""
    n = len(logs)
    sums, squares = np.concatenate([[0.0], np.cumsum(logs)]), np.concatenate([[0.0], np.cumsum(logs**2)])

    def cost(begin: int, end: int) -> float:
        return float(squares[end] - squares[begin] - (sums[end] - sums[begin]) ** 2 / (end - begin))

    least = np.full((count + 1, n + 1), np.inf)
    source = np.zeros((count + 1, n + 1), int)
    least[0, 0] = 0.0
    for k in range(1, count + 1):
        for end in range(2 * k, n + 1):
            for begin in range(2 * (k - 1), end - 1):
                total = least[k - 1, begin] + cost(begin, end)
                if total < least[k, end]:
                    least[k, end], source[k, end] = total, begin
    cuts, end = [], n
    for k in range(count, 0, -1):
        cuts.append((int(source[k, end]), end))
        end = int(source[k, end])
    return cuts[::-1]


def _spread(logs: np.ndarray, cuts: Sequence[tuple[int, int]]) -> float:
    return float(sum(((logs[begin:end] - logs[begin:end].mean()) ** 2).sum() for begin, end in cuts))
