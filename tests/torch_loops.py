"""Training loops of every kind that people write: each returns a `Loop`, made anew from the same seed."""

from __future__ import annotations

import functools
import itertools
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

__all__ = ["BRANCHING", "PARTS", "REFUSED", "RIGHT", "Loop", "put_together"]

RIGHT: dict[str, Callable[[], Loop]] = {}
BRANCHING: dict[str, Callable[[], Loop]] = {}  # right with a plan for every branch, refused with one
REFUSED: dict[str, tuple[Callable[[], Loop], str]] = {}


@dataclass
class Loop:
    """A step, the arguments of five calls, what happens between them, and the tensors that training changes."""

    step: Callable[..., Any]
    batches: list[Any]
    tensors: Callable[[], list[Any]]
    between: Callable[[int], None] = field(default=lambda number: None)
    keywords: list[dict[str, Any]] | None = None


def right(make: Callable[[], Loop]) -> Callable[[], Loop]:
    RIGHT[make.__name__] = make
    return make


def branching(make: Callable[[], Loop]) -> Callable[[], Loop]:
    BRANCHING[make.__name__] = make
    return make


def refused(message: str) -> Callable[[Callable[[], Loop]], Callable[[], Loop]]:
    def note(make: Callable[[], Loop]) -> Callable[[], Loop]:
        REFUSED[make.__name__] = (make, message)
        return make

    return note


def state_of(model: nn.Module, optimizer: Any = None) -> list[Any]:
    state = [] if optimizer is None else [value for values in optimizer.state.values() for value in values.values()]
    return [*model.parameters(), *model.buffers(), *state]


def batches(*shapes: tuple[int, ...], count: int = 5) -> list[Any]:
    generator = torch.Generator().manual_seed(3)
    return [tuple(torch.randn(shape, generator=generator) for shape in shapes) for _ in range(count)]


def mlp(*extra: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), *extra, nn.Linear(8, 4))


def simple(
    model: nn.Module | None = None,
    rule: Callable[..., Any] = torch.optim.AdamW,
    inside: Callable[[], None] = lambda: None,
    between: Callable[..., None] = lambda number, model, optimizer: None,
    loss: Callable[..., Any] = lambda out: out.square().mean(),
    **options: Any,
) -> Loop:
    model = mlp() if model is None else model
    optimizer = rule(model.parameters(), **{"lr": 0.01, **options})

    def step(x):
        optimizer.zero_grad()
        value = loss(model(x))
        value.backward()
        inside()
        optimizer.step()
        return value

    return Loop(step, batches((5, 6)), lambda: state_of(model, optimizer), lambda n: between(n, model, optimizer))


# Ordinary steps -------------------------------------------------------------------------------------------------------


@right
def sgd():
    return simple(rule=torch.optim.SGD)


@right
def sgd_with_momentum():
    return simple(rule=torch.optim.SGD, momentum=0.9)


@right
def adamw_foreach():
    return simple(foreach=True)


@right
def adam_fused():
    return simple(rule=torch.optim.Adam, fused=True)


@right
def adam_with_a_rate_in_a_tensor():
    return simple(rule=torch.optim.Adam, lr=torch.tensor(0.01))


for name in ("Adagrad", "Adamax", "NAdam", "RMSprop", "Rprop", "Adadelta"):
    RIGHT[f"{name} foreach"] = lambda name=name: simple(rule=getattr(torch.optim, name), foreach=True)
    RIGHT[f"{name} one by one"] = lambda name=name: simple(rule=getattr(torch.optim, name), foreach=False)


@right
def batch_norm_and_dropout():
    return simple(mlp(nn.BatchNorm1d(8), nn.Dropout(0.3)))


@right
def a_rate_that_changes():
    def between(number, model, optimizer):
        optimizer.param_groups[0]["lr"] *= 0.5

    return simple(between=between)


@right
def a_scheduler_outside():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)

    def step(x):
        optimizer.zero_grad()
        value = model(x).square().mean()
        value.backward()
        optimizer.step()
        return value

    return Loop(step, batches((5, 6)), lambda: state_of(model, optimizer), lambda number: scheduler.step())


@right
def a_trainer_that_counts_outside():
    class Trainer:
        def __init__(self):
            self.model, self.epoch, self.seen, self.losses = mlp(), 0, 0, []
            self.optimizer = torch.optim.AdamW(self.model.parameters())

        def step(self, x):
            self.optimizer.zero_grad()
            loss = self.model(x).square().mean()
            loss.backward()
            self.optimizer.step()
            return loss

        def between(self, number):
            self.epoch += 1
            self.seen += 5
            self.losses.append(number)

    trainer = Trainer()
    return Loop(trainer.step, batches((5, 6)), lambda: state_of(trainer.model, trainer.optimizer), trainer.between)


@right
def clipped_gradients():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(x):
        optimizer.zero_grad(set_to_none=False)
        value = model(x).square().mean()
        value.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return value, norm

    return Loop(step, batches((5, 6)), lambda: state_of(model, optimizer))


@right
def tied_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(6, 6), nn.Linear(6, 6)
            self.down.weight = self.up.weight

        def forward(self, x):
            return self.down(self.up(x).relu())

    return simple(Tied())


@right
def parametrized_weight_norm():
    return simple(nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 4)), nn.Tanh()))


@right
def parametrized_spectral_norm():
    return simple(nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(6, 4)), nn.Tanh()))


@right
def a_moving_average_of_weights():
    model, average = mlp(), mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(x):
        optimizer.zero_grad()
        value = model(x).square().mean()
        value.backward()
        optimizer.step()
        with torch.no_grad():
            for old, new in zip(average.parameters(), model.parameters(), strict=True):
                old.lerp_(new, 0.1)
        return value

    return Loop(step, batches((5, 6)), lambda: [*state_of(model, optimizer), *average.parameters()])


@right
def a_hook_on_a_module():
    model = mlp()
    model[0].register_forward_hook(lambda module, args, out: out * 2)
    model[2].register_full_backward_hook(lambda module, grads, outs: (grads[0] * 0.5,))
    return simple(model)


