"""Compiling the kernels that chains need, of nodes that are alike or not, before a clock starts."""

from __future__ import annotations

import math

import numpy as np

from pebbler.solver.chain import Chain, solve_chain, solve_general
from pebbler.solver.chain.held_nodes import describe
from pebbler.solver.chain.kernels.segment_bound import fill_tops, first_phase, segment_rows

__all__ = ["compile_even", "compile_uneven"]


def compile_even() -> None:
    """Solve two short chains whose nodes are alike."""
    solve_chain(20, red=4)
    solve_chain(20, red=4, io=2)


def compile_uneven() -> None:
    """Solve two short chains, and fill a table with the small entries that only long chains get."""
    sizes, steps = (1, 2, 3, 1) * 5, (0.0, *(3.0,) * 19)
    for io in (4.0, math.inf):
        moved = tuple(io * size for size in sizes)
        solve_general(Chain(sizes, steps, steps, moved, moved, fast=8))
    never = (math.inf,) * 3
    described = describe(Chain((1,) * 3, (0.0, 1.0, 1.0), (1.0,) * 3, never, never, fast=3), np.ones(3, np.int64), 1.0)
    bounds = segment_rows(described, np.empty((6, 4), np.float32), 2)
    fill_tops(described, bounds, 1)
    first_phase(described, bounds, math.inf)
