"""Measuring leaves a training loop alone."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

import pebbler.torch as pt  # noqa: E402
import torch_models as models  # noqa: E402


def test_planning_and_compiling_leave_the_random_numbers_of_a_training_loop_alone():
    training = models.normed(depth=1)
    torch.manual_seed(3)
    wanted = torch.rand(1)
    torch.manual_seed(3)
    pt.profile(pt.capture(training.step, *training.batches[0]), repeats=1)
    assert torch.equal(torch.rand(1), wanted)
