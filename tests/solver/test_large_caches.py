"""Caches under thousands of ops: orders with reruns that the referee accepts, and bounds that no order with reruns undercuts."""

from __future__ import annotations

import random

import pytest

from attacks import cheapest_order, random_levels, random_tilable
from dense_training import training
from pebbler import machine, solve
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.referee.judgement import check
from pebbler.solver import large_caches
from pebbler.solver.large_caches import cache_bounds, solve_large_cache
from pebbler.solver.problem import Problem, Search
from strategies import random_cache_machine, random_graph

CASES = 60
EXACT = 1 - 1e-12  # the referee adds doubles


def attack(seed: int) -> bool:
    """Look for an order below the bound; return whether the bound says more than its floor does."""
    rng = random.Random(seed)
    graph = random_graph(rng, 9) if rng.random() < 0.6 else random_tilable(rng)
    management = "lru" if rng.random() < 0.8 else "recency"
    small = management == "recency" or rng.random() < 0.5
    levels = random_cache_machine(rng, management) if small else random_levels(rng, graph, management)
    steady = rng.random() < 0.5
    (bound,) = cache_bounds(Problem.of(graph, levels, steady=steady), lambda: 1.0)
    plan = cheapest_order(rng, graph, levels, graph, steady=steady, tries=60)
    energy = check(plan).energy
    assert energy >= EXACT * bound.value, f"seed {seed}: {energy} is below {bound}"
    return "cannot all be" in bound.proof


def test_no_order_with_reruns_costs_less_than_the_bound() -> None:
    assert sum(attack(seed) for seed in range(CASES)) > CASES // 20


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_no_order_with_reruns_costs_less_than_the_bound_in_thousands_of_cases(part: int) -> None:
    for seed in range(1000 + 200 * part, 1200 + 200 * part):
        attack(seed)


def caches(graph: Graph, capacity: int, management: str = "lru") -> Machine:
    levels = (Level("l1", 1, 1, capacity=capacity // 8), Level("l2", 10, 10, capacity=capacity), Level("far", 100, 100))
    return Machine("caches", graph.unit, levels, management)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("steady", [False, True])
@pytest.mark.parametrize("management", ["lru", "recency"])
def test_reruns_make_caches_cheaper(steady: bool, management: str) -> None:
    graph = training(60)
    search = Search(Problem.of(graph, caches(graph, 500, management), steady=steady))
    search.offer([("compute", op.name) for op in graph.ops])
    before = search.energy
    solve_large_cache(search)
    assert search.bound <= search.energy
    if management == "lru":  # ranks have no write-backs to save
        assert search.energy < 0.6 * before


def test_solve_takes_the_large_way_above_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_caches, "LARGE_CACHE", 100)
    graph = training(20)
    plans = [solve(graph, caches(graph, 200), time_limit=None) for _ in range(2)]
    assert check(plans[0]).legal
    assert plans[0].status == "bounded"
    assert plans[0].moves.words() == plans[1].moves.words()


def test_a_graph_of_one_op_is_no_matter() -> None:
    graph = Graph("one", unit="float32").tensor("x", 3, kind="input").tensor("y", 3, kind="output")
    graph.op("f", ["x"], ["y"], 1)
    search = Search(Problem.of(graph, machine("notes")))
    solve_large_cache(search)
    assert search.bound <= search.energy < float("inf")


def test_graphs_that_are_not_large_get_reruns_too() -> None:
    graph = training(12)
    plan = solve(graph, caches(graph, 120), time_limit=None, quick=True)
    assert len(plan.moves) > len(graph.ops)
    assert plan.energy < 0.8 * check(plan.in_order(graph, plan.machine, steady=plan.steady)).energy
