"""Sequences that are paged and improved, and the bound that prices of room give."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive_game import random_game
from order_optimum import problem_of
from pebbler.referee.judgement import check
from pebbler.solver.paging.sequence_search import PagingSearch

seeds = st.integers(0, 10**9)


@settings(max_examples=60)
@given(seeds)
def test_priced_room_is_below_every_residency(seed: int) -> None:
    game = random_game(random.Random(seed), max_ops=8)
    problem = problem_of(game)
    search = PagingSearch(problem, lambda: 60.0)
    paged = search.page(np.arange(len(game.graph.ops)))
    if paged is None:
        return
    improved = search.improve(paged, 5)
    assert improved.energy <= paged.energy * (1 + 1e-9)
    bound, prices = search.price_capacity(paged, 40)
    assert bound <= improved.energy * (1 + 1e-9) + 1e-9
    assert (prices >= 0).all()
    judged = check(search.plan(improved))
    assert judged.legal
    if len(game.machine.level) <= 2:  # with more, levels that swap may need a detour
        assert judged.energy == pytest.approx(improved.energy)
