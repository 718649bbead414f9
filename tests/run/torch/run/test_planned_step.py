"""The door for training loops: plans by shape, plans from disk, eager where no plan is possible, no budget broken in silence."""

from __future__ import annotations

import copy
import json
import warnings
from collections import UserDict
from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

import pebbler.torch as pt  # noqa: E402
import torch_models as models  # noqa: E402
from pebbler.errors import InputError, PebblerError  # noqa: E402
from pebbler.run.torch.capture.forgotten_gradients import ForgottenGradient  # noqa: E402
from pebbler.solver.problem import Impossible  # noqa: E402


@dataclass
class Batch:
    x: torch.Tensor
    y: torch.Tensor
    name: str = "batch"


def state_of(training):
    return [tensor.clone() for tensor in training.tensors()]


def same_training(training, step, fast, calls):
    """Run the calls with both; return whether losses and state are the same bit for bit."""
    training.reset()
    losses, state = [step(*args, **kwargs).item() for args, kwargs in calls], state_of(training)
    training.reset()
    ours = [fast(*args, **kwargs).item() for args, kwargs in calls]
    return ours == losses and all(torch.equal(a, b) for a, b in zip(state_of(training), state, strict=True))


def small():
    return models.mlp(depth=2, batch=16)


def silent(function, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return function(*args)


@pytest.mark.parametrize("make", [models.mlp, pytest.param(models.resnet, marks=pytest.mark.slow)])
def test_every_shape_gets_a_plan_of_its_own(make):
    training = make()
    (x, y), *_ = training.batches
    calls = [((x[:n], y[:n]), {}) for n in (8, 8, 5, 8, 5)]
    fast = pt.step(training.step, device="cpu")
    assert silent(same_training, training, training.step, fast, calls)
    assert len(fast.plans) == 2
    assert "2 plans" in repr(fast)


def test_any_batch_that_people_pass():
    training = models.mlp(depth=2, batch=16)

    def step(batch, *, scale=1.0, extra=None):
        inside = batch if isinstance(batch, Batch) else Batch(**batch)
        training.optimizer.zero_grad()
        loss = scale * training.loss(training.model, inside.x, inside.y)
        loss = loss if extra is None else loss + extra[0].mean() * extra[1].mean()
        loss.backward()
        training.optimizer.step()
        return loss

    (x, y), (x2, y2), *_ = training.batches
    calls = [
        ((Batch(x, y),), {}),
        ((Batch(x2, y2),), {}),
        (({"x": x, "y": y},), {"scale": 2.0}),
        ((UserDict(x=x2, y=y2),), {"scale": 2.0}),
        ((Batch(x, y),), {"extra": (x, x)}),  # the same tensor three times
        ((Batch(x2, y2),), {"extra": (x2, x)}),  # and not the same
        ((Batch(x2, y2),), {"extra": [x2, x2]}),
    ]
    fast = pt.step(step, device="cpu")
    assert silent(same_training, training, step, fast, calls)
    assert len(fast.plans) == 6


def test_plans_are_kept_on_disk_and_survive_a_resume(tmp_path, monkeypatch):
    training = small()
    fast = pt.step(training.step, device="cpu", cache=tmp_path / "plans")
    training.reset()
    losses = [fast(*batch).item() for batch in training.batches]
    (file,) = (tmp_path / "plans").iterdir()
    saved = copy.deepcopy((training.model.state_dict(), training.optimizer.state_dict()))
    expected = [fast(*batch).item() for batch in training.batches]

    def no_planning(*args, **options):
        raise AssertionError("planned again")

    # A new process: first from the start, then from a checkpoint, where the optimizer has state before the first step.
    monkeypatch.setattr("pebbler.run.torch.run.planned_step.plan_captured", no_planning)
    for resumed in (False, True):
        again = small()
        again.reset()
        if resumed:
            again.model.load_state_dict(saved[0])
            again.optimizer.load_state_dict(saved[1])
        later = pt.step(again.step, device="cpu", cache=tmp_path / "plans", strict=True)
        ours = [later(*batch).item() for batch in again.batches]
        assert (len(ours), len(later.plans)) == (len(losses), 1)
        assert resumed or ours == losses
    assert expected
    # Another budget, another plan; and a damaged file is no plan.
    other = pt.step(again.step, device="cpu", cache=tmp_path / "plans", budget="8MiB", strict=True)
    with pytest.raises(AssertionError, match="planned again"):
        other(*again.batches[0])
    file.write_text(file.read_text()[:-40])
    with pytest.warns(UserWarning, match="left aside"), pytest.raises(AssertionError, match="planned again"):
        pt.step(small().step, device="cpu", cache=tmp_path / "plans", strict=True)(*again.batches[0])


def test_a_plan_that_was_saved_before_is_taken_after_the_optimizer_state_was_loaded(tmp_path):
    training = models.resnet()
    training.reset()
    pt.plan(training.step, training.batches[0], device="cpu").save(tmp_path / "plan.json")
    for batch in training.batches[:2]:
        training.step(*batch)
    saved = copy.deepcopy((training.model.state_dict(), training.optimizer.state_dict()))
    again = models.resnet()
    again.model.load_state_dict(saved[0])
    again.optimizer.load_state_dict(saved[1])
    expected = [training.step(*batch).item() for batch in training.batches]
    fast = pt.compile(pt.TorchPlan.load(tmp_path / "plan.json"), again.step)
    assert [fast(*batch).item() for batch in again.batches] == expected


def test_what_cannot_be_planned_runs_as_it_is_and_says_so_once():
    training = models.mlp(depth=1, batch=16)

    def step(x, y):
        loss = training.step(x, y)
        return loss if loss.item() > 0 else loss * 2

    calls = [(batch, {}) for batch in training.batches]
    fast = pt.step(step, device="cpu")
    with pytest.warns(UserWarning, match=r"runs as it is, without a plan: .*test_planned_step.py:\d+") as seen:
        assert same_training(training, step, fast, calls)
    assert len(seen) == 1
    with pytest.raises(InputError, match="looks at the value of a tensor"):
        pt.step(step, device="cpu", strict=True)(*training.batches[0])


def test_a_budget_that_no_plan_keeps_is_never_passed_over():
    training = models.mlp(depth=1, batch=16)
    training.reset()
    before = state_of(training)
    with pytest.raises(Impossible):
        pt.step(training.step, device="cpu", budget="10kB")(*training.batches[0])
    assert all(torch.equal(a, b) for a, b in zip(state_of(training), before, strict=True))


def test_settings_that_change_between_calls_are_planned_for():
    training = models.mlp(depth=2, batch=16)
    training.reset()

    def run(step):
        training.reset()
        losses = []
        for dampening in (0.0, 0.5, 0.0):
            training.optimizer.param_groups[0]["dampening"] = dampening
            losses += [step(*batch).item() for batch in training.batches[:2]]
        return losses, state_of(training)

    losses, state = run(training.step)
    fast = pt.step(training.step, device="cpu", strict=True)
    ours, ours_state = run(fast)
    assert ours == losses
    assert all(torch.equal(a, b) for a, b in zip(ours_state, state, strict=True))
    assert len(fast.plans) == 2  # the third time the first plan fits again


def test_numbers_that_change_in_every_call_end_in_a_warning(monkeypatch):
    monkeypatch.setattr("pebbler.run.torch.run.planned_step._MOST_PLANS", 3)
    training = models.mlp(depth=1, batch=8)

    def step(x, y, scale):
        training.optimizer.zero_grad()
        loss = scale * training.loss(training.model, x, y)
        loss.backward()
        training.optimizer.step()
        return loss

    fast = pt.step(step, device="cpu", verify="never")
    for number in range(3):
        silent(fast, *training.batches[0], 1.0 + number)
    with pytest.warns(UserWarning, match="pass numbers that change as tensors"):
        fast(*training.batches[0], 100.0)
    assert len(fast.plans) == 3


def test_gradients_are_kept_where_asked():
    training = models.mlp(depth=2, batch=16)
    for keep in (False, True):
        training.reset()
        training.step(*training.batches[0])
        expected = [p.grad.clone() for p in training.model.parameters()]
        training.reset()
        fast = pt.step(training.step, device="cpu", keep_grads=keep)
        for _ in range(2):
            training.reset()
            fast(*training.batches[0])
            grads = [p.grad for p in training.model.parameters()]
            if keep:
                assert all(torch.equal(a, b) for a, b in zip(grads, expected, strict=True))
            else:
                assert all(isinstance(grad, ForgottenGradient) for grad in grads)


def test_wrong_options():
    for options, message in [
        ({"kernel": "exact"}, "unknown option kernel"),
        ({"kernels": "fast"}, "kernels must be exact or compiled"),
        ({"objective": "money"}, "objective must be time or energy"),
        ({"verify": "sometimes"}, "verify must be"),
        ({"budget": "lots"}, "expected bytes"),
        ({"budget": 1.5}, "expected whole bytes"),
        ({"budget": "1.5"}, "expected whole bytes"),
        ({"budget": True}, "expected bytes"),
        ({"budget": -5}, "expected bytes"),
        ({"device": "h2000"}, "unknown device h2000"),
        ({"device": 5}, "device must be"),
        ({"time_limit": -1}, "time_limit must be"),
        ({"time_limit": "long"}, "time_limit must be"),
        ({"time_limit": float("nan")}, "time_limit must be"),
        ({"offload": "yes"}, "offload must be"),
        ({"seed": 1.5}, "seed must be"),
        ({"cache": 5}, "cache must be a folder"),
    ]:
        for budget in ({}, {"budget": "1MiB"}):
            with pytest.raises(InputError, match=message):
                pt.step(print, **{**budget, **options})
    with pytest.raises(InputError, match="expected a function"):
        pt.step(5)


def test_a_folder_that_cannot_be_written_is_no_reason_to_train_without_a_plan(tmp_path):
    (tmp_path / "plans").write_text("this is a file")
    training = small()
    fast = pt.step(training.step, device="cpu", budget="8MiB", time_limit=0.1, cache=tmp_path / "plans")
    with pytest.warns(UserWarning, match="could not be kept on disk"):
        fast(*training.batches[0])
    assert len(fast.plans) == 1


def test_a_cached_plan_is_json_that_the_commands_read(tmp_path):
    training = models.mlp(depth=1, batch=8)
    pt.step(training.step, device="cpu", cache=tmp_path)(*training.batches[0])
    (file,) = tmp_path.iterdir()
    assert "moves" in json.loads(file.read_text())


def test_gradients_that_were_not_kept_are_missed():
    """Calls that throw old gradients away leave none; a call that adds to them says so instead of training otherwise."""

    class Trainer:
        def __init__(self):
            torch.manual_seed(0)
            self.model, self.adds = torch.nn.Linear(4, 2), False
            self.rule = torch.optim.SGD(self.model.parameters(), 0.1)

        def step(self, x):
            if not self.adds:
                self.rule.zero_grad()
            loss = self.model(x).square().mean()
            loss.backward()
            self.rule.step()
            return loss

    def train(step, trainer):
        losses = []
        for number in range(6):
            trainer.adds = number % 3 != 0
            losses.append(step(torch.ones(3, 4) * number).item())
        return losses

    trainer = Trainer()
    eager = train(trainer.step, trainer)
    trainer = Trainer()
    with pytest.raises(PebblerError, match="keep_grads=True"):
        train(pt.step(trainer.step, device="cpu"), trainer)
    trainer = Trainer()
    fast = pt.step(trainer.step, device="cpu", keep_grads=True, strict=True)
    assert train(fast, trainer) == eager
    assert len(fast.plans) == 2
    # Also where the plan that adds was there first.
    trainer = Trainer()
    fast = pt.step(trainer.step, device="cpu", strict=True)
    trainer.adds = True
    fast(torch.ones(3, 4))
    fast(torch.ones(3, 4))
    trainer.adds = False
    fast(torch.ones(3, 4))
    trainer.adds = True
    with pytest.raises(PebblerError, match="keep_grads=True"):
        fast(torch.ones(3, 4))


@pytest.mark.slow
def test_more_branches_than_plans_run_as_they_are(monkeypatch):
    """Known branches keep their plans, others train as the step does, and that is said once."""
    monkeypatch.setattr("pebbler.run.torch.run.planned_step._MOST_PLANS", 2)

    def train(wrap):
        torch.manual_seed(0)
        layers = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(3)])
        rule = torch.optim.AdamW(layers.parameters(), 0.1)

        def step(x):
            rule.zero_grad()
            for layer in layers:
                if torch.rand([]) >= 0.4:
                    x = x + torch.nn.functional.dropout(layer(x), 0.3)
            loss = x.square().mean() + sum(param.sum() for param in layers.parameters()) * 0
            loss.backward()
            rule.step()
            return loss

        fast = wrap(step)
        losses = [fast(torch.ones(3, 4) * number).item() for number in range(12)]
        return [*losses, *(param.sum().item() for param in layers.parameters()), torch.rand(1).item()], fast

    eager, _ = train(lambda step: step)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        ours, fast = train(lambda step: pt.step(step, device="cpu", budget="1MB"))
    assert ours == eager
    assert len(fast.plans) == 2
    assert ["2 plans were made" in str(warning.message) for warning in said] == [True]
    with pytest.raises(InputError, match="2 plans were made"):
        train(lambda step: pt.step(step, device="cpu", strict=True))


