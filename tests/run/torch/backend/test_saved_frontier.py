"""Choices of saved values: right gradients for every one of them, peaks as measured, near the best of all choices."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, combinations, pairwise
from threading import Thread

import pytest
import torch
from torch import fx, nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import partitioners

from pebbler.run.torch.backend.joint_step import JointStep
from pebbler.run.torch.backend.partitioner import SavedValuesPartitioner, cuts_remembered
from pebbler.run.torch.backend.saved_frontier import saved_frontier
from pebbler.run.torch.backend.step_memory import StepMemory
from pebbler.run.torch.cost.costs import DEVICES
from pebbler.run.torch.cost.peak_memory import measure_peak
from quick_cases import quick_only


class Recorded(SavedValuesPartitioner):
    """A partitioner that keeps the joint graph it saw, and saves what it is told."""

    def __init__(self, told=None, budgets=()):
        super().__init__(DEVICES["cpu"], 60.0, lambda frontier: 0)
        self.told, self.step, self.budgets = told, None, budgets

    def _saved(self, graph, info, outputs, choose):
        self.step = JointStep.read(graph, info, outputs, self.device)
        with cuts_remembered():
            theirs = {budget: choose(budget) for budget in (1.0, *self.budgets)}
        self.theirs = {budget: [self.step.nodes.index(node) for node in saved] for budget, saved in theirs.items()}
        self.fastest = self.theirs[1.0]
        return theirs[1.0] if self.told is None else [self.step.nodes[i] for i in self.told]


def traced(function, told=None, budgets=(), **more):
    """Return a function compiled without kernels, call by call, and its partitioner, which asks torch at some budgets."""
    torch._dynamo.reset()
    seen = Recorded(told, budgets)
    backend = aot_autograd(fw_compiler=plain, bw_compiler=plain, partition_fn=seen, **more)
    return torch.compile(function, backend=backend), seen


def plain(gm, _inputs):
    """Compile a graph to itself, run call by call; what it is given goes after its last use."""

    def run(args):
        return fx.Interpreter(gm).boxed_run(args)

    run._boxed_call = True
    return run


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return [p.grad.clone() for p in model.parameters()]


MODELS = {
    "mlp": lambda: (nn.Sequential(*chain(*[(nn.Linear(24, 24), nn.Tanh()) for _ in range(8)])), torch.randn(128, 24)),
    "conv": lambda: (
        nn.Sequential(*chain(*[(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()) for _ in range(4)])),
        torch.randn(2, 4, 12, 12),
    ),
    "attention": lambda: (
        nn.Sequential(*[nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True) for _ in range(2)]),
        torch.randn(2, 12, 16),
    ),
}


@pytest.mark.parametrize("name", quick_only(["mlp"], MODELS))
def test_every_choice_gives_the_gradients(name):
    torch.manual_seed(0)
    model, x = MODELS[name]()
    eager = gradients(model, model(x).square().mean())

    def loss(x):
        return model(x).square().mean()

    compiled, seen = traced(loss)
    compiled(x)
    frontier = saved_frontier(StepMemory(seen.step), [seen.fastest], 60.0)
    assert len(frontier) >= 3
    assert frontier[-1].peak < frontier[0].peak
    for before, after in pairwise(frontier):
        assert after.peak < before.peak
    for choice in (frontier[len(frontier) // 2], frontier[-1]):
        again, _ = traced(loss, choice.saved)
        for ours, theirs in zip(gradients(model, again(x)), eager, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_simulated_peaks_are_those_of_runs_without_kernels():
    torch.manual_seed(0)
    model, x = MODELS["mlp"]()
    given = sum(p.nbytes for p in model.parameters()) + x.nbytes

    def loss(x):
        return model(x).square().mean()

    compiled, seen = traced(loss)
    compiled(x)
    memory = StepMemory(seen.step)
    for choice in saved_frontier(memory, [seen.fastest], 60.0)[::6]:
        again, _ = traced(loss, choice.saved)
        again(x)
        model.zero_grad()
        _, peak = measure_peak(lambda again=again: again(x).backward())
        assert memory.simulate(choice.saved, fusing=False).peak == pytest.approx(given + peak, rel=0.05)


def test_choices_are_near_the_best_of_all():
    torch.manual_seed(0)
    widths = (16, 32, 16)
    model = nn.Sequential(*chain(*[(nn.Linear(16, n, bias=False), nn.Tanh(), nn.Linear(n, 16)) for n in widths]))
    x = torch.randn(64, 16)
    compiled, seen = traced(lambda x: model(x).square().mean())
    compiled(x)
    step, memory = seen.step, StepMemory(seen.step)
    frontier = saved_frontier(memory, [seen.fastest], 60.0)
    inputs = [i for i, given in enumerate(step.given) if given and not step.tangent[i]]
    useful = [
        i for i, runs in enumerate(step.required)
        if runs and step.tensor[i] and not step.view[i] and not step.given[i] and step.size[i] > 1000
    ]  # fmt: skip
    assert len(useful) <= 12
    everything = [
        memory.simulate((*inputs, *some)) for count in range(len(useful) + 1) for some in combinations(useful, count)
    ]
    least = min(choice.peak for choice in everything)
    assert frontier[-1].peak <= 1.1 * least
    for choice in frontier[1:]:
        best = min(other.cost for other in everything if other.peak <= choice.peak)
        assert choice.cost <= 1.25 * best + 1e-9


def test_random_numbers_and_effects_never_run_again():
    def noisy(x, w):
        y = torch.nn.functional.dropout(x @ w, 0.5)
        return (torch.rand_like(y) * y).tanh().sum()

    w = torch.randn(32, 32, requires_grad=True)
    compiled, seen = traced(noisy)
    compiled(torch.randn(64, 32), w)
    step = seen.step
    random = [
        i for i, node in enumerate(step.nodes) if str(node.target).startswith(("aten.native_dropout.", "aten.rand"))
    ]
    assert len(random) == 2
    assert all(step.fixed[i] for i in random)
    for choice in saved_frontier(StepMemory(step), [seen.fastest], 60.0):
        saved = set(choice.saved)
        for i in random:  # nothing random is reached from backward without a saved value in between
            stack = step.users[i]
            assert i in saved or all(user in saved or not step.tangent[user] for user in stack)


def test_other_threads_partition_as_torch_does():
    theirs = []

    class Asking(Recorded):
        def _saved(self, graph, info, outputs, choose):
            thread = Thread(target=lambda: theirs.append(partitioners.choose_saved_values_set(graph, info)))
            thread.start()
            thread.join()
            theirs.append(choose(1.0))
            return super()._saved(graph, info, outputs, choose)

    w = torch.randn(8, 8, requires_grad=True)
    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=plain, bw_compiler=plain, partition_fn=Asking())
    torch.compile(lambda x: (x @ w).tanh().mean(), backend=backend)(torch.randn(4, 8))
    assert len(theirs) == 2  # asked once, here and not there
    assert theirs[0] == theirs[1]


def test_energy_prices_what_time_does_not():
    model, x = MODELS["mlp"]()
    device = replace(DEVICES["cpu"], joules_per_flop=1.0, joules_per_byte=0.0, joules_per_launch=0.0, static_watts=0.0)

    class Energy(Recorded):
        def _saved(self, graph, info, outputs, choose):
            self.joules = JointStep.read(graph, info, outputs, device, "energy")
            return super()._saved(graph, info, outputs, choose)

    torch._dynamo.reset()
    seen = Energy()
    torch.compile(
        lambda x: model(x).square().mean(),
        backend=aot_autograd(fw_compiler=plain, bw_compiler=plain, partition_fn=seen),
    )(x)
    names = [node.name for node in seen.joules.nodes]
    spent = dict(zip(names, seen.joules.cost, strict=True))
    assert spent["addmm"] == 2 * 128 * 24 * 24  # a joule for every flop
    assert spent["tanh"] == 0
    assert dict(zip(names, seen.step.cost, strict=True))["tanh"] > 0
    frontier = saved_frontier(StepMemory(seen.joules), [seen.fastest], 60.0)
    assert len(frontier) >= 3
