"""Long sequences on one level: their moves and what can be left out of them, against naive twins."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from naive_large import moves_of
from naive_recompute import memory_of
from one_level_games import small_game
from pebbler.solver.problem import Problem
from pebbler.solver.recompute.recompute_problem import RecomputeProblem
from pebbler.solver.recompute.start_sequences import trim

seeds = st.integers(0, 2**32 - 1)


def with_reruns(game: RecomputeProblem, rng: random.Random) -> list[int]:
    """Program order with a few legal runs more."""
    sequence = game.program.tolist()
    for _ in range(4):
        trial = [*sequence]
        trial.insert(rng.randint(0, len(trial)), rng.randrange(game.ops))
        if game.measure(trial).legal:
            sequence = trial
    return sequence


@given(seeds)
def test_moves_of_a_sequence_agree_with_their_naive_twin(seed: int) -> None:
    small = small_game(seed)
    game = RecomputeProblem.of(Problem.of(small.graph, small.machine))
    sequence = with_reruns(game, random.Random(seed))
    assert game.moves(sequence).words() == moves_of(small.graph, sequence)


@given(seeds)
def test_a_trimmed_sequence_fits_and_costs_no_more(seed: int) -> None:
    small = small_game(seed)
    game = RecomputeProblem.of(Problem.of(small.graph, small.machine))
    sequence = with_reruns(game, random.Random(seed))
    if not game.measure(sequence).fits:
        return
    shorter = trim(game, np.array(sequence)).tolist()
    held = memory_of(small.graph, shorter)
    assert held is not None
    assert max(held) <= game.capacity
    assert len(shorter) <= len(sequence)
