"""The search for a cheap program of a matrix product: loops give orders to begin with, then order and layout change together.

Loops of large products are compared by the bound that prices of room give for an order (`Layout.bound`): it takes a fraction
of the time of a layout and lies a percent or two below it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pebbler.arrays import Ints
from pebbler.extras.layout.kernels.reordering import CheapestOrder, Cooling, OrderArrays, Reach, reorder
from pebbler.extras.layout.kernels.rerouting import take_all
from pebbler.extras.layout.kernels.value_route import Routes, empty_room, scratch_for
from pebbler.extras.layout.layout_arrays import LayoutGame
from pebbler.extras.layout.layout_search import Layout, Left, endless
from pebbler.extras.layout.product_orders import ProductOrders
from pebbler.game.dataflow import NONE
from pebbler.game.plan import Plan
from pebbler.solver.problem import Problem, Search
from pebbler.solver.products.loop_orders import (
    Loops,
    Slice,
    Slices,
    changed_loops,
    changed_slices,
    first_loops,
    nested_order,
    sliced_order,
)

__all__ = ["ProductAnnealing", "ProductSearch"]

_WORK = 20_000_000  # changes times parts of routes between two looks at the clock, about a quarter of a second


@dataclass
class ProductAnnealing:
    """A layout of a product whose order changes with it."""

    orders: ProductOrders
    problem: Problem  # with the terms in some order
    game: LayoutGame
    order: OrderArrays
    routes: Routes
    toll: np.ndarray
    energy: float
    best: float
    kept: CheapestOrder
    changes: int = 0  # tried so far

    @classmethod
    def of(cls, orders: ProductOrders, layout: Layout) -> ProductAnnealing:
        """Return the annealing that goes on from a layout."""
        game = layout.game
        order = _order_arrays(orders, layout.problem, game)
        routes = Routes(*(part.copy() for part in layout.routes))
        kept = CheapestOrder(routes.near.copy(), routes.far.copy(), order.op_at.copy(), order.reads.copy())
        arrays = game.arrays._replace(
            first=game.arrays.first.copy(), end=game.arrays.end.copy(), use=game.arrays.use.copy()
        )
        game = LayoutGame(arrays, game.values, game.levels, game.capacity, game.order)
        return cls(orders, layout.problem, game, order, routes, layout.toll, layout.energy, layout.energy, kept)

    def run(self, rounds: int, hot: float, cold: float, seed: int, reach: Reach, left: Left = endless) -> None:
        """Change the order so many times, or until no seconds are left."""
        arrays = self.game.arrays
        scratch = scratch_for(arrays)
        room = empty_room(self.game.capacity, arrays.slots, bool((arrays.size == 1).all()))
        take_all(arrays, scratch, room, self.routes)
        piece = max(200, _WORK // len(self.routes.near))
        for done in range(0, rounds, piece):
            count = min(piece, rounds - done)
            now, then = (hot * (cold / hot) ** (at / rounds) for at in (done, done + count))
            cooling = Cooling(count, now, then, seed * 100_003 + done)
            self.best, self.energy = reorder(
                arrays, self.order, scratch, room, self.toll, self.routes, cooling, reach, self.kept, self.best
            )
            self.changes += count
            if left() <= 0:
                return

    def layout(self, source: Problem) -> Layout:
        """Return the best layout; its graph is the source's with the terms in the order in which they are added."""
        flow, names = self.problem.graph.dataflow, self.problem.graph.op_names
        place = np.zeros(flow.ops, np.int64)
        place[self.kept.op_at[1:]] = np.arange(1, flow.ops + 1)
        sums, number = self.orders.sums, _numbers(self.game, flow.values)
        reader = np.full(len(self.game.values), NONE)
        for column in self.kept.reads.T:
            reader[column[column != NONE]] = np.flatnonzero(column != NONE)
        at = {name: i for i, name in enumerate(names)}
        makers = [at[sums.graph.op_names[op]] for op in sums.makers]
        made = number[[flow.op_writes.row(op)[0] for op in makers]]
        terms = np.lexsort((place[makers], place[reader[made]]))
        problem = self.orders.problem(source, terms)
        new = {name: i for i, name in enumerate(problem.graph.op_names)}
        game = LayoutGame.of(problem, np.array([new[names[op]] for op in self.kept.op_at[1:]], np.int64))
        mine = {key: i for i, key in enumerate(_keys(self.problem, self.game))}
        rows, parts = len(self.kept.near), game.arrays.parts
        near, far = np.empty(rows, np.int8), np.empty(rows, np.int8)
        for value, key in enumerate(_keys(problem, game)):
            to, old = parts * game.arrays.use_start[value] + value, mine[key]
            length = parts * (game.arrays.use_start[value + 1] - game.arrays.use_start[value]) + 1
            base = parts * self.game.arrays.use_start[old] + old
            near[to : to + length], far[to : to + length] = (
                self.kept.near[base : base + length],
                self.kept.far[base : base + length],
            )
        layout = Layout(problem, game, 0.0, self.toll, Routes(near, far, np.zeros(len(game.values))), self.best)
        return layout


