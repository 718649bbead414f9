"""What no plan can promise is refused, with the place and the reason."""

from __future__ import annotations

import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

import pebbler.torch as pt  # noqa: E402
import torch_models as models  # noqa: E402
from pebbler.errors import InputError, PebblerError  # noqa: E402

WEIGHT = torch.ones(4, requires_grad=True)


def branching(x):
    return x * 2 if x.sum() > 0 else x


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
        (branching, r"test_refusals.py:\d+: the step looks at the value of a tensor"),
        (looking, r"test_refusals.py:\d+: the step looks at the value of a tensor"),
        (choosing, r"test_refusals.py:\d+: the shape of the result of aten.nonzero.default depends on values"),
        (keeping, "uses a tensor that an earlier step made"),
        (lambda x: x.view(torch.int32) + 1, "viewing a tensor as another dtype"),
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
    with pytest.raises(InputError, match="optimizer 0: momentum changed since the step was captured"):
        step(*training.batches[0])
    training.optimizer.param_groups[0]["momentum"] = 0.9


def test_capturing_changes_nothing():
    training = models.mlp(depth=2, batch=16)
    training.step(*training.batches[0])
    before = [tensor.clone() for tensor in training.tensors()]
    state = torch.get_rng_state()
    pt.capture(training.step, *training.batches[0])
    assert all(torch.equal(a, b) for a, b in zip(before, training.tensors(), strict=True))
    assert torch.equal(state, torch.get_rng_state())
    assert training.optimizer.param_groups[0]["lr"] == training.rate


@pytest.mark.parametrize("budget", ["much", "-1GiB", "0", "3 parsec"])
def test_budgets_that_are_none(planned, budget):
    training, _ = planned
    with pytest.raises(InputError, match="budget: expected bytes such as 6GiB"):
        pt.plan(training.step, training.batches[0], device="cpu", budget=budget)


def test_without_torch_the_message_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("pebbler.torch")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(PebblerError, match=r"pip install 'pebbler\[torch\]'"):
        import pebbler.torch  # noqa: F401