@right
def a_hook_on_a_parameter():
    model = mlp()
    model[0].weight.register_hook(lambda grad: grad * 0.5)
    return simple(model)


@right
def an_input_changed_in_place():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(x):
        optimizer.zero_grad()
        x.mul_(0.5)
        value = model(x).square().mean()
        value.backward()
        optimizer.step()
        return value

    rows = batches((5, 6))
    return Loop(step, rows, lambda: [*state_of(model, optimizer), *(row[0] for row in rows)])


@right
def a_literal_nan():
    weight = torch.ones(4, requires_grad=True)

    def step(x):
        value = torch.where(x > 9, torch.full((4,), float("nan")), x * weight).sum()
        masked = (x * weight).masked_fill(x > 9, float("nan")).sum()
        (value + masked).backward()
        with torch.no_grad():
            weight.sub_(weight.grad, alpha=0.1)
        weight.grad = None
        return value

    return Loop(step, batches((4,)), lambda: [weight])


@right
def a_penalty_on_gradients():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(x):
        optimizer.zero_grad()
        value = model(x).square().mean()
        grads = torch.autograd.grad(value, list(model.parameters()), create_graph=True)
        total = value + sum(grad.square().sum() for grad in grads)
        total.backward()
        optimizer.step()
        return total

    return Loop(step, batches((5, 6)), lambda: state_of(model, optimizer))


@right
def a_function_of_its_own():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * 2 + 0 * x

    return simple(loss=lambda out: Double.apply(out).square().mean())


@right
def a_frozen_layer():
    model = mlp()
    model[0].requires_grad_(False)
    return simple(model)


@right
def a_plain_seed_outside():
    return simple(mlp(nn.Dropout(0.5)), between=lambda number, model, optimizer: torch.manual_seed(number))


# Random numbers -------------------------------------------------------------------------------------------------------


@right
def checkpointed_dropout():
    weight = torch.ones(8, requires_grad=True)

    def step(x):
        y = checkpoint(lambda z: functional.dropout(z * weight, 0.5), x, use_reentrant=False)
        value = (y * y).sum()
        value.backward()
        with torch.no_grad():
            weight.sub_(weight.grad, alpha=0.01)
        weight.grad = None
        return value

    return Loop(step, batches((8,)), lambda: [weight])


@right
def checkpointed_layers_with_dropout():
    model = nn.ModuleList([mlp(nn.Dropout(0.5)), nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.2))])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(x):
        optimizer.zero_grad()
        for part in model:
            x = checkpoint(part, x, use_reentrant=False)
        value = x.square().mean() + functional.dropout(x, 0.5).mean()
        value.backward()
        optimizer.step()
        return value

    return Loop(step, batches((5, 6)), lambda: state_of(model, optimizer))


@right
def reentrant_checkpoint_with_dropout():
    model = mlp(nn.Dropout(0.5))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(x):
        optimizer.zero_grad()
        hidden = model[0](x)
        value = checkpoint(model[1:], hidden, use_reentrant=True).square().mean()
        value.backward()
        optimizer.step()
        return value

    return Loop(step, batches((5, 6)), lambda: state_of(model, optimizer))


@right
def a_seed_inside_the_step():
    def loss(out):
        first = functional.dropout(out, 0.5)
        torch.manual_seed(11)
        return (first * functional.dropout(out, 0.5)).mean()

    return simple(mlp(nn.Dropout(0.5)), loss=loss)


@right
def random_state_saved_and_set_inside():
    def loss(out):
        state = torch.get_rng_state()
        first = torch.rand_like(out)
        torch.set_rng_state(state)
        second = torch.rand_like(out)
        with torch.random.fork_rng(devices=[]):
            third = torch.randn_like(out)
        return (out * (first - second + third)).square().mean()

    return simple(loss=loss)


@right
def a_generator_of_its_own():
    generator = torch.Generator().manual_seed(5)

    def loss(out):
        noise = torch.randn(out.shape, generator=generator) + torch.rand(out.shape, generator=generator)
        return (out + noise + torch.randn_like(out)).square().mean()

    loop = simple(loss=loss)
    tensors = loop.tensors
    loop.tensors = lambda: [*tensors(), generator.get_state()]
    return loop


@refused("generator")
def a_generator_made_inside():
    def loss(out):
        generator = torch.Generator().manual_seed(5)
        return (out + torch.randn(out.shape, generator=generator)).square().mean()

    return simple(loss=loss)


@refused(r"random")
def a_numpy_mask():
    return simple(loss=lambda out: (out * torch.tensor(np.random.rand(4) > 0.5)).square().mean())


@refused(r"random")
def a_slice_by_python_random():
    return simple(loss=lambda out: out[:, random.randrange(4) :].square().mean())


@refused(r"generator")
def a_numpy_generator():
    generator = np.random.default_rng(0)
    return simple(loss=lambda out: (out * float(generator.random())).square().mean())


@refused(r"torch_loops.py:\d+: .*os\.urandom")
def a_numpy_generator_made_inside():
    return simple(loss=lambda out: (out * torch.tensor(np.random.default_rng().random(4))).square().mean())


# Counters and other Python state ---------------------------------------------------------------------------------------


@refused(r"count")
def an_optimizer_that_runs_every_other_step():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    count = 0

    def step(x):
        nonlocal count
        count += 1
        value = model(x).square().mean()
        value.backward()
        if count % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
        return value

    return Loop(step, batches((5, 6)), lambda: state_of(model, optimizer))


COUNT = 0


@refused(r"COUNT")
def a_global_counter():
    global COUNT
    COUNT = 0

    def loss(out):
        global COUNT
        COUNT += 1
        return (out * (1.0 if COUNT < 4 else 2.0)).square().mean()

    return simple(loss=loss)


class Counting(nn.Module):
    total = 0

    def __init__(self, where="self"):
        super().__init__()
        self.inner, self.count, self.where, self.tables = mlp(), 0, where, [torch.ones(4), torch.zeros(4)]
        self.numbers, self.ticks = {"count": 0}, itertools.count()
        Counting.total = 0

    def forward(self, x):
        match self.where:
            case "self":
                self.count += 1
                return self.inner(x) * self.tables[self.count % 2]
            case "class":
                Counting.total += 1
                return self.inner(x) * torch.tensor(float(Counting.total))
            case "dict":
                self.numbers["count"] += 1
                return self.inner(x) * (self.numbers["count"] > 3)
            case "iterator":
                return self.inner(x) * (2 if next(self.ticks) > 3 else 1)
            case "attribute":
                self.last = x
        return self.inner(x)


