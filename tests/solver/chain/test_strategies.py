"""Known strategies beside the optimum, and the curves."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from naive_chain import play
from pebbler.errors import InputError
from pebbler.notes.note001_chain import note_program
from pebbler.solver.chain import Chain, solve_uniform
from pebbler.solver.chain.cost_curves import default_reds, io_curve, red_curve
from pebbler.solver.chain.strategies import binomial_moves, compare_strategies, every_k_moves, spent


def test_the_notes_program_is_followed_to_the_letter():
    moves = list(note_program())
    assert (len(moves), spent(moves)) == (381, 2082)
    rows = {row.name: row for row in compare_strategies(references={"note 001's program": moves})}
    note = rows["note 001's program"]
    assert (note.legal, note.move, note.energy) == (False, 12, 2082)
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
    rows = compare_strategies(30, 5, io=math.inf, references={"note 001's program": note_program(30, 5)})
    assert [row.legal for row in rows] == [False, False, True, True]


@pytest.mark.parametrize(("length", "red"), [(9, 3), (30, 4), (100, 5)])
def test_the_price_curve_is_the_optimum_everywhere(length, red):
    pieces = io_curve(length, red)
    assert pieces[-1].transfers == 0
    assert all(a.high == b.low for a, b in pairwise(pieces))
    for piece in pieces:
        ends = [piece.low, piece.high if math.isfinite(piece.high) else piece.low * 2]
        for io in [*ends, sum(ends) / 2]:
            assert solve_uniform(length, red, io=io).energy == pytest.approx(piece.fixed + piece.transfers * io)


def test_more_pebbles_never_cost_more():
    energies = [point.energy for point in red_curve(60, default_reds(60, 11))]
    assert energies == sorted(energies, reverse=True)
    assert energies[-1] == 121


def test_wrong_curves_are_refused():
    with pytest.raises(InputError, match="in order"):
        io_curve(9, 3, low=-1)
    with pytest.raises(InputError, match="k >= 1"):
        list(every_k_moves(5, 0, True))
    with pytest.raises(InputError, match="at least 3"):
        list(binomial_moves(5, 2))
