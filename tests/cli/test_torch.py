"""The command `pebbler torch`."""

from __future__ import annotations

import json
import re
import sys
from contextlib import contextmanager

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

import typer  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

import pebbler.torch as pt  # noqa: E402
import torch_models as models  # noqa: E402
from pebbler.cli.torch import torch as command  # noqa: E402
from pebbler.errors import InputError  # noqa: E402
from pebbler.game.plan import Plan  # noqa: E402
from pebbler.referee.judgement import check  # noqa: E402

APP = typer.Typer()
APP.command()(command)


def test_the_command_writes_a_plan_that_is_legal(tmp_path, monkeypatch):
    (tmp_path / "steps.py").write_text(
        "import torch_models as models\n"
        "def small():\n    made = models.mlp(depth=4)\n    return made.step, made.batches[0]\n"
    )
    monkeypatch.chdir(tmp_path)
    options = ["steps:small", "--budget", "380kB", "--device", "cpu", "--time-limit", "2", "-o", "plan.json", "--json"]
    result = CliRunner().invoke(APP, options)
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert figures["peak"] <= figures["budget"] == 380_000
    assert figures["recomputed"] > 0
    assert check(Plan.load("plan.json")).legal
    training = models.mlp(depth=4)
    step = pt.compile(pt.TorchPlan.load("plan.json"), training.step)
    assert step(*training.batches[0]).item() > 0


def test_a_step_may_be_named_by_its_file(tmp_path, monkeypatch):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "sizes.py").write_text("DEPTH = 3\n")
    (tmp_path / "parts" / "torch.py").write_text(  # a name that is taken, and a neighbour to import
        "import torch_models as models\nfrom sizes import DEPTH\n"
        "def small():\n    made = models.mlp(depth=DEPTH)\n    return made.step, made.batches[0]\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    result = CliRunner().invoke(APP, ["parts/torch.py:small", "--device", "cpu", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["ops"] > 0
    assert sys.modules["torch"] is torch
    for wrong in ("parts/none.py:small", "parts:", "small"):
        assert CliRunner().invoke(APP, [wrong]).exit_code != 0


@pytest.mark.parametrize("kernels", ["exact", "compiled"])
def test_the_clock_names_what_takes_long(kernels, monkeypatch):
    named = []

    @contextmanager
    def progress(description):
        named.append(description)
        yield lambda text, fraction=None: named.append(text)

    def capture(*told, **more):
        named.append("captured")
        raise InputError("far enough")

    monkeypatch.setattr("pebbler.cli.output.progress", progress)
    monkeypatch.setattr("pebbler.run.torch.plan.planner.capture_with_costs", capture)
    result = CliRunner().invoke(APP, ["examples.train_in_budget:training", "--kernels", kernels])
    assert isinstance(result.exception, InputError)
    compiling = ", and compiling its kernels" if kernels == "compiled" else ""
    assert named == [f"recording examples.train_in_budget:training{compiling}", "captured"]


def test_the_command_offloads_when_asked(tmp_path, monkeypatch):
    (tmp_path / "away.py").write_text(
        "import torch_models as models\n"
        "def small():\n    made = models.mlp(depth=4)\n    return made.step, made.batches[0]\n"
    )
    monkeypatch.chdir(tmp_path)
    figures = []
    for flag in ("--offload", "--no-offload"):
        options = ["away:small", "--budget", "330kB", "--device", "h200", "--time-limit", "1", flag, "--json"]
        result = CliRunner().invoke(APP, options)
        assert result.exit_code == 0, result.output
        figures.append(json.loads(result.stdout))
    assert figures[0]["offloaded"] > 0 == figures[1]["offloaded"]
    assert figures[0]["cost"] <= figures[1]["cost"]
    assert (figures[0]["status"], figures[0]["gap"]) == ("optimal", 0)


def step_file(folder, monkeypatch):
    (folder / "one.py").write_text(
        "import torch_models as models\n"
        "def small():\n    made = models.mlp(depth=4)\n    return made.step, made.batches[0]\n"
    )
    monkeypatch.chdir(folder)


@pytest.mark.slow
def test_a_share_is_of_what_the_step_holds_without_a_limit(tmp_path, monkeypatch):
    step_file(tmp_path, monkeypatch)
    common = ["one.py:small", "--device", "cpu", "--time-limit", "1"]
    free, half = (
        json.loads(CliRunner().invoke(APP, [*common, *more, "--json"]).stdout) for more in ([], ["--budget", "85%"])
    )
    assert free["unplanned_peak"] == free["peak"] == half["unplanned_peak"]
    assert half["budget"] == int(0.85 * free["peak"])
    assert half["peak"] <= half["budget"]
    assert half["headline"].startswith(f"{free['peak']:,} -> {half['peak']:,} bytes, +")
    table = CliRunner().invoke(APP, [*common, "--budget", "85%", "--report", "step.html"]).stdout
    for words in ("without a limit", "recomputed", f"{free['peak']:,} bytes"):
        assert words in table
    # Kernels are timed again, so this plan may be another one; its headline is of its own peak.
    (peak,) = re.findall(rf"{free['peak']:,} -> ([\d,]+) bytes, \+", table)
    assert int(peak.replace(",", "")) <= half["budget"]
    assert f"{peak} bytes" in table
    assert "85%" not in table
    assert "<!doctype html>" in (tmp_path / "step.html").read_text()


def test_what_is_no_budget_is_refused_before_the_step_is_looked_at():
    for budget in ("12XB", "0%", "101%", "many"):
        result = CliRunner().invoke(APP, ["no_such_file.py:step", "--budget", budget])
        assert result.exit_code != 0
        assert str(result.exception).startswith("budget: expected")