for name in ("self", "class", "dict", "iterator", "attribute"):
    REFUSED[f"a counter in a module, {name}"] = (lambda name=name: simple(Counting(name)), "count|total|ticks|last")


@right
def a_setting_found_out_once():
    class Lazy(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.kind, self.options = mlp(), None, {}

        def forward(self, x):
            if self.kind is None:
                self.kind = "regression"
            self.options["width"] = x.shape[1]
            return self.inner(x) * (2 if self.kind == "regression" else 3)

    return simple(Lazy())


@refused(r"warmed|runs")
def a_first_step_that_does_more():
    class Warming(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.warmed = mlp(), False

        def forward(self, x):
            if not self.warmed:
                self.warmed = True
                x = x * 2
            return self.inner(x)

    return simple(Warming())


@refused(r"tick")
def a_counter_in_a_default():
    def tick(counts=[0]):  # noqa: B006
        counts[0] += 1
        return counts[0]

    return simple(loss=lambda out: (out * (2 if tick() > 3 else 1)).mean())


@refused(r"calls")
def a_counter_on_a_function():
    def loss(out):
        loss.calls += 1
        return (out * (2 if loss.calls > 3 else 1)).mean()

    loss.calls = 0
    return simple(loss=loss)


@refused(r"state")
def a_counter_in_a_generator():
    def forever():
        number = 0
        while True:
            number += 1
            yield number

    numbers = forever()
    return simple(loss=lambda out: (out * (2 if next(numbers) > 3 else 1)).mean())


@refused(r"torch_loops.py:\d+: .*values that are others")
def a_counter_in_a_cache():
    """No object that Python shows changes: only what the tensor is made from does."""
    cached = functools.cache(float)

    def counted(out):
        return (out * torch.tensor([cached(cached.cache_info().currsize)])).mean()

    return simple(loss=counted)


@refused(r"losses")
def losses_gathered_inside():
    losses = []

    def loss(out):
        losses.append(out.detach().mean())
        return out.square().mean()

    return simple(loss=loss)


@refused(r"last_epoch|lr")
def a_scheduler_inside():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    def step(x):
        optimizer.zero_grad()
        value = model(x).square().mean()
        value.backward()
        optimizer.step()
        scheduler.step()
        return value

    return Loop(step, batches((5, 6)), lambda: state_of(model, optimizer))


# What changes between steps --------------------------------------------------------------------------------------------


def third(change):
    """Change something before the third step."""
    return lambda number, model, optimizer: change(model, optimizer) if number == 2 else None


@refused(r"training")
def evaluation_mode():
    return simple(mlp(nn.Dropout(0.5)), between=third(lambda model, optimizer: model.eval()))


@refused(r"requires_grad|requires gradients")
def a_layer_frozen_later():
    return simple(between=third(lambda model, optimizer: model[0].requires_grad_(False)))


@refused(r"weight")
def a_parameter_replaced():
    return simple(between=third(lambda model, optimizer: setattr(model[0], "weight", nn.Parameter(torch.ones(8, 6)))))


@refused(r"weight|bias")
def a_state_assigned():
    def assign(model, optimizer):
        model.load_state_dict({key: value.clone() for key, value in model.state_dict().items()}, assign=True)

    return simple(between=third(assign))


@right
def a_state_loaded():
    def load(model, optimizer):
        model.load_state_dict({key: value * 0.5 for key, value in model.state_dict().items()})

    return simple(between=third(load))


@right
def other_data_of_a_parameter():
    return simple(between=third(lambda model, optimizer: setattr(model[0].weight, "data", torch.ones(8, 6))))


@refused(r"strides")
def other_strides_of_a_parameter():
    return simple(between=third(lambda model, optimizer: setattr(model[0].weight, "data", torch.randn(6, 8).t())))


@refused(r"dtype")
def another_dtype():
    class Cast(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = mlp()

        def forward(self, x):
            return self.inner(x.to(self.inner[0].weight.dtype))

    return simple(Cast(), rule=torch.optim.SGD, between=third(lambda model, optimizer: model.double()))


@refused(r"eps")
def another_setting():
    return simple(between=third(lambda model, optimizer: optimizer.param_groups[0].update(eps=0.1)))


@refused(r"params|param_groups")
def a_parameter_group_more():
    return simple(between=third(lambda model, optimizer: optimizer.add_param_group({"params": [torch.ones(3)]})))


@refused(r"hook")
def a_hook_added_later():
    return simple(between=third(lambda model, optimizer: model[0].register_forward_hook(lambda m, a, o: o * 2)))


@refused(r"hook")
def a_hook_on_a_parameter_added_later():
    return simple(between=third(lambda model, optimizer: model[0].weight.register_hook(lambda grad: grad * 2)))


@refused(r"autocast")
def autocast_entered_outside():
    context = torch.autocast("cpu", dtype=torch.bfloat16)

    def between(number, model, optimizer):
        if number == 2:
            context.__enter__()
        if number == 4:
            context.__exit__(None, None, None)

    return simple(between=between)


@refused(r"grad mode|gradients are")
def no_gradients_outside():
    context = torch.no_grad()

    def between(number, model, optimizer):
        if number == 2:
            context.__enter__()
        if number == 3:
            context.__exit__(None, None, None)

    return simple(loss=lambda out: out.square().mean().requires_grad_(), between=between)


@refused(r"default dtype")
def another_default_dtype():
    def between(number, model, optimizer):
        torch.set_default_dtype(torch.float64 if number == 2 else torch.float32)

    return simple(loss=lambda out: (out * torch.ones(4)).mean(), between=between)


SCALE = 1.0


@refused(r"SCALE")
def a_global_number_changed():
    def between(number, model, optimizer):
        global SCALE
        SCALE = 2.0 if number == 2 else 1.0

    return simple(loss=lambda out: (out * SCALE).mean(), between=between)


@refused(r"scale")
def a_number_in_a_closure_changed():
    scale = 1.0

    def between(number, model, optimizer):
        nonlocal scale
        scale = 2.0 if number == 2 else 1.0

    return simple(loss=lambda out: (out * scale).mean(), between=between)


@refused(r"table")
def a_tensor_in_a_closure_rebound():
    table = torch.ones(4)

    def between(number, model, optimizer):
        nonlocal table
        if number == 2:
            table = torch.full((4,), 2.0)

    return simple(loss=lambda out: (out * table).mean(), between=between)


@right
def a_tensor_in_a_closure_changed_in_place():
    table = torch.ones(4)
    return simple(
        loss=lambda out: (out * table).mean(), between=lambda number, model, optimizer: table.fill_(number + 1.0)
    )


@dataclass
class Settings:
    scale: float = 1.0
    parts: list[float] = field(default_factory=lambda: [1.0, 2.0])


@refused(r"scale")
def an_attribute_changed():
    settings = Settings()
    return simple(
        loss=lambda out: (out * settings.scale).mean(), between=third(lambda m, o: setattr(settings, "scale", 3.0))
    )


@refused(r"parts")
def a_list_changed():
    settings = Settings()
    return simple(
        loss=lambda out: (out * settings.parts[1]).mean(), between=third(lambda m, o: settings.parts.append(3.0))
    )


@refused(r"array")
def an_array_changed_in_place():
    array = np.ones(4, dtype=np.float32)
    return simple(loss=lambda out: (out * torch.tensor(array)).mean(), between=third(lambda m, o: array.fill(2.0)))


@refused(r"p changed|p was|\.p")
def another_rate_of_dropout():
    return simple(mlp(nn.Dropout(0.5)), between=third(lambda model, optimizer: setattr(model[2], "p", 0.1)))


@refused(r"settings|scale")
def an_argument_object_changed():
    settings = Settings()
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(x, settings):
        optimizer.zero_grad()
        value = (model(x) * settings.scale).mean()
        value.backward()
        optimizer.step()
        return value

    rows = [(row[0], settings) for row in batches((5, 6))]
    return Loop(
        step, rows, lambda: state_of(model, optimizer), lambda n: setattr(settings, "scale", 2.0) if n == 2 else None
    )


# Values looked at ------------------------------------------------------------------------------------------------------


@refused(r"value of a tensor")
def a_branch_on_the_loss():
    return simple(loss=lambda out: out.square().mean() if out.sum() > 0 else out.abs().mean())


@branching
def an_averaged_model():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    average = torch.optim.swa_utils.AveragedModel(model)

    def step(x):
        optimizer.zero_grad()
        value = model(x).square().mean()
        value.backward()
        optimizer.step()
        average.update_parameters(model)
        return value

    return Loop(step, batches((5, 6)), lambda: [*state_of(model, optimizer), *average.parameters()])


@refused(r"value of a tensor|closure")
def lbfgs():
    model = mlp()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)

    def step(x):
        def closure():
            optimizer.zero_grad()
            value = model(x).square().mean()
            value.backward()
            return value

        return optimizer.step(closure)

    return Loop(step, batches((5, 6)), lambda: list(model.parameters()))


@right
def sgd_with_a_closure():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x):
        def closure():
            optimizer.zero_grad()
            value = model(x).square().mean()
            value.backward()
            return value

        return optimizer.step(closure)

    return Loop(step, batches((5, 6)), lambda: state_of(model, optimizer))


class Lookahead(torch.optim.Optimizer):
    """An optimizer as people write them: a Python counter in its state, and something every k steps."""

    def __init__(self, params, lr=0.1, kind="number"):
        super().__init__(params, {"lr": lr})
        self.kind = kind

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for param in group["params"]:
                state = self.state[param]
                if not state:
                    state["step"] = 0 if self.kind == "number" else torch.tensor(0.0)
                state["step"] += 1
                param.add_(param.grad, alpha=-group["lr"])
                if self.kind == "number" and state["step"] % 3 == 0:
                    param.mul_(0.5)
                if self.kind != "number" and state["step"] % 3 == 0:
                    param.mul_(0.5)


@refused(r"step")
def an_optimizer_that_counts_in_python():
    return simple(rule=Lookahead)


@branching
def an_optimizer_that_branches_on_a_tensor():
    return simple(rule=Lookahead, kind="tensor")


@right
def asgd():
    return simple(rule=torch.optim.ASGD)


@right
def asgd_foreach():
    return simple(rule=torch.optim.ASGD, foreach=True)


@right
def radam():
    return simple(rule=torch.optim.RAdam)


@right
def adafactor():
    return simple(rule=torch.optim.Adafactor)


@right
def adafactor_foreach():
    return simple(rule=torch.optim.Adafactor, foreach=True)


@right
def one_cycle_of_rate_and_betas():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=12)

    def step(x):
        optimizer.zero_grad()
        value = model(x).square().mean()
        value.backward()
        optimizer.step()
        return value

    return Loop(step, batches((5, 6)), lambda: state_of(model, optimizer), lambda number: scheduler.step())


