"""The linear program over the rows of a leaf: its duals are the weights of a certificate."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import chain, count
from typing import Any, NamedTuple

import numpy as np
from ortools.linear_solver.python.model_builder_helper import ModelBuilderHelper, ModelSolverHelper, SolveStatus

from pebbler.arrays import Floats, Ints
from pebbler.referee.rows.leaf import Leaf
from pebbler.referee.rows.row import Counter, Number, Row
from pebbler.referee.rows.table import Facts, facts_of
from pebbler.referee.verify import LeafRows, charges

__all__ = ["RowProgram", "Weights", "pays"]

Weights = dict[tuple[Any, ...], Fraction]
_DENOMINATORS = (720, 10**5, 10**8)  # that weights are rounded to, until one of them proves as much as the program says
_FINEST = 10**9  # what weights that make up for rounding are multiples of one over
_SMALL = 1e-9
_STEPS = 50  # per row and counter; the simplex method may go round in circles after preprocessing, and needs a few steps each
# Where numbers of elements are large the solver may give up; another way then often does not.
# Prices are not negative, so weights of nothing are a start for the dual simplex method: it takes half as long as the primal one.
_WAYS = (
    " use_dual_simplex: true use_preprocessing: false dual_feasibility_tolerance: 1e-11",
    "",
    " dual_feasibility_tolerance: 1e-11",
    " use_preprocessing: false",
    " use_dual_simplex: true",
    " use_scaling: false",
)
_SMALL_EXCESS = 1e-6  # of the dearest counter's price, by which one is charged too much
_SCALINGS, _FAR = 3, 1e6
_CLOSE = 1e-9
_REPAIRS = 6  # passes over counters that rounding has charged above their price


class RowProgram:
    """A linear program for the weights of a leaf's rows: of some facts, by default of all, and of these the `wanted` rows.

    No bound is taken to be above `enough`.
    """

    def __init__(
        self,
        leaf: Leaf,
        enough: float = math.inf,
        facts: Sequence[Facts] | None = None,
        wanted: Callable[[Row], bool] = lambda row: True,
    ) -> None:
        self.leaf, self.enough = leaf, enough
        self.rows: list[Row] = []
        ends: list[tuple[Facts, int]] = []
        for one in facts_of(leaf.family.task) if facts is None else facts:
            self.rows += [row for row in one(leaf) if row.whole or row.name == "tiles" or wanted(row) or pays(row)]
            ends.append((one, len(self.rows)))
        self._best: tuple[Fraction, Weights] = Fraction(), {}
        self._untried: list[int | None] = [None, *_DENOMINATORS]
        self.bound = 0.0
        self.duals = [0.0] * len(self.rows)
        self._solve()
        begins = [0, *(end for _, end in ends)]
        self.helpful = {
            one
            for begin, (one, end) in zip(begins, ends, strict=False)
            if any(d > _SMALL for d in self.duals[begin:end])
        }

    def _solve(self) -> None:
        """Solve the program, in units in which no factor is far from 1: GLOP gives up where they differ too much."""
        finite = math.isfinite(self.enough)
        numbers: defaultdict[Counter, int] = defaultdict(count(1).__next__)
        terms = [row.terms for row in self.rows]
        columns = np.fromiter(map(numbers.__getitem__, chain.from_iterable(terms)), np.int64)
        factors = np.array([factor for one in terms for factor in one.values()], np.float64)
        rows = np.repeat(np.arange(len(terms)), [len(one) for one in terms])
        least = np.array([row.least for row in self.rows], np.float64)
        # The first variable is no plan at all, for a price: where the rows contradict one another there is no other solution.
        costs = np.array([self.enough if finite else 0.0, *map(self.leaf.price, numbers)])
        nothing = np.flatnonzero(least) if finite else np.empty(0, np.int64)
        matrix = _Scaled.of(
            np.concatenate((rows[factors != 0], nothing)),
            np.concatenate((columns[factors != 0], np.zeros_like(nothing))),
            np.concatenate((factors[factors != 0], least[nothing])),
            (len(least), len(costs)),
        )
        least, costs = least * matrix.by_row, costs * matrix.by_column
        much, dear = (float(np.abs(one).max(initial=0.0)) or 1.0 for one in (least, costs[1:]))
        small = _SMALL_EXCESS * max((costs / matrix.by_column)[1:].max(initial=0.0), 1.0)
        helper = ModelBuilderHelper()
        helper.add_var_array([len(costs)], 0.0, math.inf, False, "")
        helper.set_var_upper_bound(0, float(finite) / float(matrix.by_column[0] * much))
        helper.set_objective_coefficients(list(range(len(costs))), (costs / dear).tolist())
        for number in (least / much).tolist():
            helper.set_constraint_lower_bound(helper.add_linear_constraint(), number)
        listed = (one.tolist() for one in (matrix.rows, matrix.columns, matrix.factors))
        deque(map(helper.add_term_to_constraint, *listed), maxlen=0)
        worst = math.inf
        for parameters in _WAYS:
            solver = ModelSolverHelper("glop")
            steps = _STEPS * (len(costs) + len(least))
            solver.set_solver_specific_parameters(f"max_number_of_iterations: {steps}{parameters}")
            solver.solve(helper)
            if not solver.has_solution() or solver.status() != SolveStatus.OPTIMAL:
                continue
            duals = np.maximum(solver.dual_values(), 0.0)
            charged = np.bincount(matrix.columns, matrix.factors * duals[matrix.rows], len(costs))
            over = float(((charged * dear - costs) / matrix.by_column)[1:].max(initial=0.0))
            if over < worst:  # after preprocessing some duals may be far too large
                worst = over
                self.bound = min(self.enough, max(0.0, float(duals @ least) * dear))
                self.duals = (duals * matrix.by_row * dear).tolist()
            if over < small:
                break

    def used(self) -> list[tuple[Any, ...]]:
        """Return the keys of the rows that have weights."""
        return [row.key for row, dual in zip(self.rows, self.duals, strict=True) if dual > _SMALL]

    @property
    def stated(self) -> bool:
        """Whether weights as fractions have been worked out."""
        return len(self._untried) <= len(_DENOMINATORS)

    def proven(self, enough: float = math.inf) -> tuple[Fraction, Weights]:
        """Return weights as fractions and the bound that they prove exactly: `enough`, or all that the program says."""
        least = min(enough, self.bound * (1 - _CLOSE))
        while self._untried and not (self.stated and self._best[0] >= least):
            denominator = self._untried.pop(0)
            found = {
                row.key: weight
                for row, dual in zip(self.rows, self.duals, strict=True)
                if dual > _SMALL and not row.whole and (weight := _as_fraction(dual, denominator))
            }
            proven = self._proven(found, last=not self._untried)
            if proven[0] > self._best[0]:
                self._best = proven
        return self._best

    def _proven(self, weights: Weights, *, last: bool) -> tuple[Fraction, Weights]:
        """Return the bound that weights prove, after a repair where rounding charged counters above their price.

        Rows that say how much there is at most pay for it. Where there is none, a row that charges the counter gets less, at best
        one that pays for no other counter; then the others are looked at again. What is left costs a part of all weights.
        """
        for _ in range(_REPAIRS):
            total, excess = charges(self._by_key, weights)
            if not excess:
                return total, weights
            for counter, over in excess.items():
                if counter[0] != "tiles":
                    _pay(counter, over, [row for row in self._by_help if counter in row.terms], weights)
            if any(counter[0] == "tiles" for counter in excess):
                _pay_for_tiles(self.rows, weights, excess)
        for digits in (9, 6, 3) if last else ():
            fewer = {key: weight * (1 - Fraction(1, 10**digits)) for key, weight in weights.items()}
            total, excess = charges(self._by_key, fewer)
            if not excess:
                return total, fewer
        return Fraction(), {}

    @cached_property
    def _by_key(self) -> LeafRows:
        return LeafRows(self.leaf, self.rows)

    @cached_property
    def _by_help(self) -> list[Row]:
        """The rows that have weights of their own, those that pay for no counter first."""
        weighted = (row for row in self.rows if not row.whole)
        return sorted(weighted, key=lambda row: any(factor < 0 for factor in row.terms.values()))


class _Scaled(NamedTuple):
    """A matrix times powers of two for each row and each column, so that its factors are near 1."""

    rows: Ints  # of each factor
    columns: Ints
    factors: Floats
    by_row: Floats
    by_column: Floats

    @classmethod
    def of(cls, rows: Ints, columns: Ints, factors: Floats, shape: tuple[int, int]) -> _Scaled:
        """Bring the least and the greatest factor of rows and of columns as far above 1 as below, in turn."""
        sizes = np.log2(np.abs(factors))
        row, column = (np.zeros(length) for length in shape)
        for _ in range(_SCALINGS):
            for by, of in ((row, rows), (column, columns)):
                scaled = sizes + row[rows] + column[columns]
                most, least = np.full(len(by), -_FAR), np.full(len(by), _FAR)  # without any factor they cancel
                np.maximum.at(most, of, scaled)
                np.minimum.at(least, of, scaled)
                by -= (most + least) / 2
        by_row, by_column = np.exp2(np.round(row)), np.exp2(np.round(column))
        return cls(rows, columns, factors * by_row[rows] * by_column[columns], by_row, by_column)


def _pay(counter: Counter, over: Fraction, rows: Sequence[Row], weights: Weights) -> None:
    """Charge a counter less, by more of a row that pays for it or less of rows that charge it."""
    for row in rows:
        if pays(row):
            weights[row.key] = weights.get(row.key, Fraction()) + _rounded_up(over / -row.terms[counter])
            return
    for row in rows:
        known, factor = weights.get(row.key), row.terms[counter]
        if known and factor > 0:
            less = min(known, _rounded_up(over / factor))
            weights[row.key] = known - less
            over -= less * factor
            if over <= 0:
                return


def pays(row: Row) -> bool:
    """Whether a larger weight of a row charges no counter more: those that say how much there is at most."""
    return not row.whole and all(factor < 0 for factor in row.terms.values())


def _as_fraction(dual: float, denominator: int | None) -> Fraction:
    """Return a dual as a fraction of at most a denominator; by default a simple one that is as good as equal, or a decimal."""
    simple = Fraction(dual).limit_denominator(denominator or _DENOMINATORS[0])
    if denominator is not None or abs(float(simple) - dual) < _SMALL * max(1.0, dual):
        return simple
    return Fraction(round(dual * _FINEST), _FINEST)


def _rounded_up(weight: Fraction) -> Fraction:
    """Return a weight that takes few digits to write, and is no smaller."""
    return Fraction(math.ceil(weight * _FINEST), _FINEST)


def _pay_for_tiles(rows: Sequence[Row], weights: Weights, excess: dict[Counter, Fraction]) -> None:
    """Charge products of numbers of tiles nothing: by smaller weights of rows that charge them, then by larger ones of others.

    A row about a product has products of fewer axes, too, so those of most axes come first.
    """
    about: dict[Counter, list[tuple[Row, Number]]] = {}
    for row in rows:
        if row.name == "tiles":
            product = max(row.terms, key=len)
            about.setdefault(product, []).append((row, row.terms[product]))
    for product in sorted(about, key=lambda one: -len(one)):
        for row, factor in sorted(about[product], key=lambda one: -one[1]):
            over = excess.get(product, Fraction())
            if over <= 0:
                break
            known = weights.get(row.key, Fraction())
            more = -min(known, _rounded_up(over / factor)) if factor > 0 else _rounded_up(over / -factor)
            if more:
                weights[row.key] = known + more
                for counter, by in row.terms.items():
                    excess[counter] = excess.get(counter, Fraction()) + more * by
