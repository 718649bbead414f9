"""The search for a cheap program of a matrix product: loops give orders to begin with, then order and layout change together.

Small changes of the order seldom move values that stay for long to other levels, so levels exchange their copies on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from pebbler.arrays import Ints
from pebbler.extras.layout.kernels.reordering import CheapestOrder, Cooling, OrderArrays, Reach, reorder
from pebbler.extras.layout.kernels.rerouting import take_all
from pebbler.extras.layout.kernels.value_route import Routes, empty_room, scratch_for
from pebbler.extras.layout.layout_arrays import LayoutGame
from pebbler.extras.layout.layout_search import Layout, Left, endless, far_routes, route_all
from pebbler.extras.layout.level_exchange import can_exchange, exchange_levels
from pebbler.extras.layout.product_orders import ProductOrders
from pebbler.game.dataflow import NONE
from pebbler.game.plan import Plan
from pebbler.solver.problem import Problem, Search
from pebbler.solver.products.loop_orders import (
    Loops,
    changed_loops,
    first_loops,
    nested_order,
)

__all__ = ["ProductAnnealing", "ProductSearch"]

_WORK = 200_000_000  # changes times parts of routes between two looks at the clock, about a tenth of a second
_SETTLE, _SETTLE_LEAST = 10, 20_000  # changes per op between two exchanges of levels, and changes at the least


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
        game = _with_gaps(layout.game)
        order = _order_arrays(orders, layout.problem, game)
        routes, energy = Routes(*(part.copy() for part in layout.routes)), layout.energy
        if game.arrays.parts == 2:
            game = _without_updates(game)
            energy = _routed_anew(game, layout.toll, routes)
        kept = CheapestOrder(routes.near.copy(), routes.far.copy(), order.op_at.copy(), order.reads.copy())
        return cls(orders, layout.problem, game, order, routes, layout.toll, energy, energy, kept)

    def run(
        self,
        rounds: int,
        hot: float,
        cold: float,
        seed: int,
        reach: Reach,
        left: Left = endless,
        progress: Callable[[], float] | None = None,
    ) -> None:
        """Change the order so many times, or until no seconds are left.

        The heat falls with the changes, or with the `progress` that is asked for now and then, from 0 to 1, where it ends.
        """
        arrays = self.game.arrays
        scratch = scratch_for(arrays)
        room = empty_room(self.game.capacity, arrays.slots, len(arrays.size), bool((arrays.size == 1).all()))
        take_all(arrays, scratch, room, self.routes)
        pause, settled = max(_SETTLE_LEAST, _SETTLE * len(self.order.place)), 0
        piece = max(200, min(_WORK // len(self.routes.near), pause))
        for done in range(0, rounds, piece):
            count = min(piece, rounds - done)
            share = (done / rounds, (done + count) / rounds) if progress is None else (progress(),) * 2
            if share[0] >= 1:
                return
            now, then = (hot * (cold / hot) ** at for at in share)
            cooling = Cooling(count, now, then, seed * 100_003 + done)
            self.best, self.energy = reorder(
                arrays, self.order, scratch, room, self.toll, self.routes, cooling, reach, self.kept, self.best
            )
            self.changes += count
            settled += count
            if settled >= pause and can_exchange(arrays):
                settled = 0
                self._settle(left)
                room = empty_room(self.game.capacity, arrays.slots, len(arrays.size), bool((arrays.size == 1).all()))
                take_all(arrays, scratch, room, self.routes)
            if left() <= 0:
                return

    def _settle(self, left: Left) -> None:
        """Exchange levels once, which moves copies that stay for long: changes of a few ops seldom do."""
        self.energy -= exchange_levels(self.game.arrays, self.routes, self.game.capacity, left, sweeps=1)
        if self.energy < self.best:
            self.best = self.energy
            self.kept.near[:], self.kept.far[:] = self.routes.near, self.routes.far
            self.kept.op_at[:], self.kept.reads[:] = self.order.op_at, self.order.reads

    def layout(self, source: Problem) -> Layout:
        """Return the best layout; its graph is the source's with the terms in the order in which they are added."""
        flow, names = self.problem.graph.dataflow, self.problem.graph.op_names
        order = self.kept.op_at[self.kept.op_at != NONE]
        place = np.zeros(flow.ops, np.int64)
        place[order] = np.arange(1, flow.ops + 1)
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
        game = LayoutGame.of(problem, np.array([new[names[op]] for op in order], np.int64))
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


