"""An update in place whose old value is kept in a copy is planned as one that is not in place, with the same results."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

import pebbler.torch as pt
from pebbler.run.torch.capture.captured import capture


def _convnet(inplace: bool) -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.SiLU(inplace=inplace)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))


def _trained(model: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).tanh().sum()
        loss.backward()
        optimizer.step()
        return loss

    return step


def test_an_activation_in_place_can_be_made_again() -> None:
    apart, in_place = (capture(_trained(_convnet(inplace)), torch.randn(2, 4, 16, 16)) for inplace in (False, True))
    assert [[call.name for call in group.calls] for group in in_place.phases[-1].groups] == [
        [call.name for call in group.calls] for group in apart.phases[-1].groups
    ]
    assert sorted(t.size for t in in_place.graph.tensors) == sorted(t.size for t in apart.graph.tensors)


def _slice_first(y: torch.Tensor) -> torch.Tensor:
    kept = y.clone()
    y[:, 1:].mul_(0.5)
    return y + kept


def _twice(y: torch.Tensor) -> torch.Tensor:
    first = y.clone()
    y.sin_()
    second = y.clone()
    y.mul_(0.5)
    return y + first * second


def _copy_changed(y: torch.Tensor) -> torch.Tensor:
    kept = y.clone()
    y.tanh_()
    kept.add_(1.0)
    return y * kept


def _two_copies(y: torch.Tensor) -> torch.Tensor:
    a, b = y.clone(), y.clone()
    y.neg_()
    return a * b + y


def _view_kept(y: torch.Tensor) -> torch.Tensor:
    kept, row = y.clone(), y[0]
    y.exp_()
    return y + kept + row


_PARTS = {
    "silu": lambda y: functional.silu(y * 1.5, inplace=True),
    "mish": lambda y: functional.mish(y * 1.5, inplace=True),
    "hardswish": lambda y: functional.hardswish(y + 0.5, inplace=True),
    "elu": lambda y: functional.elu(y * 2.0, inplace=True),
    "turned": lambda y: functional.silu((y * 2.0).t(), inplace=True).t(),
    "slice": lambda y: _slice_first(y * 1.5),
    "twice": lambda y: _twice(y * 1.5),
    "changed": lambda y: _copy_changed(y * 1.5),
    "copies": lambda y: _two_copies(y * 1.5),
    "view": lambda y: _view_kept(y * 0.5),
    "broadcast": lambda y: (lambda z: z.add_(y[:1]) * z.clone())((y * 1.5).clone()),
}


def _compare(names: list[str], share: float) -> None:
    torch.manual_seed(1)
    weights = nn.ParameterList(nn.Parameter(torch.randn(6, 6) / 3) for _ in names)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = copy.deepcopy(weights)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for name, weight in zip(names, self.weights, strict=True):
                x = _PARTS[name](x @ weight)
            return x

    models = [Model(), Model()]
    steps = [_trained(model) for model in models]
    x = torch.randn(6, 6)
    captured = capture(steps[1], x)
    costs = pt.roofline(captured, "cpu")
    free = pt.plan_captured(captured, costs).peak
    _, least = pt.least_budget(captured, costs, time_limit=0.3)
    plan = pt.plan_captured(captured, costs, budget=int(least + share * (free - least)), time_limit=0.3)
    planned = pt.compile(plan, steps[1], verify=1)
    for _ in range(3):
        torch.testing.assert_close(planned(x), steps[0](x).detach(), rtol=0, atol=0, equal_nan=True)
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


@pytest.mark.slow
@given(st.lists(st.sampled_from(sorted(_PARTS)), min_size=1, max_size=4), st.sampled_from([0.0, 0.5, 1.0]))
@settings(max_examples=3)
def test_steps_with_copies_and_updates_train_alike(names: list[str], share: float) -> None:
    _compare(names, share)


@pytest.mark.slow
@given(st.lists(st.sampled_from(sorted(_PARTS)), min_size=1, max_size=5), st.sampled_from([0.0, 0.3, 0.6, 1.0]))
@settings(max_examples=100)
def test_many_steps_with_copies_and_updates_train_alike(names: list[str], share: float) -> None:
    _compare(names, share)
