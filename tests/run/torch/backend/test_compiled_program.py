"""What a compiled graph runs, as a plan: legal, with the memory that is held, and what is kept and computed again."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import nn

import pebbler as pb
from pebbler.run.torch.backend.compiled_program import programs_of
from pebbler.run.torch.backend.dynamo_backend import pebbler


class Squares(nn.Module):
    def forward(self, x):
        return x.square().mean()


def compiled(model, x, budget):
    """Return a model's compiled step after three runs, and its program."""
    torch._dynamo.reset()
    fast = torch.compile(model, backend=pebbler, options={"budget": budget, "time_limit": 5.0})
    for _ in range(3):
        model.zero_grad()
        fast(x).backward()
    return fast, programs_of(fast)[0]


def kept_bytes(plan):
    """Return the bytes that forward makes and backward reads."""
    graph = plan.graph
    part = {tensor: op.meta["part"] for op in graph.ops for tensor in op.writes if "part" in op.meta}
    read = {tensor for op in graph.ops if op.meta.get("part") == "backward" for tensor in op.reads}
    return sum(graph.tensor_named(t).size for t in read if part.get(t) == "forward")


def recomputed(plan):
    return sum(op.cost for op in plan.graph.ops if op.meta.get("again"))


@pytest.mark.slow
@pytest.mark.usefixtures("graphs")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # of its own modules
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_the_page_of_a_compiled_model(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.GELU())), Squares())
    with pytest.raises(pb.InputError, match="train one step"):
        programs_of(torch.compile(model, backend=pebbler, options={"budget": 0.8}))
    fast, program = compiled(model, torch.randn(512, 64), "least")
    data = pb.report(fast, tmp_path / "model.html")
    (shown,) = data.plans
    assert shown.judgement.legal
    assert shown.budget.budget is None
    assert shown.budget.held == program.held
    # Both are what schedules say: the peak is the one that was promised, and what is behind it that of torch without a budget.
    assert shown.judgement.peak[0] == program.step.peak
    assert shown.judgement.peak[0] == pytest.approx(program.held, rel=0.01)
    assert max(shown.unlimited.held) == program.unlimited.peak > program.step.peak
    assert shown.budget.unplanned == program.unlimited.seconds < program.step.seconds
    assert data.curve is not None
    assert len(data.curve.points) == len(program.curve)
    names = data.graphs[0].step
    assert {"Linear 0", "GELU 1"} <= set(names.op_module)
    assert {"batch", "parameter"} <= set(names.tensor_role)
    plan, free = program.step.plan, program.unlimited.plan
    assert recomputed(free) < recomputed(plan)
    assert kept_bytes(plan) < kept_bytes(free)
    parts = [op.meta["part"] for op in plan.graph.ops if "part" in op.meta]
    assert parts == sorted(parts, reverse=True)  # forward, then backward
    assert programs_of(lambda: None)  # a function: all graphs that are alive
    other = nn.Linear(2, 2)
    with pytest.raises(pb.InputError, match="no program of this model"):
        programs_of(other)
    del fast
    torch._dynamo.reset()
    gc.collect()
