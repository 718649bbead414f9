"""The settings of CP-SAT: the same for every caller, one thread, without the components that have given wrong proofs."""

from __future__ import annotations

import math
from typing import NamedTuple

from ortools.sat.python import cp_model

__all__ = ["SearchedBound", "confirmed_infeasible", "new_solver"]


class SearchedBound(NamedTuple):
    """A bound that CP-SAT has found, without a certificate, and how many branches it took."""

    value: float
    branches: int = 0

    def proof(self, words: str) -> str:
        """Return the words of a bound's proof, with its search and branches.

        >>> SearchedBound(3.0, 12_000).proof("room at every moment")
        'room at every moment (searched by CP-SAT, 12,000 branches)'
        """
        return f"{words} (searched by CP-SAT, {self.branches:,} branches)"


def new_solver(seconds: float = math.inf, effort: float = math.inf, seed: int = 0) -> cp_model.CpSolver:
    """Return a solver with limits on seconds and on its deterministic time.

    >>> model = cp_model.CpModel()
    >>> new_solver().solve(model) == cp_model.OPTIMAL
    True
    """
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers = 1  # more would make the answer depend on the number of threads, and on luck
    parameters.random_seed = seed % 2**31
    parameters.catch_sigint_signal = False  # Ctrl-C is for the whole search, not for this part of it
    parameters.presolve_inclusion_work_limit = 0  # feasible models have become infeasible by it (or-tools 5293)
    if math.isfinite(seconds):
        parameters.max_time_in_seconds = seconds
    if math.isfinite(effort):
        parameters.max_deterministic_time = effort
    return solver


def confirmed_infeasible(
    model: cp_model.CpModel, seconds: float = math.inf, effort: float = math.inf, seed: int = 0
) -> bool:
    """Return whether a model that was found infeasible is found so again, by a search without presolve and without its symmetries.

    >>> model = cp_model.CpModel()
    >>> x = model.new_bool_var("x")
    >>> _ = model.add(x >= 1), model.add(x <= 0)
    >>> confirmed_infeasible(model)
    True
    """
    solver = new_solver(seconds, effort, seed + 1)
    solver.parameters.cp_model_presolve = False
    solver.parameters.symmetry_level = 0
    return bool(solver.solve(model) == cp_model.INFEASIBLE)