@right
def momentum_and_weight_decay_that_change():
    def between(number, model, optimizer):
        optimizer.param_groups[0]["momentum"] *= 0.9
        optimizer.param_groups[0]["weight_decay"] *= 1.5

    return simple(rule=torch.optim.SGD, momentum=0.9, weight_decay=0.1, nesterov=True, between=between)


@refused(r"momentum")
def momentum_that_ends():
    def between(number, model, optimizer):
        if number == 2:
            optimizer.param_groups[0]["momentum"] = 0.0

    return simple(rule=torch.optim.SGD, momentum=0.9, between=between)


def scaled(fused=False, clip=False, rule=torch.optim.AdamW):
    """Mixed precision with a scale so large that some steps overflow."""
    model = mlp()
    options = {"fused": True} if fused else {}
    optimizer = rule(model.parameters(), lr=0.01, **options)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126, growth_interval=2)

    def step(x):
        optimizer.zero_grad()
        value = (model(x) * 1000).square().mean()
        scaler.scale(value).backward()
        if clip:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
        return value

    def tensors():
        # A scale that was not used yet is the one it begins with.
        inner = [scaler._scale, scaler._growth_tracker]
        return [*state_of(model, optimizer), *(value for value in inner if value is not None)]

    rows = [(x * 10.0 ** -(5 * i),) for i, (x,) in enumerate(batches((5, 6)))]
    return Loop(step, rows, tensors)


