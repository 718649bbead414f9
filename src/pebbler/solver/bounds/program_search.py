"""Weights that prove a bound of a program in 0-1 variables: duals of linear programs, by branch and bound.

GLOP's word counts for nothing here: its duals are rounded to fractions, and `leaf_bound` of the referee adds them up. The leaf that
proves least is split until it proves enough, or until there is no time.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from ortools.linear_solver.python.model_builder_helper import ModelBuilderHelper, ModelSolverHelper, SolveStatus

from pebbler.referee.programs.fact_program import CUT, MOST_ONE, FactProgram, FactRow, Key, leaf_bound, rounded_up

__all__ = ["ProgramSearch"]

_FINEST = 10**7  # what weights are multiples of one over, where no simple fraction is near
_SMALL = 1e-9
_ROUNDS, _DIVISORS = 30, 12  # of cuts, and factors of a row that it is divided by
_VIOLATED = 1e-3
_TOO_MUCH = 1e12  # weights of rows that contradict one another have no end


@dataclass
class _ProgramNode:
    """A leaf of the tree, or what it was split into."""

    fixed: dict[int, int]
    bound: Fraction
    weights: dict[Key, Fraction]
    fractional: int | None = None  # the variable to split on
    values: list[float] = field(default_factory=list, repr=False)  # of the variables, in the linear program
    below: tuple[int, _ProgramNode, _ProgramNode] | None = field(default=None, repr=False)


class ProgramSearch:
    """The tree of one program, grown as far as it pays.

    >>> program = FactProgram()
    >>> x = [program.variable((name,), 2) for name in "abc"]
    >>> for i in range(3):
    ...     program.row(("pair", i), [(x[i], 1), (x[i - 1], 1)], 1)
    >>> search = ProgramSearch(program, Fraction(1))
    >>> search.bound  # half of each: the tree has not been split
    Fraction(3, 1)
    >>> search.run(math.inf)
    >>> search.bound
    Fraction(4, 1)
    """

    def __init__(self, program: FactProgram, quantum: Fraction = Fraction(), ends: float = math.inf) -> None:
        self.program, self.quantum = program, quantum
        self.row_names: list[Key] = []
        self.cuts: list[dict[Key, Fraction]] = []
        self.helper = self._build()
        self.ends, self.solved, self.split = ends, 0, 0
        self.root = self._cut_root()
        self.queue = [(self.root.bound, 0, self.root)]

    def _cut_root(self) -> _ProgramNode:
        """Return the root, after rounds of cuts that its solutions violate."""
        root = self._node({}, {}, Fraction(self.program.constant))
        rows = [(name, row) for name, row in self.program.rows.items() if any(abs(f) > 1 for _, f in row.terms)]
        stale = 0
        for _ in range(_ROUNDS):
            if root.fractional is None or stale > 2 or time.monotonic() > self.ends:
                break
            added = 0
            for name, row in rows:
                for weights in _cuts_of(self.program, name, row, root.values):
                    found = rounded_up(self.program, weights)
                    if sum(factor * root.values[v] for v, factor in found.terms) < found.least - _VIOLATED:
                        key = (CUT, len(self.cuts))
                        self.cuts.append(weights)
                        self.program.rows[key] = found
                        self._add_row(key)
                        added += 1
            if not added:
                break
            better = self._node({}, root.weights, root.bound)
            stale = stale + 1 if better.bound <= root.bound else 0
            root = better
        return root

    @property
    def bound(self) -> Fraction:
        """The bound that the tree proves."""
        return self.queue[0][0]

    def run(self, ends: float, enough: float = math.inf, most: int = 5_000) -> None:
        """Split the weakest leaf until all prove enough, the monotonic clock is past `ends`, or nothing can be split."""
        self.ends = ends
        while self.solved < most and time.monotonic() < ends:
            bound, _, node = self.queue[0]
            if bound >= enough or node.fractional is None:  # enough, or a solution: no tree proves more
                return
            variable = node.fractional
            halves = [self._node({**node.fixed, variable: value}, node.weights, bound) for value in (0, 1)]
            node.below = variable, halves[0], halves[1]
            self.split += 1  # not every half is solved anew, and no two may have the same number
            heapq.heapreplace(self.queue, (halves[0].bound, 2 * self.split, halves[0]))
            heapq.heappush(self.queue, (halves[1].bound, 2 * self.split + 1, halves[1]))

    def certificate(self) -> dict[str, Any]:
        """Return cuts and tree as certificates have them."""
        names, numbers = self.program.names, {key: (CUT, at) for at, key in enumerate(self._used_cuts())}

        def listed(weights: Mapping[Key, Fraction]) -> list[list[Any]]:
            return [[*numbers.get(name, name), str(weight)] for name, weight in weights.items()]

        def written(node: _ProgramNode) -> dict[str, Any]:
            if node.below is None:
                return {"weights": listed(node.weights)}
            variable, zero, one = node.below
            return {"variable": list(names[variable]), "zero": written(zero), "one": written(one)}

        return {"cuts": [listed(self.cuts[number]) for _, number in numbers], "tree": written(self.root)}

    def used(self) -> tuple[set[Key], set[Key]]:
        """Return the names of all rows and of all variables that the certificate names."""
        names = self.program.names
        rows, splits = set[Key](), {names[node.below[0]] for node in self._nodes() if node.below is not None}
        weights = [node.weights for node in self._nodes() if node.below is None]
        for name in {name for one in (*weights, *(self.cuts[at] for _, at in self._used_cuts())) for name in one}:
            if name[0] == MOST_ONE:
                splits.add(name[1:])
            elif name[0] != CUT:
                rows.add(name)
        return rows, splits

    def _used_cuts(self) -> list[Key]:
        return sorted({name for node in self._nodes() if node.below is None for name in node.weights if name[0] == CUT})

    def _nodes(self) -> Iterator[_ProgramNode]:
        pending = [self.root]
        while pending:
            node = pending.pop()
            yield node
            pending += [] if node.below is None else node.below[1:]

    def _build(self) -> ModelBuilderHelper:
        """Return the linear program; its last variable is by how much rows are violated, for which there is no room at first."""
        helper = self.helper = ModelBuilderHelper()
        helper.add_var_array([len(self.program.costs) + 1], 0.0, 1.0, False, "")
        for name in self.program.rows:
            self._add_row(name)
        self._aim(violation=False)
        return helper

    def _aim(self, *, violation: bool) -> None:
        """Set what is minimised: what the plan costs, or by how much rows are violated."""
        last = len(self.program.costs)
        for variable, cost in enumerate(self.program.costs):
            self.helper.set_var_objective_coefficient(variable, 0.0 if violation else float(cost))
        self.helper.set_var_objective_coefficient(last, 1.0 if violation else 0.0)
        self.helper.set_var_upper_bound(last, math.inf if violation else 0.0)

    def _add_row(self, name: Key) -> None:
        row, constraint = self.program.rows[name], self.helper.add_linear_constraint()
        self.row_names.append(name)
        self.helper.set_constraint_lower_bound(constraint, float(row.least))
        for variable, factor in row.terms:
            self.helper.add_term_to_constraint(constraint, variable, float(factor))
        self.helper.add_term_to_constraint(constraint, len(self.program.costs), float(max(1, abs(row.least))))

    def _node(self, fixed: dict[int, int], weights: Mapping[Key, Fraction], least: Fraction) -> _ProgramNode:
        """Return the leaf where some variables are fixed, no weaker than with the weights from above."""
        node = _ProgramNode(fixed, least, dict(weights))
        for variable in range(len(self.program.costs)):
            self.helper.set_var_lower_bound(variable, float(fixed.get(variable, 0)))
            self.helper.set_var_upper_bound(variable, float(fixed.get(variable, 1)))
        solver = self._solve()
        if solver is None:
            return node
        if solver.status() == SolveStatus.INFEASIBLE:
            self._aim(violation=True)
            solver = self._solve()
            self._aim(violation=False)
            if solver is not None and solver.status() == SolveStatus.OPTIMAL and solver.objective_value() > _SMALL:
                # Rows that contradict one another prove any amount; more than all variables cost together is enough.
                most = float(sum(self.program.costs)) + 1.0
                found = self._weights(solver, 1.001 * most / float(solver.objective_value()))
                node.bound, node.weights = max((least, node.weights), (self._proven(found, fixed), found), key=_first)
            return node
        if not solver.has_solution() or solver.status() != SolveStatus.OPTIMAL:
            return node
        found = self._weights(solver)
        bound = self._proven(found, fixed)
        if bound > node.bound or (not fixed and not weights):
            node.bound, node.weights = bound, found
        values = node.values = solver.variable_values().tolist()[:-1]
        between = [
            (abs(value - 0.5), v) for v, value in enumerate(values) if 1e-6 < value < 1 - 1e-6 and v not in fixed
        ]
        node.fractional = min(between, default=(0.0, None))[1]
        return node

    def _solve(self) -> ModelSolverHelper | None:
        """Return the solver after its work, None where there is no time for it."""
        left = self.ends - time.monotonic()
        if left <= 0:
            return None
        solver = ModelSolverHelper("glop")
        if math.isfinite(left):
            solver.set_time_limit_in_seconds(left)
        solver.solve(self.helper)
        self.solved += 1
        return solver

    def _weights(self, solver: ModelSolverHelper, times: float = 1.0) -> dict[Key, Fraction]:
        """Return the duals of the rows as fractions."""
        duals = [times * dual for dual in solver.dual_values().tolist()]
        return {
            name: weight
            for name, dual in zip(self.row_names, duals, strict=True)
            if _SMALL < dual < _TOO_MUCH and (weight := _written(dual))
        }

    def _proven(self, weights: Mapping[Key, Fraction], fixed: Mapping[int, int]) -> Fraction:
        bound = leaf_bound(self.program, weights, fixed)
        return -(-bound // self.quantum) * self.quantum if self.quantum else bound


def _first(pair: tuple[Fraction, Any]) -> Fraction:
    return pair[0]


def _cuts_of(program: FactProgram, name: Key, row: FactRow, values: list[float]) -> Iterator[dict[Key, Fraction]]:
    """Yield weights of cuts of one row: divided by one of its factors, with `x <= 1` of what would be rounded up by much."""
    if all(values[v] < _SMALL or values[v] > 1 - _SMALL for v, _ in row.terms):
        return
    names = program.names
    for divisor in sorted({abs(factor) for _, factor in row.terms if abs(factor) > 1})[-_DIVISORS:]:
        weights = {name: Fraction(1, divisor)}
        # So much may be taken off the number before it is rounded up to less. It goes to those that gain most by it.
        spare = (row.least - 1) % divisor
        rest = [(factor % divisor, v) for v, factor in row.terms if factor % divisor and values[v] > _SMALL]
        for over, v in sorted(rest, key=lambda one: one[0] / values[one[1]]):
            if over <= spare:
                spare -= over
                weights[MOST_ONE, *names[v]] = Fraction(over, divisor)
        yield weights


def _written(dual: float) -> Fraction:
    """Return a dual as a fraction that takes few digits."""
    near = Fraction(dual).limit_denominator(1_000)
    return near if abs(float(near) - dual) <= 1e-9 * dual else Fraction(round(dual * _FINEST), _FINEST)
