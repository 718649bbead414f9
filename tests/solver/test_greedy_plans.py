"""Greedy runs of an order against an independent judge: what they say they do is legal and costs what they say."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from naive_game import NaiveGame, random_game
from naive_large import kept_units_of
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.moves import COMPUTE, COPY
from pebbler.referee.judgement import check
from pebbler.solver.capacity import _kept_units, require_capacity
from pebbler.solver.greedy_plans import GreedyPlanner
from pebbler.solver.problem import Impossible, Problem

seeds = st.integers(0, 2**32 - 1)


@given(seeds)
def test_greedy_plans_are_legal_and_cost_what_they_say(seed: int) -> None:
    rng = random.Random(seed)
    game = random_game(rng, 9, operands="fastest")
    problem = Problem.of(game.graph, game.machine, steady=game.steady, start=game.start)
    planner = GreedyPlanner.of(problem, fast_params=rng.random() < 0.3)
    remake = rng.random() < 0.7
    order = np.arange(len(game.graph.ops))
    rows = planner.run(order, keen=rng.choice([0.0, 0.5, 2.0]), remake=remake, seed=seed)
    if rows is None:
        return
    plan = planner.plan_of(rows)
    verdict = NaiveGame(game.graph, game.machine, game.steady, dict(plan.start)).play(plan.moves.words())
    assert verdict.legal, verdict.why
    assert abs(verdict.energy - planner.price(rows)) <= 1e-9 * verdict.energy
    runs = np.bincount(rows[rows[:, 0] == COMPUTE, 1])
    assert remake or runs.max() == 1


@given(seeds)
def test_without_reruns_nothing_with_room_for_every_op_gets_stuck(seed: int) -> None:
    game = random_game(random.Random(seed), 9, max_levels=2, operands="fastest", steady=False)
    problem = Problem.of(game.graph, game.machine, steady=False)
    try:
        require_capacity(problem)
    except Impossible:
        return
    if len(game.machine.level) == 2:
        assert GreedyPlanner.of(problem).plan(np.arange(len(game.graph.ops)), remake=False) is not None


@given(seeds)
def test_kept_units_agree_with_their_naive_twin(seed: int) -> None:
    graph = random_game(random.Random(seed), 12).graph
    assert _kept_units(graph.dataflow).tolist() == kept_units_of(graph)


def test_kept_units_of_many_values_go_block_by_block() -> None:
    graph = Graph("many", unit="pebble")
    for i in range(1300):
        graph.tensor(f"p{i}", 1 + i % 3, kind="param")
    for i in range(0, 1300, 10):
        graph.tensor(f"t{i}", 1).op(f"f{i}", [f"p{i}"], [f"t{i}"])
        graph.op(f"u{i}", [f"t{i}", f"p{i}"], [f"p{i}"])
    assert _kept_units(graph.dataflow).tolist() == kept_units_of(graph)


def test_a_middle_level_is_used_where_it_is_cheaper() -> None:
    graph = Graph("two halves", unit="pebble").tensor("x", 2, kind="input")
    for name in "abcd":
        graph.tensor(name, 2).op(f"make_{name}", ["x"], [name], 1000)
    for name in "abcd":
        graph.tensor(f"{name}2", 1, kind="output").op(f"use_{name}", [name], [f"{name}2"], 1)
    levels = (Level("fast", 0, 0, capacity=6), Level("middle", 1, 1, capacity=20), Level("slow", 50, 50))
    problem = Problem.of(graph, Machine("three", "pebble", levels))
    plan = GreedyPlanner.of(problem).plan(np.arange(8))
    assert plan is not None
    judged = check(plan)
    assert judged.legal
    assert judged.energy < 4004 + 100 + 100  # x once, and nothing else from or to the slow level


@given(seeds)
def test_a_bound_on_copies_ends_runs_that_pass_it_and_changes_no_other(seed: int) -> None:
    rng = random.Random(seed)
    game = random_game(rng, 9, operands="fastest")
    planner = GreedyPlanner.of(Problem.of(game.graph, game.machine, steady=game.steady, start=game.start))
    order, remake = np.arange(len(game.graph.ops)), rng.random() < 0.5
    rows = planner.run(order, keen=0.5, remake=remake, seed=seed)
    if rows is None:
        return
    copies = float(planner.price(rows) - planner.game.cost[rows[rows[:, 0] == COMPUTE, 1]].sum())
    for bound in (copies * (1 + 1e-9), rng.uniform(0, copies)):
        bounded = planner.run(order, keen=0.5, remake=remake, seed=seed, bound=bound)
        assert bounded is not None or bound <= copies
        assert bounded is None or bounded.tolist() == rows.tolist()
    loads = np.any((rows[:, 0] == COPY) & (rows[:, 3] == 0))
    assert (planner.run(order, keen=0.5, remake=remake, seed=seed, bound=-1.0) is None) == loads
