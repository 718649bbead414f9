"""What changes between two steps is seen: training goes on as without a plan, or stops with a message; never silently otherwise."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

import pebbler.torch as pt  # noqa: E402
from pebbler.errors import PebblerError  # noqa: E402
from quick_cases import quick_only  # noqa: E402
from torch_mutations import MUTATIONS, ORDINARY, Scene  # noqa: E402

BATCH = [torch.linspace(-1, 1, 30).reshape(5, 6), torch.linspace(1, -1, 20).reshape(5, 4)]


def train(mutation, wrap):
    """Train with a change in the middle; return losses and weights, or what was raised."""
    scene = Scene()
    try:
        scene.thing = mutation.make(scene)
        model, optimizer, read = scene.model, scene.optimizer, mutation.read

        def step(x, y):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y).square() * read(scene)
            loss.backward()
            optimizer.step()
            return loss

        run = wrap(step)
        losses = []
        for number in range(4):
            if number == 2:
                mutation.change(scene)
            losses.append(run(*BATCH).detach().clone())
        return [*losses, *(parameter.detach().clone() for parameter in model.parameters())]
    except PebblerError:
        return "refused"
    except Exception as error:
        return type(error)
    finally:
        while scene.undo:
            scene.undo.pop()()


@pytest.mark.parametrize("name", quick_only(ORDINARY, MUTATIONS))
def test_what_changes_between_steps_is_seen(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eager = train(MUTATIONS[name], lambda step: step)
        ours = train(MUTATIONS[name], lambda step: pt.step(step, device="cpu", time_limit=0.1, verify="first"))
    if isinstance(eager, list) and isinstance(ours, list):
        assert all(torch.equal(a, b) for a, b in zip(ours, eager, strict=True))
    else:
        assert ours in ("refused", eager)


def planned(step, **options):
    return pt.step(step, device="cpu", time_limit=0.1, strict=True, **options)


def test_what_a_step_does_not_read_may_change():
    """A loop that counts, in what the step reads other things of, keeps one plan."""
    scene = Scene()

    class Trainer:
        kind, calls = "plain", 0

        def __init__(self):
            self.model, self.optimizer, self.step, self.seen = scene.model, scene.optimizer, 0, {}

        def train(self, x, y):
            self.optimizer.zero_grad()
            loss = (self.model(x) - y).square().mean() * (2 if self.kind == "double" else 1)
            loss.backward()
            self.optimizer.step()
            return loss

    trainer = Trainer()
    fast = planned(trainer.train)
    for number in range(6):
        fast(*BATCH)
        trainer.step += 1  # as the optimizer's method is called
        trainer.epoch = number
        Trainer.calls += 1
        Trainer.noted = number
        scene.model.loads = number
    assert len(fast.plans) == 1
    trainer.kind = "double"
    fast(*BATCH)
    assert len(fast.plans) == 2


def test_the_message_names_what_came():
    scene = Scene()
    config = type("Config", (), {"scale": 1.0})()

    def step(x, y):
        return (scene.model(x) - y).square().mean() * config.scale * getattr(config, "factor", 1.0)

    plan = pt.plan(step, BATCH, device="cpu")
    for name in ("scale", "factor"):
        fast = pt.compile(plan, step)
        fast(*BATCH)
        setattr(config, name, 2.0)
        with pytest.raises(PebblerError, match=rf"test_guards.py:\d+: config.{name} changed .*\(.*, now 2.0\)"):
            fast(*BATCH)
        delattr(config, name)
    fast = pt.compile(plan, step)
    fast(*BATCH)
    type(config).factor = 2.0
    for _ in range(2):  # and again
        with pytest.raises(PebblerError, match=r"Config.factor changed since .*\(not there, now 2.0\)"):
            fast(*BATCH)
    del type(config).factor
    fast(*BATCH)
    type(config).scale = property(lambda self: 3.0)
    with pytest.raises(PebblerError, match=r"config.scale changed since .*\(1.0, now a property\)"):
        fast(*BATCH)


def test_a_step_without_a_file_is_watched_too():
    """As typed at a prompt, where functions have no file."""
    space = {"torch": torch, "scale": 1.0}
    exec("def step(x): return (x * scale).square().sum()", space)
    fast = planned(space["step"])
    assert fast(torch.ones(3)).item() == 3.0
    space["scale"] = 2.0
    assert fast(torch.ones(3)).item() == 12.0


def test_anomaly_mode_finds_what_it_is_for():
    model = torch.nn.Linear(4, 2)

    def step(x):
        model.zero_grad()
        loss = model(x).sqrt().mean()
        loss.backward()
        return loss

    fast = pt.step(step, device="cpu", time_limit=0.1)
    fast(torch.ones(3, 4))
    with warnings.catch_warnings(record=True) as said, torch.autograd.set_detect_anomaly(True):
        warnings.simplefilter("always")
        with pytest.raises(RuntimeError, match="returned nan values"):
            fast(torch.ones(3, 4) * float("nan"))
    assert any("anomaly mode" in str(warning.message) for warning in said)