RIGHT["gradient scaler"] = scaled
RIGHT["gradient scaler, fused"] = lambda: scaled(fused=True)
RIGHT["gradient scaler, clipped"] = lambda: scaled(clip=True)
RIGHT["gradient scaler, momentum"] = lambda: scaled(rule=lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9))


@refused(r"update\(\)")
def a_gradient_scaler_updated_outside():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu")

    def step(x):
        optimizer.zero_grad()
        value = model(x).square().mean()
        scaler.scale(value).backward()
        scaler.step(optimizer)
        return value

    def between(number):
        if number:
            scaler.update()

    return Loop(step, batches((5, 6)), lambda: state_of(model, optimizer), between)


@right
def no_layer_is_left_out():
    def loss(out):
        return out.square().mean() if torch.rand([]) < 0.0 else functional.dropout(out, 0.5).abs().mean()

    return simple(loss=loss)


@branching
def layers_left_out_at_random():
    return simple(loss=lambda out: out.square().mean() if torch.rand([]) < 0.5 else out.abs().mean())


class Skipping(nn.Module):
    """Leaves layers out at random, as models of transformers do."""

    def __init__(self, kind):
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.3), nn.ReLU()) for _ in range(3)])
        self.head, self.kind, self.generator = nn.Linear(6, 4), kind, torch.Generator().manual_seed(8)

    def forward(self, x):
        for layer in self.layers:
            match self.kind:
                case "rand":
                    left_out = torch.rand([]) < 0.4
                case "generator":
                    left_out = torch.rand((), generator=self.generator) < 0.4
                case "uniform":
                    left_out = torch.empty(1).uniform_(0, 1) > 0.6
                case "state":
                    state = torch.get_rng_state()
                    torch.randn(20)
                    left_out = torch.bernoulli(torch.tensor(0.4)).bool()
                    torch.set_rng_state(state)
                case "seed":
                    torch.manual_seed(int(left_out) + 3 if layer is not self.layers[0] else 2)
                    left_out = torch.rand(3).sum() < 1.5
                case "shuffled":
                    left_out = torch.randperm(5)[0] < 2
            if left_out:
                continue
            x = x + (checkpoint(layer, x, use_reentrant=False) if self.kind == "state" else layer(x))
        return self.head(x) * torch.bernoulli(torch.full((5, 1), 0.7))


RIGHT["layers left out, seed"] = lambda: simple(Skipping("seed"))  # the same ones in every step
for name in ("rand", "generator", "uniform", "state", "shuffled"):
    BRANCHING[f"layers left out, {name}"] = lambda name=name: simple(Skipping(name))


def longer(**options):
    loop = simple(**options)
    loop.batches = batches((5, 6), count=9)
    return loop


for name, options in {"one by one": {}, "foreach": {"foreach": True}, "decay": {"weight_decay": 0.1}}.items():
    BRANCHING[f"radam, {name}"] = lambda options=options: longer(rule=torch.optim.RAdam, **options)
BRANCHING["asgd that begins to average"] = lambda: longer(rule=torch.optim.ASGD, t0=4, foreach=False)
RIGHT["asgd that averages, foreach"] = lambda: longer(rule=torch.optim.ASGD, t0=4, foreach=True)
RIGHT["adafactor, clipped"] = lambda: longer(rule=torch.optim.Adafactor, d=1.5, weight_decay=0.1)
RIGHT["adafactor, foreach"] = lambda: longer(rule=torch.optim.Adafactor, d=1.5, foreach=True, lr=0.9, eps=(1e-3, 5.0))


class Checkpointed(Skipping):
    """The same, with the draws inside of what is checkpointed: the backward pass draws them again."""

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(lambda x, layer=layer: x if torch.rand([]) < 0.4 else x + layer(x), x, use_reentrant=False)
        return self.head(x)


BRANCHING["layers left out, checkpointed"] = lambda: simple(Checkpointed(""))


class Buffered(nn.Module):
    """Looks at a counter in a buffer."""

    def __init__(self, look):
        super().__init__()
        self.inner, self.look = mlp(), look
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("table", torch.arange(3.0))

    def forward(self, x):
        self.count += 1
        return self.look(self, self.inner(x))


BRANCHING["something every third step"] = lambda: simple(Buffered(lambda m, out: out * 2 if m.count % 3 == 0 else out))
BRANCHING["a warm-up counted in a buffer"] = lambda: simple(Buffered(lambda m, out: out / 2 if m.count < 3 else out))
RIGHT["a counter in a tensor"] = lambda: simple(Buffered(lambda m, out: out * torch.clamp((1 + m.count) / 10, max=0.3)))
RIGHT["a number in a buffer"] = lambda: simple(Buffered(lambda m, out: out * float(m.table[2]) + m.table[1].item()))
REFUSED["a counter as a number"] = (
    lambda: simple(Buffered(lambda m, out: out * min(0.9, (1 + m.count.item()) / 10))), r"torch_loops.py:\d+: .*value of a tensor"
)  # fmt: skip
REFUSED["a counter made a float"] = (
    lambda: simple(Buffered(lambda m, out: out / float(m.count))), r"torch_loops.py:\d+: .*value of a tensor"
)  # fmt: skip
RIGHT["a mean over all batches"] = lambda: simple(mlp(nn.BatchNorm1d(8, momentum=None)))
REFUSED["a mask that shapes follow from"] = (
    lambda: simple(loss=lambda out: out[out > 0].mean()),
    r"depends on values.*torch\.where",
)
REFUSED["layers left out by Python"] = (
    lambda: simple(loss=lambda out: out.mean() if random.random() < 0.5 else out.sum()), r"draws from Python's random.*torch\.rand"
)  # fmt: skip


