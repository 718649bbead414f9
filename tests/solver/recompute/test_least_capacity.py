"""How little memory a graph can do with, against brute force on small games."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive_game import RandomGame
from one_level_games import backward_net, one_level, optimum, small_game
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.referee.judgement import check
from pebbler.solver.case import Case
from pebbler.solver.greedy_plans import GreedyPlanner
from pebbler.solver.methods import _recompute_then_page
from pebbler.solver.problem import Problem, Search
from pebbler.solver.recompute.least_capacity import least_capacity

seeds = st.integers(0, 2**32 - 1)


@given(seeds)
@settings(max_examples=40)
def test_least_capacity_against_brute_force(seed: int) -> None:
    small = small_game(seed, max_ops=5)
    problem = Problem.of(small.graph, small.machine, steady=small.steady)
    least = least_capacity(problem)
    assert least.lower == least.upper
    assert check(least.plan).legal
    assert least.plan.machine.level[0].capacity == max(least.upper, 1)
    if least.lower > 1:
        level = msgspec.structs.replace(small.machine.level[0], capacity=least.lower - 1)
        machine = msgspec.structs.replace(small.machine, level=(level,))
        assert optimum(RandomGame(small.graph, machine, small.steady)) is None


def test_least_capacity_of_a_larger_graph_brackets_it() -> None:
    rng = random.Random(1)
    graph = backward_net([rng.randint(20, 90) for _ in range(20)], [1] * 20)
    least = least_capacity(Problem.of(graph, one_level(10**6, unit="byte")), time_limit=2)
    assert 1 <= least.lower <= least.upper
    assert check(least.plan).legal
    assert check(least.plan).peak["fast"] <= least.upper


def test_no_greedy_run_begins_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a while in a small room: for a thousand ops, twelve of them took three seconds after a limit of none."""
    runs: list[int] = []
    monkeypatch.setattr(GreedyPlanner, "run", lambda self, order, **settings: runs.append(len(order)))
    rng = random.Random(1)
    graph = backward_net([rng.randint(20, 90) for _ in range(40)], [1] * 40)
    least_capacity(Problem.of(graph, one_level(10**6, unit="byte")), time_limit=0.0)
    assert not runs
    least_capacity(Problem.of(graph, one_level(10**6, unit="byte")), time_limit=1.0)
    assert runs


def test_what_cannot_fit_into_the_fastest_level_alone_is_not_looked_for_before_paging(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def looked(*_: object) -> None:
        raise AssertionError("a capacity that would do is of no use to anybody here")

    monkeypatch.setattr("pebbler.solver.recompute.least_capacity.least_capacity", looked)
    two = Machine("two", "pebble", (Level("fast", 0, 0, capacity=3), Level("slow", 10, 10)))
    graph = Graph("sums", "pebble")
    for i in range(6):
        graph.tensor(f"x{i}", 1, "input")
    for i in range(5):
        graph.tensor(f"s{i}", 1, "output" if i == 4 else "temp")
        graph.op(f"add{i}", [f"x{i + 1}", f"s{i - 1}" if i else "x0"], [f"s{i}"], 1)
    search = Search(Problem.of(graph, two, steady=False), 5.0)
    _recompute_then_page(search, Case(search.problem, "none"), lambda: 5.0)
    assert search.best is None
