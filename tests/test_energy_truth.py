"""The table of predicted and measured joules: errors, ratios of pairs, and a page that only real rows get into."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from benchmarks import energy_truth_causes as causes
from benchmarks import energy_truth_page as truth
from benchmarks.gpu_state import GpuState, summary

from pebbler.game.measured_device import DtypeRate, MeasuredDevice

ROOT = Path(__file__).parents[1]


def row(model, schedule, predicted, joules, **more):
    return {
        "model": model,
        "schedule": schedule,
        "predicted_joules": predicted,
        "joules": joules,
        "seconds": 0.1,
    } | more


ROWS = [
    row("a", "eager", 11.0, 10.0),
    row("a", "compiled:0.5", 9.0, 10.0),
    row("a", "energy:0.5", 8.1, 9.0, time_plan={}),
    row("b", "eager", 20.0, 20.0),
    row("b", "torch.compile", None, 15.0),
    {"model": "b", "schedule": "compiled:0.5", "error": "Impossible: no"},
]


def test_errors_are_those_of_rows_and_of_pairs_within_a_model():
    steps, ratios = truth.errors(ROWS)
    assert steps == pytest.approx([0.1, 0.1, 0.1, 0.0])
    assert ratios == pytest.approx([11 / 9 - 1, 11 / 8.1 / (10 / 9) - 1, 0.0])
    assert truth.summarize(ROWS).startswith("4 rows: joules off by 7.5% on average, 10.0% at worst. 3 pairs:")
    assert "Nothing" in truth.summarize(ROWS[4:])


def test_plans_for_energy_stand_beside_plans_for_time_with_what_windows_differ_by():
    plan = {"recomputed": 3, "offloaded_bytes": 2e9, "windows": [{"joules": 10.0}, {"joules": 10.1}]}
    other = row("a", "", 9.0, 10.0, predicted_seconds=0.05, **plan)
    mine = row("a", "energy:0.5", 8.1, 9.0, predicted_seconds=0.06, time_plan=other, **plan)
    assert causes.objective_table([*ROWS, other, mine]).endswith(
        "| a | 0.5 | 9.00, 50.0 | 8.10, 60.0 | -10.0% | 10.00, 100.0 | 9.00, 100.0 | -10.0% ± 1.0% | 3, 2.00 | 3, 2.00 |"
    )
    assert causes.objective_table(ROWS[:2]) == "None was measured."


def test_what_ops_took_apart_stands_beside_the_mixture_and_the_step():
    state = {"op_state": {"clock_mhz": 1500.4, "celsius": 40.0}, "step_state": {"clock_mhz": 1700.0, "celsius": 61.0}}
    told = {"op_energy": {"mixed_joules": 1.1, "mixed_seconds": 0.9}, "predicted_seconds": 0.09} | state
    rows = [
        row("a", "eager", 11.0, 10.0, **told),
        row("a", "exact:0.5", 11.0, 10.0, **told),
        row("b", "eager", 1.0, 1.0),
    ]
    assert causes.conditions_table(rows).splitlines()[2:] == [
        "| a | exact | 10.00, 100.0 | 11.00, 90.0 | 10.00, 100.0 | +0.0% | +10.0% | 1500, 1700 | 40, 61 |"
    ]


def test_joules_that_are_not_where_the_time_is():
    ops = [
        {"op": "mm", "seconds": 1.0, "joules": 700.0},
        {"op": "a_very_long_name_of_a_fused_kernel", "seconds": 1.0, "joules": 300.0},
    ]
    assert causes.misplaced(ops) == pytest.approx(0.2)
    assert causes.misplaced(ops[:1]) == 0
    shown = causes.op_table({"gpt exact": ops, "gpt none": []}).splitlines()
    assert shown[2:] == ["| gpt | exact | 500 W | 300 W (`a_very_long_name_of_a_fused…`) | 700 W (`mm`) | 20.0% |"]


def test_a_byte_costs_what_gives_it_back():
    rates = {"bfloat16": DtypeRate(1e12, 1e-12)}
    device = MeasuredDevice(
        "x", "cuda", 1e12, rates, link=1e9, static_watts=100.0, joules_per_byte=1e-10, joules_per_link_byte=2e-10
    )
    assert causes.trade_table(device).splitlines()[2:] == [
        "| a copy that ops hide | 0.00 | 0.40 |  |",
        "| a recomputed elementwise op | 3.00 | 0.60 | 200 |",
        "| a recomputed product, K = 1,024 | 1024.00 | 103.52 | 101 |",
        "| a recomputed product, K = 4,096 | 4096.00 | 413.80 | 101 |",
        "| a copy that the step waits for | 2000.00 | 200.40 | 100 |",
        "",
        "A recomputed product costs as much as a copy that the step waits for at K = 1,983 in joules, at K = 2,000 in time.",
    ]


def test_the_page_keeps_what_stands_around_the_tables(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{truth.BEGIN}\nold\n{truth.END}\nafter\n")
    known = {"device": "GPU", "torch": "2", "op_seconds": 5.0, "time_limit": 2.0, "seconds": 1.0, "rows": ROWS}
    for _ in range(2):  # writing twice changes nothing
        truth.write_page([known], page, tmp_path / "plot.svg")
        text = page.read_text()
        assert text.startswith("before\n")
        assert text.endswith("\nafter\n")
        assert "old" not in text
        assert text.count("| a | eager |") == 1
        assert "- Impossible: no: b compiled:0.5" in text
    assert (tmp_path / "plot.svg").stat().st_size > 1000
    with pytest.raises(SystemExit, match="simulated"):
        truth.write_page([known | {"simulated": True}], page, None)
    page.write_text("no marks")
    with pytest.raises(SystemExit, match="needs the lines"):
        truth.write_page([known], page, None)


def test_the_page_shows_what_the_file_of_measurements_says(capsys):
    page = (ROOT / "docs" / "truth.md").read_text(encoding="utf-8")
    names = next(line for line in page.splitlines() if "--read" in line).partition("--read ")[2].split()
    truth.write_page([json.loads((ROOT / name).read_text(encoding="utf-8")) for name in names], None, None)
    shown = page.partition(truth.BEGIN)[2].partition(truth.END)[0]
    assert capsys.readouterr().out.strip() == shown.strip()


class FakeModel:
    """A model whose schedules take what their names say."""

    def __init__(self):
        self.costs, self.prepared, self.forgotten = {}, [], False

    def prepare(self, schedule):
        self.prepared.append(schedule)
        if schedule == "exact:0.1":
            raise ValueError("too small")

    def forget_costs(self):
        self.forgotten = True

    def run(self, schedule):
        assert self.forgotten
        if schedule == "exact:0.1":
            raise ValueError("too small")
        self.costs[schedule.startswith("compiled")] = 1
        return {"model": "a", "schedule": schedule, "joules": 2.0, "seconds": 0.5, "watts": 4.0}

    def ops(self, compiled):
        return [{"op": "mm", "compiled": compiled}]


def test_a_process_measures_round_by_round_and_says_what_failed_and_what_is_missing(tmp_path, capsys):
    turns = pytest.importorskip(
        "benchmarks.energy_turns", reason="PyTorch is not installed: pip install 'pebbler[torch]'"
    )
    schedules = "eager,exact:0.1;b=compiled:0.5;a=compiled:0.5,torch.compile"
    options = argparse.Namespace(models="a", turn=tmp_path, schedules=schedules, output=tmp_path / "a.json")
    (tmp_path / "a.go0").write_text(str(time.time() + 100))
    (tmp_path / "a.go2").write_text(str(time.time() - 1))  # too late
    model = FakeModel()
    turns.work_in_turn(lambda: model, options)
    assert model.prepared == ["eager", "exact:0.1", "compiled:0.5", "torch.compile"]
    assert {path.name for path in tmp_path.iterdir()} == {"a.ready", "a.go0", "a.done0", "a.go2", "a.done2", "a.json"}
    known = turns._write(
        argparse.Namespace(models="a,b", schedules=schedules, output=tmp_path / "all.json"), {"x": 1}, tmp_path
    )
    assert known == json.loads((tmp_path / "all.json").read_text())
    assert known["ops"] == {"a exact": [{"op": "mm", "compiled": False}]}
    found = [(row["model"], row["schedule"], row.get("error", row.get("joules"))) for row in known["rows"]]
    none = "not measured (time limit reached, or the process ended)"
    assert found == [
        ("a", "eager", 2.0), ("a", "exact:0.1", "ValueError: too small"), ("a", "compiled:0.5", none), ("a", "torch.compile", none),
        ("b", "eager", none), ("b", "exact:0.1", none), ("b", "compiled:0.5", none), ("b", "torch.compile", none),
    ]  # fmt: skip
    assert "a         eager" in capsys.readouterr().out


def test_the_state_of_a_gpu_is_that_while_it_works():
    readings = iter([(1980, 40, 120_000), (1500, 50, 700_000), (1600, 60, 690_000)] + [(1600, 60, 695_000)] * 1000)
    now = []

    def clock(handle, kind):
        now[:] = next(readings)
        return now[0]

    nvml = SimpleNamespace(
        NVML_CLOCK_SM=1, NVML_TEMPERATURE_GPU=0, nvmlDeviceGetClockInfo=clock,
        nvmlDeviceGetTemperature=lambda handle, kind: now[1], nvmlDeviceGetPowerUsage=lambda handle: now[2],
    )  # fmt: skip
    with GpuState((nvml, None), period=0.001) as state:
        while state.told.get("busy_readings", 0) < 2:
            time.sleep(0.001)
    assert 1500 < state.told["clock_mhz"] < 1601
    assert 50 < state.told["celsius"] < 61
    assert summary([]) == {}
    with GpuState(None) as state:
        pass
    assert state.told == {}


def test_objectives_are_compared_on_measured_prices(monkeypatch, capsys):
    objectives = pytest.importorskip(
        "benchmarks.energy_objectives", reason="PyTorch is not installed: pip install 'pebbler[torch]'"
    )
    words = ["energy_objectives", "--models", "wide", "--shares", "0.5,0.0001", "--time-limit", "1"]
    monkeypatch.setattr("sys.argv", words)
    objectives.main()
    header, free, *plans = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["model", "share", "for"]
    assert free.split()[:2] == ["wide", "none"]
    joules = {line.split()[2]: float(line.split()[3]) for line in plans[:2]}
    assert list(joules) == ["time", "energy"]
    assert min(joules.values()) > float(free.split()[2])  # to keep a budget costs something
    assert all("no plan fits" in line for line in plans[2:])


def test_a_deeper_product_takes_its_time_and_joules():
    objectives = pytest.importorskip(
        "benchmarks.energy_objectives", reason="PyTorch is not installed: pip install 'pebbler[torch]'"
    )
    device = objectives.find_device("h200")
    deep = objectives.deeper(device, 4.0)
    for dtype in device.dtypes:
        flops, joules = device.rate(dtype)
        assert deep.rate(dtype) == pytest.approx((flops / 4, 4 * joules))
    assert deep.bandwidth == device.bandwidth
