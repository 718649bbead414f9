"""The linear program over the rows of a leaf."""

from __future__ import annotations

import math

import pytest

from pebbler.game.machine import machine
from pebbler.referee.rows.family import Family
from pebbler.referee.rows.leaf import Leaf
from pebbler.referee.rows.tile_range import TileRange
from pebbler.referee.verify import LeafRows, charges
from pebbler.solver.bounds.row_program import RowProgram
from pebbler.solver.problem import Problem
from pebbler.workloads import mlp


@pytest.mark.parametrize("enough", [float("inf"), 100.0])
def test_a_program_without_rows_proves_nothing(enough):
    problem = Problem.of(mlp(n=4, hidden=8), machine("notes-explicit"))
    tiles = TileRange.all_of(problem.graph)
    leaf = Leaf(Family(problem.task, tiles.open, tiles.cut), tiles)
    program = RowProgram(leaf, enough, facts=[])
    assert (program.bound, program.used(), program.proven()) == (0.0, [], (0, {}))


def test_weights_prove_what_is_asked_for_and_later_all_that_there_is():
    problem = Problem.of(mlp(n=20, hidden=100, batch=4), machine("notes"))
    tiles = TileRange.of_sizes(problem.graph, {"hidden": 7, "batch": 3})
    family = Family(problem.task, tiles.open, tiles.cut)
    program = RowProgram(Leaf(family, tiles, family.moments()[0]))
    assert not program.stated
    for enough in (0.5 * program.bound, 0.9 * program.bound, math.inf):
        bound, weights = program.proven(enough)
        assert program.stated
        assert min(enough, program.bound * (1 - 1e-9)) <= bound <= program.bound * (1 + 1e-9)
        assert charges(LeafRows(program.leaf, program.rows), weights) == (bound, {})
