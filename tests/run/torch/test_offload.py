"""Values that go to the host and back: timed as the slow twin does, legal, within the budget, and the same bits."""

from __future__ import annotations

import importlib.util
import json
import math
import time
from dataclasses import replace

import msgspec
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

import typer  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

import pebbler.torch as pt  # noqa: E402
import torch_models as models  # noqa: E402
from naive_offload import ends_at  # noqa: E402
from naive_recompute import memory_of  # noqa: E402
from pebbler.cli.torch import torch as command  # noqa: E402
from pebbler.errors import InputError  # noqa: E402
from pebbler.game.machine import Level, Machine  # noqa: E402
from pebbler.game.plan import Plan  # noqa: E402
from pebbler.referee.judgement import check  # noqa: E402
from pebbler.run.torch.offload import Channel, Offload, machine_with_host, predicted_cost  # noqa: E402
from pebbler.run.torch.transfer import Transfers, arrive, begin_load, begin_store, end_store  # noqa: E402
from pebbler.solver.problem import Impossible, Problem  # noqa: E402
from pebbler.solver.recompute.recompute_problem import RecomputeProblem  # noqa: E402
from strategies import generators, random_graph, random_plan  # noqa: E402

APP = typer.Typer()
APP.command()(command)

# The search, without torch -----------------------------------------------------------------------------------------------


def pebbles(machine):
    return msgspec.structs.replace(machine, unit="pebble")


@settings(max_examples=150, deadline=None)
@given(generators)
def test_any_plan_is_timed_as_the_slow_twin_does(rng):
    graph = random_graph(rng, most_ops=6)
    prices = Channel(rng.choice([0, 0.5, 1, 3]), rng.choice([0, 0.5, 1, 3]), True)
    plan = random_plan(rng, graph, pebbles(machine_with_host(rng.randint(8, 30), prices)), extra=20)
    if plan is not None:
        for overlap in (True, False):
            assert predicted_cost(plan, overlap) == pytest.approx(ends_at(plan, overlap))
        assert predicted_cost(plan, False) == pytest.approx(check(plan).energy)
        assert predicted_cost(plan, True) <= predicted_cost(plan, False) + 1e-9


def searching(rng, most_ops, **options):
    """A random graph on one level, and a search for it with a random capacity and link."""
    graph = random_graph(rng, most_ops, **options)
    prices = Channel(rng.choice([0, 0.1, 1, 3]), rng.choice([0, 0.1, 1, 3]), rng.random() < 0.7)
    game = RecomputeProblem.of(Problem.of(graph, Machine("one", "pebble", (Level("memory", 0, 0, capacity=2**40),))))
    movable = {tensor.name for tensor in graph.tensors if tensor.kind in ("temp", "output")}
    search = Offload(game, 1, prices, movable, seed=rng.randrange(1000))
    peak = max(search.least[0], int(game.measure(game.program).memory.max(initial=1)))
    search.capacity = rng.randint(search.least[0], peak)
    return graph, game, search


def judged(graph, search, candidate):
    machine = pebbles(machine_with_host(search.capacity, search.channel))
    start = {tensor.name: "memory" for tensor in graph.tensors if tensor.kind in ("input", "param")}
    plan = Plan(graph, machine, search.moves(candidate), start, steady=False)
    return plan, check(plan)


@settings(max_examples=300, deadline=None)
@given(generators)
def test_placed_gaps_are_legal_and_cost_what_the_kernel_says(rng):
    graph, game, search = searching(rng, 14)
    script = search.script(game.program)
    assert script.memory.tolist() == memory_of(graph, list(range(game.ops)))
    chosen = np.zeros(len(script.t_value), np.bool_)
    gaps = search.idle(script)
    chosen[[i for i in gaps.tolist() if rng.random() < 0.8]] = True
    candidate = search.place(game.program, script, chosen, rng.choice([0.5, 2, math.inf]))
    if candidate is not None:
        plan, judgement = judged(graph, search, candidate)
        assert judgement.legal, judgement.error
        assert predicted_cost(plan, search.channel.overlap) == pytest.approx(candidate.cost)


