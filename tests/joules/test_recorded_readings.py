"""Readings of a real counter: an H200, awake for 2 s, with products of 8192 x 8192 between readings for 2 s, awake again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pebbler.joules.counters import RecordedCounter
from pebbler.joules.meter import EnergyMeter
from pebbler.joules.power import CallWork, measure_idle, measure_power

READINGS = json.loads((Path(__file__).parent / "h200_readings.json").read_text())


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
