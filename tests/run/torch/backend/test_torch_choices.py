"""Torch's own choices: asked for once each, and never better than ours at their peaks."""

from __future__ import annotations

import random

import pytest
import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import partitioners
from torch._inductor.decomposition import select_decomp_table
from torch.nn import functional

from pebbler.run.torch.backend import partitioner as choices
from pebbler.run.torch.backend.partitioner import SavedValuesPartitioner
from pebbler.run.torch.backend.saved_frontier import saved_frontier
from pebbler.run.torch.backend.step_memory import StepMemory
from pebbler.run.torch.cost.costs import DEVICES
from quick_cases import quick_only

from .test_saved_frontier import MODELS, plain, traced

BUDGETS = (0.5, 0.3, 0.1)


def compare(model, x, budgets):
    """Return for every budget of torch's how much more our choice at its peak would cost, as a part of its cost."""

    def loss(x):
        return model(x).float().square().mean()

    compiled, seen = traced(loss, budgets=(*BUDGETS, *budgets), decompositions=select_decomp_table())
    compiled(x)
    memory = StepMemory(seen.step)
    frontier = saved_frontier(memory, [seen.theirs[b] for b in (1.0, *BUDGETS)], 60.0)
    more = {}
    for budget in (*BUDGETS, *budgets):
        theirs = memory.simulate(seen.theirs[budget])
        # A choice that holds a thousandth less than another is not worth a place of its own.
        ours = next((c for c in frontier if c.peak <= theirs.peak * 1.001), None)
        assert ours is not None or not theirs.legal
        if theirs.legal:
            more[budget] = ours.cost / theirs.cost - 1
    return more


@pytest.mark.parametrize("name", quick_only(["conv"], MODELS))
def test_ours_is_never_predicted_slower_at_the_peaks_of_torchs_choices(name):
    torch.manual_seed(0)
    assert max(compare(*MODELS[name](), ()).values()) <= 1e-9


class Residual(nn.Module):
    """A model added to its input."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return x + self.inner(x)


class Attention(nn.Module):
    """Attention in one call, or written out."""

    def __init__(self, width, heads, fused):
        super().__init__()
        self.inner, self.outer = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.fused = heads, fused

    def forward(self, x):
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (y.view(shape).transpose(1, 2) for y in self.inner(x).chunk(3, -1))
        return self.outer(self.mix(q, k, v).transpose(1, 2).reshape(batch, length, width))

    def mix(self, q, k, v):
        if self.fused:
            return functional.scaled_dot_product_attention(q, k, v)
        return torch.softmax(q @ k.transpose(-1, -2) / 8, -1) @ v


def random_sequence(draw):
    width = draw.choice([32, 64])

    def block():
        norm = draw.choice([nn.LayerNorm(width), nn.RMSNorm(width), nn.Identity()])
        act = draw.choice([nn.GELU, nn.SiLU, nn.ReLU, nn.Tanh])()
        inner = draw.choice(
            [
                lambda: (nn.Linear(width, 4 * width), act, nn.Linear(4 * width, width)),
                lambda: (Attention(width, 2, draw.random() < 0.5),),
                lambda: (nn.Linear(width, 8 * width), nn.GLU(), nn.Linear(4 * width, width)),
            ]
        )()
        return Residual(nn.Sequential(norm, *inner)) if draw.random() < 0.8 else nn.Sequential(norm, *inner)

    return nn.Sequential(*[block() for _ in range(draw.randint(2, 6))]), torch.randn(4, 64, width)


def random_pictures(draw):
    width = draw.choice([8, 16])

    def block():
        norms = [draw.choice([nn.BatchNorm2d(width), nn.GroupNorm(4, width), nn.Identity()]) for _ in range(2)]
        first = nn.Conv2d(width, width, 3, padding=1)
        second = nn.Conv2d(width, width, 3, padding=1, groups=draw.choice([1, width]))
        act = draw.choice([nn.ReLU, nn.SiLU, nn.GELU])()
        whole = Residual(nn.Sequential(first, norms[0], act, second, norms[1]))
        return nn.Sequential(whole, nn.AvgPool2d(2)) if draw.random() < 0.2 else whole

    blocks = [block() for _ in range(draw.randint(2, 6))]
    return nn.Sequential(nn.Conv2d(3, width, 3, padding=1), *blocks), torch.randn(4, 3, 32, 32)


@pytest.mark.slow
def test_random_models_are_never_predicted_slower():
    between = []
    for seed in range(40):
        torch.manual_seed(seed)
        draw = random.Random(seed)
        more = compare(*(random_sequence if seed % 2 else random_pictures)(draw), (0.8, 0.2))
        assert max((more[b] for b in BUDGETS if b in more), default=0) <= 1e-9
        between += [more[b] for b in (0.8, 0.2) if b in more]
    assert max(between) <= 0.03  # budgets that torch was not asked for
    assert sum(between) / len(between) < -0.02


def test_every_cut_is_computed_once(monkeypatch):
    asked = []
    choices._remember()
    solve = partitioners.solve_min_cut.__wrapped__
    monkeypatch.setattr(
        partitioners, "solve_min_cut", lambda *args, **more: asked.append(repr(args[2:])) or solve(*args, **more)
    )
    monkeypatch.setattr(choices, "_remember", choices._remember.__wrapped__)
    model, x = MODELS["mlp"]()
    compiled, _ = traced(lambda x: model(x).square().mean(), budgets=BUDGETS)
    compiled(x)
    assert len(asked) == len(set(asked)) > 1


def test_torch_is_not_asked_again_where_choices_are_known():
    asked = []

    class Counting(SavedValuesPartitioner):
        def _saved(self, graph, info, outputs, choose):
            return super()._saved(graph, info, outputs, lambda budget: asked.append(budget) or choose(budget))

    seen = Counting(DEVICES["cpu"], 60.0, lambda frontier: 1)
    model, x = MODELS["mlp"]()
    backend = aot_autograd(fw_compiler=plain, bw_compiler=plain, partition_fn=seen)
    for expected in ([1.0, *BUDGETS], []):
        torch._dynamo.reset()
        torch.compile(lambda x: model(x).square().mean(), backend=backend)(x)
        assert asked == expected
        asked.clear()
    seen.frontier.place = 0
    torch._dynamo.reset()
    torch.compile(lambda x: model(x).square().mean(), backend=backend)(x)
    assert asked == [1.0]


def test_torchs_code_may_fail_or_take_long(monkeypatch):
    def choose(budget):
        if budget < 0.4:
            raise RuntimeError("no")
        return [budget]

    assert choices.torch_choices(choose, 60.0) == [[1.0], [0.5]]
    clock = iter([0.0, 1.0, 7.0])
    monkeypatch.setattr(choices.time, "monotonic", lambda: next(clock))
    assert choices.torch_choices(lambda budget: [budget], 60.0) == [[1.0], [0.5]]
