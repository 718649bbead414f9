"""Values that go to the host and come back: the same bits, within the budget."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")


import pebbler.torch as pt  # noqa: E402
import torch_models as models  # noqa: E402
from pebbler.errors import InputError  # noqa: E402
from pebbler.game.byte_sizes import bytes_up  # noqa: E402
from pebbler.game.moves import Copy  # noqa: E402
from pebbler.game.plan import Plan  # noqa: E402
from pebbler.referee.judgement import check  # noqa: E402
from pebbler.run.torch.cost.costs import Link  # noqa: E402
from pebbler.run.torch.plan.host_link import machine_with_host  # noqa: E402
from pebbler.run.torch.run.host_copies import Transfers, arrive, begin_load, begin_store, end_store  # noqa: E402
from pebbler.solver.problem import Impossible  # noqa: E402
from quick_cases import quick_only  # noqa: E402


def made(name):
    if name == "gpt2" and importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed: pip install transformers")
    training = getattr(models, name)()
    training.reset()
    return training


def train(training, step, steps=4, device="cpu"):
    """Return the losses, the state after the last step and the most bytes held in the first and the last one."""
    losses, peaks = [], []
    for number in range(steps):
        batch, resident = training.batches[number % len(training.batches)], training.resident()
        if number in (0, steps - 1):
            loss, peak = pt.measure_peak(step, *batch, device=device)
            peaks.append(peak + resident)
        else:
            loss = step(*batch)
        losses.append(loss.item())
    return losses, [tensor.clone() for tensor in training.tensors()], max(peaks)


def copies(plan):
    return [move for phase in plan.phases for move in phase.moves if isinstance(move, Copy)]


@pytest.mark.parametrize("name", quick_only(["mlp"], ["mlp", "resnet", "gpt2"]))
def test_training_with_values_on_the_host_is_the_same_and_within_the_budget(name):
    training = made(name)
    losses, state, eager = train(training, training.step)
    training.reset()
    captured = pt.capture(training.step, *training.batches[0])
    costs = pt.profile(captured, repeats=1)
    lower, least = pt.least_budget(captured, costs, offload=True)
    assert lower == least
    for share in (0.0,) if name == "gpt2" else (0.5, 0.0):
        budget = int(least + share * (eager - least))
        plan = pt.plan_captured(captured, costs, budget=budget, offload=True, time_limit=0.3)
        assert all(judgement.legal for judgement in plan.judge())
        assert copies(plan)
        assert plan.peak <= budget
        training.reset()
        planned_losses, planned_state, peak = train(training, pt.compile(plan, training.step, verify="never"))
        assert planned_losses == losses
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(planned_state, state, strict=True))
        assert peak <= plan.peak
    with pytest.raises(Impossible, match=rf"no plan fits {least - 1:,} bytes\. {least:,} bytes works, and less cannot"):
        pt.plan_captured(captured, costs, budget=least - 1, offload=True)


@pytest.mark.slow
def test_a_budget_that_only_the_host_keeps(deep):
    training, captured, least = deep
    costs = pt.roofline(captured, "cpu")
    with pytest.raises(Impossible, match=f"With offload to the host's memory {bytes_up(least)} works"):
        pt.plan_captured(captured, costs, budget=least, time_limit=0.5)
    plan = pt.plan_captured(captured, costs, budget=least, offload=True, time_limit=0.5)
    assert plan.peak <= least
    training.reset()
    losses = [training.step(*batch).item() for batch in training.batches]
    training.reset()
    step = pt.compile(plan, training.step)
    host = []
    for batch, loss in zip(training.batches, losses, strict=True):
        assert step(*batch).item() == loss
        host.append(step.host_bytes)
    assert 0 < host[1] == host[-1]
    assert "begin_store" in step.code


def test_a_saved_plan_with_copies_runs(deep, tmp_path):
    training, captured, least = deep
    plan = pt.plan_captured(captured, pt.roofline(captured, "h200"), budget=least, time_limit=0.5)
    plan.save(tmp_path / "plan.json")
    loaded = pt.TorchPlan.load(tmp_path / "plan.json")
    assert loaded == plan
    assert (loaded.cost, loaded.offloaded, loaded.overlap) == (plan.cost, plan.offloaded, True)
    assert json.loads((tmp_path / "plan.json").read_text())["machine"]["level"][1]["name"] == "host"
    training.reset()
    losses = [training.step(*batch).item() for batch in training.batches]
    again = models.mlp(depth=6)
    again.reset()
    step = pt.compile(loaded, again.step)
    assert [step(*batch).item() for batch in again.batches] == losses


def test_a_copy_is_of_the_whole_storage_and_buffers_are_used_again():
    transfers = Transfers("cpu")
    base = torch.arange(24, dtype=torch.float64)
    for _ in range(3):
        view = torch.as_strided(base, (2, 3), (6, 2), 1)
        copy = begin_store(transfers, view)
        end_store(copy, view)
        back = arrive(begin_load(transfers, copy))
        assert torch.equal(back, view)
        assert (back.stride(), back.storage_offset()) == (view.stride(), 1)
        assert torch.equal(torch.as_strided(back, (24,), (1,), 0), base)
        assert back.untyped_storage().data_ptr() != base.untyped_storage().data_ptr()
        del copy
    assert transfers.bytes == 24 * 8


def test_an_update_in_place_does_not_reach_the_copy_nor_the_copy_a_later_version():
    def step(x):
        made = x * 2
        first, other = made.sum(), (x + 1).exp()
        made.add_(other)
        return made * first, other

    x = torch.randn(64)
    captured = pt.capture(step, x)
    plan = pt.plan_captured(captured, pt.roofline(captured, "cpu"))
    graph = plan.plan.graph
    (value,) = graph.ops[0].writes
    away, back = ("copy", value, "memory", "host"), ("copy", value, "host", "memory")
    moves = []
    for number, op in enumerate(graph.ops):
        if number and value in op.reads:
            # Away before and after every use, with a store that is still under way when an update comes.
            moves += [away, ("drop", value, "memory"), back, away]
        moves.append(("compute", op.name))
    start = {tensor.name: "memory" for tensor in graph.tensors if tensor.kind == "param"}
    by_hand = Plan(graph, machine_with_host(10**6, Link(1.0, 1.0, True)), moves, start)
    assert check(by_hand).legal, check(by_hand).error
    assert any(value in op.writes for op in graph.ops[1:])
    run = pt.compile(replace(plan, phases=[by_hand]), step)
    for _ in range(2):
        assert all(torch.equal(a, b) for a, b in zip(run(x), step(x), strict=True))


def test_plans_that_leave_a_result_on_the_host_or_start_there_are_refused():
    weight = torch.ones(8)
    captured = pt.capture(lambda x: x + weight, torch.ones(8))
    plan = pt.plan_captured(captured, pt.roofline(captured, "cpu"))
    graph, machine = plan.plan.graph, machine_with_host(10**6, Link(1.0, 1.0, True))
    params = [tensor.name for tensor in graph.tensors if tensor.kind == "param"]
    (op,) = graph.ops
    (value,) = op.writes
    home = dict.fromkeys(params, "memory")
    left = [("compute", op.name), ("copy", value, "memory", "host"), ("drop", value, "memory")]
    begun = [("copy", params[0], "host", "memory"), ("compute", op.name), ("drop", params[0], "memory")]
    for moves, start, message in (
        (left, home, "leaves .* on the host"),
        (begun, home | {params[0]: "host"}, "starts with .* on the host"),
    ):
        by_hand = Plan(graph, machine, moves, start)
        assert check(by_hand).legal, check(by_hand).error
        with pytest.raises(InputError, match=message):
            pt.compile(replace(plan, phases=[by_hand]), captured.state.step)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_copies_on_cuda_run_beside_the_computation_and_keep_the_budget():
    device = "cuda:0"
    torch.manual_seed(0)
    layers = [layer for _ in range(24) for layer in (torch.nn.Linear(2048, 2048), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers).to(device)
    rule = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x = torch.randn(16384, 2048, device=device)

    def step(x):
        rule.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        rule.step()
        return loss

    def run(function):
        torch.manual_seed(0)
        for layer in layers[::2]:
            layer.reset_parameters()
        rule.state.clear()
        losses, peaks = [], []
        for _ in range(6):
            loss, peak = pt.measure_peak(function, x, device=device)
            state = [value for values in rule.state.values() for value in values.values() if value is not None]
            held = [*model.parameters(), *state, x]
            losses.append(loss.item())
            peaks.append(peak + sum(tensor.untyped_storage().nbytes() for tensor in held))
        return losses, [tensor.detach().clone() for tensor in held[:-1]], max(peaks[1:])

    losses, trained, eager = run(step)
    rule.state.clear()  # so that the first step, which makes it, is planned as well
    captured = pt.capture(step, x)
    costs = pt.profile(captured)
    assert costs.link.overlap
    assert min(costs.link.out, costs.link.into) > 1e9
    for budget in (int(0.7 * eager), pt.least_budget(captured, costs)[1]):
        plan = pt.plan_captured(captured, costs, budget=budget, time_limit=5)
        assert plan.offloaded > 0
        fast = pt.compile(plan, step)
        planned_losses, planned, peak = run(fast)
        assert planned_losses == losses
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(planned, trained, strict=True))
        del planned  # whatever else is on the GPU counts, too
        assert peak <= plan.peak <= budget
        host = fast.host_bytes
        fast(x)
        assert fast.host_bytes == host > 0
