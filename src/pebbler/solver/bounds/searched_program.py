"""Lower bounds of programs in 0-1 variables by CP-SAT. The search leaves no certificate."""

from __future__ import annotations

import math
from fractions import Fraction

from ortools.sat.python import cp_model

from pebbler.referee.programs.fact_program import FactProgram
from pebbler.solver.cp_sat import new_solver

__all__ = ["EFFORT", "searched_bound"]

EFFORT = 5.0  # of CP-SAT, in its deterministic seconds
_SCALE = 1 << 40


def searched_bound(program: FactProgram, seconds: float, effort: float = EFFORT) -> float:
    """Return the best bound that CP-SAT finds in some time; costs are rounded down where they are not whole.

    >>> program = FactProgram(10)
    >>> x = [program.variable((name,), 2) for name in "abc"]
    >>> for i in range(3):
    ...     program.row(("pair", i), [(x[i], 1), (x[i - 1], 1)], 1)
    >>> searched_bound(program, 1.0)
    14.0
    """
    total = sum(program.costs, Fraction())
    if not program.rows or total <= 0:
        return float(program.constant)
    whole = all(cost.denominator == 1 for cost in program.costs) and total < _SCALE
    scale = Fraction(1) if whole else _SCALE / Fraction(total)
    model = cp_model.CpModel()
    variables = [model.new_bool_var("") for _ in program.costs]
    for row in program.rows.values():
        model.add(sum(factor * variables[v] for v, factor in row.terms) >= row.least)
    model.minimize(sum(math.floor(cost * scale) * one for cost, one in zip(program.costs, variables, strict=True)))
    solver = new_solver(seconds, effort)
    solver.parameters.linearization_level = 2  # all of it: most of the bound comes from the linear relaxation
    if solver.solve(model) in (cp_model.MODEL_INVALID, cp_model.INFEASIBLE):
        return float(program.constant)
    return float(program.constant + max(0, math.floor(solver.best_objective_bound + 1e-6)) / scale)
