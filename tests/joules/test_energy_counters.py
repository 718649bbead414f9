"""Counters: NVML and RAPL as they behave, on stand-ins for the driver and for the kernel's files."""

from __future__ import annotations

import pytest

from pebbler.errors import InputError
from pebbler.joules import energy_counters as module
from pebbler.joules.energy_counters import NoCounter, RecordedCounter, find_counters, nvml_counters, rapl_counters


class Nvml:
    """What pynvml offers, for GPUs of which some have no counter."""

    class NVMLError(Exception):
        pass

    def __init__(self, gpus, fails=False):
        self.gpus, self.fails = gpus, fails

    def nvmlInit(self):
        if self.fails:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlDeviceGetCount(self):
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetUUID(self, index):
        return f"GPU-{index}{index}{index}{index}-uuid".encode()

    def nvmlDeviceGetName(self, index):
        return f"NVIDIA H{index}"

    def nvmlDeviceGetTotalEnergyConsumption(self, index):
        if self.gpus[index] is None:
            raise self.NVMLError("Not Supported")
        return self.gpus[index]


@pytest.fixture(autouse=True)
def all_visible(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_millijoules_of_every_gpu_become_joules():
    found, reason = nvml_counters(nvml=Nvml([1500, 250]))
    assert [(one.name, one.read()) for one in found] == [("GPU 0 (NVIDIA H0)", 1.5), ("GPU 1 (NVIDIA H1)", 0.25)]
    assert reason == ""


@pytest.mark.parametrize(("visible", "names"), [("1", ["H1"]), ("GPU-2222,0", ["H0", "H2"]), ("", []), ("7", [])])
def test_only_visible_gpus_count(monkeypatch, visible, names):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found, reason = nvml_counters(nvml=Nvml([1, 2, 3]))
    assert [one.name[-3:-1] for one in found] == names
    assert bool(reason) == (not names)


def test_a_gpu_is_chosen_by_its_uuid_and_the_only_one_by_any():
    assert [one.name for one in nvml_counters(["GPU-1111-uuid"], Nvml([1, 2]))[0]] == ["GPU 1 (NVIDIA H1)"]
    assert len(nvml_counters(["GPU-of-the-host"], Nvml([1]))[0]) == 1
    assert nvml_counters(["GPU-of-the-host"], Nvml([1, 2]))[0] == []


def test_no_sum_leaves_a_gpu_out():
    found, reason = nvml_counters(nvml=Nvml([1, None]))
    assert found == []
    assert "GPU 1 (NVIDIA H1) has no energy counter: Not Supported" in reason


def test_a_driver_that_is_not_there_is_named():
    assert nvml_counters(nvml=Nvml([], fails=True)) == ([], "NVIDIA GPUs: NVML says Driver Not Loaded")


@pytest.fixture
def powercap(tmp_path):
    """Two packages, cores and memory of the first, the platform, and a zone that counts the first package again."""
    for zone, name, energy in (
        ("intel-rapl:0", "package-0", 5_000_000),
        ("intel-rapl:0:0", "core", 1_000_000),
        ("intel-rapl:0:1", "dram", 250_000),
        ("intel-rapl:1", "package-1", 7_000_000),
        ("intel-rapl:2", "psys", 99_000_000),
        ("intel-rapl-mmio:0", "package-0", 5_000_000),
    ):
        folder = tmp_path / zone
        folder.mkdir()
        (folder / "name").write_text(f"{name}\n")
        (folder / "energy_uj").write_text(f"{energy}\n")
        (folder / "max_energy_range_uj").write_text("10000000\n")
    return tmp_path


def test_packages_and_memory_count_once(powercap):
    found, reason = rapl_counters(powercap)
    assert {one.name: one.read() for one in found} == {"CPU 0": 5.0, "CPU 0 memory": 0.25, "CPU 1": 7.0}
    assert reason == ""


def test_a_register_that_wraps_goes_on(powercap):
    counter = rapl_counters(powercap)[0][0]
    file = powercap / "intel-rapl:0" / "energy_uj"
    shown = []
    for energy in (9_000_000, 1_000_000, 500_000, 500_000):
        file.write_text(str(energy))
        shown.append(counter.read())
    assert shown == [9.0, 11.0, 20.5, 20.5]


@pytest.mark.parametrize("text", ["", "many", None])
def test_a_register_that_cannot_be_read_is_named_and_nothing_counts(powercap, text):
    file = powercap / "intel-rapl:1" / "energy_uj"
    file.unlink()
    if text is not None:
        file.write_text(text)
    found, reason = rapl_counters(powercap)
    assert found == []
    assert "intel-rapl:1/energy_uj" in reason


def test_no_counter_says_what_was_looked_for(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "rapl_counters", lambda: rapl_counters(tmp_path / "none"))
    monkeypatch.setattr(module, "nvml_counters", lambda uuids: nvml_counters(uuids, Nvml([])))
    with pytest.raises(NoCounter, match=r"no energy counter can be read here.*none is visible.*there is no .*none"):
        find_counters()


@pytest.mark.parametrize("readings", [[], [(0, 5), (1, 4)], [(1, 4), (0, 5)]])
def test_recorded_readings_that_fall_are_refused(readings):
    with pytest.raises(InputError, match="readings of GPU"):
        RecordedCounter("GPU", readings, lambda: 0.0)