@settings(max_examples=40, deadline=None)
@given(generators)
def test_whatever_needs_no_more_than_the_least_gets_a_plan(rng):
    graph, game, search = searching(rng, 12)
    best = search.best_of([game.program])
    assert best is not None
    plan, judgement = judged(graph, search, best)
    assert judgement.legal, judgement.error
    assert game.base_cost - 1e-9 <= best.cost == pytest.approx(predicted_cost(plan, search.channel.overlap))
    less = Offload(game, search.least[0] - 1, search.channel, (), seed=0)
    less.movable = search.movable
    assert search.least[0] == 1 or less.best_of([game.program]) is None


# Training ----------------------------------------------------------------------------------------------------------------


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
    return [move for phase in plan.phases for move in phase.moves if move[0] == "copy"]


@pytest.mark.parametrize("name", ["mlp", "resnet", "gpt2"])
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
        planned_losses, planned_state, peak = train(training, pt.compile(plan, training.step))
        assert planned_losses == losses
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(planned_state, state, strict=True))
        assert peak <= plan.peak
    with pytest.raises(Impossible, match=f"the least budget that works is {least:,} bytes"):
        pt.plan_captured(captured, costs, budget=least - 1, offload=True)


@pytest.fixture(scope="module")
def deep():
    """A step, and a budget that making values again cannot keep."""
    training = models.mlp(depth=6)
    captured = pt.capture(training.step, *training.batches[0])
    return training, captured, pt.least_budget(captured, pt.roofline(captured, "cpu"), offload=True)[1]


def test_a_budget_that_only_the_host_keeps(deep):
    training, captured, least = deep
    costs = pt.roofline(captured, "cpu")
    with pytest.raises(Impossible, match=f"with offload to the host's memory {least:,} would do"):
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


@pytest.mark.parametrize("objective", ["time", "energy"])
@pytest.mark.parametrize("device", ["h200", "cpu"])
def test_never_dearer_than_without_the_host(deep, device, objective):
    _, captured, least = deep
    costs = pt.roofline(captured, device)
    free = pt.plan_captured(captured, costs, objective=objective)
    for share in (0.8, 0.3):
        options = {"budget": int(least + share * (free.peak - least)), "objective": objective, "time_limit": 0.7}
        plain, away = (pt.plan_captured(captured, costs, offload=offload, **options) for offload in (False, True))
        assert free.cost <= away.cost <= plain.cost
        assert not copies(plain)
        assert away.bound <= away.cost
        assert (away.status == "optimal") == (away.cost == pytest.approx(free.cost, rel=1e-12))


def test_copies_that_nothing_waits_for_cost_no_time_and_all_their_energy(deep):
    _, captured, least = deep
    costs = pt.roofline(captured, "h200")
    budget = int(1.5 * least)
    plan = pt.plan_captured(captured, costs, budget=budget, time_limit=1)
    assert plan.offloaded > 0
    assert plan.status == "optimal"
    assert plan.cost == pytest.approx(plan.unplanned)
    assert plan.plan.energy == check(plan.plan).energy > plan.cost * 1e9
    assert plan.plan.status == "bounded"
    # A link that takes no energy is used, one that takes a lot is not.
    used = []
    for joules in (0.0, 1.0):
        costs.link = pt.Link(50e9, 50e9, joules, overlap=True)
        used.append(pt.plan_captured(captured, costs, budget=budget, objective="energy", time_limit=1))
    assert used[0].offloaded > 0 == used[0].recomputed
    assert used[1].offloaded == 0 < used[1].recomputed
    assert used[0].cost == used[0].plan.energy / 1e12


def test_where_offload_is_the_default(deep):
    _, captured, least = deep
    for device, expected in (("h200", True), ("cpu", False)):
        plan = pt.plan_captured(captured, pt.roofline(captured, device), budget=int(1.5 * least), time_limit=0.5)
        assert bool(copies(plan)) == expected
    assert pt.least_budget(captured, pt.roofline(captured, "h200"))[1] == least


def test_the_same_call_gives_the_same_plan(deep):
    _, captured, least = deep
    costs = pt.roofline(captured, "cpu")
    plans = [pt.plan_captured(captured, costs, budget=int(1.6 * least), offload=True, time_limit=30) for _ in range(2)]
    assert plans[0] == plans[1]
    assert copies(plans[0])
    assert "cut_off" not in plans[0].plan.meta


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


