"""The linear program over the rows of a leaf."""

from __future__ import annotations

import pytest

from pebbler.game.machine import machine
from pebbler.referee.rows.family import Family
from pebbler.referee.rows.leaf import Leaf
from pebbler.referee.rows.tile_range import TileRange
from pebbler.solver.bounds.row_program import RowProgram
from pebbler.solver.problem import Problem
from pebbler.workloads import mlp


@pytest.mark.parametrize("enough", [float("inf"), 100.0])
def test_a_program_without_rows_proves_nothing(enough):
    problem = Problem.of(mlp(n=4, hidden=8), machine("notes-explicit"))
    tiles = TileRange.all_of(problem.graph)
    leaf = Leaf(Family(problem.task, tiles.open, tiles.cut), tiles)
    program = RowProgram(leaf, enough, facts=[])
    assert (program.bound, program.used(), program.weights) == (0.0, [], (0, {}))
