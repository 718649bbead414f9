"""The command prints what the library returns, and writes a plan that the referee accepts."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

import typer  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

import pebbler.torch as pt  # noqa: E402
import torch_models as models  # noqa: E402
from pebbler import check  # noqa: E402
from pebbler.cli.torch import torch as command  # noqa: E402
from pebbler.errors import InputError  # noqa: E402
from pebbler.game.plan import Plan  # noqa: E402

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


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("json:loads_", "has no function"),
        ("nowhere_at_all:x", "cannot be imported"),
        ("json", "expected module:function"),
    ],
)
def test_names_that_lead_nowhere(name, message):
    with pytest.raises(InputError, match=message):
        pt.load_step(name)


def test_dead_operands_of_the_backward_pass_are_written_over():
    weight = torch.randn(64, 1000, requires_grad=True)

    def step(x, y):
        loss = torch.nn.functional.cross_entropy(x @ weight, y)
        loss.backward()
        with torch.no_grad():
            weight.sub_(weight.grad)
        weight.grad = None
        return loss

    captured = pt.capture(step, torch.randn(32, 64), torch.zeros(32, dtype=torch.long))
    calls = {str(call.func) for group in captured.phases[-1].groups for call in group.calls}
    assert {"aten._log_softmax.out", "aten._log_softmax_backward_data.out"} <= calls
    logits = 32 * 1000 * 4
    state = (64 * 1000 + 32 * 64) * 4 + 32 * 8
    assert pt.plan_captured(captured, pt.roofline(captured, "cpu")).peak < state + 2.1 * logits + 64 * 1000 * 4
