"""Budgets of steps without a compiler: which graphs are told to save less, what is measured, what is forgotten."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from pebbler.run.torch.backend import step_budget as module
from pebbler.run.torch.backend.backend_options import BackendOptions
from pebbler.run.torch.backend.graph_frontier import GraphFrontier
from pebbler.run.torch.backend.step_budget import StepBudget
from pebbler.run.torch.backend.step_memory import SavedChoice
from pebbler.run.torch.backend.step_meter import StepMeter, open_workspaces
from pebbler.run.torch.run.verification import OverBudget


class Kept(torch.autograd.Function):
    """Saves `count` floats from forward to backward, as a compiled graph does."""

    @staticmethod
    def forward(ctx, x, count):
        ctx.save_for_backward(torch.ones(count))
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0][0] * 2, None


class Graph:
    """A graph that saves what its frontier's choice says."""

    def __init__(self, budget, *choices):
        self.frontier = GraphFrontier(
            key="", names=[], choices=[SavedChoice((), peak, seconds, peak) for peak, seconds in choices],
            eager=choices[0][0], inputs=0, padded=False,
        )  # fmt: skip
        budget.start(self.frontier)
        self.budget, self.again, self.settled = budget, 0, []

    def compile_again(self):
        self.again += 1

    def settle(self, peak):
        self.settled.append(peak)

    def compile_smaller(self):
        padded, self.frontier.padded = self.frontier.padded, False
        return padded

    def __call__(self, x, view=False):
        self.budget.foresee()
        self.budget.enter(self, [x])
        y = Kept.apply(x, self.frontier.choice.bytes // 4)
        y = y.view(-1) if view else y
        self.budget.leave([None, y])
        return y


def step_budget(budget, **more):
    return StepBudget("cpu", BackendOptions(budget=budget, **more))


def given():
    return torch.ones(4, requires_grad=True)


def test_the_cheapest_graph_saves_less_first():
    budget = step_budget(1_500_000)
    cheap = Graph(budget, (1_000_000, 0.0), (400_000, 1.0), (100_000, 9.0))
    costly = Graph(budget, (1_000_000, 0.0), (400_000, 5.0))
    costly(cheap(given())).sum().backward()
    assert (cheap.frontier.place, costly.frontier.place) == (1, 0)
    assert (cheap.again, costly.again) == (1, 0)
    assert budget.peak > 1_900_000
    costly(cheap(given())).sum().backward()
    assert 1_300_000 < budget.peak <= 1_500_000
    assert (cheap.again, costly.again) == (1, 0)


def test_no_more_is_given_than_needed():
    budget = step_budget(800_000)
    graph = Graph(budget, (1_000_000, 0.0), (700_000, 5.0), (100_000, 5.1))  # the last costs least per byte
    graph(given()).sum().backward()
    assert graph.frontier.place == 1
    assert graph.again == 1


def test_what_nothing_can_keep_is_refused_after_all_was_tried():
    budget = step_budget(50_000)
    graph = Graph(budget, (1_000_000, 0.0), (400_000, 1.0), (100_000, 9.0))
    graph(given()).sum().backward()
    assert graph.frontier.place == 2
    last = graph(given()).sum()
    with pytest.raises(OverBudget, match=r"the least budget is 100,\d+ bytes"):
        last.backward()


def test_only_first_steps_are_measured():
    budget = step_budget(10**7)
    graph = Graph(budget, (1_000_000, 0.0))
    for _ in range(3):
        graph(given()).sum().backward()
    graph.frontier.choices = [SavedChoice((), 10**8, 0.0, 10**8)]
    graph(given()).sum().backward()
    assert budget.peak < 2_000_000


def test_calls_without_a_backward_are_forgotten():
    budget = step_budget(1_500_000)
    graph = Graph(budget, (1_000_000, 0.0), (100_000, 1.0))
    for _ in range(5):
        graph(given())
    graph(given(), view=True).sum().backward()
    assert graph.frontier.place == 0
    assert 900_000 < budget.peak < 1_500_000


def test_views_of_outputs_belong_to_their_graph():
    budget = step_budget(1_500_000)
    first, second = Graph(budget, (1_000_000, 0.0), (100_000, 1.0)), Graph(budget, (1_000_000, 0.0), (100_000, 2.0))
    x = first(given(), view=True)
    second(x, view=True).sum().backward()
    assert budget.peak > 1_900_000
    assert (first.frontier.place, second.frontier.place) == (1, 0)


def test_a_reserve_is_counted():
    budget = step_budget(1_500_000, reserve=600_000)
    graph = Graph(budget, (1_000_000, 0.0), (100_000, 1.0))
    assert budget.start(graph.frontier) == 1
    graph(given()).sum().backward()
    assert graph.frontier.place == 1


def test_a_share_is_one_of_the_eager_peaks_together():
    budget = StepBudget("cpu", BackendOptions(share=0.5))
    assert budget.limit([SimpleNamespace(eager=1000), SimpleNamespace(eager=500)]) == 750


def test_a_failed_call_is_forgotten():
    budget = step_budget(10**6)
    graph = Graph(budget, (100_000, 0.0))
    budget.enter(graph, [given()])
    budget.abandon()
    assert not torch.autograd._profiler_enabled()
    graph(given()).sum().backward()
    assert budget.peak < 200_000


def test_graphs_that_are_compiled_together_leave_room_for_each_other():
    budget = step_budget(1_500_000)
    first, second = (Graph(budget, (1_000_000, 0.0), (400_000, 1.0)) for _ in range(2))
    assert budget.start(first.frontier) == 0
    budget.expect(first)
    assert budget.start(second.frontier) == 1
    first(given()).sum().backward()  # what was expected before the step is forgotten by it
    assert 900_000 < budget.peak < 1_500_000


def test_calls_within_a_backward_are_known():
    budget = step_budget(10**7)
    within = []

    class Repeats(Kept):
        @staticmethod
        def backward(ctx, gradient):
            within.append(budget.in_backward)
            return Kept.backward(ctx, gradient)

    x = given()
    budget.enter(Graph(budget, (1000, 0.0)), [x])
    y = Repeats.apply(x, 10)
    budget.leave([y])
    y.sum().backward()
    within.append(budget.in_backward)
    assert within == [True, False]


def test_room_is_used_once_it_is_known():
    budget = step_budget(1_500_000)
    graph = Graph(budget, (1_000_000, 0.0), (400_000, 5.0), (100_000, 9.0))
    graph.frontier.place = 2
    for _ in range(3):
        assert graph.again == 0
        graph(given()).sum().backward()
    assert (graph.frontier.place, graph.again, graph.settled) == (0, 1, [])
    for _ in range(3):
        graph(given()).sum().backward()
    assert (graph.frontier.place, graph.again) == (0, 1)
    assert graph.settled == [budget.peak]


def test_room_that_is_nearly_all_is_left_so_that_nothing_is_compiled_in_vain():
    budget = step_budget(1_010_000)
    graph = Graph(budget, (1_000_000, 1.0), (400_000, 9.0))
    graph.frontier.place = 1
    for _ in range(4):
        graph(given()).sum().backward()
    assert (graph.frontier.place, graph.again) == (1, 0)


def test_room_that_gains_little_is_left():
    budget = step_budget(1_500_000)
    graph = Graph(budget, (1_000_000, 10.0), (400_000, 10.05))
    graph.frontier.place = 1
    for _ in range(4):
        graph(given()).sum().backward()
    assert (graph.frontier.place, graph.again) == (1, 0)


def test_a_choice_that_was_over_is_never_taken_again():
    budget = step_budget(1_000_000)
    graph = Graph(budget, (900_000, 0.0), (100_000, 9.0))
    graph.frontier.choices[0] = SavedChoice((), 1_100_000, 0.0, 900_000)  # holds more than simulated
    for _ in range(8):
        graph(given()).sum().backward()
    assert (graph.frontier.place, graph.again) == (1, 1)
    assert len(graph.settled) == 1


def test_padded_copies_go_before_a_step_is_refused():
    budget = step_budget(50_000)
    graph = Graph(budget, (100_000, 0.0))
    graph.frontier.padded = True
    graph(given()).sum().backward()
    with pytest.raises(OverBudget):
        graph(given()).sum().backward()


def test_the_least_is_never_refused():
    budget = StepBudget("cpu", BackendOptions(least=True))
    graph = Graph(budget, (1_000_000, 0.0), (100_000, 9.0))
    graph.frontier.place = budget.start(graph.frontier)
    for _ in range(4):
        graph(given()).sum().backward()
    assert (graph.frontier.place, len(graph.settled)) == (1, 1)


def test_steps_are_measured_again_when_shapes_grow():
    budget = step_budget(10**7)
    graph = Graph(budget, (1_000_000, 0.0), (100, 1.0))
    for _ in range(3):
        graph(given()).sum().backward()
    before = budget.peak
    graph(given()).sum().backward()
    assert budget.peak == before
    graph(torch.ones(2_000_000, requires_grad=True)).sum().backward()
    assert budget.peak > before + 10**7
    assert graph.frontier.place == 1
    for _ in range(3):
        graph(given()).sum().backward()
    known = budget.peak
    graph.frontier.choices = [SavedChoice((), 10**8, 0.0, 10**8)] * 2
    graph(given()).sum().backward()  # smaller than the largest: nothing to measure
    assert budget.peak == known


def test_a_device_that_held_too_much_later_is_looked_at_again(monkeypatch):
    held = [0]
    monkeypatch.setattr(module, "most_since_reset", lambda device: held[0])
    monkeypatch.setattr(module, "step_meter", lambda device: StepMeter())
    budget = step_budget(1_500_000)
    graph = Graph(budget, (1_000_000, 0.0), (100_000, 9.0))
    budget.device = "cuda"
    for _ in range(4):
        graph(given()).sum().backward()
    assert graph.again == 0
    graph.frontier.choices[0] = SavedChoice((), 1_600_000, 0.0, 1_600_000)  # holds more from now on
    graph(given()).sum().backward()
    assert graph.again == 0
    held[0] = 1_600_000
    for _ in range(2):
        graph(given()).sum().backward()
    assert (graph.again, graph.frontier.place) == (1, 1)


def on_a_gpu(monkeypatch, limit):
    """Return a budget, a graph and the bytes that a device holds between steps: a list of one, to be changed."""
    held = [10_000]
    monkeypatch.setattr(module, "held_now", lambda device: held[0])
    monkeypatch.setattr(module, "step_meter", lambda device: StepMeter())
    budget = step_budget(limit)
    graph = Graph(budget, (1_000_000, 0.0), (800_000, 1.0), (100_000, 9.0))
    budget.device = "cuda"
    return budget, graph, held


@pytest.mark.parametrize(("state", "place"), [(0, 0), (600_000, 1), (2_000_000, 2)])
def test_what_an_optimizer_will_hold_is_foreseen_before_the_second_step(state, place, monkeypatch):
    """Its state comes at the end of the first step; graphs are then compiled once for all of it, not twice."""
    budget, graph, held = on_a_gpu(monkeypatch, 1_500_000)
    graph(given()).sum().backward()
    assert graph.again == 0
    held[0] += state
    budget.foresee()
    assert (graph.again, graph.frontier.place) == (int(place > 0), place)
    budget.foresee()
    assert graph.again == int(place > 0)
    graph(given()).sum().backward()
    assert (graph.again, graph.frontier.place) == (int(place > 0), place)


def test_a_first_step_that_is_over_is_judged_with_what_stays_of_it(monkeypatch):
    _, graph, held = on_a_gpu(monkeypatch, 900_000)
    graph.frontier.place = 0  # whatever the simulation said
    graph(given()).sum().backward()
    assert graph.again == 0
    held[0] = 500_000
    graph(given()).sum().backward()
    assert (graph.again, graph.frontier.place) == (1, 2)


def test_workspaces_are_opened_whatever_mode_is_on(monkeypatch):
    linear, made = torch.nn.functional.linear, []

    def noted(*args):
        result = linear(*args)
        made.append((type(result), result.dtype, result.requires_grad))
        return result

    monkeypatch.setattr(torch.nn.functional, "linear", noted)
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16), FakeTensorMode():
        open_workspaces("cpu")
    assert made == [(torch.Tensor, torch.float32, True), (torch.Tensor, torch.bfloat16, True)]


