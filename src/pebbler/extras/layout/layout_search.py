"""The layout of a fixed order: prices of room first, then values routed into it, then taken out and routed anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pebbler.arrays import Floats, Ints
from pebbler.extras.layout.kernels.rerouting import fill, price_room, reroute, sum_prices, take_all
from pebbler.extras.layout.kernels.value_route import ANYWHERE, Routes, empty_room, scratch_for
from pebbler.extras.layout.layout_arrays import LayoutGame
from pebbler.extras.layout.layout_moves import layout_plan, routes_of
from pebbler.extras.layout.level_exchange import MOST_SWEEPS, can_exchange, exchange_levels
from pebbler.game.plan import Plan
from pebbler.solver.problem import Problem

__all__ = ["Layout", "Left", "endless", "far_routes", "route_all"]

_RATES = (1.0, 0.7, 0.0)  # at which prices of room count when values are first routed
_FAST, _SLOW = 0.5, 0.03  # factors by which prices change in the first and in the last round
_HOT, _COLD = 0.6, 0.1  # of the search, in the price of a read from the cheapest level
_WORK = 200_000_000  # steps of the kernels between two looks at the clock, about a third of a second
_WINDOW = 8  # ops whose values are routed anew together

Left = Callable[[], float]  # how many seconds are left


def endless() -> float:
    return np.inf


@dataclass
class Layout:
    """A layout of an order, with its energy and its bound.

    >>> from pebbler import machine, workloads
    >>> problem = Problem.of(workloads.matmul(2, 2, 2), machine("grid"))
    >>> layout = Layout.of(problem, np.arange(len(problem.graph.ops)))
    >>> layout.improve(2000, seed=0)
    >>> layout.energy, int(layout.plan().start_levels()[0][0] < 4)
    (62.0, 1)
    """

    problem: Problem
    game: LayoutGame
    bound: float  # on layouts of this order, as `price_room` says
    toll: Floats  # prices of room before every slot, summed up
    routes: Routes
    energy: float  # without the costs of ops

    @classmethod
    def of(cls, problem: Problem, order: Ints, rounds: int = 100, left: Left = endless) -> Layout:
        """Return a first layout of an order, after so many rounds of pricing room, fewer if no seconds are left."""
        game = LayoutGame.of(problem, np.ascontiguousarray(order, np.int64))
        bound, toll, routes = _priced(game, _first_prices(game), rounds, left)
        best: tuple[float, Routes] | None = None
        for rate in _RATES:
            if best is not None and left() <= 0:
                break
            found = Routes(*(part.copy() for part in routes))
            energy = route_all(game, toll, rate, found)
            if energy >= 0 and (best is None or energy < best[0]):
                best = energy, found
        if best is None:  # what was routed first is in the way of what waits where it starts
            layout = cls(problem, game, bound, toll, far_routes(game), np.inf)
            layout.improve(1, seed=0)
            return layout
        return cls(problem, game, bound, toll, best[1], best[0])

    def improve(self, rounds: int, seed: int, hot: float = _HOT, cold: float = _COLD, left: Left = endless) -> None:
        """Route values anew so many times, as long as seconds are left."""
        if not len(self.routes.near):  # nothing takes room
            return
        arrays, scratch = self.game.arrays, scratch_for(self.game.arrays)
        unit = float(max(arrays.read.min(), 1e-9 * max(1.0, arrays.read.max())))
        piece = max(100, _WORK // (50 * len(self.routes.near)))
        for number, done in enumerate(range(0, rounds, piece)):
            room = empty_room(self.game.capacity, arrays.slots, len(arrays.size), bool((arrays.size == 1).all()))
            take_all(arrays, scratch, room, self.routes)
            now, then = (unit * hot * (cold / hot) ** (at / rounds) for at in (done, min(rounds, done + piece)))
            count = min(piece, rounds - done)
            draws = seed * 1_000 + number  # each piece has draws of its own
            found = reroute(arrays, scratch, room, self.toll, self.routes, count, now, then, _WINDOW, draws)
            self.energy = float(found)
            if left() <= 0:
                return

    def exchange(self, left: Left = endless, sweeps: int = MOST_SWEEPS) -> None:
        """Give the copies that there are better levels as long as seconds are left, where units, starts and prices allow it."""
        arrays = self.game.arrays
        if can_exchange(arrays):
            self.energy -= exchange_levels(arrays, self.routes, self.game.capacity, left, sweeps)

    @classmethod
    def from_plan(cls, problem: Problem, plan: Plan, rounds: int = 100, left: Left = endless) -> Layout | None:
        """Return the layout of a plan of this problem's graph in its order; None where it is not one that can be gone on from."""
        if plan.graph != problem.graph or len(np.unique(plan.moves.order)) < len(plan.moves.order):
            return None
        game = LayoutGame.of(problem, plan.moves.order)
        routes = routes_of(game, plan)
        if routes is None:
            return None
        bound, toll, _ = _priced(game, _first_prices(game), rounds, left)
        layout = cls(problem, game, bound, toll, routes, 0.0)
        layout.improve(1, seed=0)
        return layout

    def plan(self, source: Problem | None = None) -> Plan:
        """Return the layout as a plan."""
        return layout_plan(self.problem, self.game, self.routes, source)


