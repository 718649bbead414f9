"""Which values go to the host: within its limit, better than without, priced by the link."""

from __future__ import annotations

import gc
import random
from dataclasses import replace
from itertools import chain, pairwise

import pytest
import torch
from torch import fx, nn
from torch._dynamo.backends.common import aot_autograd

from pebbler.run.torch.backend.graph_frontier import GraphFrontier
from pebbler.run.torch.backend.host_operators import HostPool
from pebbler.run.torch.backend.joint_step import JointStep
from pebbler.run.torch.backend.partitioner import SavedValuesPartitioner
from pebbler.run.torch.backend.saved_frontier import saved_frontier
from pebbler.run.torch.backend.sent_values import host_room, send_frontier, sent_choices
from pebbler.run.torch.backend.step_memory import END, HostRoom, StepMemory
from pebbler.run.torch.cost.costs import DEVICES, Link, find_device
from quick_cases import quick_only

VALUE = 4096 * 64 * 4


class Told(SavedValuesPartitioner):
    """A partitioner that keeps the joint graph it saw, and takes the choice it is told."""

    def __init__(self, choose=None):
        self.pool = HostPool("cpu", None)
        super().__init__(DEVICES["cpu"], 60.0, lambda frontier: 0, "time", self.pool)
        self.choose = choose

    def _saved(self, graph, info, outputs, choose):
        self.step, fastest = JointStep.read(graph, info, outputs, self.device), choose(1.0)
        self.fastest = [self.step.nodes.index(node) for node in fastest]
        if self.choose is None:
            return fastest
        choice = self.choose(self)
        names = [node.name for node in self.step.nodes]
        self.frontier = GraphFrontier("", names, [choice], 0, 0, False)
        return [self.step.nodes[i] for i in choice.saved]


def plain(gm, _inputs):
    """Compile a graph to itself, run call by call."""

    def run(args):
        return fx.Interpreter(gm).boxed_run(args)

    run._boxed_call = True
    return run


def traced(function, choose=None):
    """Return a function compiled without kernels, and its partitioner."""
    torch._dynamo.reset()
    seen = Told(choose)
    return torch.compile(function, backend=aot_autograd(fw_compiler=plain, bw_compiler=plain, partition_fn=seen)), seen


@pytest.fixture(scope="module")
def memory():
    """Return the joint graph of a deep model as torch hands it over, and its choices without the host."""
    torch.manual_seed(0)
    model = nn.Sequential(*chain(*[(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64)) for _ in range(6)]))
    run, seen = traced(lambda x: model(x).square().mean())
    run(torch.randn(4096, 64))
    torch._dynamo.reset()
    memory = StepMemory(seen.step)
    return memory, saved_frontier(memory, [seen.fastest], 60.0)


