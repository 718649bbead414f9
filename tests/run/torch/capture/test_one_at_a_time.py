"""Captures of several threads wait for one another, other threads see torch as it is, and nothing stays replaced."""

from __future__ import annotations

import contextlib
import gc
import itertools
import subprocess
import sys
import threading
import time
import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

from torch.optim import optimizer as torch_optimizer  # noqa: E402

import pebbler.torch as pt  # noqa: E402
from pebbler.errors import InputError  # noqa: E402
from pebbler.run.torch.capture import call_recorder  # noqa: E402


def training(seed, dropout=0.1):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Dropout(dropout), torch.nn.Linear(16, 4)
    )
    rule = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(x):
        rule.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        rule.step()
        return loss

    return step, model, rule


def torch_now():
    """All of torch that a capture replaces."""
    return (
        torch.random.default_generator, torch.default_generator, torch.cuda.default_generators,
        torch.amp.GradScaler._maybe_opt_step,
        dict(torch_optimizer._global_optimizer_pre_hooks), dict(torch_optimizer._global_optimizer_post_hooks),
        torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack(), sys.getprofile(), gc.isenabled(),
        "max" in vars(sys.modules["torch.optim.adamw"]), "max" in vars(sys.modules["torch.optim.radam"]),
    )  # fmt: skip


def state_of(model, rule):
    tensors = [*model.parameters(), *(v for row in rule.state.values() for v in row.values() if torch.is_tensor(v))]
    grads = [param.grad for param in model.parameters()]
    numbers = [{k: v for k, v in group.items() if k != "params"} for group in rule.param_groups]
    return [t.detach().clone() for t in tensors], list(map(id, grads)), [t.data_ptr() for t in tensors], numbers


def same_state(one, other):
    return all(map(torch.equal, one[0], other[0])) and one[1:] == other[1:]


def in_threads(*works):
    failures = []

    def guarded(work):
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


@pytest.mark.filterwarnings("ignore")
def test_threads_that_plan_at_once_leave_torch_as_it_was():
    x = torch.ones(4, 8)

    def eager():
        step, _, _ = training(0)
        torch.manual_seed(3)
        return [step(x).item() for _ in range(4)]

    expected, before, losses = eager(), torch_now(), {}
    # Each draws its weights first, for threads share the generator.
    steps = {seed: training(seed, dropout=0.0)[0] for seed in range(4)}

    def run(seed):
        fast = pt.step(steps[seed], device="cpu", time_limit=0)
        losses[seed] = [fast(x).item() for _ in range(4)]

    in_threads(*(lambda seed=seed: run(seed) for seed in range(4)))
    assert torch_now() == before
    assert eager() == expected
    for seed in range(4):
        step, _, _ = training(seed, dropout=0.0)
        assert losses[seed] == [step(x).item() for _ in range(4)]


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("pause", [0.0, pytest.param(1e-4, marks=pytest.mark.slow)])
def test_draws_of_other_threads_are_no_fault_of_a_plan(dropout, pause):
    """They share the generator, so a step and its plan may draw other numbers, and leave it in another state."""
    step, _, _ = training(0, dropout)
    idle = training(1, dropout)[0]
    fast = pt.step(step, device="cpu", time_limit=0, strict=True, verify=1)
    x, done = torch.ones(4, 8), False

    def draw():
        while not done:
            torch.rand(3)
            time.sleep(pause)

    def train():
        nonlocal done
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "other threads draw from torch's generator")
                for _ in range(20):
                    fast(x)
        finally:
            done = True

    in_threads(draw, train)
    assert len(fast.plans) == 1
    in_threads(
        lambda: pt.step(idle, device="cpu", time_limit=0, strict=True, verify=1)(x)
    )  # an idle thread disturbs nothing


