"""What a chain costs against its pebbles and against the price of slow memory."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from pebbler.errors import InputError
from pebbler.solver.chain import solve_uniform
from pebbler.solver.chain.cost_curves import default_reds, io_curve, red_curve


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
