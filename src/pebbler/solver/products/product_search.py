"""The search for a cheap program of a matrix product: loops give orders to begin with, then order and layout change together.

Loops of large products are compared by the bound that prices of room give for an order (`Layout.bound`): it takes a fraction
of the time of a layout and lies a percent or two below it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pebbler.arrays import Ints
from pebbler.game.plan import Plan
from pebbler.solver.layout.kernels.reordering import Reach
from pebbler.solver.layout.layout_search import Layout
from pebbler.solver.problem import Search
from pebbler.solver.products.loop_orders import Loops, changed_loops, first_loops, nested_order
from pebbler.solver.products.product_annealing import ProductAnnealing
from pebbler.solver.products.product_orders import ProductOrders

__all__ = ["ProductSearch"]

_ROUNDS = 40  # of prices, to compare orders
_FINE_ROUNDS = 150  # of prices, before a layout that is kept
_FEW = 1_000  # points up to which loops are compared by what becomes of them
_FEW_LOOPS = 4  # loops that are compared in a quick search
_PATIENCE = 60  # loops that are compared, changes of loops included, where time has no limit
_LOOPS_SHARE = 0.3  # of the time, for comparing loops of larger products
_FIRST, _SHORT, _LONG = (
    10,
    500,
    150_000,
)  # changes per point: of a first anneal, of the shortest and of the longest that follow
_LEAST = 20_000  # changes of a first anneal of a small product
_CYCLES = 12  # anneals of a search without a time limit
_HOT, _WARM, _COLD = (0.6, 1.0), (0.25, 0.5), 0.12  # heats, in the price of a read from the cheapest level
_LARGE_HEAT = (0.12, 0.04)
_REACH = Reach(block=8, shift=16, swap=32, window=8)


class ProductSearch:
    """One run: programs of orders that look cheap, offered to the search, and better and better ones as long as there is time."""

    def __init__(self, search: Search, orders: ProductOrders) -> None:
        self.search, self.orders = search, orders
        self.rng = np.random.default_rng(search.problem.seed)
        self.layout: Layout | None = None  # the best so far
        self.rate = 0.0  # changes per second

    def run(self, known: Plan | None = None) -> None:
        """Look for orders, then change the best; `known` is a plan of the product to go on from."""
        if known is not None:
            self._go_on(known)
        if len(self.orders.index) <= _FEW:
            self._by_anneals()
        else:
            self._by_bounds()
        self.search.cut_off |= self.search.remaining <= 0

    def _go_on(self, known: Plan) -> None:
        order = self.orders.sums.order_of(known.graph)
        if order is not None:
            problem = self.orders.problem(self.search.problem, np.array(order, np.int64))
            layout = Layout.from_plan(problem, known, left=self._left)
            if layout is not None:
                layout.exchange(self._left)
                self._offer(layout)

    def _left(self) -> float:
        return self.search.remaining

    def _offer(self, layout: Layout) -> None:
        if self.layout is None or layout.energy < self.layout.energy:
            self.layout = layout
            self.search.offer_plan(layout.plan(self.search.problem))

    def _layout(self, order: Ints) -> Layout:
        problem = self.orders.problem(self.search.problem, order)
        return Layout.of(problem, np.arange(len(problem.graph.ops)), _FINE_ROUNDS, self._left)

    def _anneal(self, layout: Layout, rounds: int, hot: float, cold: float) -> Layout:
        """Change a layout's order and routes together; no more than there is time for."""
        search, began = self.search, self.search.elapsed
        if self.rate and search.time_limit is not None:
            rounds = min(rounds, max(100, int(0.9 * self.rate * search.remaining)))
        annealing = ProductAnnealing.of(self.orders, layout)
        unit = float(layout.game.arrays.read.min())
        annealing.run(rounds, unit * hot, unit * cold, int(self.rng.integers(2**20)), _REACH, self._left)
        found = annealing.layout(search.problem)
        found.exchange(self._left)
        self._offer(found)
        if search.elapsed > began + 0.05:
            self.rate = annealing.changes / (search.elapsed - began)
        return found

    # Small products -------------------------------------------------------------------------------------------------

    def _by_anneals(self) -> None:
        """Anneal what every loop begins with for a short time; then the best of these, and the best of all, longer and longer."""
        search, points = self.search, len(self.orders.index)
        starts: list[tuple[float, int, Layout]] = []
        for loops in first_loops(self.orders.sizes):
            layout = self._layout(nested_order(self.orders.index, loops))
            starts.append(
                (self._anneal(layout, max(_LEAST, _FIRST * points), _HOT[0], _COLD).energy, len(starts), layout)
            )
            if search.remaining <= 0 or search.done:
                return
        starts.sort()
        if search.quick:
            return
        rounds, cycle = _SHORT * points, 0
        while search.remaining > 0 and not search.done and (search.time_limit is not None or cycle < _CYCLES):
            if cycle % 3 < 2 or self.layout is None:
                chosen = min(int(self.rng.exponential(1.5)), len(starts) - 1)
                self._anneal(starts[chosen][2], rounds, float(self.rng.uniform(*_HOT)), _COLD)
            else:
                self._anneal(self.layout, rounds, float(self.rng.uniform(*_WARM)), _COLD)
            cycle += 1
            if cycle % 6 == 0:
                rounds = min(4 * rounds, _LONG * points)

    # Large products -------------------------------------------------------------------------------------------------

    def _by_bounds(self) -> None:
        search = self.search
        if self.layout is None:
            layout = self._layout(nested_order(self.orders.index, self._best_loops()))
            layout.exchange(self._left)
            self._offer(layout)
        cycle = 0
        while (
            search.remaining > 0
            and not search.done
            and cycle < (1 if search.quick else _CYCLES if search.time_limit is None else 10**9)
        ):
            assert self.layout is not None
            self._anneal(self.layout, _FIRST * len(self.orders.index), *_LARGE_HEAT)
            cycle += 1

    def _best_loops(self) -> Loops:
        search = self.search
        began, span = search.elapsed, _LOOPS_SHARE * search.remaining
        compared: dict[Loops, float] = {}
        for loops in self._loops(compared):
            compared[loops] = self._bound(loops)
            if search.remaining <= 0 or search.elapsed - began > span:
                break
            if len(compared) >= (_FEW_LOOPS if search.quick else _PATIENCE) and (
                search.quick or search.time_limit is None
            ):
                break
        return min(compared, key=lambda loops: compared[loops])

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
