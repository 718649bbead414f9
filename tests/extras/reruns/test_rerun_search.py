"""Sequences with reruns on machines that rank by recency, against all of them for small graphs."""

from __future__ import annotations

import numpy as np
import pytest

import pebbler as pb
from naive_orders import orders_with_reruns, rerun_problem
from pebbler.extras.reruns.rerun_search import cheapest_runs
from pebbler.referee.judgement import check
from pebbler.referee.kernels.cache_price import price
from pebbler.referee.pricing import cache_game
from pebbler.solver.problem import Problem
from pebbler.solver.tiling.cache_order import best_order


def test_what_pays_is_found() -> None:
    for seed in (310, 316, 318, 320, 332, 412, 466, 488, 564, 598, 1266, 1300):
        problem = rerun_problem(seed)
        game = cache_game(problem.graph, problem.machine, steady=False)
        least = min(price(game, np.array(sequence)) for sequence in orders_with_reruns(problem.graph, 2))
        once = best_order(problem)
        sequence, energy = cheapest_runs(problem, once.order)
        assert energy <= least < once.energy, f"seed {seed}"
        names = [problem.graph.ops[op].name for op in sequence]
        judgement = check(pb.Plan.in_order(problem.graph, problem.machine, names))
        assert judgement.legal
        assert judgement.energy == energy


def test_solving_finds_it_and_may_prove_it() -> None:
    problem = rerun_problem(316)
    plan = pb.solve(problem.graph, problem.machine, time_limit=10)
    assert (plan.energy, plan.status) == (33, "optimal")
    assert len(plan.moves) > len(problem.graph.ops)


def test_sequences_are_legal_whatever_may_run_again() -> None:
    for seed in range(1, 121, 2):  # with updates in place, ops that run once, and results that overwrite
        problem = rerun_problem(seed)
        order = np.arange(len(problem.graph.ops))
        sequence, energy = cheapest_runs(problem, order, walks=1)
        names = [problem.graph.ops[op].name for op in sequence]
        judgement = check(pb.Plan.in_order(problem.graph, problem.machine, names))
        assert judgement.legal, f"seed {seed}"
        assert judgement.energy == pytest.approx(energy)


def test_no_time_leaves_the_order_as_it_is() -> None:
    problem = Problem.of(pb.workloads.note_mlp(), pb.machine("notes-recency"))
    sequence, energy = cheapest_runs(problem, np.arange(15), seconds_left=lambda: 0.0)
    assert sequence.tolist() == list(range(15))
    assert energy == 11_004_490