def _numbers(game: LayoutGame, values: int) -> Ints:
    """Return the numbers that the arrays have for the graph's values, NONE for those that take no room."""
    number = np.full(values, NONE)
    number[game.values] = np.arange(len(game.values))
    return number


def _keys(problem: Problem, game: LayoutGame) -> list[str]:
    """Return a name for every value that it has in every order of the terms: its op's, or its tensor's."""
    flow, graph = problem.graph.dataflow, problem.graph
    return [
        graph.tensor_names[flow.value_tensor[value]]
        if flow.value_maker[value] == NONE
        else graph.op_names[flow.value_maker[value]]
        for value in game.values.tolist()
    ]


def _order_arrays(orders: ProductOrders, problem: Problem, game: LayoutGame) -> OrderArrays:
    flow, graph = problem.graph.dataflow, problem.graph
    ops, values = flow.ops, len(game.values)
    number = _numbers(game, flow.values)
    op_at = np.concatenate([[NONE], game.order])
    place = np.zeros(ops, np.int64)
    place[game.order] = np.arange(1, ops + 1)
    reads, result = np.full((ops, 2), NONE), np.full(ops, NONE)
    maker, reader = np.full(values, NONE), np.full(values, NONE)
    users: list[list[int]] = [[] for _ in range(values)]
    for op in range(ops):
        read = number[flow.op_reads.row(op)]
        for value in read.tolist():
            users[value].append(op)
            if flow.value_maker[game.values[value]] != NONE:
                reader[value] = op
        if op != game.order[-1]:
            reads[op, : len(read)] = read
        for value in number[flow.op_writes.row(op)].tolist():
            result[op], maker[value] = value, op
    use_op = np.array([op for row in users for op in sorted(row, key=lambda op: place[op])], np.int64)
    at = {name: i for i, name in enumerate(graph.op_names)}
    makers = np.array([at[orders.sums.graph.op_names[op]] for op in orders.sums.makers])
    totals, sum_of = np.unique(np.array(orders.sums.sum_of), return_inverse=True)
    group = np.full(ops, NONE)
    group[makers] = sum_of
    by_sum = np.argsort(sum_of, kind="stable")
    start = np.searchsorted(sum_of[by_sum], np.arange(len(totals) + 1))
    return OrderArrays(op_at, place, reads, result, maker, reader, use_op, group, start, makers[by_sum])


