"""Budgets as people write them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

import pebbler.torch as pt  # noqa: E402
import torch_models as models  # noqa: E402
from pebbler.errors import InputError  # noqa: E402


@pytest.mark.parametrize("budget", ["much", "-1GiB", "0", "3 parsec"])
def test_budgets_that_are_none(budget):
    training = models.mlp(depth=2, batch=16)
    with pytest.raises(InputError, match="budget: expected bytes such as 6GiB"):
        pt.plan(training.step, training.batches[0], device="cpu", budget=budget)
