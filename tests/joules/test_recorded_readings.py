"""Readings of a real counter, an H200's: awake for 2 s, products of 8192 x 8192 between readings for 2 s, awake; and all probes."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

import pebbler as pb
from pebbler.game.machine import measured_device
from pebbler.joules.calibration import ProbeReading, fitted_machine
from pebbler.joules.energy_counters import RecordedCounter
from pebbler.joules.meter import EnergyMeter
from pebbler.joules.power import CallWork, PowerReading, measure_idle, measure_power
from pebbler.joules.probes import Probe

HERE = Path(__file__).parent
PROBES = json.loads((HERE / "h200_probes.json").read_text())
READINGS = json.loads((HERE / "h200_readings.json").read_text())


class Clock:
    """Time that passes when it is looked at, and when somebody sleeps."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        self.now += 1e-5
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def recorded(now: float) -> tuple[EnergyMeter, Clock]:
    clock = Clock(now)
    counter = RecordedCounter(READINGS["name"], [tuple(reading) for reading in READINGS["readings"]], lambda: clock.now)
    return EnergyMeter([counter], clock, clock.sleep), clock


def test_the_counter_is_updated_ten_times_a_second():
    assert recorded(0.1)[0].find_period() == pytest.approx(0.1, abs=0.005)


@pytest.mark.parametrize("began", [0.05, 4.05])
def test_a_gpu_that_is_awake_and_does_nothing_draws_its_static_power(began):
    assert measure_idle(recorded(began)[0], 0.7) == pytest.approx(123.5, abs=1.0)


def test_power_under_load_is_that_between_updates_whatever_the_window():
    seen = []
    for began in (2.15, 2.2, 2.26, 2.31):
        meter, clock = recorded(began)
        reading = measure_power(CallWork(lambda clock=clock: clock.sleep(0.005)), meter, seconds=1.0, settle=0.05)
        assert reading.error < 0.02
        assert reading.seconds == pytest.approx(0.005, rel=0.05)
        seen.append(reading.watts)
    assert seen == pytest.approx([347] * 4, rel=0.02)


def test_a_window_that_ignores_updates_would_be_off_by_a_tenth():
    """Why `measure_power` waits for updates: some time between any two moments is wrong by up to an update at each end."""
    meter, clock = recorded(2.25)
    worst = 0.0
    for step in range(20):
        clock.now = 2.25 + 0.05 * step
        with meter:
            clock.sleep(0.45)
        worst = max(worst, abs(meter.watts / 347 - 1))
    assert worst > 0.1


class RecordedBench:
    """What was probed: see `CudaBench`."""

    name, kind, own_cache, caches, memory = "NVIDIA H200", "cuda", "L1", ("L2", "L2 far"), "HBM"
    notes = ("registers are not told apart: no probe of ours reads them alone",)


def recorded_probes():
    fields = set(Probe.__dataclass_fields__) - {"work"}
    for row in PROBES:
        power = PowerReading(row["watts"], row["seconds"], row["error"], row["stretches"])
        yield ProbeReading(Probe(work=None, **{key: row[key] for key in fields & set(row)}), row["seconds"], power)


IDLE, PERIOD = (78.0405, 122.301), 0.113374  # watts before and after; seconds


def test_levels_of_a_real_gpu_are_told_apart_and_prices_rise():
    found = fitted_machine(RecordedBench, list(recorded_probes()), IDLE, PERIOD)
    assert [level.name for level in found.level] == ["L1", "L2", "L2 far", "HBM"]
    reads = [level.read for level in found.level]
    assert reads == sorted(reads)
    assert reads == pytest.approx([11.4, 43.3, 61.7, 118], rel=0.02)
    assert 0.9 * 132 * 192 * 1024 < found.level[0].capacity < 132 * 256 * 1024  # of 132 cores with 256 KiB
    assert found.device.static_watts == pytest.approx(121, rel=0.02)
    assert found.device.bandwidth < 4.8e12  # what the data sheet has
    assert all(rate.joules_per_flop > 0 for rate in found.device.rates.values())
    assert found.device.mean_residual < 0.03


def test_the_built_in_machine_is_what_the_readings_give():
    found = fitted_machine(RecordedBench, list(recorded_probes()), IDLE, PERIOD)
    built_in = pb.machine("h200-measured")
    assert built_in.level == found.level
    known = measured_device("h200-measured")
    assert known.rates["bfloat16"].joules_per_flop == pytest.approx(
        found.device.rates["bfloat16"].joules_per_flop, rel=1e-4
    )
    assert len(known.row) == len(found.device.row)
    assert msgspec.structs.replace(built_in, about="", name="") == msgspec.structs.replace(
        found, about="", name="", device=None
    )


def test_a_level_without_probes_of_its_own_is_none():
    """The first calibration of this GPU had one, at a price of 0, because every probe of it was left out."""
    readings = [r for r in recorded_probes() if not 30e6 < r.probe.footprint < 60e6 or r.probe.sweep == "private"]
    found = fitted_machine(RecordedBench, readings, IDLE, PERIOD)
    reads = [level.read for level in found.level]
    assert all(after > before > 0 for before, after in pairwise(reads))
