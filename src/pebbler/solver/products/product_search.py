"""The search for a cheap order of a matrix product: loops are compared by bounds on their layouts, the best get layouts.

What is compared is the bound that prices of room give for an order (`Layout.bound`): it takes a fraction of the time of a
layout and lies a percent or two below it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pebbler.arrays import Ints
from pebbler.game.graph import Graph
from pebbler.game.plan import Plan
from pebbler.game.sums import Sums
from pebbler.referee.programs.product_points import ProductPoints
from pebbler.solver.layout.layout_search import Layout
from pebbler.solver.problem import Problem, Search
from pebbler.solver.products.loop_orders import Loops, changed_loops, changed_order, first_loops, nested_order

__all__ = ["ProductOrders", "ProductSearch"]

_ROUNDS = 40  # of prices, to compare orders
_FINE_ROUNDS = 150  # of prices, before a layout that is kept
_QUICK, _LONG = 6, 120  # how often the values of an op are routed anew, on average: to compare, and to keep
_FEW = 400  # points up to which orders are compared by their layouts, and changed piece by piece
_FEW_LOOPS = 4  # loops that are compared in a quick search
_PATIENCE = 60  # changes that bring nothing before a search without a time limit ends
_COOL, _WARM = 0.1, 0.4  # of the search for layouts of large products
_LOOPS_SHARE = 0.5  # of the time, for comparing loops of larger products


@dataclass(frozen=True)
class ProductOrders:
    """A product's graph, and its points in the order in which its sums know their terms."""

    sums: Sums
    index: Ints

    @classmethod
    def of(cls, graph: Graph) -> ProductOrders | None:
        """Return the points of a graph whose terms are all products, None for any other.

        >>> from pebbler.workloads import chain, matmul
        >>> ProductOrders.of(matmul(2, 3, 4)).sizes, ProductOrders.of(chain(3)) is None
        ((2, 3, 4), True)
        """
        sums, points = Sums.of(graph), ProductPoints.of(graph.dataflow)
        if sums is None or points is None or tuple(points.makers.tolist()) != sums.makers:
            return None
        return cls(sums, points.index)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How many i, j and k there are."""
        m, n, k = (self.index.max(axis=0) + 1).tolist()
        return m, n, k

    def problem(self, problem: Problem, order: Ints) -> Problem:
        """Return the problem with the terms in another order."""
        return problem.transformed(self.sums.in_order(order))


class ProductSearch:
    """One run: layouts of orders that look cheap, offered to the search, and better and better ones as long as there is time."""

    def __init__(self, search: Search, orders: ProductOrders) -> None:
        self.search, self.orders = search, orders
        self.rng = np.random.default_rng(search.problem.seed)
        self.best: tuple[float, Ints] | None = None  # the order that looks cheapest, and how cheap
        self.layout: Layout | None = None
        self.tries = 0

    def run(self, known: Plan | None = None) -> None:
        """Look for orders, then for layouts of the best; `known` is a plan of the product to go on from."""
        start = None if known is None else self.orders.sums.order_of(known.graph)
        if start is not None:
            self._lay_out(np.array(start, np.int64), known)
        if len(self.orders.index) <= _FEW:
            self._by_layouts()
        else:
            self._by_bounds()

    def _left(self) -> float:
        return self.search.remaining

    # Small products -------------------------------------------------------------------------------------------------

    def _by_layouts(self) -> None:
        for loops in first_loops(self.orders.sizes):
            self.keep(nested_order(self.orders.index, loops), _LONG)
            if self.search.remaining <= 0 or self.search.done:
                return
        assert self.layout is not None
        assert self.best is not None
        if self.search.quick:
            return
        current, stale = self.best, 0
        while self.search.remaining > 0 and not self.search.done:
            order = changed_order(self.rng, current[1])
            if (order == current[1]).all():
                continue
            energy = self.keep(order, _QUICK, near=self.best[0])
            better = energy < self.best[0]
            if energy <= current[0] - 1.0 * self._unit * np.log(1.0 - self.rng.random()):
                current = energy, order
            if better:
                self.best, stale = (energy, order), 0
            else:
                stale += 1
                if stale % 400 == 0:
                    current = self.best
            if self.search.time_limit is None and stale >= 10 * _PATIENCE:
                return

    @property
    def _unit(self) -> float:
        return float(self.layout.game.arrays.read.min()) if self.layout is not None else 1.0

    def keep(self, order: Ints, effort: int, near: float = np.inf) -> float:
        """Lay an order out, offer the plan if it is the best, and return what it costs; more effort if it comes near a figure."""
        problem = self.orders.problem(self.search.problem, order)
        count = len(problem.graph.ops)
        layout = Layout.of(problem, np.arange(count), _ROUNDS if effort == _QUICK else _FINE_ROUNDS, self._left)
        self.tries += 1
        layout.improve(effort * count, seed=self.tries, left=self._left)
        if effort == _QUICK and layout.energy < 1.012 * near:
            layout.improve(3 * effort * count, seed=self.tries, hot=0.4, left=self._left)
        if self.layout is None or layout.energy < self.layout.energy:
            self.layout = layout
            self.best = layout.energy, order
            self.search.offer_plan(layout.plan(self.search.problem))
        return layout.energy

    # Large products -------------------------------------------------------------------------------------------------

    def _by_bounds(self) -> None:
        search = self.search
        began = search.elapsed
        span = _LOOPS_SHARE * search.remaining
        compared: dict[Loops, float] = {}
        for loops in self._loops(compared):
            compared[loops] = self._bound(loops)
            if search.remaining <= 0 or search.elapsed - began > span:
                break
            if len(compared) >= (_FEW_LOOPS if search.quick else _PATIENCE) and (
                search.quick or search.time_limit is None
            ):
                break
        best = min(compared, key=lambda loops: compared[loops])
        order = nested_order(self.orders.index, best)
        if self.layout is None or compared[best] < 0.97 * self.layout.energy:
            self._lay_out(order)
        self._polish()

    def _loops(self, compared: dict[Loops, float]) -> Iterator[Loops]:
        yield from first_loops(self.orders.sizes)
        while True:
            ranked = sorted(compared, key=lambda loops: compared[loops])[:12]
            base = ranked[min(len(ranked) - 1, int(self.rng.exponential(2.0)))]
            changed = changed_loops(self.rng, base)
            if changed not in compared:
                yield changed

    def _bound(self, loops: Loops) -> float:
        order = nested_order(self.orders.index, loops)
        problem = self.orders.problem(self.search.problem, order)
        return Layout.bound_of(problem, np.arange(len(problem.graph.ops)), _ROUNDS, self._left)

    def _lay_out(self, order: Ints, known: Plan | None = None) -> None:
        problem = self.orders.problem(self.search.problem, order)
        layout = None if known is None else Layout.from_plan(problem, known, left=self._left)
        if layout is None:
            layout = Layout.of(problem, np.arange(len(problem.graph.ops)), _FINE_ROUNDS, self._left)
        if self.layout is None or layout.energy < self.layout.energy:
            self.layout, self.best = layout, (layout.energy, order)
            self.search.offer_plan(layout.plan(self.search.problem))

    def _polish(self) -> None:
        """Route values anew until time is over or nothing comes of it."""
        assert self.layout is not None
        count, stale = len(self.orders.sums.graph.ops), 0
        while self.search.remaining > 0 and stale < (1 if self.search.quick else 4):
            before = self.layout.energy
            self.tries += 1
            rounds = count if self.search.remaining > 20 else max(200, count // 10)
            self.layout.improve(
                rounds, seed=self.tries, hot=_COOL if self.tries % 4 else _WARM, cold=_COOL / 2, left=self._left
            )
            if self.layout.energy < before:
                self.search.offer_plan(self.layout.plan(self.search.problem))
            stale = 0 if self.layout.energy < 0.9999 * before else stale + 1
        self.search.cut_off |= self.search.remaining <= 0