def test_a_device_that_others_fill_is_looked_at_less_and_less(monkeypatch):
    measured = []
    monkeypatch.setattr(module, "most_since_reset", lambda device: 10**9)
    monkeypatch.setattr(module, "step_meter", lambda device: measured.append(device) or StepMeter())
    budget = step_budget(1_500_000)
    graph = Graph(budget, (1_000_000, 0.0), (100_000, 9.0))
    budget.device = "cuda"
    for _ in range(40):
        graph(given()).sum().backward()
    assert graph.again == 0
    assert len(measured) < 10
    graph.frontier.choices[0] = SavedChoice((), 1_600_000, 0.0, 1_600_000)  # now it is the step, and that is noticed
    for _ in range(40):
        graph(given()).sum().backward()
    assert (graph.again, graph.frontier.place) == (1, 1)


def test_results_that_are_gone_before_backward_are_not_counted_on_a_cpu():
    meter = StepMeter()
    meter.open()
    kept, lost = torch.ones(250_000), torch.ones(500_000)
    meter.close()
    meter.results([kept, lost])
    del lost
    meter.open()
    made = torch.ones(500_000)
    meter.close()
    assert 3_000_000 <= meter.peak() < 3_200_000  # both results, or one of them and what was made later
    meter.open()
    more = torch.ones(500_000)
    meter.close()
    assert 5_000_000 <= meter.peak() < 5_200_000
    assert made.sum() + more.sum() + kept.sum() == 1_250_000


