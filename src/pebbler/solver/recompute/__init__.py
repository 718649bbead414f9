"""The recomputation game: one level of memory; values that do not fit are recomputed.

A greedy pass fits a sequence of ops into the memory, annealing makes it cheaper, and relaxations bound every legal plan,
whatever its order and however often an op runs.
"""

from __future__ import annotations

from pebbler.solver.recompute.recompute_solver import solve_recompute

__all__ = ["solve_recompute"]
