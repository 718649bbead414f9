"""Forms of a graph: they are planned one by one where the graph as it is must run something again, and the best is compiled."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from pebbler.run.torch.backend import dynamo_backend, step_budget
from pebbler.run.torch.backend.graph_forms import GraphForms
from pebbler.run.torch.backend.graph_frontier import GraphFrontier
from pebbler.run.torch.backend.partitioner import WantsOtherForm
from pebbler.run.torch.backend.step_memory import SavedChoice

LOOSE = {0: [(900, 1.0), (500, 2.0), (300, 9.0)]}


def loss_of_two_layers(x, weight, head, target):
    x = x + torch.relu(x @ weight) @ weight.t()
    return functional.cross_entropy(functional.linear(x, head), target)


def compiled_levels(monkeypatch, choices, budget):
    """Return the levels of the forms that are planned, in order; the last one is compiled. `choices` are by level."""
    levels = []
    write = GraphForms.write

    def noted(forms, gm):
        levels.append(forms.level)
        return write(forms, gm)

    def compile_nothing(gm, inputs, settings, planned):
        partitioner = settings["custom_partitioner_fn"]
        if partitioner.frontier is None or partitioner.frontier.key != str(levels[-1]):
            found = [SavedChoice((), peak, cost, peak) for peak, cost in choices[levels[-1]]]
            partitioner.frontier = GraphFrontier(str(levels[-1]), [], found, eager=900, inputs=0, padded=False)
            partitioner.frontier.room = partitioner.room(partitioner.frontier)
            partitioner.frontier.place = partitioner.frontier.within(partitioner.frontier.room)
        if partitioner.frontier.room is not None and partitioner.refuses(partitioner.frontier):
            raise WantsOtherForm
        return gm.forward

    monkeypatch.setattr(GraphForms, "write", noted)
    monkeypatch.setattr(dynamo_backend, "_inductor", compile_nothing)
    monkeypatch.setattr(step_budget, "_BUDGETS", {})
    torch._dynamo.reset()
    x, weight, head = (torch.randn(shape, requires_grad=True) for shape in ((512, 4), (4, 4), (64, 4)))
    target = torch.zeros(512, dtype=torch.int64)
    run = torch.compile(loss_of_two_layers, backend=dynamo_backend.pebbler, options={"budget": budget})
    run(x, weight, head, target)
    return levels


@pytest.mark.parametrize(
    ("choices", "budget", "wanted"),
    [
        (LOOSE, 910, [0]),
        (LOOSE | {1: [(950, 1.2), (400, 1.5)]}, 600, [0, 1]),
        (LOOSE | {1: [(950, 1.2), (400, 2.5)]}, 600, [0, 1, 0]),  # it computes something twice for its chunks
        (LOOSE | {1: [(950, 1.2), (400, 8.5)]}, 405, [0, 1]),  # 0 keeps the budget only with its dearest choice
        (LOOSE | {1: [(950, 1.2), (400, 1.5)]}, 350, [0, 1, 0]),  # 1 does not keep it
        (
            LOOSE | {1: [(950, 1.2), (250, 1.5)]},
            100,
            [0, 1, 1, 0, 1],
        ),  # nothing does: as if the least were asked for, the last form first, and 1 holds less
        (
            {0: [(2 * 10**6, 1.0), (900_000, 2.0)]},
            10**6,
            [0],
        ),  # with all of the logits' bytes it would run as much again
        ({0: [(1_200_000, 1.0), (900_000, 2.0)], 1: [(900_000, 1.2)]}, 10**6, [0, 1]),  # with them it would not
        (LOOSE | {1: [(290, 1.2)]}, "least", [1, 0, 1]),
        (LOOSE | {1: [(400, 1.2)]}, "least", [1, 0]),
    ],
)
def test_the_best_form_is_compiled(choices, budget, wanted, monkeypatch):
    assert compiled_levels(monkeypatch, choices, budget) == wanted
    assert not torch.autograd._profiler_enabled()  # what is compiled to nothing has no backward that would end it


def test_a_form_that_was_compiled_is_not_compared_again(monkeypatch):
    seen = []
    first = dynamo_backend.PlannedGraph.__init__
    monkeypatch.setattr(
        dynamo_backend.PlannedGraph, "__init__", lambda self, *given: (first(self, *given), seen.append(self))[0]
    )
    compiled_levels(monkeypatch, LOOSE | {1: [(950, 1.2), (400, 2.5)], 2: [(100, 20.0)]}, 600)
    (graph,) = seen
    assert graph.forms.level == 0
    assert graph.frontier.room is None
