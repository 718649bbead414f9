"""A planned step trains exactly as the step does, within the budget it was planned for."""

from __future__ import annotations

import copy
import importlib.util

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

from torch import nn  # noqa: E402

import pebbler.torch as pt  # noqa: E402
import torch_models as models  # noqa: E402
from pebbler.solver.problem import Impossible  # noqa: E402
from pebbler.torch import TorchPlan  # noqa: E402
from quick_cases import quick_only  # noqa: E402

STEPS = 12


def train(training, step, steps=STEPS):
    """Return the losses, the state and the most bytes held, with a smaller learning rate from the tenth step on."""
    losses, peaks = [], []
    for number in range(steps):
        batch = training.batches[number % len(training.batches)]
        if number == 10:
            training.optimizer.param_groups[0]["lr"] *= 0.5
        if number in (0, 1, steps - 1):
            resident = training.resident()
            loss, peak = pt.measure_peak(step, *batch)
            peaks.append(peak + resident)
        else:
            loss = step(*batch)
        losses.append(loss.item())
    return losses, [tensor.clone() for tensor in training.tensors()], max(peaks)


@pytest.mark.slow
@pytest.mark.parametrize("name", quick_only(["mlp", "resnet"], ["mlp", "resnet", "gpt2", "lstm"]))
def test_every_budget_trains_bit_for_bit_and_is_kept(name):
    if name == "gpt2" and importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed: pip install transformers")
    training = getattr(models, name)()
    training.reset()
    losses, state, eager = train(training, training.step)
    training.reset()
    captured = pt.capture(training.step, *training.batches[0])
    costs = pt.profile(captured, repeats=1)
    lower, least = pt.least_budget(captured, costs, time_limit=0.5)
    previous = None
    for share in (None, 0.6, 0.3):
        budget = None if share is None else max(int(share * eager), least)
        plan = pt.plan_captured(captured, costs, budget=budget, time_limit=0.3)
        assert all(judgement.legal for judgement in plan.judge())
        assert budget is None or plan.peak <= budget
        training.reset()
        planned_losses, planned_state, peak = train(training, pt.compile(plan, training.step, verify="never"))
        assert planned_losses == losses
        assert len(planned_state) == len(state)
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(planned_state, state, strict=True))
        assert peak <= plan.peak
        assert previous is None or peak <= previous
        previous = peak
    assert lower <= least
    assert peak <= max(0.35 * eager, least)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"momentum": 0.0}, marks=pytest.mark.slow),
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    ],
)
def test_sgd_variants(options):
    same_as_eager(models.mlp(depth=3, batch=16, **options))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("Adam", {"foreach": True}),
        ("AdamW", {"fused": True}),
        ("Adam", {"foreach": False, "amsgrad": True}),
        *(
            pytest.param(kind, options, marks=pytest.mark.slow)
            for kind, options in (
                ("AdamW", {"foreach": True}),
                ("Adam", {"fused": True}),
                ("AdamW", {"foreach": False, "amsgrad": True}),
            )
        ),
    ],
)
def test_adam_variants(kind, options):
    training = models.mlp(depth=3, batch=16)
    training.optimizer = getattr(torch.optim, kind)(training.model.parameters(), lr=0.01, weight_decay=0.1, **options)
    training.rate = 0.01
    same_as_eager(training)


def same_as_eager(training):
    training.reset()
    losses, state, _ = train(training, training.step)
    training.reset()
    plan = pt.plan(training.step, training.batches[0], device="cpu", budget="1MB", time_limit=0.3)
    planned_losses, planned_state, _ = train(training, pt.compile(plan, training.step, verify="first"))
    assert planned_losses == losses
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(planned_state, state, strict=True))


