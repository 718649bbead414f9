"""Eviction costs: what a value pays for not being in the fast levels at one moment, beyond its compulsory traffic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pebbler.arrays import Floats
from pebbler.game.bit_sets import bit_set
from pebbler.game.dataflow import NONE
from pebbler.solver.bounds.compulsory_traffic import ValuePrices
from pebbler.solver.problem import Problem

__all__ = [
    "EvictionCost",
    "EvictionTerm",
    "cheapest_excess",
    "copy_in",
    "copy_out_and_in",
    "eviction_costs",
    "eviction_terms",
]


@dataclass(frozen=True)
class EvictionCost:
    """A value that is alive once an op of `since` has run (0: always) and until all of `until` have (0: always).

    If it is alive and not in the fast levels, the plan pays `cost` more than the compulsory traffic.
    """

    value: int
    size: int
    cost: float
    since: int
    until: int

    def alive(self, ran: int, waiting: int) -> bool:
        """Return whether it is alive whenever the ops of `ran` have run and those of `waiting` have not."""
        return (self.since == 0 or self.since & ran != 0) and (self.until == 0 or self.until & waiting != 0)


@dataclass(frozen=True)
class EvictionTerm:
    """The same in words: alive always, or once its maker or one of its readers has run; for ever, or until the last reader has."""

    value: int
    size: int
    cost: float
    since: Literal["always", "maker", "readers"]
    until: Literal["always", "readers"]


def eviction_costs(problem: Problem, prices: ValuePrices, level: int) -> list[EvictionCost]:
    """Return what each value pays for not being in the levels up to `level`, taken together as the fast ones.

    >>> from pebbler import machine, workloads
    >>> problem = Problem.of(workloads.chain(3), machine("red-blue"), start={"N0": "fast"})
    >>> [(one.value, one.cost) for one in eviction_costs(problem, ValuePrices.of(problem), 0)][:2]
    [(0, 200.0), (1, 1.0)]
    """
    flow = problem.graph.dataflow
    found = []
    for term in eviction_terms(problem, prices, level):
        readers = bit_set(flow.value_readers.row(term.value).tolist())
        since = {"always": 0, "maker": 1 << max(0, int(flow.value_maker[term.value])), "readers": readers}[term.since]
        until = readers if term.until == "readers" else 0
        found.append(EvictionCost(term.value, term.size, term.cost, since, until))
    return found


def eviction_terms(problem: Problem, prices: ValuePrices, level: int) -> list[EvictionTerm]:
    """Return the same in a form that takes no more room than there are values."""
    flow = problem.graph.dataflow
    read = (np.diff(flow.value_readers.start) > 0).tolist()
    params = {int(flow.start_value[tensor]): int(flow.final_value[tensor]) for tensor in problem.looped_params}
    # A param's final value that is not fast goes round the loop too, if the next step reads it.
    looped = {final: first for first, final in params.items() if final != first and read[first]}
    found = []
    for value, size in enumerate(flow.value_size.tolist()):
        if size == 0:
            continue
        maker = int(flow.value_maker[value])
        survives = bool(flow.value_must_survive[value])
        if not read[value] and not survives:
            continue
        since: Literal["always", "maker", "readers"] = "always" if maker == NONE else "maker"
        until: Literal["always", "readers"] = "always" if survives else "readers"
        if value in params:
            final = params[value]
            price = _param(prices, value, final, level, (size, int(flow.value_size[final])))
            until = "always" if final == value else "readers"
            if not read[value]:
                continue
        elif maker == NONE:
            if prices.start[value] is None:
                continue  # it may start in any level, or in several
            price = _start(prices, value, level, size)
            if prices.fastest:
                # What starts elsewhere is loaded anyway; it is paid for twice only if it was read before and will be again.
                since = "always" if 0 in (prices.start[value] or []) else "readers"
                until = "readers"
                if not read[value]:
                    continue
        elif value in looped and prices.fastest:
            price = min(size, int(flow.value_size[looped[value]])) * copy_out_and_in(prices, 0)
        else:
            price = _made(prices, value, level, size, survives)
        if price > 0:
            found.append(EvictionTerm(value, size, price, since, until))
    return found


def copy_out_and_in(prices: ValuePrices, level: int) -> float:
    """Return the least price of a copy out of the fast levels and one back in."""
    slow = range(level + 1, len(prices.read))
    back = min(prices.write[at] + prices.read[at] for at in slow)
    return min(prices.read[: level + 1]) + back + min(prices.write[: level + 1])


def copy_in(prices: ValuePrices, level: int) -> float:
    """Return the least price of a copy into the fast levels."""
    return min(prices.read[level + 1 :]) + min(prices.write[: level + 1])


def _start(prices: ValuePrices, value: int, level: int, size: int) -> float:
    start, count = prices.start[value] or [], int(prices.reads[value])
    if prices.fastest:
        return size * (copy_out_and_in(prices, 0) if start == [0] else copy_in(prices, 0))
    out = min(prices.read[at] for at in start)
    best = min(prices.read[at] for at in prices.fits[value])
    if all(at <= level for at in start):
        least = out + min(prices.write) + count * best  # it has been copied out
    elif all(at > level for at in start):
        slow = [out + prices.write[at] + count * prices.read[at] for at in prices.fits[value] if at > level]
        # In no fast level ever, or copied in.
        least = min(count * out, *slow, out + min(prices.write[: level + 1]) + count * best)
    else:
        return 0.0
    return max(0.0, size * (least - prices.base(value, made=False)))


def _made(prices: ValuePrices, value: int, level: int, size: int, survives: bool) -> float:
    again, count = prices.again[value], int(prices.reads[value])
    if prices.fastest:
        out = prices.read[0] + min(prices.write[1:])
        return min(again, size * (out if survives else copy_out_and_in(prices, 0)))
    floor_read, floor_write = min(prices.read), min(prices.write)
    slow = [prices.write[at] + count * prices.read[at] for at in prices.fits[value] if at > level]
    # In no fast level ever; or written to both kinds of levels, the second time by a copy or by its maker.
    twice = size * (2 * floor_write + count * floor_read) + min(size * floor_read, again)
    return max(0.0, min(size * min(slow, default=math.inf), twice) - size * prices.base(value, made=True))


def _param(prices: ValuePrices, value: int, final: int, level: int, sizes: tuple[int, int]) -> float:
    """Return the price of a steady step's param not being fast: it is copied around the loop, or never fast when read."""
    size, common, count = sizes[0], min(sizes), int(prices.reads[value])
    if prices.fastest:
        return size * copy_in(prices, 0) if final == value else common * copy_out_and_in(prices, 0)
    slow = min((prices.read[at] for at in prices.fits[value] if at > level), default=math.inf)
    fast = min(prices.read[at] for at in prices.fits[value])
    return min(size * count * (slow - fast), common * (min(prices.read) + min(prices.write)))


def cheapest_excess(size: Floats, cost: Floats, room: float) -> float:
    """Return the least that must be paid when at most `room` units of these values stay in: a knapsack, relaxed to fractions.

    >>> cheapest_excess(np.array([2.0, 2.0]), np.array([6.0, 2.0]), 3)
    1.0
    """
    rate = cost / size
    order = np.argsort(rate, kind="stable")
    size, rate = size[order], rate[order]
    before = np.cumsum(size) - size
    return float((np.clip(size.sum() - room - before, 0.0, size) * rate).sum())
