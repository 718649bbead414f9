"""Explicit games on graphs of thousands of ops: a good plan in near-linear time, then better ones as long as there is time.

Everything here takes time and memory about linear in the graph. Orders are run greedily, with different weights for how far off a
next use is; then op costs are made to look a little different each time, which changes what is evicted, and what helps is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from pebbler.arrays import Floats, Ints
from pebbler.game.machine import Machine
from pebbler.game.moves import COMPUTE, COPY, Moves
from pebbler.game.plan import Plan
from pebbler.referee import pricing
from pebbler.solver.bounds.sampled_moments import large_bounds
from pebbler.solver.capacity import explain_crowding, require_capacity
from pebbler.solver.greedy_plans import GreedyPlanner
from pebbler.solver.kernels.greedy_state import GreedyGame
from pebbler.solver.kernels.lifted_values import find_stays, move_stays, place_stays, price_moves
from pebbler.solver.paging.start_orders import start_orders
from pebbler.solver.problem import Impossible, Problem, Search
from pebbler.solver.products.blocked_orders import offer_blocks
from pebbler.solver.recompute.recompute_problem import RecomputeProblem
from pebbler.solver.recompute.start_sequences import trim
from pebbler.solver.structure.kernels.belady_moves import run_belady
from pebbler.solver.structure.kernels.near_orders import anneal_stretch
from pebbler.solver.structure.order_search import OrderSearch, Way, net_of, try_next, turn_length

__all__ = ["LARGE", "GreedyTurns", "is_large", "offer_greedy", "solve_large"]

# Plans of any order where operands may be anywhere: run in one level, then every value put where it costs least -------


@dataclass(frozen=True)
class PlacedPlanner:
    """Plans of one problem with `operands = "any"`, made from greedy runs with all operands in one level.

    >>> from pebbler import machine, workloads
    >>> planner = PlacedPlanner.of(Problem.of(workloads.note_mlp(), machine("notes-explicit")), 2)
    >>> rows = planner.run(np.arange(15), keen=0.5, remake=True, seed=0)
    >>> from pebbler.referee.judgement import check
    >>> planner.price(rows) == check(planner.plan_of(rows)).energy
    True
    """

    problem: Problem
    level: int
    greedy: GreedyPlanner

    @classmethod
    def of(cls, problem: Problem, level: int, *, fast_params: bool = False) -> PlacedPlanner | None:
        """Return the planner that works in a level; None where something starts above it."""
        flow, machine = problem.graph.dataflow, problem.machine
        if any(levels and min(levels) < level for levels in problem.start_choices().values()):
            return None
        below = Machine(machine.name, machine.unit, machine.level[level:])
        greedy = GreedyPlanner.of(replace(problem, machine=below), fast_params=fast_params)
        cost = flow.op_cost.astype(np.float64)
        for rows, price in ((flow.op_reads, below.level[0].read), (flow.op_writes, below.level[0].write)):
            op = np.repeat(np.arange(flow.ops), np.diff(rows.start))
            np.add.at(cost, op, price * flow.value_size[rows.items])
        return cls(problem, level, replace(greedy, game=greedy.game._replace(cost=cost)))

    @property
    def game(self) -> GreedyGame:
        """The game with all operands in one level."""
        return self.greedy.game

    def run(
        self,
        order: Ints,
        *,
        keen: float,
        remake: bool,
        seed: int,
        costs: Floats | None = None,
        bound: float = np.inf,
        seconds: float = np.inf,
    ) -> Ints | None:
        """Return the moves of an order as `GreedyPlanner.run` does; `bound` is of the copies before values are lifted."""
        rows = self.greedy.run(order, keen=keen, remake=remake, seed=seed, costs=costs, bound=bound, seconds=seconds)
        return None if rows is None else self._lifted(rows)

    def belady(self, order: Ints) -> Ints | None:
        """Return the moves of an order as `GreedyPlanner.belady` does."""
        rows = self.greedy.belady(order)
        return None if rows is None else self._lifted(rows)

    def _lifted(self, rows: Ints) -> Ints:
        flow, machine, game = self.problem.graph.dataflow, self.problem.machine, self.game
        rows = rows.copy()
        rows[:, 2] += self.level
        rows[rows[:, 0] == COPY, 3] += self.level
        stays = find_stays(
            rows, self.level, (game.start & 1).astype(np.bool_), game.r_start, game.r_items, game.w_start, game.w_items,
            game.d_start, game.d_items,
        )  # fmt: skip
        read, write = pricing.prices(machine, "read"), pricing.prices(machine, "write")
        single = np.diff(flow.op_writes.start) == 1
        placed, given_up = place_stays(
            rows, self.level, stays, game.size, single, pricing.capacities(machine), read, write
        )
        return rows if len(stays.value) == 0 else move_stays(rows, self.level, stays, placed, given_up)

    def price(self, rows: Ints) -> float:
        """Return the cost of the moves."""
        flow, game, machine = self.problem.graph.dataflow, self.game, self.problem.machine
        return float(
            price_moves(
                rows,
                game.start << self.level,
                game.size,
                flow.op_cost,
                flow.op_reads.start,
                flow.op_reads.items,
                game.w_start,
                game.w_items,
                game.d_start,
                game.d_items,
                pricing.prices(machine, "read"),
                pricing.prices(machine, "write"),
            )
        )

    def plan_of(self, rows: Ints) -> Plan:
        """Return the plan of the moves."""
        flow, kind = self.problem.graph.dataflow, rows[:, 0]
        subject = np.where(kind == COMPUTE, rows[:, 1], flow.value_tensor[np.where(kind == COMPUTE, 0, rows[:, 1])])
        moves = Moves.numbered(self.problem.graph, self.problem.machine, kind, subject, rows[:, 2], rows[:, 3])
        return self.problem.plan(moves, self.greedy.start)


# Explicit games on graphs of thousands of ops: a good plan in near-linear time, then better ones as l ----------


@dataclass(frozen=True)
class _Setting:
    """The parameters of a run of an order: the weight of the distance to the next use, whether ops rerun, at what cost."""

    keen: float
    remake: bool
    factor: float | Floats
    seed: int = 0
    belady: bool = False  # by Belady's rule instead


Planner = GreedyPlanner | PlacedPlanner
LARGE = {1: 4_000, 2: 2_000}  # ops from which on whole-graph searches take too long, by the number of levels
_KEEN = (0.5, 1.0, 0.0, 0.25, 0.75, 2.0)  # how much the distance of the next use counts
# First runs: keenness, and how many times their cost ops seem to cost. A value is not made again alone but with what that takes
# from others, which the price of one run does not show. Infinite: nothing is made again, which is quick and nearly Belady's rule.
_FIRST = ((1.0, np.inf), (0.5, 1.0), (1.0, 5.0))
_COSTLIEST = 5.0
# Runs of the best order from structure.
_ORDERED = (
    _Setting(1.0, False, 5.0, belady=True),
    _Setting(1.0, False, 5.0),
    _Setting(0.5, True, 1.0),
    _Setting(1.0, True, 5.0),
)
_TRIES = 12  # orders and weights before a search that has other things to do gives up finding a plan
_SHARE = 0.3  # of the time, for orders from the start
_FIRST_SHARE = 0.15  # of the time, for a run while there is no plan
_IDLE = 6  # rounds without a gain after which a search that has other things to do ends
_SHORTEST_TURN, _SLOW = 0.1, 0.1  # of turns, and of the time for greedy runs where Belady's rule is better
_PATIENT_ISLANDS = 10  # of blocks that bring nothing
_QUICKER = 10  # times as many orders by Belady's rule as greedy runs take the same time
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
    """Offer greedy runs, and variations of the best until some have brought nothing; `GreedyTurns` can go on from there."""
    solver = _GreedySolver(search, seconds_left, patient=False)
    search.interim = solver
    solver.explore()
    solver.alternate()


class GreedyTurns:
    """Greedy runs and orders from structure in turns: each goes on from the last one, the first from `offer_greedy`.

    >>> from pebbler import machine, workloads
    >>> search = Search(Problem.of(workloads.chain(20), machine("red-blue")))
    >>> GreedyTurns(search).take(lambda: 10.0 - search.elapsed if search.best is None else 0.0)
    True
    """

    def __init__(self, search: Search) -> None:
        self.search = search
        self.solver = search.interim if isinstance(search.interim, _GreedySolver) else None

    def take(self, seconds_left: Callable[[], float]) -> bool:
        """Search on for some time; return whether there is more to do."""
        if self.solver is None:
            self.solver = _GreedySolver(self.search, seconds_left, patient=True)
            self.solver.explore()
        self.solver.patient = True
        self.solver.go_on(seconds_left)
        return self.solver.best is not None


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


class _GreedySolver:
    """One run of the solver: the best moves so far, and the settings that led to them."""

    def __init__(self, search: Search, seconds_left: Callable[[], float], *, patient: bool) -> None:
        self.search, self.problem, self.seconds_left, self.patient = search, search.problem, seconds_left, patient
        self.ends = search.elapsed + _SHARE * seconds_left()  # of orders from the start
        self.price = float("inf")
        self.rows: Ints | None = None
        self.best: tuple[Planner, Ints, _Setting] | None = None
        self.orders: OrderSearch | None = None
        self.rng = np.random.default_rng(search.problem.seed)

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
        if planner is not None and not self.search.done and self._time_for_starts():
            self.order(planner)
        for number, (order, setting) in enumerate(self._starts()):
            planner = self.best[0] if self.best is not None else planner
            if planner is None or self.search.done or not self._time_for_starts():
                return
            if self.rows is None and number >= _TRIES:
                return
            self.attempt(planner, order, setting)

    def run(self) -> None:
        """Offer a first plan at once, then bounds, simple plans, orders and variations."""
        search = self.search
        crowded = explain_crowding(self.problem)
        if crowded is not None:
            raise Impossible(crowded)
        planner = self.begin()
        search.raise_bound(float(self.problem.graph.dataflow.op_cost.sum()), "every op runs at least once")
        if search.time_limit == 0:
            search.cut_off = True
            return
        _raise_bounds(search)
        if search.remaining > 0 and not search.done and planner is not None:
            self.order(planner)
        paged = isinstance(planner, GreedyPlanner) and len(self.problem.machine.level) > 1
        if search.remaining > 0 and not search.done and paged:
            end = search.elapsed + 0.1 * search.remaining
            offer_blocks(search, lambda: min(search.remaining, end - search.elapsed))
        for order, setting in self._starts():
            planner = self.best[0] if self.best is not None else planner
            if planner is None or search.done or search.remaining <= 0:
                break
            if self.rows is not None and not self._time_for_starts():
                break
            self.attempt(planner, order, setting)
        if self.rows is None and search.best is None and planner is not None:
            require_capacity(self.problem)
            self.insist(planner)
        if not search.done:
            self.improve()
        search.cut_off |= search.remaining <= 0 and not search.done

    # Orders from structure ------------------------------------------------------------------------------------------

    def order(self, planner: Planner) -> None:
        """Look for orders from the structure of the graph, and run the best of them."""
        game = RecomputeProblem.of(self.problem) if len(self.problem.machine.level) == 1 else None
        planners = [planner]
        if game is None and len(planner.game.capacity) == 1:
            # In the last level nothing has to leave, so its price knows no order; but what can be lifted depends on it.
            bounded = [one for one in _planners(self.problem) if len(one.game.capacity) > 1]
            if not bounded:
                return
            planner = bounded[0]
            planners.insert(0, planner)
        room, ends = float(planner.game.capacity[0]), self.search.elapsed + _SHARE * self.seconds_left()

        def price(order: Ints, bound: float) -> float:
            if game is not None:
                return float(game.measure(order).over)
            return float(run_belady(planner.game, order, 0, bound)[1])

        def time_left() -> float:
            fits = game is not None and self.orders is not None and self.orders.price == 0
            return 0.0 if fits else min(self.seconds_left(), ends - self.search.elapsed)

        flow = self.problem.graph.dataflow
        net = net_of(flow)

        def nearby(
            order: Ints, low: int, high: int, beyond: int, rounds: int, heat: float, seed: int
        ) -> tuple[Ints, float]:
            found, gain = anneal_stretch(planner.game, net, order, low, high, beyond, rounds, heat, seed)
            return np.asarray(found), float(gain)

        self.orders = orders = OrderSearch(
            flow, [room], price, time_left, self.problem.seed, nearby if game is None else None
        )
        if self.patient:
            orders.explore(_PATIENT_ISLANDS)
        else:
            orders.explore()
        if game is not None:
            if orders.price > 0 and self.rows is None:
                orders.improve(12 * turn_length(flow.ops))
            if orders.price == 0:
                self.search.offer(game.moves(orders.best))
        for one, setting in product(planners, _ORDERED):
            if not self.search.done and self.seconds_left() > 0:
                self.attempt(one, orders.best, setting)

    def insist(self, planner: Planner) -> None:
        """Go on looking for a plan where none has been found, as long as there is time: orders that need less, then reruns."""
        orders, tries = self.orders, 0
        while orders is not None and self.rows is None and self.search.best is None and self.search.remaining > 0:
            if not self.patient and tries >= _TRIES:
                return
            orders.seconds_left = lambda: self.search.remaining
            orders.improve(turn_length(self.problem.graph.dataflow.ops))
            if orders.price == 0:
                self.search.offer(RecomputeProblem.of(self.problem).moves(orders.best))
                return
            keen, factor = float(self.rng.uniform(0.0, 2.0)), float(np.exp(self.rng.normal(0.0, 1.0)))
            self.attempt(planner, orders.best, _Setting(keen, True, factor, int(self.rng.integers(2**31))))
            tries += 1

    def reorder(self, tries: int) -> bool:
        """Reorder stretches of the best order, priced by the same rule as its plan; return whether that helped."""
        if self.orders is None or self.best is None:
            return False
        planner, order, setting = self.best
        costs = planner.game.cost * setting.factor

        def price(order: Ints, bound: float) -> float:
            if setting.belady and isinstance(planner, GreedyPlanner):
                return float(run_belady(planner.game, order, 0, bound)[1])
            rows = self._run(planner, order, setting, costs, bound)
            return float("inf") if rows is None else planner.price(rows)

        orders = self.orders
        orders.best, orders.price, orders.pricing = order, self.price, price
        orders.seconds_left = self.seconds_left
        return orders.improve(tries) and self.attempt(planner, orders.best, setting)

    def improve(self) -> None:
        """Go on from the best moves."""
        if len(self.problem.machine.level) == 1 and self.rows is not None:
            game = RecomputeProblem.of(self.problem)
            sequence = trim(game, self.rows[self.rows[:, 0] == COMPUTE, 1])
            if game.arrays.cost[sequence].sum() < self.search.energy:
                self.search.offer(game.moves(sequence))
        self.alternate()

    def go_on(self, seconds_left: Callable[[], float]) -> None:
        """Alternate while there is time in this turn."""
        self.seconds_left = seconds_left
        self.alternate()

    def alternate(self) -> None:
        """Alternate between changes of orders and of assumed costs until time is up; turns without a gain become shorter.

        A patient search gives each the more seconds the more it gains in one; otherwise all have as many turns.
        """
        search, idle = self.search, 0

        def turn(change: Callable[[int], object], length: int, prior: float) -> Way:
            weight = 1.0

            def run() -> float:
                nonlocal weight
                before, began = self.price, search.elapsed
                change(math.ceil(weight * length))
                weight = min(1.0, 2 * weight) if self.price < before else max(_SHORTEST_TURN, 0.7 * weight)
                return search.elapsed - began if self.patient else 1.0

            return Way(run, prior)

        # By Belady's rule an order is priced much sooner than a greedy run is made.
        quick = self.patient and self.best is not None and self.best[2].belady
        length = turn_length(self.problem.graph.dataflow.ops)
        ways = [turn(self.vary, 1 if quick else length, _SLOW if quick else 1.0)]
        if self.orders is not None:
            ways.insert(0, turn(self.reorder, length * _QUICKER if quick else length, 1.0))
        while self.best is not None and not search.done:
            if self.seconds_left() <= 0:
                search.cut_off = True
                return
            if idle >= _IDLE and not self.patient:
                return
            before = self.price
            try_next(ways, lambda: self.price)
            idle = 0 if self.price < before else idle + 1

    def _time_for_starts(self) -> bool:
        return self.seconds_left() > 0 and self.search.elapsed < self.ends

    def _starts(self) -> Iterator[tuple[Ints, _Setting]]:
        orders = start_orders(self.problem.graph)
        if self.orders is not None:
            orders = [self.orders.best, *orders]
        for seed, keen, order in product(range(2), _KEEN, orders):
            best = _Setting(keen, True, 1.0) if self.best is None else self.best[2]
            yield order, replace(best, keen=keen, seed=self.problem.seed + seed, belady=False)

    def _run(self, planner: Planner, order: Ints, setting: _Setting, costs: Floats, bound: float) -> Ints | None:
        if setting.belady:
            return planner.belady(order)
        # What values lifted afterwards will cost is not known yet.
        bound = bound if isinstance(planner, GreedyPlanner) else np.inf
        # Where little fits, a run that makes values again and again may take minutes; others may do better then.
        seconds = (1.0 if self.rows is not None else _FIRST_SHARE) * self.seconds_left()
        keen, remake, seed = setting.keen, setting.remake, setting.seed
        return planner.run(order, keen=keen, remake=remake, seed=seed, costs=costs, bound=bound, seconds=seconds)

    def attempt(self, planner: Planner, order: Ints, setting: _Setting) -> bool:
        """Run an order greedily, and offer its plan if it is the best; return whether it is."""
        rows = self._run(planner, order, setting, planner.game.cost * setting.factor, self.price)
        price = float("inf") if rows is None else planner.price(rows)
        if rows is None or price >= self.price * (1 - 1e-12):
            return False
        self.rows, self.price, self.best = rows, price, (planner, order, setting)
        if price < self.search.energy:
            self.search.offer_plan(planner.plan_of(rows))
        return True

    def vary(self, tries: int) -> None:
        """Vary the assumed costs of some ops, or of all, `tries` times, and keep changes that make the plan cheaper."""
        search, rng, longest = self.search, self.rng, 0.0
        for _ in range(tries):
            if self.best is None or search.done:
                return
            if self.seconds_left() <= 1.5 * longest:
                search.cut_off = True
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
            self.attempt(planner, order, _Setting(keen, remake, factor, int(rng.integers(2**31))))
            longest = max(longest, search.elapsed - began)
