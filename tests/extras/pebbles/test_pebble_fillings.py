"""What follows ops that leave no room: prices that rise, and stay below what plans cost. Brute force: `test_optimum_attacks.py`."""

from __future__ import annotations

import math

import numpy as np
import pytest
from benchmarks.field_games import field_graph, red_blue

from pebbler.extras.pebbles.kernels.pebble_state import NEVER
from pebbler.extras.pebbles.pebble_moments import with_fillings, with_tightest_moments
from pebbler.extras.pebbles.pebble_rules import PebbleRules, pebble_rules
from pebbler.solver.problem import Problem


def rules_of(field: str, times: int = 1) -> PebbleRules:
    graph = field_graph(field)
    rules = pebble_rules(Problem.of(graph, red_blue(graph, times), steady=False))
    assert rules is not None
    return with_tightest_moments(rules, lambda: math.inf)


def root(rules: PebbleRules) -> float:
    """What every plan costs at the least."""
    game = rules.game
    row = game.tightest[0].tolist()
    first = sum(bool(game.fetched >> v & 1 and readers) for v, readers in enumerate(game.readers.tolist()))
    ahead = min(stores * game.store + loads * game.least for stores, loads in enumerate(row) if loads < NEVER)
    return float(rules.base + first * game.load + ahead)


def test_bicgstab_costs_more_than_its_tightest_moment() -> None:
    rules = rules_of("bicgstab")
    once = with_fillings(rules, math.inf, 300, lambda: math.inf)
    twice = with_fillings(once, 235 - rules.base - 1e-9, 300, lambda: math.inf)
    assert root(rules) == 222
    assert 222 < root(once) <= root(twice) <= 235  # a plan costs 235
    assert (twice.game.least_after >= once.game.least_after).all()
    assert np.count_nonzero(once.game.least_after) == 69


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_without_time_prices_stay(seconds: float) -> None:
    rules = rules_of("bicgstab")
    assert root(with_fillings(rules, math.inf, 300, lambda: seconds)) == root(rules)


def test_where_nothing_fills_the_memory_nothing_is_priced() -> None:
    rules = rules_of("bicgstab", 3)
    assert with_fillings(rules, math.inf, 300, lambda: math.inf) is rules
