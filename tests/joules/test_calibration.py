"""Calibration of a simulated device gives its prices back; the file is a machine and a device like any other."""

from __future__ import annotations

import random
import sys
import time

import msgspec
import pytest

import pebbler as pb
from pebbler.cli import main
from pebbler.errors import InputError
from pebbler.game.machine import Level, Machine, measured_device
from pebbler.joules.calibration import calibrate_bench
from pebbler.joules.cpu_bench import CpuBench
from pebbler.joules.power import CallWork
from pebbler.joules.probes import Probe
from pebbler.run.calibrate import calibrate, machine_toml, save_machine
from simulated_meters import SimulatedDevice, SimulatedWork

MIB = 2**20
TRUE = {
    "awake": 120.0,
    "L1": 20e-12,
    "L2": 60e-12,
    "HBM read": 110e-12,
    "HBM write": 130e-12,
    "flop": 0.5e-12,
    "launch": 2e-6,
}
L1, L2 = 8 * MIB, 48 * MIB


class SimulatedBench:
    """A GPU whose prices are known; every probe draws what they say."""

    name, kind, own_cache, caches, memory = "Simulated GPU", "cuda", "L1", ("L2",), "HBM"

    def __init__(self, device: SimulatedDevice) -> None:
        self.device, self.notes = device, ["nothing here is real"]

    def probe(self, name, seconds, joules, **what):
        work = SimulatedWork(self.device, seconds, TRUE["awake"] + joules / seconds, max(1, int(0.01 / seconds)))
        return Probe(name, work, **what)

    def probes(self):
        found = [
            self.probe("spin", 0.001, 0.0),
            self.probe("launches", 2e-6, TRUE["launch"], launches=1),
            self.probe(
                "product", 1e-3, 6e11 * TRUE["flop"] + 1e8 * TRUE["HBM read"], flops=6e11, dtype="bfloat16", reads=10**8,
                footprint=10**8 * 4,
            ),
            self.probe("link", 0.005, 2e8 * 300e-12, link_bytes=2 * 10**8),
        ]  # fmt: skip
        for sweep in ("private", "shared"):
            for size in (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 128, 256, 512, 1024):
                footprint = size * MIB
                price = TRUE["HBM read"]
                if footprint <= L2:
                    price = TRUE["L1"] if sweep == "private" and footprint <= L1 else TRUE["L2"]
                moved = 10**9
                joules = moved * price
                found.append(
                    self.probe(f"{sweep} {size}", moved / 4e12, joules, reads=moved, footprint=footprint, sweep=sweep)
                )
        for size in (256, 512, 1024):
            joules = 5e8 * (TRUE["HBM read"] + TRUE["HBM write"])
            half = 5 * 10**8
            found.append(self.probe(f"copy {size}", 1e9 / 4e12, joules, reads=half, writes=half, footprint=size * MIB))
        return found


@pytest.fixture(scope="module")
def calibrated():
    draw = random.Random(1)
    noise = [draw.uniform(-0.02, 0.02) for _ in range(1000)]
    device = SimulatedDevice(idle=75, period=0.02, noise=lambda update: noise[update % 1000])
    return calibrate_bench(SimulatedBench(device), device.meter(), seconds=0.3)


def test_prices_and_sizes_of_a_simulated_gpu_come_out(calibrated):
    assert [(level.name, level.capacity) for level in calibrated.level] == [("L1", L1), ("L2", L2), ("HBM", None)]
    reads = [level.read for level in calibrated.level]
    assert reads == pytest.approx([20, 60, 110], rel=0.05)
    assert calibrated.level[2].write == pytest.approx(130, rel=0.05)
    device = calibrated.device
    assert device.static_watts == pytest.approx(120, rel=0.03)
    assert device.idle_watts == pytest.approx((75, 75), rel=0.03)
    assert device.rates["bfloat16"].flops == pytest.approx(6e14, rel=0.02)
    assert device.rates["bfloat16"].joules_per_flop == pytest.approx(0.5e-12, rel=0.05)
    assert device.joules_per_launch == pytest.approx(2e-6, rel=0.05)
    assert device.joules_per_link_byte == pytest.approx(300e-12, rel=0.05)
    assert device.bandwidth == pytest.approx(4e12, rel=0.02)
    assert device.mean_residual < 0.02
    assert device.period == pytest.approx(0.02, rel=0.1)


