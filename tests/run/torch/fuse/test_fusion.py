"""Fusing changes what is run together, never what is computed."""

from __future__ import annotations

import importlib.util

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

import pebbler.torch as pt  # noqa: E402
import torch_models as models  # noqa: E402
from pebbler.run.torch.run.runner import Runner  # noqa: E402
from quick_cases import quick_only  # noqa: E402


def call_by_call(captured, plan):
    """Return the fused step as it runs without its kernels."""
    return Runner(captured, [phase.moves for phase in plan.phases])


@pytest.mark.parametrize("name", quick_only(["mlp", "normed"], ["mlp", "normed", "gpt2", "resnet", "lstm"]))
def test_fused_ops_run_call_by_call_compute_the_same_bits(name):
    if name == "gpt2" and importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed: pip install transformers")
    training = getattr(models, name)()
    training.reset()
    losses = [training.step(*batch).item() for batch in training.batches]
    state = [tensor.clone() for tensor in training.tensors()]
    training.reset()
    captured = pt.fuse(pt.capture(training.step, *training.batches[0]))
    costs = pt.roofline(captured, "cpu")
    whole = pt.plan_captured(captured, costs)
    assert len(captured.graph.ops) < len(pt.capture(training.step, *training.batches[0]).graph.ops)
    _, least = pt.least_budget(captured, costs, time_limit=0.2)
    tight = pt.plan_captured(captured, costs, budget=int(0.4 * whole.peak + 0.6 * least), time_limit=0.2)
    for plan in (whole, tight):
        assert all(judgement.legal for judgement in plan.judge())
        training.reset()
        step = call_by_call(captured, plan)
        assert [step(*batch).item() for batch in training.batches] == losses
        assert all(torch.equal(a, b) for a, b in zip(training.tensors(), state, strict=True))


@st.composite
def programs(draw):
    """Return a program on square tensors as a list of (operator, operands)."""
    program, alive = [], 2
    for _ in range(draw(st.integers(2, 14))):
        kind = draw(st.sampled_from(["exp", "add", "mul", "sum", "mm", "t", "add_", "copy", "softmax", "row_"]))
        operands = [draw(st.integers(0, alive - 1)) for _ in range(2)]
        program.append((kind, operands))
        alive += 1
    return program, draw(st.lists(st.integers(2, alive - 1), min_size=1, max_size=3))


def run(program, wanted, a, b):
    values = [a, b]
    for kind, (i, j) in program:
        x, y = values[i], values[j]
        if kind == "exp":
            made = (-x.abs()).exp()
        elif kind == "add":
            made = x + y
        elif kind == "mul":
            made = x * y
        elif kind == "sum":
            made = x.sum(0, keepdim=True).expand(4, 4)
        elif kind == "mm":
            made = (x @ y) * 0.1
        elif kind == "t":
            made = x.t()
        elif kind == "softmax":
            made = x.softmax(1)
        elif kind == "copy":
            made = x.clone()
        elif kind == "add_":
            made = x.clone().add_(y)
        else:
            made = x.contiguous().clone()
            made[1].mul_(0.5)
            values[i] = made  # its view goes on being used
            made = made[:, :].t()
        values.append(made)
    return [values[i].clone() for i in wanted]


@settings(max_examples=10)
@given(programs(), st.integers(0, 3))
def test_random_programs_are_the_same_fused(case, seed):
    compare_fused(*case, seed)


@pytest.mark.slow
@settings(max_examples=150)
@given(programs(), st.integers(0, 3))
def test_many_random_programs_are_the_same_fused(case, seed):
    compare_fused(*case, seed)


def compare_fused(program, wanted, seed):
    torch.manual_seed(seed)
    a, b = torch.rand(4, 4), torch.rand(4, 4)

    def step(a, b):
        return run(program, wanted, a, b)

    captured = pt.fuse(pt.capture(step, a, b))
    plan = pt.plan_captured(captured, pt.roofline(captured, "cpu"))
    ours = call_by_call(captured, plan)(a, b)
    assert all(torch.equal(x, y) for x, y in zip(ours, step(a, b), strict=True))
