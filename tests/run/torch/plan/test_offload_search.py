"""Plans with copies: timed as the slow twin does, legal, and found wherever one exists."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

from hypothesis import given, settings  # noqa: E402

from naive_offload import ends_at  # noqa: E402
from naive_recompute import memory_of  # noqa: E402
from pebbler.game.machine import Level, Machine  # noqa: E402
from pebbler.game.plan import Plan  # noqa: E402
from pebbler.referee.judgement import check  # noqa: E402
from pebbler.run.torch.cost.costs import Link  # noqa: E402
from pebbler.run.torch.plan.host_link import machine_with_host, predicted_cost  # noqa: E402
from pebbler.run.torch.plan.offload_search import OffloadSearch  # noqa: E402
from pebbler.solver.problem import Problem  # noqa: E402
from pebbler.solver.recompute.recompute_problem import RecomputeProblem  # noqa: E402
from strategies import generators, random_graph, random_plan  # noqa: E402


def pebbles(machine):
    return msgspec.structs.replace(machine, unit="pebble")


@settings(max_examples=150, deadline=None)
@given(generators)
def test_any_plan_is_timed_as_the_slow_twin_does(rng):
    graph = random_graph(rng, most_ops=6)
    prices = Link(rng.choice([0, 0.5, 1, 3]), rng.choice([0, 0.5, 1, 3]), True)
    plan = random_plan(rng, graph, pebbles(machine_with_host(rng.randint(8, 30), prices)), extra=20)
    if plan is not None:
        for overlap in (True, False):
            assert predicted_cost(plan, overlap) == pytest.approx(ends_at(plan, overlap))
        assert predicted_cost(plan, False) == pytest.approx(check(plan).energy)
        assert predicted_cost(plan, True) <= predicted_cost(plan, False) + 1e-9


def searching(rng, most_ops, **options):
    """A random graph on one level, and a search for it with a random capacity and link."""
    graph = random_graph(rng, most_ops, **options)
    prices = Link(rng.choice([0, 0.1, 1, 3]), rng.choice([0, 0.1, 1, 3]), rng.random() < 0.7)
    game = RecomputeProblem.of(Problem.of(graph, Machine("one", "pebble", (Level("memory", 0, 0, capacity=2**40),))))
    movable = {tensor.name for tensor in graph.tensors if tensor.kind in ("temp", "output")}
    search = OffloadSearch(game, 1, prices, movable, seed=rng.randrange(1000))
    peak = max(search.least[0], int(game.measure(game.program).memory.max(initial=1)))
    search.capacity = rng.randint(search.least[0], peak)
    return graph, game, search


def judged(graph, search, candidate):
    machine = pebbles(machine_with_host(search.capacity, search.link))
    start = {tensor.name: "memory" for tensor in graph.tensors if tensor.kind in ("input", "param")}
    plan = Plan(graph, machine, search.moves(candidate).moves(graph, machine), start, steady=False)
    return plan, check(plan)


@settings(max_examples=300, deadline=None)
@given(generators)
def test_scheduled_copies_are_legal_and_cost_what_the_kernel_says(rng):
    graph, game, search = searching(rng, 14)
    timeline = search.timeline(game.program)
    assert timeline.memory.tolist() == memory_of(graph, list(range(game.ops)))
    chosen = np.zeros(len(timeline.t_value), np.bool_)
    spans = search.idle(timeline)
    chosen[[i for i in spans.tolist() if rng.random() < 0.8]] = True
    candidate = search.schedule(game.program, timeline, chosen, rng.choice([0.5, 2, math.inf]))
    if candidate is not None:
        plan, judgement = judged(graph, search, candidate)
        assert judgement.legal, judgement.error
        assert predicted_cost(plan, search.link.overlap) == pytest.approx(candidate.cost)


@settings(max_examples=40, deadline=None)
@given(generators)
def test_whatever_needs_no_more_than_the_least_gets_a_plan(rng):
    graph, game, search = searching(rng, 12)
    best = search.best_of([game.program])
    assert best is not None
    plan, judgement = judged(graph, search, best)
    assert judgement.legal, judgement.error
    assert game.base_cost - 1e-9 <= best.cost == pytest.approx(predicted_cost(plan, search.link.overlap))
    less = OffloadSearch(game, search.least[0] - 1, search.link, (), seed=0)
    less.movable = search.movable
    assert search.least[0] == 1 or less.best_of([game.program]) is None
