"""PyTorch steps in sweeps: the plans are those of `pt.plan`, they can be run, and no worker needs the step's code."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

pytest.importorskip("torch")

import pebbler as pb
import pebbler.torch as pt
from pebbler.sweeps.solve_task import TaskResult
from pebbler.sweeps.step_task import solve_step_task
from pebbler.sweeps.sweep import sweep

STEP = """
import torch
from torch import nn

def training():
    torch.manual_seed(0)
    model = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(16, 16), nn.GELU())])
    rule = torch.optim.SGD(model.parameters(), lr=0.1)
    def step(x):
        rule.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        rule.step()
        return loss
    return step, (torch.randn(64, 16),)
"""


@pytest.fixture
def step(tmp_path) -> str:
    (tmp_path / "swept_training.py").write_text(STEP)
    return f"{tmp_path}/swept_training.py:training"


def test_budgets_are_shares_of_program_orders_peak(step):
    runs = sweep.runs(step, budget=["100%", "80%"], device="h200", objective=["time", "energy"], time_limit=5)
    function, arguments = pt.load_step(step)
    free = pt.plan(function, arguments, device="h200")
    assert [run.columns["capacity"] for run in runs[::2]] == [free.peak, -(-free.peak * 4 // 5)]
    assert [run.columns["objective"] for run in runs[:2]] == ["time", "energy"]
    again = sweep.runs(step, budget=["100%", "80%"], device="h200", objective=["time", "energy"], time_limit=5)
    assert [run.key for run in again] == [run.key for run in runs]  # captured anew, and yet the same


@pytest.mark.parametrize("offload", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_run_is_what_plan_gives(step, offload, tmp_path):
    function, arguments = pt.load_step(step)
    free = pt.plan(function, arguments, device="h200")
    budget = int(free.peak * 0.9)
    (run,) = sweep.runs(step, budget=budget, device="h200", offload=offload, time_limit=20)
    result = msgspec.msgpack.decode(solve_step_task(run.payload()), type=TaskResult)
    made = pt.plan(function, arguments, device="h200", budget=budget, offload=offload, time_limit=20)
    figures = result.figures
    assert (figures["energy"], figures["peak"], figures["status"]) == (made.cost * 1e9, made.peak, made.status)
    assert figures["step_seconds"] == made.cost
    by_energy = pt.plan(
        function, arguments, device="h200", budget=budget, offload=offload, objective="energy", time_limit=20
    )
    assert by_energy.bound <= figures["step_joules"]
    Path(tmp_path, "plan.json").write_bytes(result.plan)
    assert pb.check(pb.Plan.load(tmp_path / "plan.json")).legal
    loaded = pt.TorchPlan.load(tmp_path / "plan.json")
    assert loaded.budget == budget
    fast, (batch,) = pt.compile(loaded, function), arguments
    other, (same,) = pt.load_step(step)
    assert [fast(batch).item() for _ in range(3)] == [other(same).item() for _ in range(3)]


def test_too_small_a_budget_is_a_row(step):
    (run,) = sweep.runs(step, budget=5000, device="h200", time_limit=5)
    figures = msgspec.msgpack.decode(solve_step_task(run.payload()), type=TaskResult).figures
    assert figures["status"] == "impossible"
    assert "works, and less cannot" in figures["error"]


def test_quick_is_not_for_steps(step):
    with pytest.raises(pb.InputError, match="leave out quick"):
        sweep.runs(step, quick=True)