class Greedy(torch.optim.SGD):
    """Holds 1.6 MB while it steps."""

    def step(self, closure=None):
        total = torch.ones(400_000).sum()
        super().step(closure)
        return total


def test_what_the_optimizer_holds_is_counted():
    budget = step_budget(1_200_000)
    graph, x = Graph(budget, (1_000_000, 0.0)), given()
    rule = torch.optim.SGD([x], lr=0.1, momentum=0.9)
    graph(x).sum().backward()
    rule.step()
    assert 1_000_000 < budget.peak < 1_100_000  # nothing to speak of
    graph = Graph(budget, (500_000, 0.0))
    graph(x).sum().backward()
    with pytest.warns(UserWarning, match=r"the optimizer's step holds 1\.\d+ MiB, the budget is 1\.14 MiB"):
        Greedy([x], lr=0.1).step()
    assert budget.peak > 1_200_000
    graph(x)
    Greedy([x], lr=0.1).step()  # no measured step before it


def test_optimizers_of_other_models_are_not_counted():
    budget = step_budget(1_200_000)
    graph = Graph(budget, (1_000_000, 0.0))
    graph(given()).sum().backward()
    before = budget.peak
    Greedy([given()], lr=0.1).step()  # no warning, which would be an error here
    assert budget.peak == before


def test_graphs_that_are_alike_have_keys_of_their_own():
    budget = step_budget(10**7)
    assert len({budget.numbered("a"), budget.numbered("a"), budget.numbered("b")}) == 3
    assert step_budget(10**7).numbered("a") == "1-a"


def test_graphs_of_different_steps_settle_all():
    budget = step_budget(10**7)
    graphs = [Graph(budget, (1_000_000, 0.0)) for _ in range(2)]
    for _ in range(5):
        for graph in graphs:
            graph(given()).sum().backward()
    assert [len(graph.settled) for graph in graphs] == [1, 1]
