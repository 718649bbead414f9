"""What a compiled graph runs, as a plan: legal, with the memory that is held, and what is kept and computed again."""

from __future__ import annotations

import gc
import random

import pytest
import torch
from torch import nn

import pebbler as pb
from pebbler.referee.judgement import check
from pebbler.run.torch.backend.compiled_program import CompiledNode, program_plan, programs_of
from pebbler.run.torch.backend.dynamo_backend import pebbler
from pebbler.run.torch.backend.kernels.step_arrays import CALL, GIVEN, INLINED, STORED, VIEW
from pebbler.run.torch.backend.saved_frontier import saved_frontier
from pebbler.run.torch.backend.step_memory import StepMemory
from quick_cases import quick_only

from .test_saved_frontier import MODELS, traced


def random_program(rng):
    """Return nodes of forward and backward: saved values come in again, and some of forward is computed again."""
    nodes, forward = [], []
    for i in range(rng.randint(2, 14)):
        kind = GIVEN if i < 2 else rng.choice([CALL, INLINED, INLINED, STORED, VIEW])
        reads = () if kind == GIVEN else tuple(rng.sample(forward, 1 if kind == VIEW else rng.randint(1, min(3, i))))
        size = 0 if kind == VIEW else rng.randint(1, 100)
        more = {"role": "parameter", "result": rng.random() < 0.1}
        nodes.append(CompiledNode(f"n{i}", "forward", reads, kind, size, rng.random(), **more))
        forward.append(f"n{i}")
    saved = rng.sample(forward, rng.randint(1, len(forward)))
    here = list(saved)
    nodes += [CompiledNode(name, "backward", (), GIVEN, 0, 0.0) for name in saved]
    for i in range(rng.randint(1, 10)):
        kind = rng.choice([CALL, INLINED, STORED])
        reads = tuple(rng.sample(here, rng.randint(1, min(3, len(here)))))
        more = {"result": rng.random() < 0.3}
        nodes.append(CompiledNode(f"b{i}", "backward", reads, kind, rng.randint(1, 100), rng.random(), **more))
        here.append(f"b{i}")
    return nodes


def naive_reads(nodes, written, part, name):
    """Return the tensors that a value is read from: its own, or those of what it is computed from."""
    node = next((n for n in nodes if (n.part, n.name) == (part, name)), None)
    if node is None or (part == "backward" and node.kind == GIVEN):
        return naive_reads(nodes, written, "forward", name)
    if node.kind == GIVEN:
        return {name}
    if f"{part} {name}" in written:
        return {f"{part} {name}"}
    return {tensor for source in node.reads for tensor in naive_reads(nodes, written, part, source)}


@pytest.mark.parametrize("seed", range(60))
def test_programs_are_plans_that_read_what_their_nodes_read(seed):
    nodes = random_program(random.Random(seed))
    plan = program_plan(nodes, 1.0)
    assert check(plan).legal
    written = {tensor for op in plan.graph.ops for tensor in op.writes}
    for op in plan.graph.ops:
        part, _, name = op.name.partition(" ")
        node = next(n for n in nodes if (n.part, n.name) == (part, name))
        expected = {t for source in node.reads for t in naive_reads(nodes, written, part, source)}
        assert set(op.reads) == expected
    for (
        node
    ) in nodes:  # who returns, calls and reduces has memory of its own; so has what a call reads or backward is given
        if node.kind in (CALL, STORED) or (node.kind == INLINED and node.result):
            assert f"{node.part} {node.name}" in written
    counted = sum(node.seconds for node in nodes)
    used = sum(op.cost for op in plan.graph.ops)
    assert used <= 1e9 + len(plan.graph.ops)  # what nobody reads takes no time
    assert counted > 0


@pytest.mark.parametrize("name", quick_only(["mlp"], MODELS))
def test_a_smaller_choice_keeps_less_and_computes_more_again(name):
    torch.manual_seed(0)
    model, x = MODELS[name]()
    run, seen = traced(lambda x: model(x).square().mean())
    run(x).backward()
    plain, joint = (program_plan(nodes) for nodes in seen.programs)
    least = saved_frontier(StepMemory(seen.step), [seen.fastest], 60.0)[-1]
    run, seen = traced(lambda x: model(x).square().mean(), told=least.saved)
    run(x).backward()
    again = program_plan(seen.programs[0])
    torch._dynamo.reset()

    def recomputed(plan):
        return sum(op.cost for op in plan.graph.ops if op.meta.get("again"))

    assert recomputed(joint) == 0
    assert recomputed(again) > recomputed(plain)
    assert kept_bytes(again) < kept_bytes(plain) <= kept_bytes(joint)
    parts = [op.meta["part"] for op in plain.graph.ops]
    assert parts == sorted(parts, reverse=True)  # forward, then backward
    assert {op.meta["module"].split(".")[0].split(" ")[-1] for op in plain.graph.ops} >= {"0", "1"}


def kept_bytes(plan):
    """Return the bytes that forward makes and backward reads."""
    graph = plan.graph
    part = {tensor: op.meta["part"] for op in graph.ops for tensor in op.writes}
    read = {tensor for op in graph.ops if op.meta["part"] == "backward" for tensor in op.reads}
    return sum(graph.tensor_named(t).size for t in read if part.get(t) == "forward")


@pytest.mark.slow
@pytest.mark.usefixtures("graphs")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # of its own modules
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_the_page_of_a_compiled_model(tmp_path):
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.GELU())))
    with pytest.raises(pb.InputError, match="train one step"):
        programs_of(torch.compile(model, backend=pebbler, options={"budget": 0.8}))
    fast = torch.compile(model, backend=pebbler, options={"budget": 0.8, "time_limit": 5.0})
    for _ in range(3):
        model.zero_grad()
        fast(torch.randn(512, 64)).square().mean().backward()
    (program,) = programs_of(fast)
    data = pb.report(fast, tmp_path / "model.html")
    (shown,) = data.plans
    assert shown.judgement.legal
    assert shown.budget.budget == program.budget
    assert shown.budget.held == program.held
    # Read off fx graphs by rules of what is fused; the schedule that choices are made by is exact.
    assert shown.judgement.peak[0] == pytest.approx(program.held, rel=0.15)
    assert max(shown.unlimited.held) > shown.judgement.peak[0]
    assert data.curve is not None
    assert len(data.curve.points) == len(program.curve)
    assert {"Linear 0", "GELU 1"} <= set(data.graphs[0].step.op_module)
    assert programs_of(lambda: None)  # a function: all graphs that are alive
    other = nn.Linear(2, 2)
    with pytest.raises(pb.InputError, match="no program of this model"):
        programs_of(other)
    del fast
    torch._dynamo.reset()
    gc.collect()
