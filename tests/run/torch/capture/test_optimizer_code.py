"""Code of the user's that an optimizer runs is seen, whatever way it comes in; torch's own need not be watched."""

from __future__ import annotations

import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

import pebbler.torch as pt  # noqa: E402
from pebbler.errors import InputError  # noqa: E402

FACTOR = [1.0]


def scaled(optimizer, *_):
    for group in optimizer.param_groups:
        for param in group["params"]:
            param.grad.mul_(FACTOR[0])


class Own(torch.optim.SGD):
    def step(self, closure=None):
        scaled(self)
        return super().step(closure)


def make(kind):
    FACTOR[0] = 1.0
    weight = torch.nn.Parameter(torch.ones(3))
    rule = (Own if kind == "class" else torch.optim.SGD)([weight], lr=0.1)
    if kind == "before":
        rule.register_step_pre_hook(scaled)
    if kind == "after":
        rule.register_step_post_hook(scaled)

    def step(x):
        rule.zero_grad()
        loss = (weight * x).square().sum()
        loss.backward()
        rule.step()
        return loss

    return step


@pytest.mark.parametrize("kind", ["class", "before", "after"])
def test_a_global_that_code_in_an_optimizer_reads_is_guarded(kind):
    step = make(kind)
    fast = pt.compile(pt.plan(step, [torch.ones(3)], device="cpu"), step)
    fast(torch.ones(3))
    FACTOR[0] = 0.5
    with pytest.raises(InputError, match="FACTOR"):
        fast(torch.ones(3))


def test_code_after_an_optimizer_of_torch_s_is_watched_again():
    weight = torch.nn.Parameter(torch.ones(3))
    rule = torch.optim.SGD([weight], lr=0.1)
    FACTOR[0] = 1.0

    def late(x):
        return x * FACTOR[0]

    def step(x):
        rule.zero_grad()
        (weight * x).square().sum().backward()
        rule.step()
        return late(x)

    captured = pt.capture(step, torch.ones(3))
    assert sys.getprofile() is None
    FACTOR[0] = 2.0
    with pytest.raises(InputError, match="FACTOR"):
        captured.guards.check()