@right
def an_optimizer_in_the_backward_pass():
    model = mlp()
    optimizers = {param: torch.optim.AdamW([param], lr=0.01) for param in model.parameters()}

    def hook(param):
        optimizers[param].step()
        optimizers[param].zero_grad()

    for param in model.parameters():
        param.register_post_accumulate_grad_hook(hook)

    def step(x):
        value = model(x).square().mean()
        value.backward()
        return value

    def tensors():
        return [*model.parameters(), *(list(o.state[p].values()) for p, o in optimizers.items() if p in o.state)]

    return Loop(step, batches((5, 6)), tensors)


@right
def a_signal_and_its_spectrum():
    window = torch.hann_window(8)

    def loss(out):
        spectrum = torch.stft(out.reshape(1, -1), 8, 4, window=window, return_complex=True)
        return torch.istft(spectrum * 2, 8, 4, window=window).square().mean() + spectrum.abs().log1p().mean()

    return simple(loss=loss)


@right
def gradients_of_every_sample():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(x):
        def loss(params, row):
            return torch.func.functional_call(model, params, (row[None],)).square().mean()

        params = {key: value.detach() for key, value in model.named_parameters()}
        grads = torch.func.vmap(torch.func.grad(loss), (None, 0))(params, x)
        optimizer.zero_grad()
        for key, param in model.named_parameters():
            param.grad = grads[key].mean(0)
        optimizer.step()
        return sum(grad.square().sum() for grad in grads.values())

    return Loop(step, batches((5, 6)), lambda: state_of(model, optimizer))


@branching
def a_branch_on_an_argument():
    model = mlp()

    def step(x):
        return model(x).sum() if (x[0] > -9).all() else model(x).mean()

    rows = batches((5, 6))
    rows[3][0].fill_(-10.0)
    return Loop(step, rows, lambda: state_of(model))


@right
def a_moving_average_by_data():
    model, average = mlp(), mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(x):
        optimizer.zero_grad()
        value = model(x).square().mean()
        value.backward()
        optimizer.step()
        for old, new in zip(average.parameters(), model.parameters(), strict=True):
            old.data.mul_(0.9).add_(new.data, alpha=0.1)
        return value

    def between(number):
        if number == 2:
            average[0].weight.data = torch.ones(8, 6)

    return Loop(step, batches((5, 6)), lambda: [*state_of(model, optimizer), *average.parameters()], between)


@right
def an_averaged_model_that_has_begun():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    average = torch.optim.swa_utils.AveragedModel(model)
    average.update_parameters(model)

    def step(x):
        optimizer.zero_grad()
        value = model(x).square().mean()
        value.backward()
        optimizer.step()
        average.update_parameters(model)
        return value

    return Loop(step, batches((5, 6)), lambda: [*state_of(model, optimizer), *average.parameters(), average.n_averaged])


@right
def spectra():
    return simple(loss=lambda out: torch.fft.rfft(out).abs().mean())


