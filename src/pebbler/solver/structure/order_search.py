"""The search for an order of the ops: first orders from the structure of the graph, then reordered stretches of the best.

What is best is up to a price that the caller gives. Nothing here knows of FFTs or stencils: walks follow what ops read, a strip is
a piece of one order that runs in another, bisection cuts where few values are on both sides, and blocks of coordinates are varied
until that brings nothing. `docs/paging.md` says more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from pebbler.arrays import Ints
from pebbler.game.dataflow import NONE, Dataflow, Rows
from pebbler.solver.structure.coordinates import Coordinates, Key
from pebbler.solver.structure.kernels.bisection import bisect, simple_orders, strips
from pebbler.solver.structure.kernels.cut_moves import Cutting
from pebbler.solver.structure.kernels.stretch import Net

__all__ = ["OrderSearch", "Way", "net_of", "try_next", "turn_length"]

Price = Callable[
    [Ints, float], float
]  # of an order; anything not below the second argument will do where it costs that or more
# The stretch from the second argument to the third annealed, with so many ops beyond, as `anneal_stretch`.
Nearby = Callable[[Ints, int, int, int, int, float, int], tuple[Ints, float]]
_CUTS = (
    Cutting(0.3, 0.7, 1.0, 0.0, 0.0, 0.0),
    Cutting(0.3, 0.7, 1.0, 0.3, 1.0, 4.0),  # the room is a share of what there is
    Cutting(0.3, 0.7, 1.0, 0.0, 1.0, 1.0),
    Cutting(0.3, 0.7, 1.0, 1.0, 0.0, 0.0),
    Cutting(0.3, 0.7, 1.0, 0.3, 0.6, 1.0),
)
_WALKS = 5  # of `simple_orders`
_SHORTEST = 32  # stretches that are ordered anew; graphs as small are run in blocks as a whole
_LONGEST = 1024  # of those that are annealed
_ROUNDS, _ROUNDS_PER_OP, _HEAT = 100_000, 5, 0.5  # ops that run in annealing a stretch, and its heat at most
_LENIENT = 0.001  # how much more than the best an order may cost to go on from it
_CHANGED = 0.6  # how often the blocks of a stretch are others than those that were good
_BLOCKS = 10  # orders of all ops in blocks at a time
_MEMORY, _FLOOR = 0.8, 0.1  # of what each way to reorder has brought; the share of the work that each has in any case
_KEYS = 8  # the best blocks so far
# Blocks are varied on islands: a few at a time, from new ones, until many orders in a row bring nothing; then from new ones again
# or, now and then, from the best of all islands. The first search for blocks ends after some islands that bring nothing.
_ISLAND, _IDLE_KEYS, _MEETING, _IDLE_ISLANDS = 3, 100, 3, 4
_NEW = 0.3  # how often blocks are drawn instead
_PRICE = 3  # work per touch of a price, where bisection has 1
_RATE = 2e7  # touches a second, until it is known


def turn_length(ops: int) -> int:
    """Return the number of changes per turn of a search that alternates between methods: fewer where each takes longer.

    >>> turn_length(1_000), turn_length(100_000)
    (102, 3)
    """
    return 2 + 200_000 // (ops + 1_000)


def net_of(flow: Dataflow) -> Net:
    """Return ops and the values that they touch in flat form.

    >>> from pebbler.workloads import chain
    >>> net = net_of(chain(2).dataflow)
    >>> net.v_items[net.v_start[0] : net.v_start[1]].tolist()
    [0, 1]
    """
    values = max(flow.values, 1)
    reading = np.repeat(np.arange(flow.ops), np.diff(flow.op_reads.start))
    writing = np.repeat(np.arange(flow.ops), np.diff(flow.op_writes.start))
    pairs = np.unique(np.concatenate([reading * values + flow.op_reads.items, writing * values + flow.op_writes.items]))
    touched = Rows.flat(np.bincount(pairs // values, minlength=flow.ops), pairs % values)
    ops = touched.transposed(flow.values)
    # A temp that both sides touch is stored and loaded; what is below anyway, at the start or at the end, is only loaded.
    size, given = flow.value_size.astype(np.float64), flow.value_maker == NONE
    return Net(
        touched.start, touched.items, ops.start, ops.items,
        flow.before.start, flow.before.items, flow.after.start, flow.after.items,
        size, size * np.where(given | flow.value_must_survive, 1.0, 2.0), flow.value_must_survive, given,
    )  # fmt: skip


@dataclass
class Way:
    """A way to reorder a stretch, the work that it takes and what it has gained, the latest counting most."""

    run: Callable[[], float]
    prior: float = 1.0  # its share while nothing has gained
    spent: float = 0.0
    worked: float = 0.0
    gained: float = 0.0


def try_next(ways: list[Way], price: Callable[[], float]) -> None:
    """Run the way that has had least of its share of the work; the share is by what a way gains for its work."""
    rates = [way.gained / way.worked if way.worked else 0.0 for way in ways]
    total = sum(rates)
    shares = [_FLOOR + (rate / total if total else way.prior) for way, rate in zip(ways, rates, strict=True)]
    way = min(zip(ways, shares, strict=True), key=lambda pair: pair[0].spent / pair[1])[0]
    before, work = price(), way.run()
    for one in ways:
        one.spent *= _MEMORY
    way.spent += work
    way.worked = _MEMORY * way.worked + work
    way.gained = _MEMORY * way.gained + max(0.0, before - price())


class OrderSearch:
    """One run: the cheapest order so far, `best`, and its `price`.

    `rooms` are capacities that orders should be local for: a strip holds no more at once than one of them. `nearby` anneals a
    stretch, where the price is one that can be told from the stretch alone.

    >>> from pebbler.workloads import chain
    >>> search = OrderSearch(chain(3).dataflow, [4.0], lambda order, bound: float(order[0]), lambda: 1.0)
    >>> search.explore()
    >>> search.price
    0.0
    """

    def __init__(
        self,
        flow: Dataflow,
        rooms: Sequence[float],
        price: Price,
        seconds_left: Callable[[], float],
        seed: int = 0,
        nearby: Nearby | None = None,
    ) -> None:
        self.flow, self.rooms, self.pricing, self.seconds_left = flow, list(rooms), price, seconds_left
        self.net = net_of(flow)
        self.touches = _PRICE * len(self.net.v_items)  # the work of the price of an order
        self.rng = np.random.default_rng(seed)
        self.best: Ints = np.arange(flow.ops)
        self.price = float("inf")
        self.now, self.price_now = self.best, self.price
        self.rate, self.longest, self.worked = _RATE, 0.0, 0
        self.coordinates: Coordinates | None = None
        self.keys: list[tuple[float, Key]] = []  # the cheapest first
        self.island: list[tuple[float, Key]] = []
        self.islands = self.idle = 0  # islands before this one, and orders that brought nothing to it
        self.useful: list[Key] = []  # what made stretches cheaper last
        self.nearby = nearby
        ways = [self._run_all_in_blocks]
        if flow.ops > _SHORTEST:
            ways = [self._cut, self._run_in_blocks, *ways]
            ways += [self._cut_strips] * bool(self.rooms) + [self._anneal] * (nearby is not None)
        self.ways = [Way(way) for way in ways]

    def offer(self, order: Ints) -> bool:
        """Take an order if it is the cheapest so far; return whether it is."""
        price = self.pricing(order, self.price)
        if price >= self.price:
            return False
        self.best, self.price = order, price
        return True

    def explore(self, idle: int = _IDLE_ISLANDS) -> None:
        """Try the orders that the structure gives, the simplest first, as long as there is time; `idle` as for `try_blocks`."""
        for order in self._first():
            self.offer(order)
            if self.seconds_left() <= 0:
                return
        self.try_blocks(idle)

    def try_blocks(self, idle: int = _IDLE_ISLANDS) -> None:
        """Vary blocks of coordinates as long as there is time, and until so many islands in a row bring nothing."""
        best, began = self.price, self.islands
        while self.flow.ops > 1 and self.islands - began <= idle and self.seconds_left() > 0 and self.price > 0:
            self.try_block()
            if self.price < best:
                best, began = self.price, self.islands

    def try_block(self) -> None:
        """Try another order by blocks of coordinates."""
        if self.coordinates is None:
            self.coordinates = Coordinates(self.flow, simple_orders(self.net), self.rng)
        if self.idle >= _IDLE_KEYS:
            self.islands, self.idle = self.islands + 1, 0
            self.island = self.keys.copy() if self.islands % _MEETING == 0 else []
        most = _KEYS if self.islands % _MEETING == 0 else _ISLAND
        full = len(self.island) >= most
        if not full or self.rng.random() < _NEW:
            key = self.coordinates.key()
        else:
            key = self.coordinates.changed(self.island[int(self.rng.integers(most))][1])
        order = self.coordinates.order(key, np.arange(self.flow.ops))
        worst = self.island[-1][0] if full else float("inf")
        price = self.pricing(order, worst)
        self.idle += 1
        if price >= worst or any(price == other for other, _ in self.island):
            return
        if not self.island or price < self.island[0][0]:
            self.idle = 0
        self.island = _best_keys([*self.island, (price, key)], most)
        if all(price != other for other, _ in self.keys):
            self.keys = _best_keys([*self.keys, (price, key)], _KEYS)
        if price < self.price:
            self.best, self.price = self.now, self.price_now = order, price

    def _first(self) -> Iterator[Ints]:
        program = np.arange(self.flow.ops)
        yield program
        if self.flow.ops < 2:
            return
        walks = simple_orders(self.net)
        yield from walks[1:]
        for order in (program, walks[1], walks[3]):
            for room, rule in product(self.rooms, range(_WALKS)):
                yield self._strips(order, 0, self.flow.ops, rule, room)
            yield self._bisect(order, 0, self.flow.ops, _CUTS[0])
        for cutting in _CUTS[1:]:
            for room, order in product(self.rooms if cutting.room else [0.0], (program, walks[1])):
                yield self._bisect(order, 0, self.flow.ops, cutting._replace(room=cutting.room * room))

    def _stretch(self) -> tuple[int, int]:
        """Return the ends of a stretch to reorder: short stretches are as frequent as long ones."""
        rng, ops = self.rng, self.flow.ops
        longest = ops if rng.random() < 0.1 else ops / 2
        span = min(ops, int(np.exp(rng.uniform(np.log(_SHORTEST), np.log(max(longest, _SHORTEST + 1))))))
        low = int(rng.integers(0, ops - span + 1))
        return low, low + span

    def improve(self, tries: int) -> bool:
        """Reorder stretches of the best order `tries` times, as time allows; return whether it has become cheaper.

        What has brought most for its work lately gets most of the work to come.
        """
        before = self.price
        self.now, self.price_now = self.best, self.price
        for _ in range(tries if self.flow.ops > 1 else 0):
            if self.price <= 0 or self.seconds_left() <= 1.5 * self.longest:
                break
            began = time.monotonic()
            try_next(self.ways, lambda: self.price)
            self.longest = max(0.9 * self.longest, time.monotonic() - began)
        return self.price < before

    def _cut(self) -> int:
        """Bisect a stretch again; return the work."""
        rng, (low, high) = self.rng, self._stretch()
        room = float(rng.choice(self.rooms)) if self.rooms else 0.0
        room *= float(rng.choice([0.0, rng.uniform(0.3, 1.5)]))
        wide = float(rng.choice([0.0, 1.0, 4.0])) if room else 0.0
        blend = float(rng.choice([0.0, 0.1, 0.3, 1.0]))
        cutting = Cutting(rng.uniform(0.1, 0.45), rng.uniform(0.5, 0.9), 1.0, blend, room, wide)
        self._take(self._bisect(self.now, low, high, cutting))
        return self.worked + self.touches

    def _cut_strips(self) -> int:
        """Run a stretch in strips; return the work."""
        low, high = self._stretch()
        room = float(self.rng.choice(self.rooms)) * self.rng.uniform(0.3, 1.5)
        self._take(self._strips(self.now, low, high, int(self.rng.integers(_WALKS)), room))
        return self.worked + self.touches

    def _anneal(self) -> int:
        """Anneal a short stretch; return the work."""
        assert self.nearby is not None
        ops, rng = self.flow.ops, self.rng
        span = min(ops, int(np.exp(rng.uniform(np.log(_SHORTEST), np.log(_LONGEST)))))
        beyond = span // 2
        low = int(rng.integers(0, ops - span + 1))
        rounds = (_ROUNDS + _ROUNDS_PER_OP * ops) // (span + beyond)
        heat = float(_HEAT * rng.random())
        order, gain = self.nearby(self.now, low, low + span, beyond, rounds, heat, int(rng.integers(2**31)))
        if gain >= 0:
            self._take(order)
        return rounds * (span + beyond) * self.touches // ops

    def _take(self, order: Ints) -> bool:
        """Go on from an order if it costs hardly more than the best; return whether it costs less than the last one."""
        before, most = self.price_now, max(self.price_now, self.price + _LENIENT * abs(self.price))
        price = self.pricing(order, np.nextafter(most, np.inf))
        if price <= most:
            self.now, self.price_now = order, price
        if price <= self.price:
            self.best, self.price = order, price
        return price < before

    def _run_all_in_blocks(self) -> int:
        """Go on with blocks of all ops, some orders at a time; return the work."""
        for _ in range(_BLOCKS):
            self.try_block()
        return _BLOCKS * self.touches

    def _run_in_blocks(self) -> int:
        """Run a stretch in blocks that were good or in such as these; return the work."""
        if self.coordinates is None or not self.keys:
            return self._run_all_in_blocks()
        low, high = self._stretch()
        keys = self.useful if self.useful and self.rng.random() < 0.5 else [key for _, key in self.keys]
        order, key = self.now.copy(), keys[int(self.rng.integers(len(keys)))]
        if self.rng.random() < _CHANGED:
            key = self.coordinates.changed(key)
        order[low:high] = self.coordinates.order(key, order[low:high])
        if self._take(order):
            self.useful = [*self.useful[1 - _KEYS :], key]
        return self.touches

    def _work(self) -> int:
        return int(min(1e15, max(1e5, 0.7 * self.rate * self.seconds_left())))

    def _strips(self, order: Ints, low: int, high: int, rule: int, room: float) -> Ints:
        began, work = time.monotonic(), self._work()
        found, left = strips(self.net, order, low, high, rule, float(room), work)
        self._clock(began, work - left)
        self.worked = work - left
        return np.asarray(found)

    def _bisect(self, order: Ints, low: int, high: int, cutting: Cutting) -> Ints:
        began, work = time.monotonic(), self._work()
        cutting = Cutting(*map(float, cutting))
        found, left = bisect(self.net, order, low, high, cutting, work)
        self._clock(began, work - left)
        self.worked = work - left
        return np.asarray(found)

    def _clock(self, began: float, work: int) -> None:
        """Update the estimate of work per second from a run that took long enough to measure."""
        seconds = time.monotonic() - began
        if seconds > 0.05:
            self.rate = 0.5 * (self.rate + work / seconds)


def _best_keys(keys: list[tuple[float, Key]], most: int) -> list[tuple[float, Key]]:
    return sorted(keys, key=lambda pair: pair[0])[:most]
