"""Caches under graphs of thousands of ops: orders with reruns in near-linear time, then better ones as long as there is time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np

from pebbler.arrays import Floats, Ints
from pebbler.game.dataflow import NONE
from pebbler.game.machine import Level, Machine
from pebbler.game.moves import COMPUTE, Moves
from pebbler.referee import pricing
from pebbler.referee.kernels.cache_price import price
from pebbler.referee.kernels.reachability import mark_reachable
from pebbler.referee.pricing import cache_game
from pebbler.solver.bounds import Bound, product_bounds
from pebbler.solver.bounds.priced_room import cheapest_excess
from pebbler.solver.bounds.ranked_starts import rank_costs
from pebbler.solver.greedy_plans import GreedyPlanner
from pebbler.solver.paging.start_orders import start_orders
from pebbler.solver.problem import Problem, Search
from pebbler.solver.structure.order_search import OrderSearch, Way, try_next, turn_length

__all__ = ["LARGE_CACHE", "is_large_cache", "raise_and_rerun", "rerun_on", "reruns_pay", "solve_large_cache"]

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
_STARTS = 0.15  # of the time, for reruns in program order
_ORDERS = 0.5  # of the time, until orders from structure have been looked at
_NEAR = 1.1  # times as much as with reruns, up to which orders without them are looked for
_FAR = 2.0  # times as much as with reruns, at which orders without them get less of that
_IDLE = 3  # rounds without a gain after which a search that has other things to do ends
_SPREAD = 0.3  # how far a variation of the costs goes, as a logarithm


def is_large_cache(problem: Problem) -> bool:
    """Return whether a problem is one for `solve_large_cache`: then its graph is taken as it is."""
    return problem.machine.management != "explicit" and len(problem.graph.ops) > LARGE_CACHE


def reruns_pay(problem: Problem, *, as_it_is: bool) -> bool:
    """Return whether orders with reruns are tried: for graphs that are not cut and have too many orders to try all."""
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
        search.raise_bound(bound.value, bound.proof, bound.certificate if search.as_it_is else None)
    search.interim = solver = _RerunSearch(search, seconds_left, patient)
    solver.run()


def rerun_on(search: Search) -> None:
    """Go on with orders and reruns of a graph as it is until a plan is proven or time is up; without a limit nothing happens.

    >>> from pebbler import machine, workloads
    >>> from pebbler.solver.problem import Problem
    >>> search = Search(Problem.of(workloads.mlp(n=2, hidden=8), machine("notes")), 0.3)
    >>> rerun_on(search)
    >>> search.energy <= 3575, search.cut_off
    (True, True)
    """
    if search.time_limit is None:
        return
    known = search.interim
    solver = known if isinstance(known, _RerunSearch) else _RerunSearch(search, lambda: search.remaining, patient=True)
    if solver is not known:
        solver.run()
    else:
        solver.go_on(lambda: search.remaining)
    search.cut_off |= search.remaining <= 0 and not search.done


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
        """Try settings in program order, the best of them in other orders, then variations of the best."""
        problem, plain = self.problem, np.ones(len(self.problem.graph.ops))
        began, limit = self.search.elapsed, self.seconds_left()
        orders, settings = [np.arange(len(problem.graph.ops))], product(_SHARES, _KEEN, _CARE, self.planners)

        def start(end: float) -> None:
            while not self._over() and self.search.elapsed <= end and (one := next(settings, None)) is not None:
                share, keen, care, planner = one
                self.attempt(planner, orders[0], RerunSetting(share, keen, care, plain, problem.seed))
                if self.offering == 0.0:
                    self.offer()

        start(began + _STARTS * limit)
        if not self._over():
            self.order(began + _ORDERS * limit)
            if self._without_reruns_is_far():
                start(self.search.elapsed + _STARTS * limit)
        orders = orders if self._over() else start_orders(problem.graph)
        for order in orders[1:]:
            if (energy := float(price(self.game, order))) < min(self.energy, self.search.energy):
                self.energy, self.sequence = energy, order
            if self.orders is not None:  # stretches of it are reordered from here on
                self.orders.offer(order)
            if self.best is not None and not self._over():
                self.attempt(self.best[0], order, self.best[2])
            if self._over():
                break
        self.offer()
        self.alternate()
        self.offer()

    def order(self, end: float) -> None:
        """Look for orders from the structure of the graph, then make reruns in the best of them."""
        rooms = np.cumsum(pricing.capacities(self.problem.machine)[:-1]).astype(np.float64)

        sooner = self.search.elapsed + 0.3 * (end - self.search.elapsed)

        def seconds_left() -> float:
            until = sooner if self._without_reruns_is_far() else end
            return min(self.seconds_left() - 2 * self.offering, until - self.search.elapsed)

        def energy(order: Ints, bound: float) -> float:
            return float(price(self.game, order))

        flow = self.problem.graph.dataflow
        self.orders = OrderSearch(flow, rooms.tolist(), energy, seconds_left, self.problem.seed)
        self.orders.explore()
        self._take_order()

    def _without_reruns_is_far(self) -> bool:
        """Return whether orders from structure are far from what reruns have come to."""
        return self.orders is not None and self.orders.price > _FAR * self.energy

    def _take_order(self) -> None:
        """Keep the best order from structure, and try reruns in it."""
        assert self.orders is not None
        if self.orders.price < min(self.energy, self.search.energy):
            self.energy, self.sequence = self.orders.price, self.orders.best
        plain = RerunSetting(1.0, 0.5, 1.0, np.ones(len(self.orders.best)), self.problem.seed)
        for planner in self.planners[:1] if self.best is None else [self.best[0]]:
            if not self._over():
                self.attempt(planner, self.orders.best, plain if self.best is None else self.best[2])

    def go_on(self, seconds_left: Callable[[], float]) -> None:
        """Search until this time is up, from the best order that others have found since where that is better."""
        self.seconds_left, self.patient = seconds_left, True
        best = self.search.best
        if self.orders is not None and best is not None and best.source is None:
            order = np.asarray(best.moves.order, np.int64)
            if len(order) == len(self.problem.graph.ops):
                self.orders.offer(order)
        self.alternate()
        self.offer()

    def alternate(self) -> None:
        """Alternate between changes of the order and of the assumed costs of reruns until time is up or nothing improves.

        A patient search gives each the more seconds the more it gains in one; otherwise both have as many turns.
        """
        idle, offered, tries = 0, self.search.elapsed, turn_length(self.problem.graph.dataflow.ops)

        def turn(change: Callable[[int], object]) -> Way:
            def run() -> float:
                began = self.search.elapsed
                change(tries)
                return self.search.elapsed - began if self.patient else 1.0

            return Way(run)

        reorder, vary = turn(self.reorder), turn(self.vary)
        while not self.search.done:
            if self._over():
                self.search.cut_off = True
                return
            if idle >= 2 * _IDLE and not self.patient:
                return
            before, orders = self.energy, self.orders
            ways = [reorder] if orders is not None and orders.price <= _NEAR * self.energy else []
            ways += [vary] if self.best is not None or not ways else []
            try_next(ways, lambda: min(self.energy, self.search.energy))
            idle = 0 if self.energy < before else idle + 1
            if self.search.elapsed - offered > 1 + 10 * self.offering:
                self.offer()
                offered = self.search.elapsed

    def reorder(self, tries: int) -> None:
        """Reorder stretches of the best order without reruns, and try reruns in what gets cheaper."""
        assert self.orders is not None
        self.orders.seconds_left = lambda: self.seconds_left() - 2 * self.offering
        if self.orders.improve(tries):
            self._take_order()

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
        sequence = planner.sequence(order, setting, self.seconds_left())
        energy = float("inf") if sequence is None else float(price(self.game, sequence))
        if sequence is None or energy >= self.energy * (1 - 1e-12):
            return False
        self.energy, self.sequence, self.best = energy, sequence, (planner, order, setting)
        return True

    def vary(self, tries: int) -> None:
        """Vary the assumed costs of some ops and the room `tries` times, and keep changes that make the order cheaper."""
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


# Orders with reruns for caches: what a careful runtime would make again instead of waiting for it, found by a greedy run
# A cache decides by itself what it keeps; an order decides what it is asked for. The greedy planner of explicit games is given a
# machine of two levels, the cache down to the end of one level and all that lies below, and the ops of its plan, reruns included,
# are an order. The cache's own rule prices it.


@dataclass(frozen=True)
class RerunSetting:
    """The parameters of a greedy run."""

    share: float  # of the room above the boundary
    keen: float  # how much the distance of the next use counts
    care: float  # how much of what a rerun touches counts as its cost
    factor: Floats  # per op: its cost is made to look this many times as high
    seed: int


@dataclass(frozen=True)
class RerunPlanner:
    """Orders for one boundary of a cache: above it are the levels down to `level`."""

    planner: GreedyPlanner
    touched: Floats  # per op: what its touches cost in the fastest level
    reach: int  # units above the boundary
    least: int  # units that the ops need at once, at most

    @classmethod
    def of(cls, problem: Problem, level: int) -> RerunPlanner:
        """Return the planner of the boundary below `level`; crossing it costs the cache's charge beyond its fastest level.

        >>> from pebbler import machine, workloads
        >>> planner = RerunPlanner.of(Problem.of(workloads.mlp(n=2, hidden=8), machine("notes")), 0)
        >>> planner.reach, planner.least
        (64, 48)
        """
        flow, machine = problem.graph.dataflow, problem.machine
        read, write = pricing.prices(machine, "read"), pricing.prices(machine, "write")
        reach = int(np.cumsum(pricing.capacities(machine)[:-1])[level])
        slow = Level("slow", max(0.0, float(read[level + 1] - read[0])), float(write[1 : level + 2].sum()))
        two = Machine("boundary", machine.unit, (Level("fast", 0, 0, capacity=reach), slow))
        planner = GreedyPlanner.of(Problem(problem.graph, two, False))
        touched = np.zeros(flow.ops)
        room = np.zeros(flow.ops, np.int64)
        for rows, cost in ((flow.op_reads, read[0]), (flow.op_writes, write[0])):
            op = np.repeat(np.arange(flow.ops), np.diff(rows.start))
            np.add.at(touched, op, cost * flow.value_size[rows.items])
            np.add.at(room, op, flow.value_size[rows.items])
        return cls(planner, touched, reach, int(room.max(initial=0)))

    def sequence(self, order: Ints, setting: RerunSetting, seconds: float = np.inf) -> Ints | None:
        """Return an order with reruns; None where the greedy run gets stuck, or takes longer."""
        game, room = self.planner.game, max(1, int(setting.share * self.reach))
        capacity = np.array([room, game.capacity[1]], np.int64)
        planner = GreedyPlanner(self.planner.problem, game._replace(capacity=capacity), self.planner.start)
        costs = (game.cost + setting.care * self.touched) * setting.factor
        rows = planner.run(order, keen=setting.keen, remake=True, seed=setting.seed, costs=costs, seconds=seconds)
        return None if rows is None else np.ascontiguousarray(rows[rows[:, 0] == COMPUTE, 1])


# Lower bounds of large graphs on caches, for every order and any recomputation, in time linear in the graph per moment
# The *floor*: every op runs once and touches every line of its operands; a line lies no higher than its own storage is long,
# and one that was never touched lies in the last level. A *moment*: what was made before an op and is read after it cannot all
# lie in the first lines of the stack just then; a line only sinks until it is touched again, so the rest is read from below,
# after having been written back there, or its maker runs again. `docs/tiling.md` has the proof.


_MOMENTS = 48


def cache_bounds(problem: Problem, seconds_left: Callable[[], float]) -> list[Bound]:
    """Return lower bounds for every plan of the graph as it is on a cache, as far as time allows.

    >>> from pebbler import machine, workloads
    >>> problem = Problem.of(workloads.mlp(), machine("notes"), steady=False)
    >>> [round(bound.value) for bound in cache_bounds(problem, lambda: 1.0)]
    [21094250]
    """
    floor_proof = "every op runs once, and no line lies higher than its storage is long"
    floor = _Floor(problem)
    if floor.ranked:  # what dies leaves the ranking, so a tensor may rise without being touched
        best = Bound(problem.scale.lowered(float(floor.runs().sum())), floor_proof)
        if seconds_left() <= 0 or (beyond := rank_costs(problem)) <= 0:
            return [best]
        found = problem.scale.lowered(float(floor.runs().sum()) + beyond)
        return [Bound(found, f"{floor_proof}; start values stay in the ranking, above what they were touched after")]
    best = Bound(problem.scale.lowered(floor.total()), floor_proof)
    for level in range(len(problem.machine.level) - 1):
        extra = floor.extra(level)
        for op in floor.moments(extra):
            if seconds_left() <= 0:
                break
            found = problem.scale.lowered(floor.total() + floor.gain(op, extra, level))
            if found > best.value:
                names = " and ".join(problem.machine.names[: level + 1])
                best = Bound(
                    found, f"{floor_proof}; what is alive across {problem.graph.op_names[op]} cannot all be in {names}"
                )
    return [max([best, *product_bounds(problem)], key=lambda bound: bound.value)]


class _Floor:
    """One graph on one cache; arrays are per value."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.flow = problem, problem.graph.dataflow
        machine, flow = problem.machine, self.flow
        self.read, self.store = pricing.prices(machine, "read"), pricing.prices(machine, "write")
        self.ranked = machine.management == "recency"
        self.line = 1 if self.ranked else machine.line  # ranks are of whole tensors, in units
        capacity = pricing.capacities(machine)
        self.reach = np.cumsum(capacity[:-1]) // self.line
        self.cheapest = np.minimum.accumulate(self.read[::-1])[::-1]  # of a level or any below it
        lines = -(-flow.tensor_size // self.line)
        if not self.ranked:
            # Tensors of one storage may differ in size; then a touch of the smallest is all that is known.
            least = np.full(len(lines), pricing.UNBOUNDED, np.int64)
            np.minimum.at(least, flow.storage, lines)
            lines = least[flow.storage]
        self.lines = lines[flow.value_tensor]
        self.level = np.searchsorted(self.reach, self.lines, "left")
        self.size = flow.value_size.astype(np.float64)
        self.reads = np.diff(flow.value_readers.start)
        self.price = self.cheapest[self.level]
        self.made = flow.value_maker != NONE
        # Under `recency` a write goes to the first level that holds the tensor.
        fits = np.minimum(np.argmax(flow.value_size[:, None] <= capacity[None, :], axis=1), len(capacity) - 1)
        self.write = self.store[fits] if self.ranked else np.full(flow.values, self.store[0])
        self.stored = np.concatenate([np.zeros(1), np.cumsum(self.store[1:])])  # by level: written back down to it

    def total(self) -> float:
        """Return the floor."""
        flow = self.flow
        energy = float(flow.op_cost.sum()) + float((self.reads * self.size * self.price).sum())
        energy += float((self.size * self.write)[self.made].sum())
        if not self.problem.steady:
            # Nobody has touched a start value before its first read.
            cold = ~self.made & (self.reads > 0)
            energy += float((self.size * (self.read[-1] - self.price))[cold].sum())
        found = self.made & (self.reads > 0)
        return energy + float((self.lines * self.line * self.stored[self.level])[found].sum())

    def runs(self) -> Floats:
        """Return, per op, a lower bound on the cost of a run; a value read twice counts once."""
        flow = self.flow
        floors = flow.op_cost.astype(np.float64)
        readers = np.repeat(np.arange(flow.values), self.reads)
        np.add.at(floors, flow.value_readers.items, (self.size * self.price)[readers])
        np.add.at(floors, flow.value_maker[self.made], (self.size * self.write)[self.made])
        return floors

    def extra(self, level: int) -> Floats:
        """Return the cost beyond its floor of a value that is alive, will be read, and lies below a level at some moment."""
        flow = self.flow
        below = float(self.cheapest[level + 1])
        cost = self.size * np.maximum(0.0, below - self.price)
        sunk = np.maximum(0.0, self.stored[level + 1] - self.stored[self.level])
        cost += np.where(self.made, self.size * sunk, 0.0)
        again = np.full(flow.values, np.inf)
        run = self.runs()
        results = np.diff(flow.op_writes.start)
        maker = flow.value_maker[flow.value_can_be_remade]
        again[flow.value_can_be_remade] = run[maker] / np.maximum(1, results[maker])
        cost = np.minimum(cost, again)
        cost[(self.reads == 0) | (self.size == 0)] = 0.0
        return np.asarray(cost)

    def moments(self, extra: Floats) -> list[int]:
        """Return ops as moments for bounds: spread over program order, and those with the largest possible gain."""
        flow, rows = self.flow, self.flow.value_readers
        alive = extra > 0
        if not alive.any():
            return []
        first = np.where(self.made, flow.value_maker, 0)[alive]
        last = rows.items[rows.start[1:][alive] - 1]
        change = np.zeros(flow.ops + 1)
        np.add.at(change, first, self.size[alive])
        np.add.at(change, last, -self.size[alive])
        held = np.cumsum(change[: flow.ops])
        parts = [part for part in np.array_split(np.arange(flow.ops), _MOMENTS // 2) if len(part)]
        chosen = np.unique([*(part[np.argmax(held[part])] for part in parts), *(part[0] for part in parts)])
        return [int(op) for op in chosen[np.argsort(-held[chosen], kind="stable")]]

    def gain(self, op: int, extra: Floats, level: int) -> float:
        """Return the least cost caused by values alive across an op's first run that are not all above the boundary."""
        flow = self.flow
        ran = mark_reachable(flow.before.start, flow.before.items, op, -1)
        ran[op] = True
        waiting = mark_reachable(flow.after.start, flow.after.items, op, 1)
        alive = (extra > 0) & self.flow.read_by(waiting)
        alive[self.made] &= ran[flow.value_maker[self.made]]
        alive[~self.made] &= self.flow.read_by(ran)[~self.made]
        chosen = np.flatnonzero(alive)
        return cheapest_excess(self.size[chosen], extra[chosen], float(self.reach[level] * self.line))
