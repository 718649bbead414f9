"""Capturing changes nothing, and refuses what no plan can repeat, with the place and the reason."""

from __future__ import annotations

import cProfile

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

import pebbler.torch as pt  # noqa: E402
import torch_models as models  # noqa: E402
from pebbler.errors import InputError  # noqa: E402

WEIGHT = torch.ones(4, requires_grad=True)


def branching(x):
    return x * 2 if (x * WEIGHT).sum() > 0 else x


def looking(x):
    return x * x.max().item()


def choosing(x):
    return x[x > 0]


def keeping(x, kept={}):  # noqa: B006
    kept["sum"] = x.sum() + kept.get("sum", 0)
    return kept["sum"]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (branching, r"test_captured.py:\d+: the step looks at the value of a tensor"),
        (looking, r"test_captured.py:\d+: the step looks at the value of a tensor"),
        (choosing, r"test_captured.py:\d+: the shape of the result of aten.nonzero.default depends on values"),
        (
            keeping,
            r"test_captured.py:\d+: the step uses a tensor that an earlier step made .*keeping\(kept=\)\['sum'\]",
        ),
        (lambda x: x.to_sparse() * 2, "only plain strided tensors are supported, got layout torch.sparse_coo"),
    ],
)
def test_steps_that_cannot_be_planned(step, message):
    with pytest.raises(InputError, match=message):
        pt.capture(step, torch.ones(4))


def test_an_operator_without_a_shape_function():
    @torch.library.custom_op("pebbler_test::opaque", mutates_args=())
    def opaque(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    with pytest.raises(InputError, match=r"operator pebbler_test.opaque.default has no shape function"):
        pt.capture(lambda x: opaque(x), torch.ones(4))


def test_capturing_changes_nothing():
    training = models.mlp(depth=2, batch=16)
    training.step(*training.batches[0])
    before = [tensor.clone() for tensor in training.tensors()]
    state = torch.get_rng_state()
    pt.capture(training.step, *training.batches[0])
    assert all(torch.equal(a, b) for a, b in zip(before, training.tensors(), strict=True))
    assert torch.equal(state, torch.get_rng_state())
    assert training.optimizer.param_groups[0]["lr"] == training.rate


def test_more_python_objects_than_can_be_watched_are_refused_by_name(monkeypatch):
    monkeypatch.setattr("pebbler.run.torch.capture.python_state._MOST_OBJECTS", 600)
    rows = [[float(i)] for i in range(700)]
    with pytest.raises(InputError, match=r"can reach more than 600 Python objects, the next at .*rows"):
        pt.capture(lambda x: x * rows[-1][0], torch.ones(2))


def test_a_step_is_captured_while_a_profiler_runs():
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        captured = pt.capture(lambda x: (x * 2).sum(), torch.ones(4))
        sorted(range(3))
    finally:
        profiler.disable()
    assert len(captured.graph.ops) == 2
    assert any("sorted" in str(entry.code) for entry in profiler.getstats())
