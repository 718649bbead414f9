"""Values alive at some moments of a plan that cannot all be in the fast levels: the formula `moments`.

A moment is right after an op has run for the first time, or the end of the plan. A certificate has, for each of some moments, a
price of a unit of room within the first level, the first two and so on. `docs/exact.md` proves what they say together: at a moment
the values that are alive pay at least

    sum over values of  min over places p of (what a value at p pays + size * prices of the boundaries that p is within)
    -  sum of prices * room,

whatever the prices, and of what a value pays at all moments together each moment may take a share. A moment takes from each value
the least share with which no other place becomes cheaper; the next ones have what is left. Shares are multiples of one over 2**20,
rounded up when they are taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from pebbler.arrays import Bools, Floats, Ints
from pebbler.game.dataflow import NONE
from pebbler.game.starts import PlayedGraph, looped_params
from pebbler.referee.certificates import NotProven, common_denominator, in_time, read_fraction, short
from pebbler.referee.kernels.reachability import mark_reachable
from pebbler.referee.programs.compulsory_traffic import ValuePrices, compulsory_traffic
from pebbler.referee.programs.eviction_cost import bounded_rooms, eviction_terms

__all__ = ["Disputed", "MomentTerms", "PricedMoment", "by_place", "priced_moments", "prove_moments"]

PricedMoment = tuple[int, Sequence[Fraction]]  # an op (their number stands for the end), and a price per boundary
_WHOLE = 1 << 20  # shares of a value
_LARGEST = 1 << 62


class Disputed:
    """Values alive at a moment, and for each boundary the cost of each value of being in none of the levels within it."""

    def __init__(self, values: Ints, alive: Bools, rooms: list[int], *, at_end: bool) -> None:
        self.values, self.alive, self.rooms, self.at_end = values, alive, rooms, at_end


class MomentTerms:
    """Costs of values of not being in the levels within each boundary, as arrays over the values.

    >>> from pebbler import machine, workloads
    >>> from pebbler.referee.rows.task import Task
    >>> task = Task(workloads.chain(3), machine("red-blue"), steady=False)
    >>> terms = MomentTerms(task, ValuePrices.of(task))
    >>> terms.at(2).values.tolist(), terms.cost[0].tolist()  # N1 and N2 may be made again, N0 is loaded anyway
    ([0, 1], [100.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    """

    def __init__(self, task: PlayedGraph, prices: ValuePrices) -> None:
        self.flow, self.fastest = task.graph.dataflow, prices.fastest
        self.rooms = bounded_rooms(task.machine)
        shape = (len(self.rooms), self.flow.values)
        self.exact = np.zeros(shape, np.object_)  # whole numbers and fractions
        self.exact_at_end = np.zeros(shape, np.object_)
        self.since_maker, self.since_readers = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
        self.until_readers = np.zeros(shape, np.bool_)
        # A steady step's param is one value from the end of a step into the next: one way out and in pays for both.
        self.payer = np.arange(self.flow.values)
        for tensor in looped_params(task):
            self.payer[self.flow.final_value[tensor]] = self.flow.start_value[tensor]
        for level, at_end in product(range(len(self.rooms)), (False, True)):
            for term in eviction_terms(task, prices, level, at_end=at_end):
                if term.cost == math.inf:
                    continue
                (self.exact_at_end if at_end else self.exact)[level, term.value] = term.cost
                self.since_maker[level, term.value] = term.since == "maker"
                self.since_readers[level, term.value] = term.since == "readers"
                self.until_readers[level, term.value] = term.until == "readers"
        self.cost: Floats = self.exact.astype(np.float64)
        self.end_cost: Floats = self.exact_at_end.astype(np.float64)

    def at(self, op: int) -> Disputed:
        """Return the values alive right after an op's first run; for the number of ops, those alive at the end."""
        flow, rooms, at_end = self.flow, self.rooms, op == self.flow.ops
        if at_end:
            ran, waiting = np.ones(op, np.bool_), np.zeros(op, np.bool_)
        else:
            ran = mark_reachable(flow.before.start, flow.before.items, op, -1)
            ran[op] = True
            waiting = mark_reachable(flow.after.start, flow.after.items, op, 1)
        made = flow.value_maker != NONE
        ready = np.ones(flow.values, np.bool_)
        ready[made] = ran[flow.value_maker[made]]
        alive = ((self.end_cost if at_end else self.cost) > 0) & (~self.since_maker | ready)
        alive &= ~self.since_readers | flow.read_by(ran)
        alive &= ~self.until_readers | flow.read_by(waiting)
        if self.fastest and not at_end:
            inside = np.union1d(np.setdiff1d(flow.op_reads.row(op), flow.op_destroys.row(op)), flow.op_writes.row(op))
            rooms = rooms - int(flow.value_size[inside].sum())
            alive[:, inside] = False
        chosen = np.flatnonzero(alive.any(axis=0))
        # Two versions of a param are never alive together; if they were, one would do.
        chosen = np.sort(chosen[np.unique(self.payer[chosen], return_index=True)[1]])
        return Disputed(chosen, alive[:, chosen], rooms.tolist(), at_end=at_end)


def prove_moments(task: PlayedGraph, certificate: Mapping[str, Any], ends: float) -> Fraction:
    """Return the bound that a certificate of the formula `moments` proves."""
    flow, levels = task.graph.dataflow, len(task.machine.level)
    if task.machine.management != "explicit":
        raise NotProven("what is alive at moments is known where a plan places everything")
    listed = certificate.get("moments")
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise NotProven("it has no list of moments")
    found: list[PricedMoment] = []
    for one in listed:
        try:
            op, prices = one
            read = [read_fraction(price) for price in prices]
            if (op is not None and type(op) is not int) or len(read) != levels - 1:
                raise ValueError
        except (TypeError, ValueError, ZeroDivisionError) as error:
            raise NotProven(f"{short(one)} is no moment with a price of room in each level but the last") from error
        if op is not None and not 0 <= op < flow.ops:
            raise NotProven(f"there is no op {short(op)}")
        found.append((flow.ops if op is None else op, read))
    return priced_moments(task, found, ends)


def priced_moments(task: PlayedGraph, moments: Sequence[PricedMoment], ends: float = math.inf) -> Fraction:
    """Return a lower bound for all plans: compulsory traffic, and the cost beyond it that moments with prices of room prove.

    >>> from pebbler import machine, workloads
    >>> from pebbler.referee.rows.task import Task
    >>> task = Task(workloads.chain(30), machine("red-blue"), steady=False)
    >>> priced_moments(task, []), priced_moments(task, [(30, [Fraction(1)])])  # 9 places for 29 nodes, which are made again
    (Fraction(161, 1), Fraction(181, 1))
    """
    prices = ValuePrices.of(task)
    base = Fraction(compulsory_traffic(task, prices))
    if not moments:
        return base
    terms = MomentTerms(task, prices)
    every = [cost for array in (terms.exact, terms.exact_at_end) for cost in array.ravel().tolist() if cost]
    denominators = {cost.denominator for cost in every} | {price.denominator for _, row in moments for price in row}
    over = common_denominator(dict(enumerate(Fraction(1, one) for one in denominators)))
    dearest = max((sum(row, Fraction()) for _, row in moments), default=Fraction())
    units = int(terms.flow.value_size.sum()) + sum(terms.rooms.tolist())
    most = over * (sum(every) * _WHOLE + dearest * units)
    amounts = np.int64 if most < _LARGEST else np.object_
    cost, at_end = ((array * over).astype(amounts) for array in (terms.exact, terms.exact_at_end))
    size = terms.flow.value_size.astype(amounts)
    left: npt.NDArray[Any] = np.full(terms.flow.values, _WHOLE, amounts)
    gained = 0
    for number, (op, row) in enumerate(moments):
        in_time(ends, number, "moments")
        disputed = terms.at(op)
        whole = [price.numerator * (over // price.denominator) for price in row]
        values, payers = disputed.values, terms.payer[disputed.values]
        paid = by_place(np.where(disputed.alive, (at_end if disputed.at_end else cost)[:, values], 0))
        # Per place: the prices of all boundaries that it is within.
        charges: npt.NDArray[Any] = np.array([sum(whole[place:]) for place in range(len(row) + 1)], amounts)
        room = np.multiply.outer(charges, size[values])
        least = (paid * left[payers] // _WHOLE + room).min(axis=0, initial=_LARGEST if amounts is np.int64 else most)
        gain = int(least.sum()) - sum(price * space for price, space in zip(whole, disputed.rooms, strict=True))
        if gain <= 0:
            continue
        gained += gain
        left[payers] -= _shares(np.maximum(least - room, 0), paid)
    return base + Fraction(gained, over)


def by_place(beyond: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the costs of values by their place: a value outside of a boundary is also outside of the boundaries before it."""
    return np.maximum.accumulate(np.vstack([np.zeros_like(beyond[:1]), beyond]), axis=0)


def _shares(needed: npt.NDArray[Any], paid: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the share of each value's cost that suffices for a given sum at every place."""
    some = needed > 0
    share = np.zeros_like(paid)
    share[some] = -(-needed[some] * _WHOLE // paid[some])
    return np.asarray(share.max(axis=0))
