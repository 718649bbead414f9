"""Eviction costs: what a value pays for not being in the fast levels at one moment, beyond its compulsory traffic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pebbler.arrays import Ints
from pebbler.game.bit_sets import bit_set
from pebbler.game.dataflow import NONE
from pebbler.game.machine import Machine
from pebbler.game.starts import PlayedGraph, looped_params
from pebbler.referee.programs.compulsory_traffic import Amount, ValuePrices

__all__ = [
    "EvictionCost",
    "EvictionTerm",
    "bounded_rooms",
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
    cost: Amount
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
    cost: Amount
    since: Literal["always", "maker", "readers"]
    until: Literal["always", "readers"]


def eviction_costs(task: PlayedGraph, prices: ValuePrices, level: int, *, at_end: bool = False) -> list[EvictionCost]:
    """Return the cost for each value of not being in the levels up to `level`, taken together as the fast levels.

    At the end of a plan it is too late to make a value again.

    >>> from pebbler import machine, workloads
    >>> from pebbler.referee.rows.task import Task
    >>> task = Task(workloads.chain(3), machine("red-blue"), steady=False, start={"N0": "fast"})
    >>> [(one.value, int(one.cost)) for one in eviction_costs(task, ValuePrices.of(task), 0)][:2]
    [(0, 200), (1, 1)]
    """
    flow = task.graph.dataflow
    found = []
    for term in eviction_terms(task, prices, level, at_end=at_end):
        readers = bit_set(flow.value_readers.row(term.value).tolist())
        since = {"always": 0, "maker": 1 << max(0, int(flow.value_maker[term.value])), "readers": readers}[term.since]
        until = readers if term.until == "readers" else 0
        found.append(EvictionCost(term.value, term.size, term.cost, since, until))
    return found


def eviction_terms(task: PlayedGraph, prices: ValuePrices, level: int, *, at_end: bool = False) -> list[EvictionTerm]:
    """Return the same in a form that takes no more room than there are values."""
    flow = task.graph.dataflow
    read = (np.diff(flow.value_readers.start) > 0).tolist()
    params = {int(flow.start_value[tensor]): int(flow.final_value[tensor]) for tensor in looped_params(task)}
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
                start = prices.start[value] or []
                since = "always" if 0 in start or max(start) <= level else "readers"
                until = "readers"
                if not read[value]:
                    continue
        elif value in looped and prices.fastest:
            price = min(size, int(flow.value_size[looped[value]])) * copy_out_and_in(prices, level)
        else:
            again = math.inf if at_end else prices.again[value]
            price = _made(prices, value, level, size, again, survives)
        if price > 0:
            found.append(EvictionTerm(value, size, price, since, until))
    return found


def bounded_rooms(machine: Machine) -> Ints:
    """Return the capacity of the first level, of the first two together, and so on, up to the last, which is unbounded.

    >>> from pebbler import machine
    >>> bounded_rooms(machine("notes-explicit")).tolist()
    [64, 16448, 81984]
    """
    return np.cumsum([level.capacity or 0 for level in machine.level[:-1]], dtype=np.int64)


def copy_out_and_in(prices: ValuePrices, level: int) -> Amount:
    """Return the least price of a copy out of the fast levels and one back in."""
    return min(prices.read[: level + 1]) + _out_and_back(prices, level) + min(prices.write[: level + 1])


def _out_and_back(prices: ValuePrices, level: int) -> Amount:
    """Return the part of that which is paid in the slow levels."""
    return min(prices.write[at] + prices.read[at] for at in range(level + 1, len(prices.read)))


def copy_in(prices: ValuePrices, level: int) -> Amount:
    """Return the least price of a copy into the fast levels."""
    return min(prices.read[level + 1 :]) + min(prices.write[: level + 1])


def _start(prices: ValuePrices, value: int, level: int, size: int) -> Amount:
    start, count = prices.start[value] or [], int(prices.reads[value])
    if prices.fastest:
        if max(start) > level:
            return size * copy_in(prices, level)
        # Compulsory traffic has one read where it starts and one write to the fastest level, unless it starts there.
        return size * (copy_out_and_in(prices, level) if 0 in start else _out_and_back(prices, level))
    out = min(prices.read[at] for at in start)
    best = min(prices.read[at] for at in prices.fits[value])
    if all(at <= level for at in start):
        least = out + min(prices.write) + count * best  # it has been copied out
    elif all(at > level for at in start):
        slow = [out + prices.write[at] + count * prices.read[at] for at in prices.fits[value] if at > level]
        # In no fast level ever, or copied in.
        least = min(count * out, *slow, out + min(prices.write[: level + 1]) + count * best)
    else:
        return 0
    return max(0, size * (least - prices.base(value, made=False)))


def _made(prices: ValuePrices, value: int, level: int, size: int, again: Amount, survives: bool) -> Amount:
    count = int(prices.reads[value])
    if prices.fastest:
        out = min(prices.read[: level + 1]) + min(prices.write[level + 1 :])
        return min(again, size * (out if survives else copy_out_and_in(prices, level)))
    floor_read, floor_write = min(prices.read), min(prices.write)
    slow = [at for at in prices.fits[value] if at > level]
    if survives:  # it may never be read again
        stored = min((prices.write[at] for at in slow), default=math.inf) + count * floor_read
    else:  # written to a slow level, and later read there
        stored = min((prices.write[at] + prices.read[at] for at in slow), default=math.inf) + (count - 1) * floor_read
    remade = size * (2 * floor_write + count * floor_read) + again
    return max(0, min(size * stored, remade) - size * prices.base(value, made=True))


def _param(prices: ValuePrices, value: int, final: int, level: int, sizes: tuple[int, int]) -> Amount:
    """Return the price of a steady step's param not being fast: it is copied around the loop, or never fast when read."""
    size, common, count = sizes[0], min(sizes), int(prices.reads[value])
    if prices.fastest:
        return size * copy_in(prices, level) if final == value else common * copy_out_and_in(prices, level)
    slow = min((prices.read[at] for at in prices.fits[value] if at > level), default=math.inf)
    fast = min(prices.read[at] for at in prices.fits[value])
    return min(size * count * (slow - fast), common * (min(prices.read) + min(prices.write)))
