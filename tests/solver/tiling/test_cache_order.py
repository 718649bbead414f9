"""Orders on caches: compiled prices against the referee, all orders against brute force."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive_orders as naive
import pebbler as pb
from pebbler.referee.certificates import NotProven
from pebbler.referee.judgement import check
from pebbler.referee.kernels.cache_price import price
from pebbler.referee.pricing import cache_game
from pebbler.referee.programs import order_floors
from pebbler.referee.programs.order_floors import order_bound
from pebbler.referee.rows.task import Task
from pebbler.referee.verify import verify
from pebbler.solver.problem import Problem
from pebbler.solver.tiling.cache_order import best_order, next_share, op_floors
from pebbler.solver.tiling.list_order import nearest_first
from pebbler.solver.tiling.node_graph import NodeGraph

managements = st.sampled_from(["lru", "recency"])


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9), managements, st.booleans())
def test_the_kernel_prices_an_order_as_the_referee_does(seed: int, management: str, steady: bool) -> None:
    rng = random.Random(seed)
    graph, machine = naive.random_graph(rng, rng.randrange(1, 9)), naive.random_machine(rng, management)
    nodes = NodeGraph.of(graph)
    assert nodes is not None
    game = cache_game(graph, machine, steady=steady)
    for order in (np.arange(len(graph.ops)), nodes.order(nearest_first(nodes, machine, by_price=True))):
        plan = pb.Plan.in_order(graph, machine, [graph.ops[i].name for i in order], steady=steady)
        verdict = check(plan)
        assert verdict.legal
        assert price(game, order) == pytest.approx(verdict.energy, rel=1e-12)
        assert op_floors(graph, machine).sum() <= verdict.energy


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 10**9), managements, st.booleans())
def test_the_best_of_all_orders_is_found(seed: int, management: str, steady: bool) -> None:
    rng = random.Random(seed)
    graph, machine = naive.random_graph(rng, rng.randrange(1, 7)), naive.random_machine(rng, management)
    best = best_order(Problem.of(graph, machine, steady=steady))
    assert best.proven
    assert best.energy == pytest.approx(naive.cheapest_order(graph, machine, steady), rel=1e-12)
    assert proven(graph, machine, steady) <= best.energy


def proven(graph: pb.Graph, machine: pb.Machine, steady: bool) -> float:
    """Return the bound of last touches, as the verifier finds it."""
    return verify(Task(graph, machine, steady), {"covers": "graph", "formula": "last touches"})


def test_last_touches_that_lie_too_deep_are_found(monkeypatch) -> None:
    def too_high(seed: int) -> bool:
        rng = random.Random(seed)
        graph, machine = naive.random_graph(rng, rng.randrange(1, 5)), naive.random_machine(rng, "lru")
        return proven(graph, machine, True) > naive.cheapest_order(graph, machine, True)

    assert not any(too_high(seed) for seed in range(60))
    right = order_floors._OrderBound._level
    monkeypatch.setattr(order_floors._OrderBound, "_level", lambda self, depth: right(self, depth + 2))
    assert any(too_high(seed) for seed in range(60))


def test_last_touches_are_for_caches_and_exact() -> None:
    with pytest.raises(NotProven, match="caches alone"):
        proven(pb.workloads.mlp(n=2, hidden=3), pb.machine("notes-explicit"), True)
    graph = pb.workloads.mlp(n=2, hidden=3)
    prices = [(0.1, 0.1, 4), (0.3, 0.3, 9), (0.7, 0.7, None)]
    levels = tuple(pb.Level(f"L{i}", read, write, capacity=room) for i, (read, write, room) in enumerate(prices))
    machine = pb.Machine("tenths", "float32", levels, "lru")
    exact = sum((Fraction(one) for one in order_floors._floors(Task(graph, machine, True))), Fraction())
    assert 0 < Fraction(proven(graph, machine, True)) <= exact


def test_the_notes_optimum_is_proven_with_recomputation_in_it() -> None:
    problem = Problem.of(pb.workloads.note_mlp(), pb.machine("notes-recency"))
    assert best_order(problem).energy == 10764315
    assert order_bound(problem.task) == 10764315


def test_a_limit_ends_the_search_without_a_proof() -> None:
    best = best_order(Problem.of(pb.workloads.note_mlp(), pb.machine("notes")), limit=10)
    assert not best.proven
    assert best.energy <= 12743390


def test_attempts_fit_into_the_time_and_leave_little_of_it() -> None:
    """Each attempt took four times as long as the one before, whatever was left: six seconds of four."""
    rng = random.Random(5)
    for _ in range(500):
        seconds, limit = 10 ** rng.uniform(-6, -3), rng.uniform(1.0, 60.0)
        share, used = 2_500, 0.0
        while share and used < limit:
            used += share * seconds * rng.uniform(0.9, 1.0)
            share = next_share(share, seconds, limit - used)
        if 2_500 * seconds < limit:
            assert 0.35 * limit <= used <= 1.001 * limit
    assert next_share(2_500, 1e-4, math.inf) == next_share(2_500, 0.0, 1.0) == 10_000