def _with_gaps(game: LayoutGame) -> LayoutGame:
    """Return a game with empty positions between its ops, which `order` has as NONE."""
    arrays, ops = game.arrays, len(game.order)
    place = np.concatenate([[0], np.arange(1, ops + 1) + np.arange(ops) * _GAPS // 1]).astype(np.int64)
    slot = np.concatenate([2 * np.repeat(place, 2) + np.tile([0, 1], ops + 1), [2 * place[-1] + 2, 2 * place[-1] + 3]])
    order = np.full(place[-1], NONE)
    order[place[1:] - 1] = game.order
    arrays = arrays._replace(
        slots=int(slot[-1]), first=slot[arrays.first], end=slot[arrays.end - 1] + 1, use=place[arrays.use]
    )
    return LayoutGame(arrays, game.values, game.levels, game.capacity, order)


def _without_updates(game: LayoutGame) -> LayoutGame:
    """Return a game in which every operand stays until its last reader's result is there.

    Beside its operands a result takes the room of the one that it updates. Which of two terms that is depends on which is made
    first, and so on the order, which changes.
    """
    arrays = game.arrays
    read = (np.diff(arrays.use_start) > 0) & (arrays.end < arrays.slots)
    end = arrays.end.copy()
    end[read] = 2 * arrays.use[arrays.use_start[1:][read] - 1] + 2
    return replace(game, arrays=arrays._replace(end=end))


def _routed_anew(game: LayoutGame, toll: np.ndarray, routes: Routes) -> float:
    """Route all values by what they cost alone; return their cost."""
    cost = route_all(game, toll, 0.0, routes)
    if cost >= 0:
        return cost
    far = far_routes(game)  # what was routed first is in the way of what waits where it starts
    routes.near[:], routes.far[:] = far.near, far.far
    return np.inf


def _order_arrays(orders: ProductOrders, problem: Problem, game: LayoutGame) -> OrderArrays:
    flow, graph = problem.graph.dataflow, problem.graph
    ops, values = flow.ops, len(game.values)
    number = _numbers(game, flow.values)
    op_at = np.concatenate([[NONE], game.order])
    place = np.zeros(ops, np.int64)
    place[op_at[op_at != NONE]] = np.flatnonzero(op_at != NONE)
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
    product = np.zeros(ops, np.bool_)
    product[[at[orders.sums.graph.op_names[op]] for op in orders.sums.makers]] = True
    return OrderArrays(op_at, place, reads, result, maker, reader, use_op, product)


_ROUNDS = 40  # of prices, before a layout
_STARTS_SHARE = 0.12  # of the time, for comparing loops
_FEW = 1_000  # points beyond which a quick search compares no loops
_FIRST, _SHORT = 10, 50  # changes per point of a first anneal, of a small product and of a larger one
_LEAST = 20_000  # changes of a first anneal at the least
_CYCLES = 4  # anneals, or groups of copies, of a search without a time limit
_HOT, _COLD = 0.3, 0.06  # heats of an anneal, in the price of a read from the cheapest level
_WARM, _MILD = 0.2, 0.1  # where it begins from a good layout, and from one in the little time that is left
_LAST = 0.95  # of the time that is left, for the changes of the last anneal; then levels exchange copies once more
_FIRST_LONG = 400  # changes per point of the first long anneal; each takes twice as long as the one before it
_FEWEST = 100  # points up to which copies exchange heats
_HEATS = (0.17, 0.21, 0.25, 0.29, 0.33, 0.37, 0.41)  # of these copies
_MELT, _MELTED = 0.6, 1400  # the heat at which they begin, and changes per point until each has its own
_SWEEP = 150  # changes per point between two exchanges of heats
_STALE = 128  # such exchanges, and twice as many as came before, without a cheaper layout: then others begin
_REACH = Reach(block=8, shift=64, window=12)
_GAPS = 0.5  # empty positions per op


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
        resumed = self.layout is not None
        starts = [self.layout] if self.layout is not None else self._by_anneals()
        if not self.search.quick:
            self._search_longer(starts, resumed)
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
        layout = Layout.of(problem, np.arange(len(problem.graph.ops)), _ROUNDS, self._left)
        if len(order) > _FEWEST:
            layout.exchange(self._left, sweeps=1)
        return layout

    def _anneal(self, layout: Layout, rounds: int, hot: float, cold: float, last: bool = False) -> Layout:
        """Change a layout's order and routes together; no more than there is time for, and for all of it if it is the last."""
        search, began, span = self.search, self.search.elapsed, _LAST * self.search.remaining
        if self.rate and search.time_limit is not None and not last:
            rounds = min(rounds, max(100, int(0.9 * self.rate * search.remaining)))
        annealing = ProductAnnealing.of(self.orders, layout)
        unit = _least_price(layout)
        progress = (lambda: (search.elapsed - began) / span) if last else None
        annealing.run(rounds, unit * hot, unit * cold, int(self.rng.integers(2**20)), _REACH, self._left, progress)
        found = annealing.layout(search.problem)
        found.exchange(self._left)
        self._offer(found)
        if search.elapsed > began + 0.05:
            self.rate = annealing.changes / (search.elapsed - began)
        return found

    def _search_longer(self, starts: list[Layout], resumed: bool) -> None:
        """Change starts, the best of them first, until the time is over; larger products for longer and longer."""
        search, points, cycle, ended = self.search, len(self.orders.index), 0, False
        if not self.rate:
            self._anneal(starts[0], _FIRST * points, _WARM, _COLD)  # says how many changes there is time for
        while search.remaining > 0 and not search.done and (search.time_limit is not None or cycle < _CYCLES):
            if points <= _FEWEST:
                self._exchange_heats(starts[cycle % len(starts)], melt=not resumed)
            else:
                rounds, best, other = points * _FIRST_LONG << min(cycle, 20), resumed or cycle % 3 == 2, cycle % 3 == 1
                last = search.time_limit is not None and 3 * rounds > self.rate * search.remaining
                if last:  # and the longest: as many changes as there is time for, however busy the machine is
                    rounds, best, other = 2**40, resumed or ended, False
                chosen = starts[min(int(self.rng.exponential(1.5)), len(starts) - 1) if other else 0]
                if best and self.layout is not None:
                    chosen = self.layout
                self._anneal(chosen, rounds, _MILD if ended else _WARM if best else _HOT, _COLD, last)
                ended |= last
            cycle += 1

    def _by_anneals(self) -> list[Layout]:
        """Return layouts of loops, in the order of their energies after a short anneal."""
        search, points = self.search, len(self.orders.index)
        began, span = search.elapsed, _STARTS_SHARE * search.remaining
        rounds = max(_LEAST, (_FIRST if points <= _FEWEST or search.quick else _SHORT) * points)
        starts: list[tuple[float, int, Loops, Layout]] = []
        for loops in self._loops(starts):
            layout = self._layout(nested_order(self.orders.index, loops))
            starts.append((self._anneal(layout, rounds, _HOT, _COLD).energy, len(starts), loops, layout))
            if search.remaining <= 0 or search.done or search.elapsed - began > span:
                break
            if search.quick and points > _FEW:
                break
        return [layout for _, _, _, layout in sorted(starts, key=lambda start: start[:2])]

    def _loops(self, starts: list[tuple[float, int, Loops, Layout]]) -> Iterator[Loops]:
        """Yield loops to begin with; of larger products then changes of the best, where time has a limit."""
        yield from first_loops(self.orders.sizes)
        tried = {loops for _, _, loops, _ in starts}
        while len(self.orders.index) > _FEWEST and self.search.time_limit is not None and not self.search.quick:
            ranked = sorted(starts, key=lambda start: start[:2])
            changed = changed_loops(self.rng, ranked[min(len(ranked) - 1, int(self.rng.exponential(1.0)))][2])
            if changed not in tried:
                tried.add(changed)
                yield changed

    def _exchange_heats(self, layout: Layout, melt: bool) -> None:
        """Change copies of a layout, each at a heat of its own; a hotter copy that is cheaper, or nearly so, goes on colder.

        If they `melt`, all begin at one heat that is higher. Ends when the best of them has been the same for long.
        """
        points, unit = len(self.orders.index), _least_price(layout)
        copies = [ProductAnnealing.of(self.orders, layout) for _ in _HEATS]
        for heat, copy in zip(_HEATS, copies if melt else (), strict=melt):
            copy.run(_MELTED * points, unit * _MELT, unit * heat, int(self.rng.integers(2**20)), _REACH, self._left)
        sweep, last, best = 0, 0, np.inf
        while sweep < 2 * last + _STALE:
            if min(copy.best for copy in copies) < best:
                last, best = sweep, min(copy.best for copy in copies)
            sweep += 1
            for heat, copy in zip(_HEATS, copies, strict=True):
                copy.run(_SWEEP * points, unit * heat, unit * heat, int(self.rng.integers(2**20)), _REACH, self._left)
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


def _least_price(layout: Layout) -> float:
    """Return the cheapest read that costs anything: heats are multiples of it."""
    prices = layout.game.arrays.read
    return float(min(prices[prices > 0], default=1.0))
