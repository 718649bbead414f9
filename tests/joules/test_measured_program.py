"""`pebbler measure`: joules of another program, its status, and what happens without a counter."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pebbler.errors import InputError
from pebbler.joules import meter as module
from pebbler.joules.measured_program import MeasuredProgram
from simulated_meters import WallCounter

TESTS = Path(__file__).parents[1]


def test_a_program_is_run_and_its_joules_are_told(cli, monkeypatch):
    monkeypatch.setattr(
        module, "find_counters", lambda: [WallCounter(50, name="CPU 0"), WallCounter(100, name="GPU 0")]
    )
    status, out, err = cli(
        "measure", "--json", "--idle", "0.05", "--", sys.executable, "-c", "import time; time.sleep(0.3)"
    )
    told = json.loads(out)
    assert (status, told["status"]) == (0, 0)
    assert told["seconds"] > 0.3
    assert told["joules"] == pytest.approx(150 * told["seconds"], rel=0.1)
    assert set(told["joules_by_counter"]) == {"CPU 0", "GPU 0"}
    assert len(told["idle_watts"]) == 2
    assert abs(told["joules_beyond_idle"]) < 0.2 * told["joules"]
    status, out, err = cli("measure", "--idle", "0", "--", sys.executable, "-c", "import sys; sys.exit(7)")
    assert status == 7
    assert out == ""
    assert "exit status 7" in err
    assert " J" in err
    assert " W" in err


def test_without_a_counter_the_program_does_not_run(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr("pebbler.joules.energy_counters.rapl_counters", lambda: ([], "CPU: none in this test"))
    monkeypatch.setattr(
        "pebbler.joules.energy_counters.nvml_counters", lambda uuids: ([], "NVIDIA GPUs: none in this test")
    )
    status, out, err = cli("measure", "--", sys.executable, "-c", f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert status == 2
    assert out == ""
    assert err.startswith("error: no energy counter can be read here")
    assert "Traceback" not in err
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("command", [["no-such-program-here"], ["/"], ["a\0b"]])
def test_a_program_that_cannot_be_run_is_named(command):
    with pytest.raises(InputError, match="cannot be run"):
        MeasuredProgram(command, idle=0, meter_=module.EnergyMeter([WallCounter()])).run()


def test_a_program_ended_by_a_signal_has_the_status_of_a_shell():
    program = MeasuredProgram(["sh", "-c", "kill -9 $$"], idle=0, meter_=module.EnergyMeter([WallCounter()]))
    program.run()
    assert program.status == 137


def test_ctrl_c_ends_the_program_and_tells_what_was_measured_by_then(tmp_path):
    driver = tmp_path / "driver.py"
    driver.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(TESTS)!r})\n"
        "from pebbler.joules import meter\n"
        "from simulated_meters import WallCounter\n"
        "meter.find_counters = lambda: [WallCounter()]\n"
        "from pebbler.cli import main\n"
        "sys.argv = ['pebbler', 'measure', '--idle', '0', '--json', '--', 'sh', '-c', 'echo started >&2; exec sleep 60']\n"
        "main()\n"
    )
    running = subprocess.Popen([sys.executable, driver], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stderr.readline() == "started\n"
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert running.returncode == 130
    assert json.loads(out)["joules"] >= 0
    assert "Traceback" not in err
