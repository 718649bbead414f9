"""Greedy runs as a first plan: where memory is scarce in graphs of hundreds of ops, they fit when nothing else does."""

from __future__ import annotations

import pytest

from dense_training import training
from pebbler import solve
from pebbler.game.machine import Level, Machine
from pebbler.referee.judgement import check
from pebbler.solver import find_least_capacity, large_games
from pebbler.solver.large_games import offer_greedy
from pebbler.solver.problem import Problem, Search
from pebbler.solver.recompute import solve_recompute


def one(capacity: int) -> Machine:
    return Machine("one", "pebble", (Level("fast", 0, 0, capacity=capacity),))


def test_the_least_memory_is_far_below_program_order() -> None:
    graph = training(20)
    least = find_least_capacity(graph, one(10_000), steady=False, time_limit=0.5)
    program = 20 * (3 * 8 + 3)  # about what the forward pass leaves
    assert least.bound <= least.least < 0.6 * program
    plan = solve(graph, one(least.least), steady=False, time_limit=0.5)
    assert check(plan).legal


def test_greedy_runs_come_before_other_methods() -> None:
    graph = training(20)
    problem = Problem.of(graph, one(330), steady=False)
    search = Search(problem)
    offer_greedy(search, lambda: search.remaining)
    assert search.best is not None
    assert check(search.best).legal
    again = Search(problem)
    offer_greedy(again, lambda: again.remaining)
    assert again.energy == search.energy


def test_thousands_of_ops_are_left_to_the_greedy_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_games, "LARGE", {1: 100, 2: 100})
    search = Search(Problem.of(training(20), one(330), steady=False))
    solve_recompute(search)
    assert search.best is not None
    assert check(search.best).legal
    assert search.bound <= search.energy < 1.5 * search.bound
