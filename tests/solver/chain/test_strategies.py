"""Known strategies beside the optimum."""

from __future__ import annotations

import math

import pytest

from naive_chain import play
from pebbler.errors import InputError
from pebbler.solver.chain import Chain, solve_uniform
from pebbler.solver.chain.strategies import binomial_moves, compare_strategies, every_k_moves


def test_no_legal_strategy_beats_the_optimum():
    rows = {row.name: row for row in compare_strategies(references={"nothing": []})}
    assert next(iter(rows)) == "nothing"
    assert not rows["nothing"].legal
    assert rows["optimal"].energy == 336
    assert rows["binomial (revolve)"].legal
    assert all(row.energy >= 336 for row in rows.values() if row.legal)


@pytest.mark.parametrize("length", [1, 2, 3, 7, 20, 31])
@pytest.mark.parametrize("red", [3, 4, 7])
def test_revolve_plays_by_the_rules(length, red):
    extra = solve_uniform(length, red - 2, io=math.inf, adjoint=True).computes
    moves = list(binomial_moves(length, red))
    assert play(Chain.uniform(length, red), moves) == extra + length + length + 1


@pytest.mark.parametrize("every", [1, 2, 5])
@pytest.mark.parametrize("length", [1, 2, 5, 11])
def test_checkpoints_every_k_play_by_the_rules(length, every):
    assert play(Chain.uniform(length, every + 2), every_k_moves(length, every, True)) > 0
    assert play(Chain.uniform(length, length + 1), every_k_moves(length, every, False)) > 0


def test_comparison_without_slow_memory():
    stores = [("compute", 1), ("store", 1)]
    rows = compare_strategies(30, 5, io=math.inf, references={"stores": stores})
    assert [row.legal for row in rows] == [False, False, True, True]
    assert rows[0].error == "moves[1]: machine red has no level slow (known: fast)"


def test_wrong_strategies_are_refused():
    with pytest.raises(InputError, match="k >= 1"):
        list(every_k_moves(5, 0, True))
    with pytest.raises(InputError, match="at least 3"):
        list(binomial_moves(5, 2))
