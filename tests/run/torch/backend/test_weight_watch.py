"""Weights that change between forward and backward: noticed where values are computed again from them."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch
from torch import fx, nn
from torch.nn import functional

import pebbler.torch as pt
from pebbler.run.torch.backend import weight_watch
from pebbler.run.torch.backend.dynamo_backend import pebbler
from pebbler.run.torch.backend.weight_watch import WeightWatch, inputs_read_again


def backward_graph(build):
    """Return a graph with inputs as torch names and describes them in backward graphs."""
    graph = fx.Graph()
    primals = [graph.placeholder(f"primals_{i + 1}") for i in range(4)]
    for place, node in enumerate(primals):
        node.meta["desc"] = SimpleNamespace(idx=place)
    tangent = graph.placeholder("tangents_1")
    graph.output(build(graph, primals, tangent))
    return graph


def test_inputs_of_what_runs_again_are_told_from_those_that_gradients_read():
    aten = torch.ops.aten

    def build(graph, primals, tangent):
        view = graph.call_function(aten.t.default, (primals[0],))
        gradient = graph.call_function(aten.mm.default, (tangent, view))  # reads a weight, as eager's backward does
        again = graph.call_function(aten.mm.default, (primals[2], graph.call_function(aten.t.default, (primals[1],))))
        return graph.call_function(aten.mul.Tensor, (gradient, again))

    assert inputs_read_again(backward_graph(build)) == [1, 2]
    assert inputs_read_again(backward_graph(lambda graph, primals, tangent: tangent)) == []


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_change_of_any_number_is_seen(dtype):
    torch.manual_seed(0)
    base = torch.randn(7, 5, 3, 3).to(dtype)
    shapes = [base, base.permute(0, 2, 3, 1), base[1:], base[:, 1:4], base[0, 0, 0, 0], base.flatten()[1:], base[:0]]
    for x in shapes:
        before = weight_watch._bit_sums([x])
        assert weight_watch._bit_sums([x, x]) == 2 * before
        for at in itertools.product(*map(range, x.shape)):
            kept = x[at].clone()
            x[at] = kept + 1
            assert weight_watch._bit_sums([x]) != before
            x[at] = kept
        assert weight_watch._bit_sums([x]) == before


def test_first_steps_are_checked_and_then_ever_fewer():
    watch = WeightWatch(fx.Graph())
    assert not any(watch.due(step) for step in range(5))
    watch.compiled([0])
    assert [step for step in range(100, 240) if watch.due(step)] == [100, 101, 102, 103, 107, 115, 131, 163, 227]
    assert sum(watch.due(step) for step in range(10**4, 2 * 10**4)) == 10


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(16, 32), nn.Linear(32, 32), nn.Linear(32, 4)

    def forward(self, x, y):
        return functional.cross_entropy(self.c(functional.gelu(self.b(functional.gelu(self.a(x))))), y)


def rebound(parameter, noise):
    parameter.data = parameter.data + noise


CHANGES = {
    "add": lambda p, noise: p.data.add_(noise),
    "rebind": rebound,
    "copy": lambda p, noise: p.data.copy_(p.data + noise),
    "numpy": lambda p, noise: p.detach().numpy().__iadd__(noise.numpy()),
    "one number": lambda p, noise: p.data.view(-1)[-1:].add_(1.0),
    "nothing": lambda p, noise: p.data.add_(0.0),
}


@pytest.mark.slow
@pytest.mark.usefixtures("graphs")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_a_step_whose_weights_change_is_as_eager_or_refused(graphs, monkeypatch):
    monkeypatch.setattr(WeightWatch, "due", lambda self, step: bool(self.places))
    torch.manual_seed(0)
    model = Stack()
    compiled = torch.compile(model, backend=pebbler, options={"budget": "least"})
    refused = set()
    for name, change in CHANGES.items():
        for changed in model.parameters():
            x, y, noise = torch.randn(64, 16), torch.randint(4, (64,)), 0.3 * torch.randn(changed.shape)
            kept, found = changed.detach().clone(), []
            for forward in (model, compiled):
                model.zero_grad()
                loss = forward(x, y)
                change(changed, noise)
                try:
                    loss.backward()
                    found.append([p.grad.clone() for p in model.parameters()])
                except pt.WeightsChanged as error:
                    refused.add((name, str(error).partition(":")[0]))
                changed.data = kept.clone()
            # Eager has saved a view of the old memory; with or without pebbler, compiled code has saved the parameter.
            if len(found) == 2 and name != "rebind":
                torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-5)
    # The first layer runs again; what only gradients read does not matter, and neither does what stays as it was.
    again = ("a.weight", "a.bias")
    assert refused == {(name, changed) for name in CHANGES if name != "nothing" for changed in again}
    assert not torch.autograd._profiler_enabled()


@pytest.mark.slow
@pytest.mark.usefixtures("graphs")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_noise_that_is_taken_back_before_backward_is_refused_in_the_first_step():
    model = Stack()
    compiled = torch.compile(model, backend=pebbler, options={"budget": "least"})
    noise = [torch.randn(p.shape) for p in model.parameters()]
    for p, more in zip(model.parameters(), noise, strict=True):
        p.data.add_(more)
    loss = compiled(torch.randn(64, 16), torch.randint(4, (64,)))
    for p, more in zip(model.parameters(), noise, strict=True):
        p.data.sub_(more)
    with pytest.raises(pt.WeightsChanged, match=r"a\.weight \(and 1 more\): changed between forward and backward"):
        loss.backward()