def linear():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    return model, torch.optim.SGD(model.parameters(), 0.1)


def stepped(model, rule, x):
    rule.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    rule.step()
    return loss


def test_an_argument_that_is_never_read_uses_up_no_plans():
    model, rule = linear()

    class Trainer:
        def step(self, x, index, *, epoch=0):
            return stepped(model, rule, x)

        def __call__(self, x, index):
            return stepped(model, rule, x)

    def plain(x, index):
        return stepped(model, rule, x)

    def reads(x, index):
        return stepped(model, rule, x), locals()["index"]

    for function in (plain, Trainer().step, Trainer()):
        fast = pt.step(function, device="cpu", strict=True, time_limit=0)
        for number in range(20):
            silent(fast, torch.ones(3, 4), number)
        assert len(fast.plans) == 1
    fast = pt.step(Trainer().step, device="cpu", strict=True, time_limit=0)
    for number in range(20):
        silent(lambda n: fast(torch.ones(3, 4), index=n, epoch=n // 3), number)
    assert len(fast.plans) == 1
    # One that is read is another step for every value.
    fast = pt.step(reads, device="cpu", strict=True, time_limit=0)
    assert [fast(torch.ones(3, 4), number)[1] for number in range(3)] == [0, 1, 2]
    assert len(fast.plans) == 3


def test_a_copy_of_a_used_step_plans_for_itself():
    class Trainer:
        def __init__(self):
            self.model, self.rule = linear()
            self.fast = pt.step(self.step, device="cpu", strict=True, time_limit=0)

        def step(self, x):
            return stepped(self.model, self.rule, x)

    trainer = Trainer()
    trainer.fast(torch.ones(3, 4))
    other = copy.deepcopy(trainer)
    assert other.fast.plans == []
    weights = trainer.model.weight.clone()
    losses = [other.fast(torch.ones(3, 4)).item() for _ in range(3)]
    assert torch.equal(trainer.model.weight, weights)
    assert [trainer.fast(torch.ones(3, 4)).item() for _ in range(3)] == losses
    compiled = pt.compile(trainer.fast.plans[0], trainer.step)
    compiled(torch.ones(3, 4))
    again = copy.deepcopy(compiled)
    again(torch.ones(3, 4))
    assert again.step.__self__ is not trainer


def test_what_happens_only_once_is_waited_for():
    """Lazy layers, a cache in an attribute: the first call runs as it is, then the step is planned."""

    class Cached(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.table = torch.nn.Linear(4, 2), None

        def forward(self, x):
            if self.table is None:
                self.table = torch.arange(2.0)
            return self.inner(x) + self.table

    def train(make, wrap):
        torch.manual_seed(0)
        model = make()
        rule = torch.optim.SGD(model.parameters(), 0.1)
        fast = wrap(lambda x: stepped(model, rule, x))
        losses = [silent(fast, torch.ones(3, 4) * number).item() for number in range(5)]
        return [*losses, *(param.sum().item() for param in model.parameters())], fast

    for make in (lambda: torch.nn.Sequential(torch.nn.LazyLinear(3), torch.nn.LazyLinear(2)), Cached):
        eager, _ = train(make, lambda step: step)
        ours, fast = train(make, lambda step: pt.step(step, device="cpu", time_limit=0))
        assert ours == eager
        assert len(fast.plans) == 1
        model = make()
        rule = torch.optim.SGD(model.parameters(), 0.1)
        with pytest.raises(InputError, match="before planning"):
            pt.step(lambda x, m=model, r=rule: stepped(m, r, x), device="cpu", strict=True)(torch.ones(3, 4))


def test_a_step_that_changes_something_every_time_is_waited_for_once():
    model, rule = linear()
    losses = []

    def step(x):
        loss = stepped(model, rule, x)
        losses.append(loss.detach())
        return loss

    fast = pt.step(step, device="cpu")
    silent(fast, torch.ones(3, 4))
    with pytest.warns(UserWarning, match="changes something besides tensors"):
        fast(torch.ones(3, 4))
    silent(fast, torch.ones(3, 4))
    assert len(losses) == 3
    assert all(type(loss) is torch.Tensor for loss in losses)