_ROUNDS = 40  # of prices, to compare orders
_FINE_ROUNDS = 150  # of prices, before a layout that is kept
_FEW = 1_000  # points up to which loops are compared by what becomes of them
_FEW_LOOPS = 4  # loops that are compared in a quick search
_PATIENCE = 60  # loops that are compared, changes of loops included, where time has no limit
_LOOPS_SHARE = 0.3  # of the time, for comparing loops of larger products
_FIRST = 10  # changes per point of a first anneal
_LEAST = 20_000  # changes of a first anneal of a small product
_SLICES_SHARE, _SLICES = (
    0.25,
    20,
)  # of the time, for slices with loops of their own, and how many where time has no limit
_KEPT = 8  # starts that slices are changed from
_CYCLES = 12  # anneals, or groups of copies, of a search without a time limit
_HOT, _COLD = 0.45, 0.15  # heats of a first anneal, in the price of a read from the cheapest level
_HEATS = (0.18, 0.21, 0.25, 0.29, 0.34, 0.4)  # of copies that exchange heats
_SWEEP = 150  # changes per point between two exchanges of heats
_SHORTEST, _LONGEST = 16, 512  # such exchanges before a group of copies begins elsewhere
_LARGE_HEATS = (0.12, 0.04), (0.2, 0.03)  # of short and of long anneals of a large product
_LONG, _MOST = 80, 120  # changes per point of an anneal that is long, and at the most
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
        """Anneal what loops begin with for a short time; then change the best at several heats at once, for longer and longer."""
        search = self.search
        starts: list[tuple[float, int, Layout]] = []
        for order in self._orders(starts):
            layout = self._layout(order)
            rounds = max(_LEAST, _FIRST * len(order))
            starts.append((self._anneal(layout, rounds, _HOT, _COLD).energy, len(starts), layout))
            if search.remaining <= 0 or search.done:
                return
        starts.sort()
        sweeps, cycle = _SHORTEST, 0
        while (
            search.remaining > 0
            and not search.done
            and not search.quick
            and (search.time_limit is not None or cycle < _CYCLES)
        ):
            chosen = starts[min(int(self.rng.exponential(1.5)), len(starts) - 1)][2]
            if cycle % 3 == 2 and self.layout is not None:
                chosen = self.layout
            self._exchange_heats(chosen, sweeps)
            cycle += 1
            if cycle % 3 == 0:
                sweeps = min(2 * sweeps, _LONGEST)

    def _orders(self, starts: list[tuple[float, int, Layout]]) -> Iterator[Ints]:
        """Yield orders to begin with: loops, and then slices of the outermost index that have loops of their own.

        `starts` has what became of the orders so far.
        """
        search, sizes = self.search, self.orders.sizes
        slices: list[tuple[int, Slices]] = []
        for loops in first_loops(sizes):
            axis = loops[0].axis
            slices.append((axis, tuple(Slice(loops, (bool(i % 2),) * 3) for i in range(sizes[axis]))))
            yield nested_order(self.orders.index, loops)
        began, span = search.elapsed, _SLICES_SHARE * search.remaining
        while not search.quick and (
            search.elapsed - began < span if search.time_limit is not None else len(starts) < len(slices) + _SLICES
        ):
            ranked = sorted(range(len(slices)), key=lambda i: starts[i][:2])[:_KEPT]
            axis, base = slices[ranked[min(len(ranked) - 1, int(self.rng.exponential(1.5)))]]
            slices.append((axis, changed_slices(self.rng, base)))
            yield sliced_order(self.orders.index, *slices[-1])

    def _exchange_heats(self, layout: Layout, sweeps: int) -> None:
        """Change copies of a layout, each at a heat of its own; a hotter copy that is cheaper, or nearly so, goes on colder."""
        unit, piece = float(layout.game.arrays.read.min()), _SWEEP * len(self.orders.index)
        copies = [ProductAnnealing.of(self.orders, layout) for _ in _HEATS]
        for _ in range(sweeps):
            for heat, copy in zip(_HEATS, copies, strict=True):
                copy.run(piece, unit * heat, unit * heat, int(self.rng.integers(2**20)), _REACH, self._left)
                if self.layout is None or copy.best < self.layout.energy:
                    found = copy.layout(self.search.problem)
                    found.exchange(self._left)
                    self._offer(found)
                if self.search.remaining <= 0 or self.search.done:
                    return
            for i in range(len(copies) - 1):
                gain = (copies[i].energy - copies[i + 1].energy) / unit * (1 / _HEATS[i] - 1 / _HEATS[i + 1])
                if gain >= 0 or self.rng.random() < np.exp(gain):
                    copies[i], copies[i + 1] = copies[i + 1], copies[i]

    # Large products -------------------------------------------------------------------------------------------------

    def _by_bounds(self) -> None:
        search = self.search
        if self.layout is None:
            layout = self._layout(nested_order(self.orders.index, self._best_loops()))
            layout.exchange(self._left)
            self._offer(layout)
        cycle, changes = 0, _FIRST  # per point; short anneals slow down where longer and hotter ones still gain
        while (
            search.remaining > 0
            and not search.done
            and cycle < (1 if search.quick else _CYCLES if search.time_limit is None else 10**9)
        ):
            assert self.layout is not None
            self._anneal(self.layout, changes * len(self.orders.index), *_LARGE_HEATS[changes >= _LONG])
            cycle += 1
            if cycle % 3 == 0 and search.time_limit is not None:
                changes = min(2 * changes, _MOST)

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