def test_a_step_that_does_nothing_or_needs_nothing_away_has_a_plan():
    for step in (lambda x: x, lambda x: x * 2):
        plan = pt.plan(step, [torch.ones(8)], budget="1MB", device="h200")
        assert (plan.status if plan.plan.graph.ops else "optimal", plan.offloaded) == ("optimal", 0)
        assert len(plan.plan.machine.level) == 1


def test_the_command_offloads_when_asked(tmp_path, monkeypatch):
    (tmp_path / "away.py").write_text(
        "import torch_models as models\n"
        "def small():\n    made = models.mlp(depth=4)\n    return made.step, made.batches[0]\n"
    )
    monkeypatch.chdir(tmp_path)
    figures = []
    for flag in ("--offload", "--no-offload"):
        options = ["away:small", "--budget", "330kB", "--device", "h200", "--time-limit", "1", flag, "--json"]
        result = CliRunner().invoke(APP, options)
        assert result.exit_code == 0, result.output
        figures.append(json.loads(result.stdout))
    assert figures[0]["offloaded"] > 0 == figures[1]["offloaded"]
    assert figures[0]["cost"] <= figures[1]["cost"]
    assert (figures[0]["status"], figures[0]["gap"]) == ("optimal", 0)


# Running copies ----------------------------------------------------------------------------------------------------------


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
    by_hand = Plan(graph, machine_with_host(10**6, Channel(1.0, 1.0, True)), moves, start)
    assert check(by_hand).legal, check(by_hand).error
    assert any(value in op.writes for op in graph.ops[1:])
    run = pt.compile(replace(plan, phases=[by_hand]), step)
    for _ in range(2):
        assert all(torch.equal(a, b) for a, b in zip(run(x), step(x), strict=True))


def test_plans_that_leave_a_result_on_the_host_or_start_there_are_refused():
    weight = torch.ones(8)
    captured = pt.capture(lambda x: x + weight, torch.ones(8))
    plan = pt.plan_captured(captured, pt.roofline(captured, "cpu"))
    graph, machine = plan.plan.graph, machine_with_host(10**6, Channel(1.0, 1.0, True))
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
            pt.compile(replace(plan, phases=[by_hand]), captured.world.step)


# Size and speed ----------------------------------------------------------------------------------------------------------


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.project, self.merge = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.widen, self.narrow = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        query, key, value = (
            self.project(self.norms[0](x)).view(batch, length, 3, 16, width // 16).permute(2, 0, 3, 1, 4)
        )
        mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.merge(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(torch.nn.functional.gelu(self.widen(self.norms[1](x))))


@pytest.mark.slow
def test_two_thousand_ops_are_planned_within_a_minute(capsys):
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = torch.nn.Sequential(*(Block(1024) for _ in range(36)))
        rule = torch.optim.AdamW(model.parameters(), foreach=True)

        def step(x):
            rule.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            rule.step()
            return loss

        began = time.monotonic()
        captured = pt.capture(step, torch.empty(16, 1024, 1024))
    captured_in = time.monotonic() - began
    costs = pt.roofline(captured, "h200")
    free, (_, least) = pt.plan_captured(captured, costs), pt.least_budget(captured, costs)
    began = time.monotonic()
    plan = pt.plan_captured(captured, costs, budget=(least + free.peak) // 2, time_limit=20)
    seconds = time.monotonic() - began
    with capsys.disabled():
        print(
            f"\n{len(plan.plan.graph.ops):,} ops captured in {captured_in:.1f} s, planned in {seconds:.1f} s: "
            f"{plan.offloaded / 2**30:.2f} GiB to the host, {plan.recomputed} runs again, {plan.cost / free.cost:.4f} of the time"
        )
    assert len(plan.plan.graph.ops) >= 2000
    assert plan.offloaded > 0
    assert all(judgement.legal for judgement in plan.judge())
    assert seconds < 60


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
        assert peak <= plan.peak <= budget
        host = fast.host_bytes
        fast(x)
        assert fast.host_bytes == host > 0
