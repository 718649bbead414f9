"""Ordinary ways to write a step are planned, and train as they do without a plan."""

from __future__ import annotations

import warnings
from functools import partial

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import pebbler.torch as pt  # noqa: E402
from pebbler.errors import InputError  # noqa: E402

PATTERNS = {}


def pattern(plans):
    def note(make):
        PATTERNS[make.__name__] = make, plans
        return make

    return note


def ordinary(model, loss=lambda out, x: out.square().mean()):
    rule = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        rule.zero_grad()
        value = loss(model(x), x)
        value.backward()
        rule.step()
        return value

    return step


@pattern(1)
def a_normal_distribution():
    model = nn.Linear(4, 2)
    return model, ordinary(model, lambda out, x: -torch.distributions.Normal(out, 1.0).log_prob(x[:, :2]).mean()), list


@pattern(1)
def a_categorical_policy():
    model = nn.Linear(4, 3)

    def loss(out, x):
        chances = torch.distributions.Categorical(logits=out)
        return -chances.log_prob(chances.sample()).mean() - chances.entropy().mean()

    return model, ordinary(model, loss), list


@pattern(1)
def batch_norm_over_all_batches():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, momentum=None), nn.Linear(3, 2))
    return model, ordinary(model), list


@pattern(1)
def a_hook_that_stores_activations():
    model, kept = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), {}
    model[0].register_forward_hook(lambda module, inputs, out: kept.__setitem__("hidden", out.detach()))
    return model, ordinary(model), lambda: [kept["hidden"].clone()]


@pattern(1)
def an_attribute_that_stores_activations():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.last = nn.Linear(4, 3), nn.Linear(3, 2), None

        def forward(self, x):
            hidden = self.a(x)
            self.last = hidden.detach()
            return self.b(hidden.relu())

    model = Model()
    return model, ordinary(model), lambda: [model.last.clone()]


@pattern(3)
def accumulation_with_a_flag():
    model = nn.Linear(4, 2)
    rule = torch.optim.AdamW(model.parameters(), lr=0.01)
    calls = []

    def step(x, update):
        loss = model(x).square().mean() / 3
        loss.backward()
        if update:
            rule.step()
            rule.zero_grad()
        return loss

    def call(fast, x):
        calls.append(x)
        return fast(x, len(calls) % 3 == 0)

    return model, step, list, call


@pattern(2)
def accumulation_with_accelerate():
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    helper = accelerate.Accelerator(gradient_accumulation_steps=2, cpu=True)
    model = nn.Linear(4, 2)
    prepared, rule = helper.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def step(x):
        loss = prepared(x).square().mean()
        helper.backward(loss)
        rule.step()
        rule.zero_grad()
        return loss.detach()

    def call(fast, x):
        with helper.accumulate(prepared):
            return fast(x)

    return model, step, list, call


def train(make, wrap):
    torch.manual_seed(0)
    model, step, more, *call = make()
    fast = wrap(step)
    torch.manual_seed(1)
    seen = []
    for number in range(7):
        x = torch.randn(5, 4) + number
        seen += [(call[0](fast, x) if call else fast(x)).detach().clone(), *more()]
    return [*seen, *(t.detach().clone() for t in (*model.parameters(), *model.buffers()))], fast


@pytest.mark.parametrize("name", PATTERNS)
def test_an_ordinary_pattern_is_planned(name):
    make, plans = PATTERNS[name]
    eager, _ = train(make, lambda step: step)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        ours, fast = train(make, lambda step: pt.step(step, device="cpu", time_limit=0.1))
    assert len(ours) == len(eager)
    assert all(torch.equal(a, b) for a, b in zip(ours, eager, strict=True))
    assert len(fast.plans) == plans


def test_values_that_a_distribution_cannot_have_are_found_before_anything_changes():
    model = nn.Linear(4, 2)
    normal = partial(torch.distributions.Normal, validate_args=True)  # Dynamo, once used, changes the default
    fast = pt.step(
        ordinary(model, lambda out, x: -normal(out, 1.0).log_prob(x[:, :2]).mean()),
        device="cpu", time_limit=0.1, strict=True,
    )  # fmt: skip
    for _ in range(4):
        fast(torch.ones(3, 4))
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(ValueError, match="validate_args"):
        fast(torch.tensor([1.0, 1.0, 1.0, float("nan")]).expand(3, 4).clone())
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))


def test_activations_with_what_autograd_remembers_are_refused():
    model, kept = nn.Linear(4, 2), {}

    def step(x):
        kept["out"] = model(x)
        return functional.relu(kept["out"]).mean()

    with pytest.raises(InputError, match=r"kept\['out'\].* keep it detached"):
        pt.capture(step, torch.ones(3, 4))
    assert not kept


@pytest.mark.slow  # to import it takes longer than everything else here
def test_accumulation_in_lightning():
    lightning = pytest.importorskip("lightning", reason="lightning is not installed")

    class Module(lightning.LightningModule):
        def __init__(self, wrap):
            super().__init__()
            self.model, self.wrap, self.fast, self.losses = nn.Linear(4, 2), wrap, None, []
            self.automatic_optimization = False

        def configure_optimizers(self):
            return torch.optim.SGD(self.model.parameters(), lr=0.1)

        def training_step(self, batch, number):
            if self.fast is None:

                def part(x):
                    loss = self.model(x).square().mean() / 2
                    self.manual_backward(loss)
                    return loss.detach()

                self.fast = self.wrap(part)
            self.losses.append(self.fast(batch).clone())
            if number % 2:
                rule = self.optimizers()
                rule.step()
                rule.zero_grad()

    def fit(wrap):
        torch.manual_seed(0)
        module = Module(wrap)
        data = torch.utils.data.DataLoader(torch.linspace(-1, 1, 160).reshape(40, 4), batch_size=5)
        quiet = {
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
        }
        lightning.Trainer(max_steps=4, max_epochs=1, accelerator="cpu", **quiet).fit(module, data)
        return [*module.losses, *(p.detach() for p in module.model.parameters())], module.fast

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eager, _ = fit(lambda step: step)
        ours, fast = fit(lambda step: pt.step(step, device="cpu", time_limit=0.1, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(ours, eager, strict=True))
    assert len(fast.plans) == 1
