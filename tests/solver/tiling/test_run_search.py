"""All sequences of runs of small graphs on LRU caches, against brute force with a few further runs and the referee."""

from __future__ import annotations

import random

import numpy as np
import pytest

import pebbler as pb
from naive_orders import _odd_graph, orders_with_reruns, random_graph, random_machine
from pebbler.referee.judgement import check
from pebbler.solver.problem import Problem
from pebbler.solver.tiling import run_search
from pebbler.solver.tiling.run_search import best_runs, fits_runs


def small_problem(seed: int) -> Problem:
    """Return a small graph on LRU caches of both allocators, steady or not."""
    rng = random.Random(seed)
    graph = random_graph(rng, rng.randint(1, 5)) if seed % 3 else _odd_graph(rng, rng.randint(2, 4))
    return Problem.of(graph, random_machine(rng, "lru"), steady=rng.random() < 0.4)


def energy_of(problem: Problem, sequence: list[int]) -> float:
    names = [problem.graph.op_names[op] for op in sequence]
    judgement = check(pb.Plan.in_order(problem.graph, problem.machine, names, steady=problem.steady))
    assert judgement.legal, judgement.error
    return judgement.energy


def attack(seeds: range, extra: int, limit: int = 300_000) -> tuple[int, int]:
    """Compare with brute force; return how many were proven, and in how many an op runs again."""
    proven = again = 0
    for seed in seeds:
        problem = small_problem(seed)
        assert fits_runs(problem)
        order = list(range(len(problem.graph.ops)))
        best = best_runs(problem, np.array(order), energy_of(problem, order), limit=limit)
        assert energy_of(problem, best.order.tolist()) == best.energy, f"seed {seed}"
        again += len(best.order) > len(order)
        proven += best.proven
        listed = zip(range(1_500), orders_with_reruns(problem.graph, extra), strict=False)
        least = min(energy_of(problem, sequence) for _, sequence in listed)
        assert not best.proven or best.energy <= least, (
            f"seed {seed}: {best.energy} is called the least, {least} is less"
        )
    return proven, again


@pytest.mark.slow
def test_no_sequence_is_cheaper_than_what_is_proven() -> None:
    proven, again = attack(range(90), 1)
    assert proven >= 85
    assert again >= 2


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(10))
def test_no_sequence_is_cheaper_than_what_is_proven_in_thousands(chunk: int) -> None:
    proven, _ = attack(range(1_000 + 300 * chunk, 1_300 + 300 * chunk), 2)
    assert proven >= 270


def test_the_attack_finds_a_floor_that_is_too_high(monkeypatch: pytest.MonkeyPatch) -> None:
    right = run_search.order_floors
    monkeypatch.setattr(run_search, "order_floors", lambda problem: right(problem) * 1.5 + 3)
    with pytest.raises(AssertionError, match="is called the least"):
        attack(range(200), 1)


def test_an_op_runs_again_where_its_result_has_sunk() -> None:
    """Making t again costs less than reading it from below, once before each of two readers."""
    graph = pb.Graph("again", unit="pebble").tensor("x", 1, "input").tensor("a", 6, "input").tensor("b", 6, "input")
    graph.tensor("t", 3).tensor("u", 1, "output").tensor("v", 1, "output").tensor("w", 1, "output")
    graph.op("make", ["x"], ["t"], cost=1).op("one", ["t", "x"], ["u"]).op("big", ["a", "x", "u"], ["v"])
    graph.op("two", ["t", "b", "v", "x"], ["w"])
    levels = (pb.Level("near", 1, 1, capacity=8), pb.Level("far", 90, 1))
    problem = Problem.of(graph, pb.Machine("two", "pebble", levels, "lru", "any", allocator="own"))
    best = best_runs(problem, np.arange(4), energy_of(problem, [0, 1, 2, 3]))
    assert best.proven
    assert best.order.tolist() == [0, 1, 2, 0, 3]
    plan = pb.solve(graph, problem.machine, time_limit=20)
    assert (plan.status, plan.energy) == ("optimal", best.energy)
