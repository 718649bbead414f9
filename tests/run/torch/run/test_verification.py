"""A planned step is compared with the step itself before what it does is kept, and a failed one says what it has changed."""

from __future__ import annotations

import ctypes
import sys
import threading

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

import pebbler.torch as pt  # noqa: E402
import torch_models as models  # noqa: E402
from pebbler.errors import InputError  # noqa: E402
from pebbler.run.torch.run.verify_schedule import VerifySchedule  # noqa: E402
from quick_cases import quick_only  # noqa: E402


def everything(training):
    """All that a step may change, as copies, with the state of the generator."""
    grads = [p.grad for p in training.model.parameters() if type(p.grad) is torch.Tensor]
    return [t.clone() for t in (*training.tensors(), *grads)] + [torch.get_rng_state()]


def same(one, other):
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


class Weighted:
    """A step with a secret: a number that it multiplies its loss by, and a table that it may write to."""

    def __init__(self, training):
        self.training, self.factor, self.table = training, 1.0, None

    def __call__(self, x, y):
        self.training.optimizer.zero_grad()
        loss = self.training.loss(self.training.model, x, y) * self.factor
        loss.backward()
        self.training.optimizer.step()
        if self.table is not None:
            self.table.add_(1)
        return loss


def planned(training, step, **options):
    return pt.compile(pt.plan(step, training.batches[0], device="cpu"), step, **options)


def change_the_factor(step, training):
    step.factor = 3.0


def write_elsewhere(step, training):
    step.table = torch.zeros(3)


@pytest.mark.parametrize("change", [change_the_factor, write_elsewhere])
@pytest.mark.parametrize("make", quick_only([models.mlp], [models.mlp, models.resnet]))
def test_what_the_plan_does_otherwise_than_the_step_is_refused_with_nothing_changed(change, make):
    training = make()
    training.reset()
    step = Weighted(training)
    fast = planned(training, step)
    training.reset()
    change(step, training)
    before = everything(training)
    with pytest.raises((pt.PlanDiffers, InputError)):
        fast(*training.batches[0])
    assert same(everything(training), before)
    assert step.table is None or step.table.tolist() == [0, 0, 0]


@pytest.mark.parametrize("verify", quick_only(["again", 2], ["never", "first", "again", 2]))
def test_verified_training_is_the_same(verify):
    training = models.resnet()
    training.reset()
    losses = [training.step(*batch).item() for batch in training.batches]
    state = everything(training)[: len(training.tensors())]
    training.reset()
    fast = planned(training, training.step, verify=verify)
    assert [fast(*batch).item() for batch in training.batches] == losses
    assert same(everything(training)[: len(state)], state)


def test_python_side_effects_happen_once_in_a_verified_call():
    training = models.mlp(depth=1)
    count = ctypes.c_int()
    place = ctypes.addressof(count)  # memory of C, which a capture does not see

    def step(x, y):
        now = int.from_bytes(ctypes.string_at(place, 4), sys.byteorder)
        ctypes.memmove(place, (now + 1).to_bytes(4, sys.byteorder), 4)
        return training.step(x, y)

    plan = pt.plan(step, training.batches[0], device="cpu")
    count.value = 0
    fast = pt.compile(plan, step)
    fast(*training.batches[0])
    assert count.value == 1


def test_more_memory_than_the_budget_is_refused(monkeypatch):
    training = models.mlp(depth=3)
    training.reset()
    plan = pt.plan(training.step, training.batches[0], device="cpu", budget="2MiB")
    monkeypatch.setattr("pebbler.run.torch.run.verification.measure_peak", lambda call, device: (call(), 3 * 2**20))
    before = everything(training)
    with pytest.raises(pt.PlanDiffers, match=r"held 3\..* MiB, more than the budget of 2.00 MiB"):
        pt.compile(plan, training.step)(*training.batches[0])
    assert same(everything(training), before)


@pytest.mark.parametrize("verify", ["first", "never"])
@pytest.mark.parametrize("calls", [0, 2])
def test_a_failed_step_says_what_it_has_changed(verify, calls, monkeypatch):
    training = models.mlp(depth=2)
    training.reset()
    fast = planned(training, training.step, verify=verify)
    for batch in training.batches[:calls]:
        fast(*batch)
    before = everything(training)
    program = fast._runner.programs[-1 if calls else 0]
    updates = [n for n in program.module.graph.nodes if n.meta.get("changes")]
    fails = updates[len(updates) // 2]

    def fail(*args, **options):
        raise torch.OutOfMemoryError("no more")

    fails.target = fail
    program.module.recompile()
    with pytest.raises(torch.OutOfMemoryError, match="no more") as caught:
        fast(*training.batches[3])
    note = "\n".join(caught.value.__notes__)
    now = everything(training)
    if verify == "first" and not calls:
        assert same(now, before)  # all of it was taken back
        return
    changed = sum(not torch.equal(a, b) for a, b in zip(now, before, strict=False) if a.shape == b.shape)
    assert "had been changed" in note if changed else "pebbler: " in note
    places = {place for node in program.module.graph.nodes for place in node.meta.get("changes", ())}
    assert f"of the {len(places)} tensors" in note


def test_verify_is_checked():
    training = models.mlp(depth=1)
    plan = pt.plan(training.step, training.batches[0], device="cpu")
    for wrong in ("always", 0, -3, None, True):
        with pytest.raises(InputError, match="verify must be again, first, never or a number of calls"):
            pt.compile(plan, training.step, verify=wrong)


@pytest.fixture
def idle_thread():
    """Another thread that does nothing: it might draw from torch's generator, and does not."""
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    yield
    end.set()
    thread.join()


@pytest.mark.usefixtures("idle_thread")
@pytest.mark.parametrize("budget", [None, "4MiB"])
def test_what_no_guard_sees_is_found_by_comparing_again(budget):
    """An iterator that the loop moves shows nothing to guards; the plan is compared with the step at call 4."""
    training = models.mlp(depth=1, batch=8)
    training.reset()
    numbers = iter([1.0, 2.0])

    def step(x, y):
        training.optimizer.zero_grad()
        loss = training.loss(training.model, x, y) * numbers.__length_hint__()
        loss.backward()
        training.optimizer.step()
        return loss

    fast = pt.step(step, device="cpu", time_limit=0.1, budget=budget)
    for _ in range(2):
        fast(*training.batches[0])
    next(numbers)
    fast(*training.batches[0])  # unseen
    before = everything(training)
    with pytest.raises(pt.PlanOutdated, match="it did at call 2, and this is call 4"):
        fast(*training.batches[0])
    assert same(everything(training), before)
    training.reset()
    eager = step(*training.batches[0])
    training.reset()
    assert torch.equal(fast(*training.batches[0]), eager)  # without a plan from now on
    assert not fast.plans


def test_comparing_again_takes_less_than_a_percent_in_the_end():
    now = 0.0
    schedule = VerifySchedule("again", clock=lambda: now)
    compared = []
    for number in range(1, 20_000):
        due = schedule.due()
        now += 0.4 if due else 0.01
        if due:
            schedule.done()
            compared.append(number)
    assert compared[:8] == [2, 4, 8, 16, 32, 64, 128, 256]
    late = [number for number in compared if number > 5000]
    assert late
    assert 0.4 * len(late) < 0.01 * 0.01 * 15_000 + 0.4
    every = VerifySchedule(5)
    assert [number for number in range(1, 18) if every.due() and every.done() is None] == [6, 11, 16]
    first = VerifySchedule("first")
    assert not any(first.due() for _ in range(100))