MODELS = {
    "mlp": lambda: (nn.Sequential(*chain(*[(nn.Linear(24, 24), nn.Tanh()) for _ in range(8)])), torch.randn(128, 24)),
    "conv": lambda: (
        nn.Sequential(*chain(*[(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()) for _ in range(4)])),
        torch.randn(2, 4, 12, 12).to(memory_format=torch.channels_last),
    ),
    "attention": lambda: (
        nn.Sequential(*[nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True) for _ in range(2)]),
        torch.randn(2, 12, 16),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", quick_only(["mlp"], MODELS))
def test_any_values_may_be_sent_and_gradients_stay(name):
    send_any(name, 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", quick_only(["mlp"], MODELS))
def test_any_values_may_be_sent_and_gradients_stay_many_times(name):
    send_any(name, 30)


def send_any(name, times):
    torch.manual_seed(0)
    model, x = MODELS[name]()
    draw = random.Random(7)

    def loss(x):
        return model(x).square().mean()

    def gradients(function):
        model.zero_grad()
        function(x).backward()
        return [p.grad.clone() for p in model.parameters()]

    eager = gradients(loss)
    count = 0
    for turn in range(times):

        def choose(seen, turn=turn):
            memory = StepMemory(seen.step)
            base = draw.choice(saved_frontier(memory, [seen.fastest], 60.0))
            values = memory.sendable(base)
            some = sorted(draw.sample(values, draw.randint(1, len(values)) if values else 0))
            seconds = tuple(draw.random() for _ in seen.step.nodes)
            link = Link(draw.random() / 100, draw.random() / 100, turn % 2 == 0)
            there = HostRoom(None, False, link, seconds)
            return draw.choice(sent_choices(memory, base, some, there) or [base])

        run, seen = traced(loss, choose)
        assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(gradients(run), eager, strict=True))
        sent = seen.frontier.choice.host
        assert seen.pool.transfers.bytes == sent  # all of them went there
        count += sent > 0
        gc.collect()
        assert not seen.pool.copies
    torch._dynamo.reset()
    assert count > times // 2


def room(memory, limit=None, watts=None, **more):
    seconds = tuple(memory.step.cost)
    work = sum(seconds)
    byte = work / 6 / VALUE / 12  # a value takes a 72nd part of the step, one way
    return HostRoom(limit, False, replace(Link(byte, byte, True), **more), seconds, watts)


def test_less_is_held_for_the_same_cost_and_the_least_is_lower(memory):
    memory, front = memory
    found = send_frontier(memory, front, room(memory), 60.0)
    assert found[0] == front[0]
    assert all(a.cost <= b.cost and a.peak > b.peak for a, b in pairwise(found))
    assert found[-1].peak < front[-1].peak
    for base in front:
        within = [choice for choice in found if choice.peak <= base.peak]
        assert min(choice.cost for choice in within) <= base.cost
    assert any(choice.sent for choice in found)
    again = send_frontier(memory, front, room(memory), 60.0)
    assert again == found


def test_what_a_choice_says_is_what_the_simulation_says(memory):
    memory, front = memory
    for choice in send_frontier(memory, front, room(memory), 60.0):
        assert choice.host == sum(memory.step.size[value.node] for value in choice.sent)
        assert {value.node for value in choice.sent} <= set(memory.sendable(choice)) <= set(choice.saved)
        for value in choice.sent:
            assert value.left == END or value.left > value.node
            assert not memory.step.given[value.node]
            assert not memory.step.tangent[value.node]


@pytest.mark.parametrize("limit", [0, VALUE - 1, VALUE, 3 * VALUE + 7])
def test_no_choice_takes_more_of_the_host_than_it_may(memory, limit):
    memory, front = memory
    found = send_frontier(memory, front, room(memory, limit), 60.0)
    assert max(choice.host for choice in found) <= limit
    assert (max(choice.host for choice in found) >= VALUE) == (limit >= VALUE)
    rounded = replace(room(memory, limit), rounded=True)
    for choice in send_frontier(memory, front, rounded, 60.0):
        assert sum(1 << (memory.step.size[value.node] - 1).bit_length() for value in choice.sent) <= limit


def test_a_slow_link_and_dear_bytes_are_used_only_where_nothing_else_helps(memory):
    memory, front = memory
    fast = send_frontier(memory, front, room(memory), 60.0)
    slow = send_frontier(memory, front, room(memory, out=1.0, into=1.0), 60.0)
    dear = send_frontier(memory, front, room(memory, watts=1.0, joules_per_byte=0.5), 60.0)

    def cheapest(found, peak):
        return min((choice for choice in found if choice.peak <= peak), key=lambda choice: choice.cost)

    for base in front:
        assert not cheapest(slow, base.peak).sent
        assert not cheapest(dear, base.peak).sent
    assert any(cheapest(fast, base.peak).sent for base in front[1:])
    host = next(choice for choice in dear if choice.sent)
    assert host.cost >= host.host


def test_the_link_is_the_described_devices(memory):
    memory, _ = memory
    device = find_device("h200")
    time, energy = (host_room(device, objective, None, memory.step) for objective in ("time", "energy"))
    assert time.link == energy.link == device.host_link
    assert (time.link.out, time.cost(3.0, 1000)) == (1 / device.link, 3.0)
    assert energy.cost(0.0, 1000) == pytest.approx(2000 * device.joules_per_link_byte)
    assert energy.cost(3.0, 0) == 3 * device.static_watts
    assert time.rounded
    assert not host_room(find_device("cpu"), "time", None, memory.step).link.overlap
