"""A step that runs as it is after a planned one never trains on gradients that the plan threw away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import pebbler.torch as pt
from pebbler.run.torch.run.forgotten_gradients import GradientsForgotten

_BATCH = torch.linspace(-1, 1, 24).reshape(6, 4)


def _loop(way: str) -> tuple[torch.nn.Module, Callable[..., torch.Tensor]]:
    """Return a model and its step; it cannot be planned with `way` for a number, since it then changes a list."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    rule = torch.optim.SGD(model.parameters(), lr=0.1)
    log: list[int] = []

    def step(x: torch.Tensor, plain: bool) -> torch.Tensor:
        if not plain:
            log.append(1)
        if plain or way != "add":
            rule.zero_grad(set_to_none=plain or way != "zero")
        hidden = model[0](x)
        if not plain and way == "use":
            rule.zero_grad = lambda set_to_none=True: None  # type: ignore[method-assign]
            hidden = hidden.detach()
        loss = model[1](hidden).square().mean()
        loss.backward()
        rule.step()
        return loss

    return model, step


def _train(run: Callable[..., Any], model: torch.nn.Module, calls: list[bool]) -> list[torch.Tensor]:
    losses = [run(_BATCH, plain).detach().clone() for plain in calls]
    return [*losses, *(p.detach().clone() for p in model.parameters())]


@pytest.mark.filterwarnings("ignore:the step runs as it is")
@pytest.mark.parametrize("way", ["none", "zero"])
def test_a_step_that_clears_gradients_trains_alike(way: str) -> None:
    calls = [True, False, False, True, False]
    model, step = _loop(way)
    expected = _train(step, model, calls)
    model, step = _loop(way)
    got = _train(pt.step(step, device="cpu"), model, calls)
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


@pytest.mark.filterwarnings("ignore:the step runs as it is")
def test_a_step_that_adds_to_gradients_is_stopped_with_nothing_changed() -> None:
    model, step = _loop("add")
    fast = pt.step(step, device="cpu")
    fast(_BATCH, True)
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(GradientsForgotten, match="keep_grads=True"):
        fast(_BATCH, False)
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))


@pytest.mark.filterwarnings("ignore:the step runs as it is")
def test_with_gradients_kept_it_trains_alike() -> None:
    calls = [True, False, True, False]
    model, step = _loop("add")
    expected = _train(step, model, calls)
    model, step = _loop("add")
    got = _train(pt.step(step, device="cpu", keep_grads=True), model, calls)
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
