"""Exact residency of a sequence, against brute force on small games."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive_game import TooBig, random_game
from order_optimum import least_energy_in_order, problem_of
from pebbler.referee.judgement import check
from pebbler.solver.paging.paging_solver import page_exactly
from pebbler.solver.paging.sequence_search import PagingSearch

seeds = st.integers(0, 10**9)


@settings(max_examples=100)
@given(seeds)
def test_exact_residency_equals_brute_force_on_two_levels(seed: int) -> None:
    rng = random.Random(seed)
    game = random_game(rng, max_ops=4, max_levels=2, max_start=2)
    if len(game.machine.level) != 2:
        return
    problem = problem_of(game)
    try:
        least = least_energy_in_order(game)
    except TooBig:
        return
    search = PagingSearch(problem, lambda: 60.0)
    paged = search.page(np.arange(len(game.graph.ops)))
    if paged is None:
        assert least is None
        return
    exact, bound = page_exactly(search, paged, 20.0)
    assert exact is not None
    assert exact.energy == pytest.approx(least)
    assert bound.value == pytest.approx(least, abs=1e-3)
    judged = check(search.plan(exact))
    assert judged.legal
    assert judged.energy == pytest.approx(least)
