"""Bounds from milestones, against brute force on small games."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from one_level_games import optimum, small_game
from pebbler.solver.problem import Problem
from pebbler.solver.recompute.milestone_relaxation import Relaxation
from pebbler.solver.recompute.recompute_problem import RecomputeProblem

seeds = st.integers(0, 2**32 - 1)


@given(seeds)
@settings(max_examples=100)
def test_relaxations_never_exceed_the_optimum(seed: int) -> None:
    rng = random.Random(seed)
    small = small_game(seed)
    best = optimum(small)
    relaxation = Relaxation(RecomputeProblem.of(Problem.of(small.graph, small.machine, steady=small.steady)))
    milestones: list[int] = []
    for op in rng.sample(range(len(small.graph.ops)), len(small.graph.ops)):
        milestones = relaxation.chained(milestones, op) or milestones
        answer = relaxation.solve(milestones)
        if best is not None:
            assert not answer.impossible
            assert answer.bound <= best + 1e-9
            # No claim that nothing is cheaper than what costs more than the optimum.
            assert not relaxation.solve(milestones, cheaper_than=best + 0.5).none_cheaper
