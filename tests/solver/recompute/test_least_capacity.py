"""How little memory a graph can do with, against brute force on small games."""

from __future__ import annotations

import random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from naive_game import RandomGame
from one_level_games import backward_net, one_level, optimum, small_game
from pebbler.referee.judgement import check
from pebbler.solver.problem import Problem
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
