"""What a sequence of ops needs on one level, against its naive twin."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive_recompute import memory_of
from one_level_games import backward_net, small_game
from pebbler.game.machine import Level, Machine
from pebbler.solver.problem import Problem
from pebbler.solver.recompute.recompute_problem import RecomputeProblem

seeds = st.integers(0, 2**32 - 1)


@given(seeds)
def test_measure_agrees_with_its_naive_twin(seed: int) -> None:
    rng = random.Random(seed)
    small = small_game(seed)
    game = RecomputeProblem.of(Problem.of(small.graph, small.machine))
    sequence = list(range(game.ops))
    for _ in range(rng.randint(0, 4)):
        sequence.insert(rng.randint(0, len(sequence)), rng.randrange(game.ops))
    if rng.random() < 0.5 and len(sequence) > 1:
        i = rng.randrange(len(sequence) - 1)
        sequence[i], sequence[i + 1] = sequence[i + 1], sequence[i]
    measured, naive = game.measure(sequence), memory_of(small.graph, sequence)
    assert measured.legal == (naive is not None)
    if naive is not None:
        assert measured.memory.tolist() == naive
        assert measured.over == sum(max(0, units - game.capacity) for units in naive)


def test_several_levels_are_refused() -> None:
    graph = backward_net([1, 1], [1, 1])
    two = Machine("two", "byte", (Level("fast", 0, 0, capacity=9), Level("slow", 1, 1)))
    with pytest.raises(Exception, match="one level of memory, machine has 2"):
        RecomputeProblem.of(Problem.of(graph, two))
