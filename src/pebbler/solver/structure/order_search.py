"""The search for an order of the ops: first orders from the structure of the graph, then reordered stretches of the best.

What is best is up to a price that the caller gives. Nothing here knows of FFTs or stencils: walks follow what ops read, a strip is
a piece of one order that runs in another, bisection cuts where few values are on both sides, and blocks of coordinates are varied
until that brings nothing. `docs/paging.md` says more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np

from pebbler.arrays import Ints
from pebbler.game.dataflow import NONE, Dataflow, Rows
from pebbler.solver.structure.coordinates import Coordinates, Key
from pebbler.solver.structure.kernels.bisection import bisect, simple_orders, strips
from pebbler.solver.structure.kernels.cut_moves import Cutting
from pebbler.solver.structure.kernels.stretch import Net

__all__ = ["OrderSearch", "net_of", "turn_length"]

Price = Callable[
    [Ints, float], float
]  # of an order; anything not below the second argument will do where it costs that or more
_CUTS = (
    Cutting(0.3, 0.7, 1.0, 0.0, 0.0, 0.0),
    Cutting(0.3, 0.7, 1.0, 0.3, 1.0, 4.0),  # the room is a share of what there is
    Cutting(0.3, 0.7, 1.0, 0.0, 1.0, 1.0),
    Cutting(0.3, 0.7, 1.0, 1.0, 0.0, 0.0),
    Cutting(0.3, 0.7, 1.0, 0.3, 0.6, 1.0),
)
_WALKS = 5  # of `simple_orders`
_SHORTEST = 32  # stretches that are ordered anew
_STRIPS = 0.3  # how often a stretch is cut into strips instead of in two
_BLOCKS = 2  # stretches that run in blocks of coordinates, which is quicker, for each one that is cut
_WHOLE = 0.1  # how often all ops do
_KEYS = 8  # the best blocks so far, which are varied
_NEW = 0.3  # how often blocks are drawn instead
_IDLE_KEYS = 150  # orders by blocks that bring nothing before the first search for them ends
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


class OrderSearch:
    """One run: the cheapest order so far, `best`, and its `price`.

    `rooms` are capacities that orders should be local for: a strip holds no more at once than one of them.

    >>> from pebbler.workloads import chain
    >>> search = OrderSearch(chain(3).dataflow, [4.0], lambda order, bound: float(order[0]), lambda: 1.0)
    >>> search.explore()
    >>> search.price
    0.0
    """

    def __init__(
        self, flow: Dataflow, rooms: Sequence[float], price: Price, seconds_left: Callable[[], float], seed: int = 0
    ) -> None:
        self.flow, self.rooms, self.pricing, self.seconds_left = flow, list(rooms), price, seconds_left
        self.net = net_of(flow)
        self.rng = np.random.default_rng(seed)
        self.best: Ints = np.arange(flow.ops)
        self.price = float("inf")
        self.rate, self.longest = _RATE, 0.0
        self.coordinates: Coordinates | None = None
        self.keys: list[tuple[float, Key]] = []  # the cheapest first
        self.useful: list[Key] = []  # what made stretches cheaper last

    def offer(self, order: Ints) -> bool:
        """Take an order if it is the cheapest so far; return whether it is."""
        price = self.pricing(order, self.price)
        if price >= self.price:
            return False
        self.best, self.price = order, price
        return True

    def explore(self) -> None:
        """Try the orders that the structure gives, the simplest first, as long as there is time."""
        for order in self._first():
            self.offer(order)
            if self.seconds_left() <= 0:
                return
        self.try_blocks()

    def try_blocks(self) -> None:
        """Vary blocks of coordinates as long as there is time, and until many in a row bring nothing."""
        idle = 0
        while self.flow.ops > 1 and idle < _IDLE_KEYS and self.seconds_left() > 0 and self.price > 0:
            idle = 0 if self.try_block() else idle + 1

    def try_block(self) -> bool:
        """Try another order by blocks of coordinates; return whether it is one of the best of these."""
        if self.coordinates is None:
            self.coordinates = Coordinates(self.flow, simple_orders(self.net), self.rng)
        full = len(self.keys) == _KEYS
        if not full or self.rng.random() < _NEW:
            key = self.coordinates.key()
        else:
            key = self.coordinates.changed(self.keys[int(self.rng.integers(_KEYS))][1])
        order = Coordinates.order(key, np.arange(self.flow.ops))
        most = self.keys[-1][0] if full else float("inf")
        price = self.pricing(order, most)
        if price >= most or any(price == other for other, _ in self.keys):
            return False
        self.keys = sorted([*self.keys, (price, key)], key=lambda pair: pair[0])[:_KEYS]
        if price < self.price:
            self.best, self.price = order, price
        return True

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

    def changed(self) -> Ints:
        """Return the best order with one stretch bisected again."""
        rng, (low, high) = self.rng, self._stretch()
        room = float(rng.choice(self.rooms)) if self.rooms else 0.0
        if room and rng.random() < _STRIPS:
            return self._strips(self.best, low, high, int(rng.integers(_WALKS)), room * rng.uniform(0.3, 1.5))
        room *= float(rng.choice([0.0, rng.uniform(0.3, 1.5)]))
        wide = float(rng.choice([0.0, 1.0, 4.0])) if room else 0.0
        blend = float(rng.choice([0.0, 0.1, 0.3, 1.0]))
        cutting = Cutting(rng.uniform(0.1, 0.45), rng.uniform(0.5, 0.9), 1.0, blend, room, wide)
        return self._bisect(self.best, low, high, cutting)

    def improve(self, tries: int) -> bool:
        """Reorder `tries` stretches of the best order, as time allows; return whether it has become cheaper."""
        before = self.price
        for _ in range(tries if self.flow.ops > _SHORTEST else 0):
            if self.price <= 0 or self.seconds_left() <= 1.5 * self.longest:
                break
            began = time.monotonic()
            self._take(self.changed())
            for _ in range(_BLOCKS if self.coordinates is not None and self.keys else 0):
                self._run_in_blocks()
            self.longest = max(0.9 * self.longest, time.monotonic() - began)
        return self.price < before

    def _take(self, order: Ints) -> bool:
        """Take an order if it costs no more than the best; return whether it costs less."""
        before, price = self.price, self.pricing(order, np.nextafter(self.price, np.inf))
        if price <= self.price:
            self.best, self.price = order, price
        return price < before

    def _run_in_blocks(self) -> None:
        """Try blocks like those that were good, of all ops or of a stretch of the best order."""
        assert self.coordinates is not None
        if self.rng.random() < _WHOLE:
            self.try_block()
            return
        low, high = self._stretch()
        keys = self.useful if self.useful and self.rng.random() < 0.5 else [key for _, key in self.keys]
        order, key = self.best.copy(), self.coordinates.changed(keys[int(self.rng.integers(len(keys)))])
        order[low:high] = Coordinates.order(key, order[low:high])
        if self._take(order):
            self.useful = [*self.useful[1 - _KEYS :], key]

    def _work(self) -> int:
        return int(min(1e15, max(1e5, 0.7 * self.rate * self.seconds_left())))

    def _strips(self, order: Ints, low: int, high: int, rule: int, room: float) -> Ints:
        began, work = time.monotonic(), self._work()
        found, left = strips(self.net, order, low, high, rule, float(room), work)
        self._clock(began, work - left)
        return np.asarray(found)

    def _bisect(self, order: Ints, low: int, high: int, cutting: Cutting) -> Ints:
        began, work = time.monotonic(), self._work()
        cutting = Cutting(*map(float, cutting))
        found, left = bisect(self.net, order, low, high, cutting, work)
        self._clock(began, work - left)
        return np.asarray(found)

    def _clock(self, began: float, work: int) -> None:
        """Update the estimate of work per second from a run that took long enough to measure."""
        seconds = time.monotonic() - began
        if seconds > 0.05:
            self.rate = 0.5 * (self.rate + work / seconds)
