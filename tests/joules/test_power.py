"""Windows between updates of a counter: known power comes out, whatever the counter's period, and noise is told."""

from __future__ import annotations

import random

import pytest

from pebbler.errors import InputError
from pebbler.joules.meter import EnergyMeter, meter
from pebbler.joules.power import CallWork, measure_idle, measure_power
from simulated_meters import SimulatedDevice, SimulatedWork


@pytest.mark.parametrize("period", [0.001, 0.02, 0.1, 0.15])
@pytest.mark.parametrize(("seconds", "runs"), [(1e-5, 400), (0.003, 7), (0.05, 1)])
def test_power_and_time_of_known_work_come_out(period, seconds, runs):
    device = SimulatedDevice(idle=80, period=period)
    reading = measure_power(SimulatedWork(device, seconds, 600.0, runs), device.meter(), seconds=0.5)
    assert reading.watts == pytest.approx(600, rel=0.02)
    assert reading.seconds == pytest.approx(seconds, rel=0.02)
    assert reading.joules == pytest.approx(600 * seconds, rel=0.03)
    assert reading.error < 0.02
    assert reading.stretches >= 2


def test_the_period_of_a_counter_and_idle_power_are_found():
    for period in (0.02, 0.1):
        device = SimulatedDevice(idle=75, period=period)
        assert device.meter().find_period() == pytest.approx(period, rel=0.1)
        assert measure_idle(device.meter(), 0.5) == pytest.approx(75, rel=0.02)


def test_measuring_goes_on_until_the_standard_error_is_small_or_time_is_over():
    spent = {}
    for amount in (0.0, 1.0, 30.0):
        draw = random.Random(3)
        noise = [draw.uniform(-amount, amount) for _ in range(1000)]
        device = SimulatedDevice(period=0.02, noise=noise.__getitem__)
        reading = measure_power(SimulatedWork(device, 0.01, 500.0), device.meter(), seconds=0.2, most_seconds=3)
        spent[amount] = (device.now, reading.error)
    assert spent[0.0][0] < spent[1.0][0] < spent[30.0][0] < 4
    assert spent[0.0][1] < spent[1.0][1] < 0.02 < spent[30.0][1]


def test_work_longer_than_the_window_is_measured_too():
    device = SimulatedDevice(period=0.1)
    reading = measure_power(SimulatedWork(device, 0.9, 300.0), device.meter(), seconds=0.3, most_seconds=0.4)
    assert reading.watts == pytest.approx(300, rel=0.05)


def test_a_counter_that_stands_still_is_an_error_and_no_figure():
    device = SimulatedDevice(period=1e9)
    with pytest.raises(InputError, match="has not moved for 2 s"):
        measure_idle(device.meter())
    with pytest.raises(InputError, match="moved 0 times"):
        measure_power(SimulatedWork(device, 0.01, 500.0), device.meter(), seconds=0.1)


def test_a_meter_adds_its_counters_up_and_starts_anew():
    first, second = SimulatedDevice(idle=100, period=0.01), SimulatedDevice(idle=10, period=0.01)
    first.name, second.name = "GPU 0", "GPU 1"
    measured = EnergyMeter([first, second], first.clock)
    for seconds in (2.0, 1.0):
        with measured:
            first.sleep(seconds)
            second.sleep(seconds)
            assert measured.joules == pytest.approx(110 * seconds, rel=0.02)
        assert measured.by_counter["GPU 1"] == pytest.approx(10 * seconds, rel=0.02)
        assert (measured.joules, measured.watts) == pytest.approx((110 * seconds, 110), rel=0.02)


def test_a_meter_says_what_is_wrong_with_its_use():
    device = SimulatedDevice()
    measured = meter([device])
    with pytest.raises(InputError, match="measured nothing yet"):
        _ = measured.joules
    with measured, pytest.raises(InputError, match="running already"), measured:
        pass
    with pytest.raises(InputError, match="at least one counter"):
        EnergyMeter([])


def test_an_error_inside_a_window_still_ends_it():
    device = SimulatedDevice(period=0.01)
    measured = EnergyMeter([device], device.clock)

    def fail() -> None:
        with measured:
            device.sleep(1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert measured.joules == pytest.approx(80, rel=0.02)


def test_call_work_runs_as_often_as_it_says():
    calls = []
    CallWork(lambda: calls.append(1), runs=5).launch()
    assert len(calls) == 5
