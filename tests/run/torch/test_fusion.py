"""Fusing changes what is run together, never what is computed; compiled plans keep the peak they promise."""

from __future__ import annotations

import functools
import importlib.util
import shutil
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

import pebbler.torch as pt  # noqa: E402
import torch_models as models  # noqa: E402
from pebbler.errors import InputError  # noqa: E402
from pebbler.referee.judgement import check  # noqa: E402
from pebbler.run.torch.costs import Cost, Costs  # noqa: E402
from pebbler.run.torch.inductor import view  # noqa: E402
from pebbler.run.torch.launches import held_before, launch_group, tidy_drops  # noqa: E402
from pebbler.run.torch.offload import MEMORY  # noqa: E402
from pebbler.run.torch.record import TensorInfo  # noqa: E402
from pebbler.run.torch.runner import Runner  # noqa: E402

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "c++", "clang++"))), reason="Inductor needs a C++ compiler"
)


def call_by_call(captured, plan):
    """Return the fused step as it runs without its kernels."""
    return Runner(replace(captured, kernels=None), [phase.moves for phase in plan.phases])


@pytest.mark.parametrize("name", ["mlp", "normed", "resnet", "gpt2", "lstm"])
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
    _, least = pt.least_budget(captured, costs, time_limit=0.5)
    tight = pt.plan_captured(captured, costs, budget=int(0.4 * whole.peak + 0.6 * least), time_limit=0.5)
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


@settings(max_examples=60, deadline=None)
@given(programs(), st.integers(0, 3))
def test_random_programs_are_the_same_fused(case, seed):
    program, wanted = case
    torch.manual_seed(seed)
    a, b = torch.rand(4, 4), torch.rand(4, 4)

    def step(a, b):
        return run(program, wanted, a, b)

    captured = pt.fuse(pt.capture(step, a, b))
    plan = pt.plan_captured(captured, pt.roofline(captured, "cpu"))
    ours = call_by_call(captured, plan)(a, b)
    assert all(torch.equal(x, y) for x, y in zip(ours, step(a, b), strict=True))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_views_are_found_in_view_operators(data):
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    base = (
        torch.arange(float(torch.Size(sizes).numel()))
        .reshape(sizes)
        .permute(data.draw(st.permutations(range(len(sizes)))))
    )
    other = base
    for _ in range(data.draw(st.integers(0, 3))):
        match data.draw(st.sampled_from(["flat", "permute", "expand", "slice"])):
            case "flat" if other.is_contiguous():
                other = other.view(-1)
            case "permute":
                other = other.permute(data.draw(st.permutations(range(other.dim()))))
            case "expand":
                other = other.unsqueeze(0).expand(2, *other.shape)
            case "slice" if other.shape[0] > 1:
                other = other[1:]

    def info(tensor):
        return TensorInfo(0, tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), tensor.dtype)

    graph = torch.fx.Graph()
    graph.output(view(graph, graph.placeholder("root"), info(base), info(other)))
    found = torch.fx.GraphModule(torch.nn.Module(), graph)(base)
    assert torch.equal(found, other)
    assert found.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()


@pytest.mark.parametrize("share", [1.0, 0.6, 0.3])
def test_what_is_held_before_a_move_adds_up_to_the_referees_peak(share):
    training = models.normed(depth=2)
    captured = pt.fuse(pt.capture(training.step, *training.batches[0]))
    costs = pt.roofline(captured, "h200")
    _, least = pt.least_budget(captured, costs, time_limit=1)
    most = pt.plan_captured(captured, costs, offload=False).peak
    budget = int(share * most + (1 - share) * least)
    plan = pt.plan_captured(captured, costs, budget=budget, offload=False, time_limit=1)
    sizes = {tensor.name: tensor.size for tensor in plan.plan.graph.tensors}
    writes = {op.name: op.writes for op in plan.plan.graph.ops}
    held = held_before(plan.plan, MEMORY)
    made = [sum(sizes[n] for n in writes[m[1]]) if m[0] == "compute" else 0 for m in plan.plan.moves]
    peak = check(plan.plan).peak[MEMORY]
    assert max(held) <= peak <= max(a + b for a, b in zip(held, made, strict=True))
    # Dropping as early as possible is as legal, and holds no more.
    tidy = check(replace(plan.plan, moves=tidy_drops(plan.plan)))
    assert tidy.legal
    assert tidy.peak[MEMORY] <= peak
    assert tidy.energy == plan.plan.energy
    # A launch holds what there was, and its results.
    moves = plan.plan.moves
    assert plan.launches
    for launch in plan.launches:
        group = launch_group(captured.phases[-1], moves, launch)
        results = sum(sizes[captured.phases[-1].storage_names[s]] for s in group.makes)
        assert held[launch[0]] + results <= budget - plan.headroom
        assert all(
            move[0] == "drop" for i, move in enumerate(moves[launch[0] : launch[-1]], launch[0]) if i not in launch
        )


