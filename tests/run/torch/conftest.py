"""PyTorch is an optional extra: without it these tests are skipped, and say so."""

from __future__ import annotations

import importlib.util

import pytest

collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["test_*.py", "*/test_*.py"]


@pytest.fixture(autouse=True)
def one_thread():
    """Sums over threads are added in any order; bits can only be compared on one."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def deep():
    """A step, and a budget that making values again cannot keep."""
    import pebbler.torch as pt
    import torch_models as models

    training = models.mlp(depth=6)
    captured = pt.capture(training.step, *training.batches[0])
    return training, captured, pt.least_budget(captured, pt.roofline(captured, "cpu"), offload=True)[1]


@pytest.fixture
def graphs(monkeypatch):
    """The graphs that the backend plans during a test, in order; each test begins with nothing compiled."""
    import torch

    from pebbler.run.torch.backend import dynamo_backend, step_budget

    seen = []

    class Seen(dynamo_backend.PlannedGraph):
        def __init__(self, *args):
            super().__init__(*args)
            seen.append(self)

    monkeypatch.setattr(dynamo_backend, "PlannedGraph", Seen)
    monkeypatch.setattr(step_budget, "_BUDGETS", {})
    torch._dynamo.reset()
    yield seen
    torch._dynamo.reset()
