"""Asking before a step what it will find: the answers are the step's own, and nothing is changed by asking."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

import pebbler.torch as pt  # noqa: E402
from pebbler.errors import InputError  # noqa: E402


def answers(step, *args):
    """Capture a step; return what it would answer now, question by question."""
    captured = pt.capture(step, *args)
    early = captured.phases[-1].record.early
    sources = early.sources(lambda place: captured.state.resolve(place, captured.state.leaves))
    return [answer for _, answer in early.ask(sources)]


@pytest.mark.parametrize("seed", range(6))
def test_answers_are_those_of_the_step(seed):
    seen = []
    generator = torch.Generator()
    ticks = torch.tensor(seed)

    def step(x, mask):
        x = torch.nn.functional.dropout(x, 0.3)
        for question in (
            lambda: torch.rand([]) < 0.5,
            lambda: mask.all(),
            lambda: torch.randn(17)[3] > 0,
            lambda: torch.rand(3, generator=generator).sum() > 1.5,
            lambda: ticks.add_(1) % 3 == 0,
            lambda: torch.empty(5).bernoulli_(0.5).sum() > 2,
        ):
            answer = bool(question())
            seen.append(answer)
            x = torch.nn.functional.dropout(x, 0.2) if answer else x + torch.randn(4)
        return x

    mask = torch.ones(3) if seed % 2 else torch.zeros(3)
    torch.manual_seed(seed)
    generator.manual_seed(seed)

    def state():
        return torch.get_rng_state(), generator.get_state(), ticks.clone()

    before = state()
    asked = answers(lambda *args: (step(*args), seen.clear())[0], torch.ones(4), mask)
    assert all(torch.equal(one, other) for one, other in zip(before, state(), strict=True))
    step(torch.ones(4), mask)
    assert asked == seen
    assert len(asked) == 6


def test_a_refused_call_changes_nothing():
    ticks, weight = torch.tensor(0), torch.ones(4)

    def step(x):
        weight.mul_(2 if ticks.add_(1) % 2 == 0 else torch.rand([]) < 2)
        return torch.nn.functional.dropout(x * weight, 0.5)

    fast = pt.compile(pt.plan(step, [torch.ones(4)], device="cpu"), step)
    fast(torch.ones(4))
    before = torch.get_rng_state(), ticks.clone(), weight.clone()
    with pytest.raises(InputError, match=r"test_early_values.py:\d+: the step branches on a value"):
        fast(torch.ones(4))
    assert all(torch.equal(a, b) for a, b in zip(before, (torch.get_rng_state(), ticks, weight), strict=True))
