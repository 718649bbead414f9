"""Caches under graphs of thousands of ops: orders with reruns in near-linear time, then better ones as long as there is time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from pebbler.arrays import Ints
from pebbler.game.moves import Moves
from pebbler.referee import pricing
from pebbler.referee.kernels.cache_price import price
from pebbler.referee.pricing import cache_game
from pebbler.solver.cache_floor import cache_bounds
from pebbler.solver.paging.start_orders import start_orders
from pebbler.solver.problem import Problem, Search
from pebbler.solver.rerun_orders import RerunPlanner, RerunSetting
from pebbler.solver.structure.order_search import OrderSearch, turn_length

__all__ = ["LARGE_CACHE", "is_large_cache", "raise_and_rerun", "reruns_pay", "solve_large_cache"]

LARGE_CACHE = 1_000  # ops from which on tilings and single moves take too long
_FEW = 40
_SHARES = (
    1.0,
    0.7,
    0.5,
    0.85,
)  # of the room above a boundary: a cache holds dead lines too, and not what one would choose
_KEEN = (0.5, 1.0, 0.0)
_CARE = (0.0, 1.0)
_STARTS = 0.3  # of the time, for orders from the start
_ORDERS = 0.5  # of the time, until orders from structure have been looked at
_IDLE = 3  # turns that bring nothing before a search that has other things to do ends
_SPREAD = 0.3  # how far a variation of the costs goes, as a logarithm


def is_large_cache(problem: Problem) -> bool:
    """Return whether a problem is one for `solve_large_cache`: then its graph is taken as it is."""
    return problem.machine.management != "explicit" and len(problem.graph.ops) > LARGE_CACHE


def reruns_pay(problem: Problem, *, as_it_is: bool) -> bool:
    """Return whether orders with reruns are worth a look: the graph is not cut, and too large for all its orders to be tried."""
    return as_it_is and problem.machine.management != "explicit" and len(problem.graph.ops) > _FEW


def solve_large_cache(search: Search) -> None:
    """Offer bounds and orders of a graph as it is until time is up.

    >>> from pebbler import machine, workloads
    >>> from pebbler.solver.problem import Problem
    >>> search = Search(Problem.of(workloads.mlp(n=2, hidden=8), machine("notes")))
    >>> solve_large_cache(search)
    >>> search.bound <= search.energy <= 3575  # program order
    True
    """
    raise_and_rerun(search, lambda: search.remaining, patient=search.time_limit is not None)
    search.cut_off |= search.remaining <= 0 and not search.done


def raise_and_rerun(search: Search, seconds_left: Callable[[], float], *, patient: bool = False) -> None:
    """Raise bounds of a graph as it is, then offer orders with reruns; if not `patient`, end after some that brought nothing."""
    for bound in cache_bounds(search.problem, lambda: 0.3 * seconds_left()):
        search.raise_bound(bound.value, bound.proof)
    _RerunSearch(search, seconds_left, patient).run()


class _RerunSearch:
    """One run of the search: the best order so far, and the setting that led to it."""

    def __init__(self, search: Search, seconds_left: Callable[[], float], patient: bool) -> None:
        self.search, self.problem, self.seconds_left, self.patient = search, search.problem, seconds_left, patient
        problem = search.problem
        self.game = cache_game(problem.graph, problem.machine, steady=problem.steady)
        boundaries = range(len(problem.machine.level) - 1)
        self.planners = [one for level in boundaries if (one := RerunPlanner.of(problem, level)).least <= one.reach]
        self.energy = float("inf")
        self.sequence: Ints | None = None  # the best, if it has not been offered yet
        self.best: tuple[RerunPlanner, Ints, RerunSetting] | None = None
        self.offering = 0.0  # seconds that the referee took last
        self.orders: OrderSearch | None = None
        self.rng = np.random.default_rng(problem.seed)

    def run(self) -> None:
        """Try settings in program order, the best of them in other orders, then vary what was best."""
        problem, plain = self.problem, np.ones(len(self.problem.graph.ops))
        began, limit = self.search.elapsed, self.seconds_left()
        orders = [np.arange(len(problem.graph.ops))]
        for share, keen, care, planner in product(_SHARES, _KEEN, _CARE, self.planners):
            if self._over() or self.search.elapsed - began > _STARTS * limit:
                break
            self.attempt(planner, orders[0], RerunSetting(share, keen, care, plain, problem.seed))
            if self.offering == 0.0:
                self.offer()
        if not self._over():
            self.order(began + _ORDERS * limit)
        orders = orders if self._over() else start_orders(problem.graph)
        for order in orders[1:]:
            if (energy := float(price(self.game, order))) < min(self.energy, self.search.energy):
                self.energy, self.sequence = energy, order
            if self.best is not None and not self._over():
                self.attempt(self.best[0], order, self.best[2])
            if self._over():
                break
        self.offer()
        self.take_turns()
        self.offer()

    def order(self, end: float) -> None:
        """Look for orders from the structure of the graph, then make reruns in the best of them."""
        rooms = np.cumsum(pricing.capacities(self.problem.machine)[:-1]).astype(np.float64)

        def seconds_left() -> float:
            return min(self.seconds_left() - 2 * self.offering, end - self.search.elapsed)

        def energy(order: Ints, bound: float) -> float:
            return float(price(self.game, order))

        flow = self.problem.graph.dataflow
        self.orders = OrderSearch(flow, rooms.tolist(), energy, seconds_left, self.problem.seed)
        self.orders.explore()
        self._take_order()

    def _take_order(self) -> None:
        """Keep the best order from structure, and try reruns in it."""
        assert self.orders is not None
        if self.orders.price < min(self.energy, self.search.energy):
            self.energy, self.sequence = self.orders.price, self.orders.best
        plain = RerunSetting(1.0, 0.5, 1.0, np.ones(len(self.orders.best)), self.problem.seed)
        for planner in self.planners[:1] if self.best is None else [self.best[0]]:
            if not self._over():
                self.attempt(planner, self.orders.best, plain if self.best is None else self.best[2])

    def take_turns(self) -> None:
        """Change orders, and what reruns seem to cost, in turns until time is up or nothing helps any more."""
        idle, offered = 0, self.search.elapsed
        while not self.search.done:
            if self._over():
                self.search.cut_off = True
                return
            if idle >= _IDLE and not self.patient:
                return
            before, tries = self.energy, turn_length(self.problem.graph.dataflow.ops)
            if self.orders is not None and self.orders.price <= 1.1 * self.energy:
                self.orders.seconds_left = lambda: self.seconds_left() - 2 * self.offering
                if self.orders.improve(tries):
                    self._take_order()
            self.vary(tries)
            idle = 0 if self.energy < before else idle + 1
            if self.search.elapsed - offered > 1 + 10 * self.offering:
                self.offer()
                offered = self.search.elapsed

    def _over(self) -> bool:
        return self.search.done or self.seconds_left() <= 2 * self.offering

    def offer(self) -> None:
        """Show the best order to the referee, whose books take longer than a price alone."""
        if self.sequence is not None and self.energy < self.search.energy:
            began = self.search.elapsed
            self.search.offer(Moves.computes(self.problem.graph, self.problem.machine, self.sequence))
            self.sequence, self.offering = None, self.search.elapsed - began

    def attempt(self, planner: RerunPlanner, order: Ints, setting: RerunSetting) -> bool:
        """Make an order, price it and keep it if it is the best; return whether it is."""
        sequence = planner.sequence(order, setting)
        energy = float("inf") if sequence is None else float(price(self.game, sequence))
        if sequence is None or energy >= self.energy * (1 - 1e-12):
            return False
        self.energy, self.sequence, self.best = energy, sequence, (planner, order, setting)
        return True

    def vary(self, tries: int) -> None:
        """Let the costs of some ops and the room look different so many times, and keep what makes the order cheaper."""
        rng, longest = self.rng, 0.0
        for _ in range(tries):
            if self.best is None or self.search.done:
                return
            began = self.search.elapsed
            if self.seconds_left() <= 1.5 * longest + 2 * self.offering:
                self.search.cut_off = True
                return
            planner, order, old = self.best
            if rng.random() < 0.1:
                planner = self.planners[int(rng.integers(len(self.planners)))]
            changed = rng.random(len(old.factor)) < rng.choice([0.0, 0.02, 0.1, 0.5])
            setting = RerunSetting(
                share=float(np.clip(old.share * np.exp(rng.normal(0.0, 0.05)), 0.05, 1.5)),
                keen=max(0.0, old.keen + float(rng.normal(0.0, 0.1))),
                care=max(0.0, old.care + float(rng.normal(0.0, 0.1))),
                factor=old.factor * np.exp(rng.normal(0.0, _SPREAD, len(changed)) * changed),
                seed=int(rng.integers(2**31)),
            )
            self.attempt(planner, order, setting)
            longest = max(longest, self.search.elapsed - began)
