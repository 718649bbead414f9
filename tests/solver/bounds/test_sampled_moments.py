"""Bounds of large graphs, on games small enough to know better."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from naive_game import random_game
from pebbler.game.bit_sets import members
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.referee.kernels.reachability import mark_reachable
from pebbler.solver.bounds import bounds
from pebbler.solver.bounds.sampled_moments import large_bounds
from pebbler.solver.exact import solve_exact
from pebbler.solver.problem import Problem, Search

seeds = st.integers(0, 2**32 - 1)


@given(seeds)
def test_reachable_ops_agree_with_the_sets_of_bits(seed: int) -> None:
    flow = random_game(random.Random(seed), 12).graph.dataflow
    for op in range(flow.ops):
        before = mark_reachable(flow.before.start, flow.before.items, op, -1)
        after = mark_reachable(flow.after.start, flow.after.items, op, 1)
        assert np.flatnonzero(before).tolist() == list(members(flow.ancestors[op]))
        assert np.flatnonzero(after).tolist() == list(members(flow.descendants[op]))


@given(seeds)
def test_sampled_moments_say_no_less_than_single_moments_without_cuts(seed: int) -> None:
    game = random_game(random.Random(seed), 10)
    problem = Problem.of(game.graph, game.machine, steady=game.steady, start=game.start)
    # So few ops are all sampled, and the bounds with no min cut use the same moments, but one at a time.
    assert large_bounds(problem, lambda: 1.0)[0].value >= bounds(problem, cuts=0)[0].value


def test_results_that_have_no_room_in_two_levels_pay_for_the_third() -> None:
    graph = Graph("results", "pebble")
    graph.tensor("x", 1, "input")
    for i in range(10):
        graph.tensor(f"y{i}", 1, "output").op(f"make{i}", ["x"], [f"y{i}"], cost=50)
    levels = (Level("near", 1, 1, capacity=2), Level("middle", 2, 2, capacity=3), Level("far", 100, 100))
    three = Problem.of(graph, Machine("three", "pebble", levels), start={"x": "near"})
    # Ten runs, and eight results leave `near`, five of them for `far`: at the end it is too late to make them again for 50.
    best = large_bounds(three, lambda: 1.0)[0]
    least = 10 * 50 + 3 * (1 + 2) + 5 * (1 + 100)
    assert least - 1e-6 <= best.value <= least
    assert best.proof == "compulsory traffic, and what is alive at the end cannot all be in near and middle"


def test_a_param_that_is_out_from_one_step_into_the_next_pays_once() -> None:
    """Its last version at the end and its first at the beginning were both counted: 105 was stated."""
    graph = Graph("updates", unit="pebble")
    for number in range(5):
        graph.tensor(f"W{number}", 1, "param").tensor(f"t{number}", 0)
        before = [f"t{number - 1}"] if number else []
        graph.op(f"update{number}", [f"W{number}", *before], [f"W{number}", f"t{number}"], cost=1)
    two = Machine("two", "pebble", (Level("fast", 0, 0, capacity=2), Level("slow", 10, 10)))
    problem = Problem.of(graph, two, steady=True)
    search = Search(problem)
    solve_exact(search)
    assert search.energy == 85
    assert 45 < large_bounds(problem, lambda: 1.0)[0].value <= 85
