"""Plans with operands anywhere: legal for every order, priced as the referee does, and cheaper than with operands in one level."""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dense_training import training
from pebbler.game.machine import Level, Machine
from pebbler.referee.judgement import check
from pebbler.solver.large_games import PlacedPlanner, solve_large
from pebbler.solver.paging.demand_paging import demand_plan
from pebbler.solver.problem import Problem, Search
from strategies import random_graph, random_machine, random_order


@given(st.integers(0, 2**32), st.booleans())
def test_every_order_that_does_not_get_stuck_is_legal_and_priced_as_the_referee_does(seed: int, steady: bool) -> None:
    rng = random.Random(seed)
    graph = random_graph(rng, 12)
    machine = msgspec.structs.replace(random_machine(rng, graph, monotone=rng.random() < 0.7), operands="any")
    problem = Problem.of(graph, machine, steady=steady)
    order = np.array(random_order(rng, graph), np.int64)
    for level in range(len(machine.level)):
        planner = PlacedPlanner.of(problem, level, fast_params=rng.random() < 0.5)
        rows = None if planner is None else planner.run(order, keen=rng.random(), remake=rng.random() < 0.7, seed=seed)
        if planner is not None and rows is not None:
            judgement = check(planner.plan_of(rows))
            assert judgement.legal, judgement.error
            assert planner.price(rows) == pytest.approx(judgement.energy, rel=1e-12)
        assert rows is not None or planner is None or machine.level[level].capacity is not None


def test_lifting_never_makes_a_plan_dearer() -> None:
    machine = Machine(
        "any",
        "pebble",
        (Level("a", 1, 2, capacity=24), Level("b", 7, 9, capacity=80), Level("c", 50, 60)),
        operands="any",
    )
    problem = Problem.of(training(12), machine, steady=False)
    planner = PlacedPlanner.of(problem, 1)
    assert planner is not None
    rows = planner.run(np.arange(len(problem.graph.ops)), keen=0.5, remake=True, seed=0)
    plain = planner.greedy.run(np.arange(len(problem.graph.ops)), keen=0.5, remake=True, seed=0)
    assert rows is not None
    assert plain is not None
    assert planner.price(rows) < 0.8 * planner.greedy.price(plain)
    assert {int(level) for level in rows[rows[:, 0] == 0, 2]} == {0, 1}  # results go to both levels


@pytest.mark.slow
@pytest.mark.parametrize("steady", [False, True])
def test_large_games_with_operands_anywhere_beat_belady(steady: bool) -> None:
    machine = Machine(
        "any",
        "pebble",
        (Level("a", 1, 1, capacity=50), Level("b", 10, 10, capacity=500), Level("c", 100, 100)),
        operands="any",
    )
    problem = Problem.of(training(60), machine, steady=steady)
    search = Search(replace(problem, seed=1))
    solve_large(search)
    belady = demand_plan(problem, range(len(problem.graph.ops)), "farthest")
    assert belady is not None
    assert search.energy < 0.6 * check(belady).energy
    assert search.bound <= search.energy
