"""Explicit games on graphs of thousands of ops: a good plan in near-linear time, then better ones as long as there is time.

Everything here takes time and memory about linear in the graph. Orders are run greedily, with different weights for how far off a
next use is; then op costs are made to look a little different each time, which changes what is evicted, and what helps is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from pebbler.arrays import Floats, Ints
from pebbler.game.moves import COMPUTE
from pebbler.solver.bounds.sampled_moments import large_bounds
from pebbler.solver.capacity import explain_crowding, require_capacity
from pebbler.solver.greedy_plans import GreedyPlanner
from pebbler.solver.paging.demand_paging import demand_plan
from pebbler.solver.paging.start_orders import start_orders
from pebbler.solver.placed_plans import PlacedPlanner
from pebbler.solver.problem import Impossible, Problem, Search
from pebbler.solver.products.blocked_orders import offer_blocks
from pebbler.solver.recompute.long_sequences import trim
from pebbler.solver.recompute.recompute_problem import RecomputeProblem

__all__ = ["LARGE", "is_large", "offer_greedy", "solve_large"]

Planner = GreedyPlanner | PlacedPlanner
LARGE = {1: 4_000, 2: 2_000}  # ops from which on whole-graph searches take too long, by the number of levels
_KEEN = (0.5, 1.0, 0.0, 0.25, 0.75, 2.0)  # how much the distance of the next use counts
# First runs: keenness, and how many times their cost ops seem to cost. A value is not made again alone but with what that takes
# from others, which the price of one run does not show. Infinite: nothing is made again, which is quick and nearly Belady's rule.
_FIRST = ((1.0, np.inf), (0.5, 1.0), (1.0, 5.0))
_COSTLIEST = 5.0
_TRIES = 12  # orders and weights before a search that has other things to do gives up finding a plan
_SHARE = 0.3  # of the time, for orders from the start
_PATIENCE = 60  # variations that bring nothing before a search that has other things to do ends
_SPREAD = 0.3  # how far a variation of the costs goes, as a logarithm
_ALL, _FAR = 0.2, 0.7  # how often, and how far, all costs look different together


def is_large(problem: Problem) -> bool:
    """Return whether a problem is one for `solve_large`: then its graph is taken as it is."""
    levels = len(problem.machine.level)
    return problem.machine.management == "explicit" and len(problem.graph.ops) > LARGE[min(levels, 2)]


def solve_large(search: Search) -> None:
    """Offer plans and bounds of a large graph until time is up; raises `Impossible` when it is plain that no plan is legal.

    >>> from pebbler import machine, workloads
    >>> from pebbler.solver.problem import Problem
    >>> search = Search(Problem.of(workloads.chain(60), machine("red-blue")))
    >>> solve_large(search)
    >>> search.energy < 4 * search.bound
    True
    """
    _GreedySolver(search, lambda: search.remaining, patient=search.time_limit is not None).run()


def offer_greedy(search: Search, seconds_left: Callable[[], float]) -> None:
    """Offer greedy runs, and variations of the best until some have brought nothing."""
    solver = _GreedySolver(search, seconds_left, patient=False)
    solver.explore()
    solver.vary()


def _planners(problem: Problem) -> Iterator[Planner]:
    """Yield planners: one for each place where params of a steady step may stay and, where operands may be anywhere, each level."""
    levels = len(problem.machine.level)
    for fast_params in (False, True)[: 2 if problem.looped_params and levels > 1 else 1]:
        if levels == 1 or problem.machine.operands == "fastest":
            yield GreedyPlanner.of(problem, fast_params=fast_params)
            continue
        for level in (*range(levels - 2, -1, -1), levels - 1):  # in the last one nothing gets stuck
            planner = PlacedPlanner.of(problem, level, fast_params=fast_params)
            if planner is not None:
                yield planner


def _raise_bounds(search: Search) -> None:
    for bound in large_bounds(search.problem, lambda: search.remaining):
        search.raise_bound(bound.value, bound.proof, bound.certificate)


@dataclass(frozen=True)
class _Setting:
    """How an order is run: what the distance of a next use counts, whether ops run again, and what they seem to cost then."""

    keen: float
    remake: bool
    factor: float | Floats
    seed: int = 0


class _GreedySolver:
    """One run of the solver: the best moves so far, and the settings that led to them."""

    def __init__(self, search: Search, seconds_left: Callable[[], float], *, patient: bool) -> None:
        self.search, self.problem, self.seconds_left, self.patient = search, search.problem, seconds_left, patient
        self.ends = search.elapsed + _SHARE * seconds_left()  # of orders from the start
        self.price = float("inf")
        self.rows: Ints | None = None
        self.best: tuple[Planner, Ints, _Setting] | None = None

    def begin(self) -> Planner | None:
        """Offer program order by every planner; return the best planner, or the last where none finds a plan."""
        program = np.arange(len(self.problem.graph.ops))
        planner: Planner | None = None
        for planner in _planners(self.problem):
            for keen, factor in _FIRST:
                self.attempt(planner, program, _Setting(keen, factor < np.inf, min(factor, _COSTLIEST)))
                if self.best is not None and self.seconds_left() <= 0:
                    return self.best[0]
        return self.best[0] if self.best is not None else planner

    def explore(self) -> None:
        """Offer program order, then other orders with other weights; give up early where no plan is found."""
        planner = self.begin()
        for number, (order, setting) in enumerate(self._starts()):
            planner = self.best[0] if self.best is not None else planner
            if planner is None or self.search.done or not self._time_for_starts():
                return
            if self.rows is None and number >= _TRIES:
                return
            self.attempt(planner, order, setting)

    def run(self) -> None:
        """Offer a first plan at once, then bounds, simple plans, orders and variations."""
        search, program = self.search, np.arange(len(self.problem.graph.ops))
        crowded = explain_crowding(self.problem)
        if crowded is not None:
            raise Impossible(crowded)
        planner = self.begin()
        search.raise_bound(float(self.problem.graph.dataflow.op_cost.sum()), "every op runs at least once")
        if search.time_limit == 0:
            search.cut_off = True
            return
        _raise_bounds(search)
        paged = isinstance(planner, GreedyPlanner) and len(self.problem.machine.level) > 1
        if search.remaining > 0 and not search.done and paged:
            search.offer_plan(demand_plan(self.problem, program.tolist(), "farthest"))
            offer_blocks(search, 0.1)
        for order, setting in self._starts():
            planner = self.best[0] if self.best is not None else planner
            if planner is None or search.done or (self.rows is not None and not self._time_for_starts()):
                break
            self.attempt(planner, order, setting)
        if self.rows is None:
            require_capacity(self.problem)
        elif not search.done:
            self.improve()
        search.cut_off |= search.remaining <= 0 and not search.done

    def improve(self) -> None:
        """Go on from the best moves."""
        if len(self.problem.machine.level) == 1 and self.rows is not None:
            game = RecomputeProblem.of(self.problem)
            sequence = trim(game, self.rows[self.rows[:, 0] == COMPUTE, 1])
            if game.arrays.cost[sequence].sum() < self.search.energy:
                self.search.offer(game.moves(sequence))
        self.vary()

    def _time_for_starts(self) -> bool:
        return self.seconds_left() > 0 and self.search.elapsed < self.ends

    def _starts(self) -> Iterator[tuple[Ints, _Setting]]:
        orders = start_orders(self.problem.graph)
        for seed, keen, order in product(range(2), _KEEN, orders):
            best = _Setting(keen, True, 1.0) if self.best is None else self.best[2]
            yield order, replace(best, keen=keen, seed=self.problem.seed + seed)

    def attempt(self, planner: Planner, order: Ints, setting: _Setting) -> bool:
        """Run an order greedily, and offer its plan if it is the best; return whether it is."""
        costs = planner.game.cost * setting.factor
        rows = planner.run(order, keen=setting.keen, remake=setting.remake, seed=setting.seed, costs=costs)
        price = float("inf") if rows is None else planner.price(rows)
        if rows is None or price >= self.price * (1 - 1e-12):
            return False
        self.rows, self.price, self.best = rows, price, (planner, order, setting)
        if price < self.search.energy:
            self.search.offer_plan(planner.plan_of(rows))
        return True

    def vary(self) -> None:
        """Let the costs of some ops, or of all, look different, and keep what makes the plan cheaper."""
        search, idle = self.search, 0
        rng = np.random.default_rng(self.problem.seed)
        longest = 0.0
        while self.best is not None and not search.done:
            if self.seconds_left() <= 1.5 * longest:
                search.cut_off = True
                return
            if idle >= _PATIENCE and not self.patient:
                return
            began = search.elapsed
            planner, order, old = self.best
            ops = len(planner.game.cost)
            changed = rng.random(ops) < rng.choice([0.02, 0.1, 0.5])
            factor = old.factor * np.exp(rng.normal(0.0, _SPREAD, ops) * changed)
            if rng.random() < _ALL:
                factor = factor * np.exp(rng.normal(0.0, _FAR))
            keen = max(0.0, old.keen + rng.normal(0.0, 0.1))
            remake = old.remake or bool(rng.random() < _ALL)
            better = self.attempt(planner, order, _Setting(keen, remake, factor, int(rng.integers(2**31))))
            idle = 0 if better else idle + 1
            longest = max(longest, search.elapsed - began)
