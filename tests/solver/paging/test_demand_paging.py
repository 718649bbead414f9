"""Plans in a given order by simple eviction rules."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from naive_game import TooBig, random_game
from order_optimum import least_energy_in_order, problem_of
from pebbler import machine, workloads
from pebbler.game.graph import Graph
from pebbler.game.moves import Copy
from pebbler.referee.judgement import check
from pebbler.solver.paging import program_order_plan
from pebbler.solver.paging.demand_paging import _Runtime, demand_plan
from pebbler.solver.problem import Problem

seeds = st.integers(0, 10**9)


@settings(max_examples=150)
@given(seeds)
def test_program_order_is_legal_whenever_it_can_be(seed: int) -> None:
    rng = random.Random(seed)
    game = random_game(rng, max_ops=4, max_start=2)
    problem = problem_of(game)
    plan = program_order_plan(problem)
    if plan is not None:
        assert check(plan).legal
        return
    try:
        assert least_energy_in_order(game, 5_000) is None
    except TooBig:
        return


def test_program_order_of_a_long_chain_stores_each_node_once() -> None:
    """What is thrown out next is found without looking through all of memory: 20,000 nodes wait in the slow level."""
    length, red = 20_000, machine("red-blue").level[0].capacity
    plan = program_order_plan(Problem.of(workloads.chain(length), machine("red-blue")))
    assert plan is not None
    stored = [move.tensor for move in plan.moves if isinstance(move, Copy) and move.source == "fast"]
    assert len(set(stored)) == len(stored)
    assert {f"N{i}" for i in range(1, length - red)} <= set(stored)


def test_farthest_next_use_beats_least_recent() -> None:
    """Three values read in turn with room for two: least recently used always throws out the next one needed."""
    graph = Graph("in turn", unit="pebble")
    for i in range(3):
        graph.tensor(f"a{i}", 5, "input")
    for i in range(12):
        graph.tensor(f"r{i}", 0, "output")
        graph.op(f"f{i}", [f"a{i % 3}"], [f"r{i}"], cost=1)
    problem = Problem.of(graph, machine("red-blue"))
    ops = range(len(graph.ops))
    energy = {}
    for rule in ("least recent", "farthest"):
        plan = demand_plan(problem, ops, rule)
        assert plan is not None
        energy[rule] = check(plan).energy
    assert energy["farthest"] < energy["least recent"]


def test_program_order_of_a_loop_keeps_the_params_that_fit() -> None:
    """A runtime that writes every param back after each step made any plan look hundreds of times better than it was."""
    everything_fits = program_order_plan(Problem.of(workloads.mlp(n=20, hidden=1000), machine("cortex-m")))
    assert everything_fits is not None
    copied = {move.tensor for move in everything_fits.moves if isinstance(move, Copy)}
    assert copied == {"x", "y"}  # the inputs, which arrive outside
    assert check(everything_fits).legal


@settings(max_examples=150)
@given(seeds)
def test_params_that_stay_are_legal_and_never_dearer(seed: int) -> None:
    rng = random.Random(seed)
    problem = problem_of(random_game(rng, max_ops=5, max_start=3, operands="fastest", steady=True))
    order = range(len(problem.graph.ops))
    plan, written_back = demand_plan(problem, order, "least recent"), _Runtime(problem, order, "least recent").run()
    assert (plan is None) == (written_back is None)
    if plan is not None and written_back is not None:
        assert check(plan).legal
        assert check(plan).energy <= check(written_back).energy
