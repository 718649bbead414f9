"""Nothing trains, clips or logs with gradients that a plan threw away, neither eager code nor another planned step."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch

import pebbler.torch as pt
from pebbler.run.torch.capture.forgotten_gradients import ForgottenGradient, GradientsForgotten

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


def _forgotten() -> tuple[torch.nn.Linear, torch.optim.Optimizer, Callable[[torch.Tensor], torch.Tensor]]:
    """Return a model after a planned step that clears gradients first and keeps none, its optimizer and the step."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    rule = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: torch.Tensor) -> torch.Tensor:
        rule.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        rule.step()
        return loss

    fast = pt.step(step, device="cpu", time_limit=0.1, strict=True)
    fast(_BATCH)
    assert all(isinstance(p.grad, ForgottenGradient) for p in model.parameters())
    return model, rule, fast


USES: dict[str, Callable[[torch.nn.Linear, torch.optim.Optimizer], Any]] = {
    "norm": lambda model, rule: model.weight.grad.norm(),
    "clipping": lambda model, rule: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0),
    "clipping values": lambda model, rule: torch.nn.utils.clip_grad_value_(model.parameters(), 1.0),
    "adding": lambda model, rule: model(_BATCH).sum().backward(),
    "a step of the optimizer": lambda model, rule: rule.step(),
    "a step for every tensor": lambda model, rule: torch.optim.SGD(model.parameters(), foreach=False).step(),
    "a fused step": lambda model, rule: torch.optim.AdamW(model.parameters(), fused=True).step(),
    "numbers": lambda model, rule: model.weight.grad.tolist(),
    "numpy": lambda model, rule: model.weight.grad.numpy(),
    "comparing": lambda model, rule: torch.equal(model.weight.grad, torch.ones(2, 4)),
    "scaling": lambda model, rule: model.weight.grad.mul_(0.5),
    "data": lambda model, rule: model.weight.grad.data.add_(1),
    "saving": lambda model, rule: torch.save(model.weight.grad, io.BytesIO()),
    "printing numbers": lambda model, rule: f"{model.bias.grad.sum():.3f}",
    "another plan": lambda model, rule: pt.step(lambda x: model(x).sum().backward(), device="cpu")(_BATCH),
}  # fmt: skip


@pytest.mark.parametrize("use", USES)
def test_whoever_uses_the_numbers_is_told(use: str) -> None:
    model, rule, _ = _forgotten()
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(GradientsForgotten, match="keep_grads=True"):
        USES[use](model, rule)
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))


def test_whoever_does_not_is_left_alone() -> None:
    model, rule, fast = _forgotten()
    assert "not kept" in repr(model.weight.grad)
    assert model.weight.grad.shape == (2, 4)
    assert copy.deepcopy(model)(_BATCH).shape == (6, 2)
    torch.save(model.state_dict(), io.BytesIO())
    torch.save(model, io.BytesIO())
    for change in (
        lambda: model.double(),
        lambda: model.float(),
        lambda: model.share_memory(),
        lambda: model.to("cpu"),
    ):
        change()
        assert isinstance(model.weight.grad, ForgottenGradient)
    assert model.weight.grad.dtype == torch.float32
    rule.zero_grad()
    assert model.weight.grad is None
    fast(_BATCH)
    for foreach in (False, True):
        torch.optim.SGD(model.parameters(), foreach=foreach).zero_grad(set_to_none=False)
        assert all(torch.equal(p.grad, torch.zeros_like(p)) for p in model.parameters())
        fast(_BATCH)
    model.zero_grad()
    model(_BATCH).sum().backward()
    rule.step()


def test_what_was_forgotten_takes_no_memory_from_the_next_plan() -> None:
    """Profiles for another shape or with more headroom count what else is on a device, by the addresses of what lasts."""
    model, _, fast = _forgotten()
    lasting = pt.capture(fast.function, _BATCH[:3]).state.lasting_tensors()
    assert {tensor.untyped_storage().data_ptr() for tensor in lasting} >= {p.data_ptr() for p in model.parameters()}


@pytest.mark.parametrize("kind", ["eager", "planned"])
def test_gradients_are_missed_across_functions(kind: str) -> None:
    """One function clears gradients and leaves them, the other adds to what it finds."""

    def train(planned: bool, keep: bool) -> list[float]:
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 2)
        rule = torch.optim.SGD(model.parameters(), lr=0.1)

        def clears(x: torch.Tensor) -> torch.Tensor:
            rule.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            rule.step()
            return loss

        def adds(x: torch.Tensor) -> torch.Tensor:
            loss = model(x).mean()
            loss.backward()
            rule.step()
            return loss

        one = pt.step(clears, device="cpu", time_limit=0.1, keep_grads=keep) if planned else clears
        other = pt.step(adds, device="cpu", time_limit=0.1) if planned and kind == "planned" else adds
        return [part(_BATCH).item() for _ in range(3) for part in (one, other)]

    with pytest.raises(GradientsForgotten):
        train(True, False)
    assert train(True, True) == train(False, False)


@pytest.mark.parametrize("early", [True, False])
def test_a_planned_step_may_clear_in_place_what_another_has_forgotten(early: bool) -> None:
    def train(planned: bool) -> list[float]:
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 2)
        rule = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def forgets(x: torch.Tensor) -> torch.Tensor:
            rule.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            rule.step()
            return loss

        def clears(x: torch.Tensor) -> torch.Tensor:
            if early:
                rule.zero_grad(set_to_none=False)
            loss = model(x).mean()
            if not early:
                rule.zero_grad(set_to_none=False)
            loss.backward()
            rule.step()
            return loss

        parts = [pt.step(f, device="cpu", time_limit=0.1, strict=True) if planned else f for f in (forgets, clears)]
        return [part(_BATCH).item() for _ in range(4) for part in parts]

    assert train(True) == train(False)