def test_a_thread_that_trains_meanwhile_is_left_alone():
    """What another thread seeds, draws, scales and steps while a step is recorded is its own: nothing of it is recorded or lost."""
    x = torch.ones(4, 8)
    inside = done = False  # an event would be seen as a side effect of the step
    other_step, other_model, _ = training(7)
    torch.manual_seed(5)
    expected = [torch.rand(3), other_step(x), [param.detach().clone() for param in other_model.parameters()]]
    scaler_model = torch.nn.Linear(2, 2)
    scaler, scaled = torch.amp.GradScaler("cpu"), torch.optim.SGD(scaler_model.parameters(), 0.1)
    other_step, other_model, _ = training(7)
    step, _, _ = training(0)
    got = []

    def train():
        nonlocal done
        while not inside:
            time.sleep(0.01)
        torch.manual_seed(5)
        got.append(torch.rand(3))
        state = torch.get_rng_state()
        got.append(other_step(x))
        got.append([param.detach().clone() for param in other_model.parameters()])
        torch.set_rng_state(state)
        scaler.scale(scaler_model(torch.ones(1, 2)).sum()).backward()
        scaler.step(scaled)
        scaler.update()
        done = True

    # The recorder waits in the middle of its first recording, where everything is replaced.
    note = call_recorder.CallRecorder._note

    def waiting(self, *args):
        nonlocal inside
        inside = True
        while not done:
            pass
        return note(self, *args)

    before = scaler_model.weight.detach().clone()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(call_recorder.CallRecorder, "_note", waiting)
        in_threads(train, lambda: got.append(pt.capture(step, x)))
    assert torch.equal(got[0], expected[0])
    assert torch.equal(got[1], expected[1])
    assert all(map(torch.equal, got[2], expected[2]))
    assert torch.equal(scaler_model.weight, before - 0.1)
    assert all(call.func is not torch.ops.pebbler.manual_seed.default for call in got[3].phases[0].record.calls)


class Interrupted(KeyboardInterrupt):
    """Comes at any point."""


def interrupted_captures(points):
    """Capture a step and break off with an error at an operator, one after the other; everything must be as before each time."""
    x = torch.ones(4, 8)
    step, model, rule = training(0)
    step(x)
    left, replaced, random = state_of(model, rule), torch_now(), torch.get_rng_state()
    note, count, last = call_recorder.CallRecorder._note, 0, 0
    for error, point in points:
        count = 0

        def noted(self, *args, point=point, error=error):
            nonlocal count
            count += 1
            if count == point + 1:
                raise error("here")
            return note(self, *args)

        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Interrupted, InputError):
            patch.setattr(call_recorder.CallRecorder, "_note", noted)
            pt.capture(step, x)
        assert same_state(state_of(model, rule), left), point
        assert torch_now() == replaced, point
        assert torch.equal(torch.get_rng_state(), random)
        last = max(last, count)
    return last


ERRORS = [Interrupted, RuntimeError, InputError]


def test_a_capture_that_is_broken_off_leaves_everything():
    assert interrupted_captures(zip(ERRORS[::2], [17, 60], strict=True)) == 61


@pytest.mark.slow
def test_a_capture_that_is_broken_off_anywhere_leaves_everything():
    """In a process of its own: each of 420 captures looks through all objects, of which a worker has many more."""
    done = subprocess.run([sys.executable, "-W", "ignore", __file__], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100


def test_a_step_inside_a_step_that_is_captured():
    x = torch.ones(4, 8)
    step, _, _ = training(0, dropout=0.0)
    inner = pt.step(step, device="cpu", time_limit=0, strict=True)
    outer = pt.step(lambda x: inner(x), device="cpu", time_limit=0, strict=True)
    before = torch_now()
    losses = [outer(x).item(), outer(x).item(), inner(x).item()]
    assert (len(outer.plans), len(inner.plans)) == (1, 1)
    again, _, _ = training(0, dropout=0.0)
    assert losses == [again(x).item() for _ in range(3)]
    assert torch_now() == before


if __name__ == "__main__":
    print(interrupted_captures(itertools.product(ERRORS, range(140))))
