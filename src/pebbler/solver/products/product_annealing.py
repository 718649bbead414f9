"""Orders and layouts of a product changed together: an annealing over both, from a layout that is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pebbler.arrays import Ints
from pebbler.game.dataflow import NONE
from pebbler.solver.layout.kernels.reordering import CheapestOrder, Cooling, OrderArrays, Reach, reorder
from pebbler.solver.layout.kernels.rerouting import take_all
from pebbler.solver.layout.kernels.room import empty_room
from pebbler.solver.layout.kernels.value_route import Routes, scratch_for
from pebbler.solver.layout.layout_arrays import LayoutGame
from pebbler.solver.layout.layout_search import Layout, Left, endless
from pebbler.solver.problem import Problem
from pebbler.solver.products.product_orders import ProductOrders

__all__ = ["ProductAnnealing"]

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