def test_the_file_is_a_machine_and_a_device(calibrated, tmp_path):
    path = tmp_path / "gpu.toml"
    save_machine(calibrated, path)
    read = pb.machine(path)
    assert read.device is None
    assert msgspec.structs.replace(calibrated, device=None) == read
    assert measured_device(path).rates["bfloat16"].flops == pytest.approx(6e14, rel=0.02)
    assert len(measured_device(path).row) == 4 + 28 + 3
    plan = pb.solve("mlp:n=4,hidden=16", path, time_limit=1)
    assert plan.energy_unit == "pJ"
    assert b"device" not in plan.to_json()


def test_without_a_counter_prices_are_times_and_say_so(tmp_path):
    bench = CpuBench(most=2**16)
    bench.probes = lambda: (
        [probe for probe in CpuBench.probes(bench) if not probe.flops]
        + [Probe("product", CallWork(lambda: time.sleep(1e-4)), flops=1e6, dtype="float32")]
    )
    found = calibrate_bench(bench, None, seconds=0.01)
    assert found.prices == "ns"
    assert "not energy" in found.about
    assert found.device.joules_per_byte is None
    assert found.device.static_watts is None
    assert all(row.watts is None for row in found.device.row)
    path = tmp_path / "cpu.toml"
    save_machine(found, path)
    plan = pb.solve("mlp:n=4,hidden=16", path, time_limit=1)
    assert (plan.energy_unit, plan.cost_word) == ("ns", "time")


def test_a_machine_without_measurements_is_no_device(tmp_path):
    with pytest.raises(InputError, match=r"machine notes has no table \[device\]"):
        measured_device("notes")
    path = tmp_path / "bad.toml"
    path.write_text('name = "x"\nunit = "byte"\nlevel = []\n[device]\nname = 3\n')
    with pytest.raises(InputError, match=r"bad\.toml: .*device\.name"):
        measured_device(path)


@pytest.mark.parametrize(("device", "seconds", "message"), [
    ("gpu", 0.5, "device must be cpu, cuda or cuda:N, got gpu"),
    ("cpu", 0.0, "more than 0"),
    ("cpu", float("nan"), "more than 0"),
])  # fmt: skip
def test_bad_requests_are_refused(device, seconds, message):
    with pytest.raises(InputError, match=message):
        calibrate(device, seconds=seconds)


@pytest.mark.parametrize("name", ["plain", 'quo"te', "back\\slash", "new\nline", "tab\t\x7f", "µ€", "[x]", "#"])
def test_any_name_survives_the_file(name, tmp_path):
    machine = Machine(name, "byte", (Level(name, 1, 2.5, 10), Level("slow", 1e-20, 1e25)), about=name)
    path = tmp_path / "m.toml"
    path.write_text(machine_toml(machine, "Two\nlines."), encoding="utf-8")
    assert pb.machine(path) == machine


def test_the_command_writes_a_file_and_says_what_it_measured(monkeypatch, capsys, tmp_path, calibrated):
    monkeypatch.setattr("pebbler.run.calibrate.calibrate", lambda device, seconds, report: calibrated)
    path = tmp_path / "gpu.toml"
    monkeypatch.setattr(sys, "argv", ["pebbler", "calibrate", "-o", str(path)])
    with pytest.raises(SystemExit) as caught:
        main()
    out, err = capsys.readouterr()
    assert caught.value.code == 0
    assert "pJ/byte" in out
    assert "Gflop/s" in out
    assert "idle, before and after" in out
    assert f"wrote {path}" in " ".join(err.split())
    assert pb.machine(path).name == "simulated-gpu"
    for words in (
        ["-o", str(tmp_path / "gpu.json")],
        ["--device", "gpu"],
        ["-o", "-", "--json"],
        ["--seconds", "0", "--device", "cpu"],
    ):
        monkeypatch.undo()
        monkeypatch.setattr(sys, "argv", ["pebbler", "calibrate", *words])
        with pytest.raises(SystemExit) as caught:
            main()
        assert caught.value.code == 2
        assert capsys.readouterr().err.startswith("error: ")