def test_batch_norm_and_dropout_under_autocast():
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.SiLU(),
        nn.Dropout2d(0.1),
        nn.Flatten(),
        nn.Linear(512, 4),
    ]
    model = nn.Sequential(*layers)

    def loss(model, x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return nn.functional.cross_entropy(model(x), y)

    batches = [(torch.randn(4, 3, 8, 8), torch.randint(4, (4,))) for _ in range(2)]
    same_as_eager(models.Training(model, torch.optim.SGD(model.parameters(), lr=0.1), loss, batches))


def test_a_fused_lstm_counts_the_workspace_that_no_shape_tells():
    training = models.lstm(fused=True)
    training.reset()
    losses, _, eager = train(training, training.step)
    training.reset()
    plan = pt.plan(training.step, training.batches[0], time_limit=0.3)
    planned_losses, _, peak = train(training, pt.compile(plan, training.step, verify="never"))
    assert planned_losses == losses
    assert 0.9 * eager < peak <= plan.peak


def test_a_learning_rate_in_a_tensor_is_read_in_every_step():
    training = models.mlp(depth=2, batch=16)
    training.optimizer = torch.optim.Adam(training.model.parameters(), lr=torch.tensor(0.01))
    results = []
    for planned in (False, True):
        training.reset()
        training.optimizer.param_groups[0]["lr"] = torch.tensor(0.01)
        step = training.step
        if planned:
            step = pt.compile(pt.plan(step, training.batches[0], device="cpu"), step)
        for number in range(6):
            if number == 3:
                training.optimizer.param_groups[0]["lr"].mul_(0.1)
            step(*training.batches[0])
        results.append([tensor.clone() for tensor in training.tensors()])
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*results, strict=True))


def test_gradient_accumulation_outside_and_inside_the_step():
    training = models.mlp(depth=2, batch=16)

    def micro(x, y):
        loss = training.loss(training.model, x, y) / 2
        loss.backward()
        return loss

    def both(x, y):
        training.optimizer.zero_grad()
        losses = [training.loss(training.model, a, b) / 2 for a, b in zip(x, y, strict=True)]
        for loss in losses:
            loss.backward()
        training.optimizer.step()
        return losses

    def outside(step):
        for _ in range(4):
            for batch in training.batches[:2]:
                step(*batch)
            training.optimizer.step()
            training.optimizer.zero_grad()

    pair = [list(parts) for parts in zip(*training.batches[:2], strict=True)]
    results = []
    for planned in (False, True):
        for step, args, loop in (
            (micro, training.batches[0], outside),
            (both, pair, lambda step: [step(*pair) for _ in range(4)]),
        ):
            training.reset()
            if planned:
                step = pt.compile(pt.plan(step, args, device="cpu"), step)
            loop(step)
            results.append([tensor.clone() for tensor in training.tensors()])
    for eager, ours in ((0, 2), (1, 3)):
        assert all(torch.equal(a, b) for a, b in zip(results[eager], results[ours], strict=True))


def test_state_loaded_between_steps_is_used():
    training = models.mlp(depth=2, batch=16)
    step = pt.compile(pt.plan(training.step, training.batches[0], device="cpu"), training.step)
    training.reset()
    step(*training.batches[0])
    saved = copy.deepcopy(training.optimizer.state_dict())
    weights = {name: value.clone() for name, value in training.model.state_dict().items()}
    step(*training.batches[1])
    after = [tensor.clone() for tensor in training.tensors()]
    training.model.load_state_dict(weights)
    training.optimizer.load_state_dict(saved)
    step(*training.batches[1])
    assert all(torch.equal(a, b) for a, b in zip(after, training.tensors(), strict=True))


def test_a_saved_plan_runs_in_a_fresh_process_of_the_same_step(tmp_path):
    training = models.mlp(depth=4)
    plan = pt.plan(training.step, training.batches[0], device="cpu", budget="380kB", time_limit=0.5)
    plan.save(tmp_path / "plan.json")
    loaded = TorchPlan.load(tmp_path / "plan.json")
    assert loaded == plan
    assert loaded.recomputed == plan.recomputed > 0
    again = models.mlp(depth=4)
    again.reset()
    step = pt.compile(loaded, again.step)
    ours = [step(*batch).item() for batch in again.batches]
    training.reset()
    assert ours == [training.step(*batch).item() for batch in training.batches]
    assert "aten" in step.code


@pytest.mark.slow
def test_a_budget_too_small_says_what_would_do():
    training = models.mlp(depth=4)
    with pytest.raises(
        Impossible, match=r"no plan fits 100,000 bytes\. [\d,]+ bytes works; below [\d,]+ bytes nothing can: "
    ):
        pt.plan(training.step, training.batches[0], device="cpu", budget=100_000, time_limit=0.3)