@needs_compiler
def test_a_compiled_plan_trains_alike_within_its_peak(tmp_path):
    training = models.normed(depth=2)
    training.reset()
    eager = [training.step(*training.batches[i % 4]).item() for i in range(12)]
    training.reset()
    captured = pt.fuse(pt.capture(training.step, *training.batches[0]))
    costs = pt.profile(captured, repeats=1)
    most = pt.plan_captured(captured, costs).peak
    _, least = pt.least_budget(captured, costs, time_limit=1)
    peaks = []
    for budget in (None, (most + least) // 2):
        plan = pt.plan_captured(captured, costs, budget=budget, time_limit=1)
        assert budget is None or plan.peak <= budget
        training.reset()
        step = pt.compile(plan, training.step)
        losses = [step(*training.batches[i % 4]).item() for i in range(11)]
        resident = training.resident()
        loss, above = pt.measure_peak(step, *training.batches[3])
        assert [*losses, loss.item()] == pytest.approx(eager, rel=1e-4)
        assert above + resident <= plan.peak
        assert step.code.count("self.") > 3  # kernels of its own
        peaks.append(above + resident)
    assert peaks == sorted(peaks, reverse=True)
    # The plan runs from its file, and without its kernels where there is room for that.
    plan.save(tmp_path / "plan.json")
    training.reset()
    loaded = pt.TorchPlan.load(tmp_path / "plan.json")
    assert loaded == plan
    again = pt.compile(loaded, training.step)
    assert [again(*training.batches[i % 4]).item() for i in range(12)] == pytest.approx(eager, rel=1e-4)
    assert again.code == step.code  # the same kernels, and no others
    free = pt.plan_captured(captured, costs)
    training.reset()
    exact = pt.compile(free, training.step, kernels="exact")
    assert [exact(*training.batches[i % 4]).item() for i in range(12)] == eager


def measured_memory(captured):
    """Costs with measured memory and described times: by those every launch pays, by measured ones that depends on the machine."""
    memory, times = pt.profile(captured, repeats=1), pt.roofline(captured, "h200")

    def price(phase, group):
        return replace(memory.price(phase, group), seconds=times.price(phase, group).seconds)

    rows = [[price(phase, group) for group in phase.groups] for phase in captured.phases]
    return Costs(rows, memory.link, price)


@needs_compiler
def test_an_exact_plan_runs_compiled_within_the_same_peak(monkeypatch):
    monkeypatch.setattr("pebbler.run.torch.runner.profile", measured_memory)
    training = models.normed(depth=2)
    training.reset()
    eager = [training.step(*batch).item() for batch in training.batches]
    training.reset()
    whole = pt.plan(training.step, training.batches[0], device="cpu")
    plan = pt.plan(training.step, training.batches[0], device="cpu", budget=int(0.7 * whole.peak), time_limit=1)
    step = pt.compile(plan, training.step, kernels="compiled")
    losses = [step(*batch).item() for batch in training.batches[:3]]
    resident = training.resident()
    loss, above = pt.measure_peak(step, *training.batches[3])
    assert [*losses, loss.item()] == pytest.approx(eager, rel=1e-4)
    assert above + resident <= plan.peak
    assert "launch_" in step.code


def test_a_compiled_plan_that_would_not_fit_exactly_says_so():
    training = models.normed(depth=2)
    captured = pt.fuse(pt.capture(training.step, *training.batches[0]))
    costs = pt.roofline(captured, "cpu")
    _, least = pt.least_budget(captured, costs, time_limit=2)
    plan = pt.plan_captured(captured, costs, budget=least, time_limit=1)
    with pytest.raises(InputError, match=r'run exactly, .* more than the budget of .*; plan with kernels="exact"'):
        pt.compile(plan, training.step, kernels="exact")
    with pytest.raises(InputError, match="kernels must be exact or compiled"):
        pt.compile(plan, training.step, kernels="fast")
    with pytest.raises(InputError, match="kernels must be exact or compiled"):
        pt.plan(training.step, training.batches[0], kernels="fast")


@pytest.mark.parametrize("name", ["normed", "gpt2"])
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_any_choice_of_launches_computes_the_same_bits(name, data):
    if name == "gpt2" and importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed: pip install transformers")
    training, captured, base, least, most, losses = known_training(name)
    chosen: dict[str, Cost] = {}
    pays = data.draw(st.randoms(use_true_random=False))

    def price(phase, group):
        key = " ".join(phase.record.describe(call) for call in group.calls)
        return chosen.setdefault(key, Cost(0.0 if pays.random() < 0.6 else 1e3, 0.0, 0))

    budget = data.draw(st.none() | st.integers(least, most))
    costs = Costs(base, base.link, price)
    plan = pt.plan_captured(captured, costs, budget=budget, offload=False, time_limit=0.2)
    step = Runner(replace(captured, kernels=None), [phase.moves for phase in plan.phases], plan.launches)
    training.reset()
    assert [step(*batch).item() for batch in training.batches] == losses


@functools.cache
def known_training(name):
    """Return a training, its fused step, costs, least and greatest budget, and eager's losses."""
    training = getattr(models, name)()
    training.reset()
    losses = [training.step(*batch).item() for batch in training.batches]
    training.reset()
    captured = pt.fuse(pt.capture(training.step, *training.batches[0]))
    costs = pt.roofline(captured, "h200")
    _, least = pt.least_budget(captured, costs, offload=False, time_limit=1)
    return training, captured, costs, least, pt.plan_captured(captured, costs, offload=False).peak, losses


def test_planning_and_compiling_leave_the_random_numbers_of_a_training_loop_alone():
    training = models.normed(depth=1)
    torch.manual_seed(3)
    wanted = torch.rand(1)
    torch.manual_seed(3)
    pt.profile(pt.capture(training.step, *training.batches[0]), repeats=1)
    assert torch.equal(torch.rand(1), wanted)