class Complex(nn.Module):
    """Complex weights, products with conjugates, real and imaginary parts changed in place."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 6, dtype=torch.complex64))
        self.register_buffer("rotation", torch.polar(torch.ones(4), torch.arange(4.0)))

    def forward(self, x):
        y = x.to(torch.complex64) @ self.weight.t()
        y = y * self.rotation + y.conj() @ torch.diag(self.rotation).conj()
        parts = torch.view_as_real(y.clone())
        parts[..., 1].mul_(0.5)
        z = torch.view_as_complex(parts)
        return (z * z.conj()).real + z.imag.abs() + z.conj().imag


for name, options in {
    "adam": {},
    "foreach": {"foreach": True},
    "sgd": {"rule": torch.optim.SGD, "momentum": 0.9},
}.items():
    RIGHT[f"complex weights, {name}"] = lambda options=options: simple(Complex(), **options)


@right
def rotary_positions_as_complex_numbers():
    rotation = torch.polar(torch.ones(5, 2), torch.rand(5, 2))

    def loss(out):
        pairs = torch.view_as_complex(out.reshape(5, 2, 2).contiguous())
        return torch.view_as_real(pairs * rotation).flatten(1).square().sin().mean()

    return simple(loss=loss)


@right
def a_spectral_layer():
    def loss(out):
        spectrum = torch.fft.fft2(out)
        filtered = spectrum * torch.fft.fftshift(torch.rand_like(out)) + spectrum.conj().flip(0)
        return (
            torch.fft.ifft2(filtered).real.square().mean()
            + torch.fft.irfft(torch.fft.rfft(out, dim=0), 5, 0).abs().mean()
        )

    return simple(loss=loss)


@right
def bits_taken_for_whole_numbers():
    def loss(out):
        noisy = (out.detach().view(torch.int32) & -256).view(torch.float32)
        halves = out.detach().view(torch.float16).nan_to_num(0.0)[:, ::2].clamp(-1, 1)
        return (out * noisy + halves).square().mean()

    return simple(loss=loss)


@refused(r"weight")
def weight_norm_by_hooks():
    return simple(nn.Sequential(nn.utils.weight_norm(nn.Linear(6, 4)), nn.Tanh()))


@refused(r"torch_loops.py:\d+: the step reads the clock")
def the_clock():
    return simple(loss=lambda out: (out * time.time()).mean())


# Arguments -------------------------------------------------------------------------------------------------------------


def aligned(as_lists=False, longest=(4, 4, 4, 4, 4), **options):
    """A loss over all alignments of targets, whose lengths come with the batch."""
    model = nn.Linear(6, 7)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(x, targets, input_lengths, target_lengths):
        optimizer.zero_grad()
        scores = model(x).log_softmax(-1)
        value = functional.ctc_loss(scores, targets, input_lengths, target_lengths, **options)
        value.sum().backward()
        optimizer.step()
        return value

    rows = []
    for (x,), length in zip(batches((9, 3, 6)), longest, strict=True):
        lengths = [9, 8, 7], [length, 2, 3] if not as_lists else [4, 2, 3]
        targets = torch.randint(1, 7, (3, 5), generator=torch.Generator().manual_seed(length))
        rows.append((x, targets, *(lengths if as_lists else map(torch.tensor, lengths))))
    return Loop(step, rows, lambda: state_of(model, optimizer))


RIGHT["ctc"] = aligned
REFUSED["ctc, lists"] = (lambda: aligned(as_lists=True), r"torch_loops.py:\d+: pass the lengths to ctc_loss as tensors")
RIGHT["ctc, sum"] = lambda: aligned(reduction="sum", zero_infinity=True)
BRANCHING["ctc, other lengths"] = lambda: aligned(longest=(4, 5, 3, 5, 4), reduction="none")


@right
def a_stale_gradient():
    """A parameter that the model no longer uses keeps its gradient, and the optimizer goes on with it."""
    model, unused = mlp(), nn.Parameter(torch.ones(3))
    unused.grad = torch.ones(3)
    optimizer = torch.optim.AdamW([unused, *model.parameters()], lr=0.01)

    def step(x):
        value = model(x).square().mean()
        value.backward()
        optimizer.step()
        return value

    return Loop(step, batches((5, 6)), lambda: [*state_of(model, optimizer), unused, unused.grad])


# Numbers read from tensors, to return them -------------------------------------------------------------------------------


def reading(read, **options):
    """A step that returns numbers, as people log them."""
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, **options)

    def step(x):
        optimizer.zero_grad()
        out = model(x)
        value = out.square().mean()
        value.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return read(value, out, norm)

    return Loop(step, batches((5, 6)), lambda: state_of(model, optimizer))


RIGHT["a loss as a number"] = lambda: reading(lambda value, out, norm: value.item())
RIGHT["numbers in a dict"] = lambda: reading(
    lambda value, out, norm: {
        "loss": value.item() * 5 + 1, "norm": norm.item(), "mean": 1 / out.mean().item() ** 2, "right": (out > 0).sum().item(),
        "all": (out > 9).all().item(), "half": value.detach().half().item() - 0.5, "tensor": value.detach(),
    }
)  # fmt: skip
RIGHT["not a number"] = lambda: reading(lambda value, out, norm: (value / 0 - value / 0).item())
REFUSED["a branch on the loss as a number"] = (
    lambda: reading(lambda value, out, norm: value.item() if value.item() < 1 else 1.0), r"torch_loops.py:\d+: .*value of a tensor"
)  # fmt: skip
REFUSED["a loss that is no number"] = (
    lambda: reading(lambda value, out, norm: None if math.isnan(value.item()) else value), r"py:\d+: .*value of a tensor"
)  # fmt: skip
REFUSED["a loss printed"] = (
    lambda: reading(lambda value, out, norm: f"{value.item():.3f}"), r"torch_loops.py:\d+: .*value of a tensor"
)  # fmt: skip
REFUSED["a number on a tensor"] = (
    lambda: reading(lambda value, out, norm: out * value.item()), r"torch_loops.py:\d+: .*use the tensor"
)  # fmt: skip
REFUSED["a number filled in"] = (
    lambda: reading(lambda value, out, norm: torch.full((2,), value.item())), r"torch_loops.py:\d+: .*use the tensor"
)  # fmt: skip
REFUSED["a number kept"] = (
    lambda: simple(loss=lambda out, kept=[]: (kept.append(out.mean().item()), out.mean())[1]), "kept"
)  # fmt: skip
BRANCHING["a draw as a number"] = lambda: simple(
    loss=lambda out: (out if torch.rand(1).item() < 0.5 else 2 * functional.dropout(out, 0.2)).square().mean()
)


@right
def the_same_tensor_twice():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(x, y):
        optimizer.zero_grad()
        value = (model(x) - y[:, :4]).square().mean()
        value.backward()
        optimizer.step()
        return value

    return Loop(step, [(row[0], row[0]) for row in batches((5, 6))], lambda: state_of(model, optimizer))


@refused(r"same")
def the_same_tensor_twice_and_then_two():
    loop = the_same_tensor_twice()
    loop.batches[3:] = [(row[0], row[0] + 1) for row in loop.batches[3:]]
    return loop


@dataclass
class Batch:
    x: torch.Tensor
    y: torch.Tensor
    name: str = "train"


@right
def a_dataclass_batch():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(batch):
        optimizer.zero_grad()
        value = (model(batch.x) - batch.y).square().mean()
        value.backward()
        optimizer.step()
        return {"loss": value}

    return Loop(step, [(Batch(x, y),) for x, y in batches((5, 6), (5, 4))], lambda: state_of(model, optimizer))


@refused(r"shares memory|share memory")
def an_argument_that_is_a_parameter_s_memory():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(x, w):
        optimizer.zero_grad()
        value = model(x).square().mean()
        value.backward()
        optimizer.step()
        return value + w.sum()

    rows = [(row[0], model[0].weight.detach()) for row in batches((5, 6))]
    return Loop(step, rows, lambda: state_of(model, optimizer))


@refused(r"subclass|Marked")
def a_subclass_of_tensors():
    class Marked(torch.Tensor):
        pass

    loop = simple()
    loop.batches = [(row[0].as_subclass(Marked),) for row in loop.batches]
    return loop


def nested(layout):
    weight = torch.ones(3, requires_grad=True)

    def step(x):
        return (x * weight).values().sum() if layout == torch.jagged else (x * 2).to_padded_tensor(0.0).sum()

    rows = [(torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=layout),) for _ in range(5)]
    return Loop(step, rows, lambda: [weight])


REFUSED["nested tensors"] = (lambda: nested(torch.jagged), r"argument 0 is a nested tensor; pass it padded")
REFUSED["nested tensors, strided"] = (lambda: nested(torch.strided), r"argument 0 is a nested tensor; pass it padded")
REFUSED["nested tensors made inside"] = (
    lambda: simple(loss=lambda out: torch.nested.as_nested_tensor([out, out[1:]], layout=torch.jagged).values().mean()),
    r"torch_loops.py:\d+: .*NestedTensor",
)


@refused(r"array|tensor")
def an_array_as_an_argument():
    model = mlp()
    return Loop(
        lambda x: model(torch.as_tensor(x)).sum(), [(np.ones((5, 6), dtype=np.float32),)] * 5, lambda: state_of(model)
    )


@right
def accumulated_gradients():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(x):
        value = model(x).square().mean()
        value.backward()
        return value

    def between(number):
        if number % 2 == 1:
            optimizer.step()
            optimizer.zero_grad()

    return Loop(step, batches((5, 6)), lambda: state_of(model, optimizer), between)


# Loops put together from parts -----------------------------------------------------------------------------------------


def _count(state):
    state.count += 1


def _toggle(state, model, optimizer):
    model.train(not model.training)


PARTS: dict[str, dict[str, Any]] = {
    "rule": {
        "sgd": lambda params: torch.optim.SGD(params, 0.01),
        "momentum": lambda params: torch.optim.SGD(params, 0.01, momentum=0.9),
        "adam": lambda params: torch.optim.Adam(params, 0.01),
        "adamw": lambda params: torch.optim.AdamW(params, 0.01, foreach=True),
        "nadam": lambda params: torch.optim.NAdam(params, 0.01),
        "rprop": lambda params: torch.optim.Rprop(params, 0.01),
        "radam": lambda params: torch.optim.RAdam(params, 0.01),
        "adafactor": lambda params: torch.optim.Adafactor(params, 0.01),
        "asgd": lambda params: torch.optim.ASGD(params, 0.01),
    },
    "layer": {
        "none": nn.Identity,
        "dropout": lambda: nn.Dropout(0.5),
        "batch norm": lambda: nn.BatchNorm1d(8),
        "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)),
        "spectral norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8)),
    },
    "noise": {
        "none": lambda out, state: out,
        "draw": lambda out, state: out + torch.randn_like(out),
        "generator": lambda out, state: out + torch.randn(out.shape, generator=state.generator),
        "seed": lambda out, state: (torch.manual_seed(5), functional.dropout(out, 0.3))[1],
        "numpy": lambda out, state: out * float(np.random.rand()),
        "python": lambda out, state: out * random.random(),
        "left out": lambda out, state: out if torch.rand([]) < 0.5 else functional.dropout(out, 0.5),
        "left out by its own": lambda out, state: out if torch.rand(2, generator=state.generator).max() < 0.6 else -out,
        "drawn number": lambda out, state: out * 2 if torch.rand(1).item() < 0.5 else out + torch.rand(4),
        "spectrum": lambda out, state: torch.fft.fft(out + torch.rand(())).real,
        "pairs": lambda out, state: torch.view_as_real(torch.view_as_complex(out.reshape(5, 2, 2)).conj() * 1j).flatten(
            1
        ),
        "checkpoint": lambda out, state: checkpoint(lambda x: functional.dropout(x * 2, 0.5), out, use_reentrant=False),
    },
    "number": {
        "none": lambda out, state: out,
        "scale": lambda out, state: out * state.scale,
        "tensor": lambda out, state: out * torch.tensor(float(state.count)),
        "counted": lambda out, state: (_count(state), out * (2 if state.count % 3 == 0 else 1))[1],
        "table": lambda out, state: out * state.tables[state.count % 2],
        "third": lambda out, state: (state.ticks.add_(1), out * 2 if state.ticks % 3 == 0 else out)[1],
        "ticks": lambda out, state: out * state.ticks.add_(1).clamp(max=3),
        "ticks read": lambda out, state: out * state.ticks.add_(1).item(),
        "mask": lambda out, state: out * 2 if (state.mask > 0).all() else out,
    },
    "gradients": {
        "thrown away": lambda optimizer, state: optimizer.zero_grad(),
        "set to zero": lambda optimizer, state: optimizer.zero_grad(set_to_none=False),
        "accumulated": lambda optimizer, state: None,
        "every other": lambda optimizer, state: optimizer.zero_grad() if state.count % 2 == 0 else None,
    },
    "result": {
        "tensor": lambda value, out: value,
        "number": lambda value, out: value.item(),
        "several": lambda value, out: {
            "loss": 2 * value.item() + 1,
            "out": out.detach(),
            "right": (out > 0).sum().item(),
        },
        "branch": lambda value, out: value if value.item() < 1e9 else out,
    },
    "change": {
        "nothing": lambda state, model, optimizer: None,
        "training": _toggle,
        "rate": lambda state, model, optimizer: optimizer.param_groups[0].update(lr=0.1),
        "frozen": lambda state, model, optimizer: model[0].requires_grad_(False),
        "scale": lambda state, model, optimizer: setattr(state, "scale", 3.0),
        "count": lambda state, model, optimizer: _count(state),
        "mask": lambda state, model, optimizer: state.mask.zero_(),
        "tables": lambda state, model, optimizer: state.tables.reverse(),
        "hook": lambda state, model, optimizer: model[0].register_forward_hook(lambda m, a, out: out * 2),
        "parameter": lambda state, model, optimizer: setattr(model[0], "bias", nn.Parameter(torch.zeros(8))),
        "data": lambda state, model, optimizer: setattr(model[0].weight, "data", torch.randn(6, 8).t()),
        "seed": lambda state, model, optimizer: state.generator.manual_seed(9),
        "loaded": lambda state, model, optimizer: optimizer.load_state_dict(optimizer.state_dict()),
    },
}


class State:
    """What a loop keeps between steps."""

    def __init__(self) -> None:
        self.count, self.scale = 0, 1.0
        self.tables, self.mask = [torch.ones(4), torch.full((4,), 2.0)], torch.ones(4)
        self.generator, self.ticks = torch.Generator().manual_seed(3), torch.tensor(0)


def put_together(choices: dict[str, str], when: int) -> Loop:
    """Return the loop of some choices among `PARTS`, one of each; the change happens before step number `when`."""
    rule, layer, noise, number, gradients, result, change = (PARTS[name][choices[name]] for name in PARTS)
    model, state = mlp(layer()), State()
    optimizer = rule(model.parameters())

    def step(x):
        gradients(optimizer, state)
        out = number(noise(model(x), state), state)
        value = out.square().mean()
        value.backward()
        optimizer.step()
        return result(value, out)

    def between(count):
        if count == when:
            change(state, model, optimizer)

    return Loop(
        step, batches((5, 6)), lambda: [*state_of(model, optimizer), state.generator.get_state(), state.ticks], between
    )
