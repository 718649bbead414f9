"""A plan runs for the step, shapes and settings it was made for, and for nothing else."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

import pebbler.torch as pt  # noqa: E402
import torch_models as models  # noqa: E402
from pebbler.errors import InputError  # noqa: E402


@pytest.fixture(scope="module")
def planned():
    training = models.mlp(depth=2, batch=16)
    return training, pt.plan(training.step, training.batches[0], device="cpu")


def test_another_shape(planned):
    training, plan = planned
    step = pt.compile(plan, training.step)
    with pytest.raises(InputError, match=r"argument 0: the plan is for float32\[16, 32\] on cpu, got float32\[8, 32\]"):
        step(torch.ones(8, 32), torch.zeros(8, dtype=torch.long))
    with pytest.raises(InputError, match="the plan is for strides"):
        step(torch.ones(32, 16).t(), torch.zeros(16, dtype=torch.long))
    with pytest.raises(InputError, match="the plan is for arguments of the structure"):
        step(torch.ones(16, 32))


def test_another_model(planned, tmp_path):
    _, plan = planned
    plan.save(tmp_path / "plan.json")
    other = models.mlp(depth=3, batch=16)
    step = pt.compile(pt.TorchPlan.load(tmp_path / "plan.json"), other.step)
    with pytest.raises(InputError, match="the plan is for another step"):
        step(*other.batches[0])


def test_changed_settings_are_refused_and_a_changed_rate_is_not(planned):
    training, plan = planned
    training.reset()
    step = pt.compile(plan, training.step)
    training.optimizer.param_groups[0]["lr"] = 0.05
    step(*training.batches[0])
    training.optimizer.param_groups[0]["momentum"] = 0.5
    step(*training.batches[0])
    for key, value in (("momentum", 0.0), ("dampening", 0.5)):
        before = training.optimizer.param_groups[0][key]
        training.optimizer.param_groups[0][key] = value
        with pytest.raises(InputError, match=f"optimizer 0: {key} changed since the step was captured"):
            step(*training.batches[0])
        training.optimizer.param_groups[0][key] = before


def test_state_that_was_there_at_capture_and_is_gone():
    training = models.mlp(depth=2, batch=16)
    training.step(*training.batches[0])
    fast = pt.compile(pt.plan(training.step, training.batches[0], device="cpu"), training.step)
    training.optimizer.state.clear()
    with pytest.raises(InputError, match="that were there when the step was captured; plan again"):
        fast(*training.batches[0])
