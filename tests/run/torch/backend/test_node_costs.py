"""What nodes of a joint graph cost: views nothing, kernels what they read and write, gathers what they pick."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import fx, nn

from pebbler.run.torch.backend.node_costs import call_cost, drawing_cost, drawing_flops, scratch_bytes
from pebbler.run.torch.backend.node_kinds import seeded_operators
from pebbler.run.torch.backend.step_memory import StepMemory
from pebbler.run.torch.capture.captured import capture
from pebbler.run.torch.cost.costs import DEVICES, find_device, roofline

from .test_saved_frontier import traced


def step_of(function, *args):
    compiled, seen = traced(function)
    compiled(*args)
    return seen.step, seen.fastest


def named(step, start):
    return [i for i, node in enumerate(step.nodes) if node.name.startswith(start)]


def test_views_cost_nothing():
    table = nn.Embedding(5000, 16)
    step, _ = step_of(lambda ids: table(ids).view(-1, 4).t().tanh().sum(), torch.zeros(8, 2, dtype=torch.int64))
    assert all(step.cost[i] == 0.0 for i, view in enumerate(step.view) if view)


@pytest.mark.parametrize("way", ["flash", "efficient", "cudnn"])
def test_attention_on_a_gpu_holds_its_sums_while_it_runs_backward(way):
    """In float32, in a tensor of its own that no result shows."""
    target = getattr(torch.ops.aten, f"_scaled_dot_product_{way}_attention_backward").default
    graph = fx.Graph()
    operands = [graph.placeholder(name) for name in ("gradient", "query", "key", "value")]
    for operand in operands:
        operand.meta["val"] = torch.empty(2, 3, 5, 8, dtype=torch.bfloat16, device="meta")
    assert scratch_bytes(graph.call_function(target, tuple(operands))) == 4 * 2 * 3 * 5 * 8
    assert scratch_bytes(graph.call_function(torch.ops.aten.mul.Tensor, tuple(operands[:2]))) == 0
    assert scratch_bytes(operands[0]) == 0


@pytest.mark.parametrize("rows", [1000, 4000])
def test_a_pointwise_step_costs_the_bytes_that_its_kernels_move(rows):
    w = torch.randn(rows, 8, requires_grad=True)
    step, _ = step_of(lambda x: (x * w).exp().sum(), torch.randn(rows, 8))
    byte, launch = DEVICES["cpu"].unit_costs("time")
    # Forward reads x and w, backward reads them again and writes the gradient; two kernels, and a few bytes for the loss.
    least = (2 + 3) * rows * 8 * 4 * byte + 2 * launch
    cost = StepMemory(step).simulate([i for i, given in enumerate(step.given) if given]).cost
    assert least <= cost <= least + 64 * byte


def test_saving_costs_its_bytes_where_it_need_not_be_written():
    w = torch.randn(1000, 8, requires_grad=True)
    step, _ = step_of(lambda x: (x + w).exp().sum(), torch.randn(1000, 8))
    memory = StepMemory(step)
    inputs = [i for i, given in enumerate(step.given) if given]
    (total,) = named(step, "add")
    more = memory.simulate([*inputs, total]).cost - memory.simulate(inputs).cost
    assert more == pytest.approx(0.0, abs=1e-12)  # written once, read once; instead of x and w, which are read no more


def test_the_backend_and_the_planner_price_an_operator_alike():
    for dtype, rows in product((torch.float32, torch.bfloat16), (1, 40, 1000)):
        x, w = torch.randn(rows, 64, dtype=dtype), torch.randn(64, 512, dtype=dtype)
        captured = capture(lambda x: x @ w, x)  # noqa: B023 - captured at once
        graph = fx.Graph()
        operands = [graph.placeholder("x"), graph.placeholder("w")]
        node = graph.call_function(torch.ops.aten.mm.default, tuple(operands))
        for one, value in zip((*operands, node), (x, w, x @ w), strict=True):
            one.meta["val"] = value
        for device in DEVICES.values():
            (cost,) = roofline(captured, device)[0]
            assert [call_cost(node, device, kind) for kind in ("time", "energy")] == [cost.seconds, cost.joules]


def test_units_of_the_roofline_are_its_slopes():
    for device in DEVICES.values():
        much, more = 2.0**40, 2.0**41
        for i, objective in enumerate(("time", "energy")):
            byte, launch = device.unit_costs(objective)
            assert byte == pytest.approx((device.kernel(more)[i] - device.kernel(much)[i]) / (more - much))
            assert launch == device.kernel(0)[i]


def test_the_roofline_is_the_larger_of_bytes_and_flops_and_never_less_than_a_launch():
    draw = random.Random(5)
    for _ in range(200):
        rates = {"a": (draw.uniform(1, 9), draw.random()), "b": (draw.uniform(1, 9), draw.random())}
        drawn = {name: draw.random() for name in ("launch", "static_watts", "joules_per_launch", "joules_per_byte")}
        device = replace(DEVICES["cpu"], bandwidth=draw.uniform(1, 9), dtypes=rates, **drawn)
        moved, flops = (
            draw.choice([0.0, draw.uniform(0, 20)]),
            [(d, draw.uniform(0, 9)) for d in "ab" if draw.random() < 0.7],
        )
        seconds = moved / device.bandwidth
        if (computing := sum(count / rates[d][0] for d, count in flops)) > seconds:
            seconds = computing
        if device.launch > seconds:
            seconds = device.launch
        joules = moved * device.joules_per_byte + device.joules_per_launch + seconds * device.static_watts
        joules += sum(count * rates[d][1] for d, count in flops)
        assert device.kernel(moved, flops) == pytest.approx((seconds, joules))


def test_drawing_random_numbers_takes_longer_than_writing_them():
    graph = torch.fx.Graph()
    seed = graph.placeholder("seed")
    seed.meta["val"] = torch.zeros((), dtype=torch.int64)
    draws = next(operator for operator in seeded_operators() if "inductor_random" in str(operator))
    drawn = graph.call_function(draws, ([1000, 1000], seed, "rand"))
    compared = graph.call_function(torch.ops.aten.gt.Scalar, (drawn, 0.1))
    for node in (drawn, compared):
        node.meta["val"] = torch.zeros(1000, 1000)
    h200 = find_device("h200")
    seconds = h200.kernel(4e6, [("float32", drawing_flops(drawn))])[0] - h200.kernel(4e6)[0]
    assert 0 < drawing_cost(drawn, h200, "time") == pytest.approx(seconds)
    assert drawing_cost(drawn, h200, "energy") > seconds * h200.static_watts
    assert drawing_cost(compared, h200, "time") == drawing_cost(seed, h200, "energy") == 0
