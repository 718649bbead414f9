"""Compiling the kernels that chains need, of nodes that are alike or not, before a clock starts."""

from __future__ import annotations

import math

import numpy as np

from pebbler.solver.chain import Chain, solve_chain, solve_general
from pebbler.solver.chain.held_nodes import describe, waiting_nodes
from pebbler.solver.chain.kernels.bound_tables import TOPS, segment_tables, table_rows
from pebbler.solver.chain.kernels.segment_bound import bound_of_all, fill_block

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
    waiting, swept = waiting_nodes(described.size, 2, 2), np.empty((table_rows(2) * 4, TOPS), np.float32)
    bounds = segment_tables(described, waiting, swept, swept[:0], 4)
    fill_block(described, waiting, bounds, 0, 2)
    bound_of_all(described, bounds, math.inf, 2)