def _priced(game: LayoutGame, price: Floats, rounds: int, left: Left) -> tuple[float, Floats, Routes]:
    """Return the bound, the prices of room summed up, and routes to be filled in."""
    arrays, scratch = game.arrays, scratch_for(game.arrays)
    toll = np.zeros((len(game.levels), arrays.slots + 1))
    rows = len(arrays.use) * arrays.parts + len(arrays.size)
    routes = Routes(np.zeros(rows, np.int8), np.full(rows, -1, np.int8), np.zeros(len(arrays.size)))
    # A few rounds at a time, so that the clock is looked at several times a second.
    piece = max(2, _WORK // max(1, rows * len(game.levels) ** 2))
    best, kept = -np.inf, price.copy()
    for done in range(0, rounds, piece):
        fast, slow = (_FAST * (_SLOW / _FAST) ** (at / rounds) for at in (done, min(rounds, done + piece)))
        count = min(piece, rounds - done)
        found = float(price_room(arrays, scratch, game.capacity, price, toll, routes, count, fast, slow))
        if found > best:
            best, kept = found, price.copy()
        if left() <= 0:
            break
    sum_prices(kept, toll)
    return best, toll, routes


def route_all(game: LayoutGame, toll: Floats, rate: float, routes: Routes) -> float:
    """Route all values into an empty room, short lives first; return what they cost, a negative number if one finds no room."""
    arrays = game.arrays
    room = empty_room(game.capacity, arrays.slots, len(arrays.size), bool((arrays.size == 1).all()))
    shortest = np.argsort(arrays.end - arrays.first, kind="stable")
    return float(fill(arrays, scratch_for(arrays), room, toll, rate, routes, shortest))


def far_routes(game: LayoutGame) -> Routes:
    """Return routes that always fit: everything is in the last level, or waits for its first use in the level where it starts."""
    arrays = game.arrays
    near = np.full(len(arrays.use) * arrays.parts + len(arrays.size), len(game.levels) - 1, np.int8)
    first = arrays.parts * arrays.use_start[:-1] + np.arange(len(arrays.size))
    fixed = arrays.begin != ANYWHERE
    near[first[fixed]] = arrays.begin[fixed]
    return Routes(near, np.full(len(near), -1, np.int8), np.zeros(len(arrays.size)))


def _first_prices(game: LayoutGame) -> Floats:
    """Return prices of room that fall with the cells before it, as they would if uses were spread evenly."""
    reach = np.cumsum(np.minimum(game.capacity, 2**40)).astype(np.float64)
    price = np.zeros((len(game.levels), game.arrays.slots))
    unit = float(game.arrays.read.max())
    price[:-1] = (unit * 0.5 / len(game.levels) / reach[:-1])[:, None] + 1e-6
    return price
