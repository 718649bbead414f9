"""Sequences that are fitted into the memory and annealed."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from one_level_games import backward_net, one_level, small_game
from pebbler.referee.judgement import check
from pebbler.solver.problem import Problem
from pebbler.solver.recompute.annealing import AnnealingSettings, improve
from pebbler.solver.recompute.recompute_problem import RecomputeProblem
from pebbler.solver.recompute.start_sequences import fit, low_memory_order

seeds = st.integers(0, 2**32 - 1)


@given(seeds)
@settings(max_examples=60)
def test_what_fits_is_legal(seed: int) -> None:
    small = small_game(seed, max_ops=14)
    problem = Problem.of(small.graph, small.machine, steady=small.steady)
    game = RecomputeProblem.of(problem)
    for order in (game.program, low_memory_order(game)):
        assert game.measure(order).legal
        fitted = fit(game, order)
        better = improve(game, fitted, AnnealingSettings.of(seed % 5, seed))
        before, after = game.measure(fitted), game.measure(better)
        assert after.legal
        assert (after.over, after.cost) <= (before.over, before.cost)
        if after.fits and game.arrays.size[game.at_start].sum() <= game.capacity:
            judgement = check(problem.plan(game.moves(better)))
            assert judgement.legal, judgement.error
            assert judgement.energy == pytest.approx(after.cost)


def test_a_thousand_ops_fit_within_seconds() -> None:
    rng = random.Random(7)
    graph = backward_net([rng.randint(20, 90) for _ in range(500)], [rng.randint(1, 9) for _ in range(500)])
    program = RecomputeProblem.of(Problem.of(graph, one_level(10**9, unit="byte")))
    capacity = int(0.8 * program.measure(program.program).memory.max())
    fitted = fit(game := RecomputeProblem.of(Problem.of(graph, one_level(capacity, unit="byte"))), game.program)
    measured = game.measure(fitted)
    assert measured.fits
    assert measured.cost < 1.2 * game.base_cost
