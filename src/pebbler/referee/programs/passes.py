"""The formula `passes`: inputs of ops between two moments have to come in again, or be made again.

A *moment* is given by some ops: right after the first run of the one that there is, or right before the first run of any of
several. A *chain* is a list of moments, each of which comes before the next in every plan; the last span ends with the plan. In the
span from one moment to the next some ops run for the first time, the *forced* ones: those that must run after the first moment
and before the second. Others certainly ran before.

Let R be the ops that run in a span of a plan. What an op of R reads is made by an op of R, or was in the fastest level at the
moment, or is loaded in the span. A load is paid, and of a value that an op makes so is one store in the whole plan; a run of an
op that ran before is one more than compulsory traffic has. So whatever flows from the reads of forced ops to the makers of what is
read, on to what these read, and so on, where

- through a value goes no more than its load, its store and the price of its room allow (nothing that z itself has at hand right
  after its run, nothing of a start value whose first load may be in the span),
- an op that certainly ran before keeps no more than a run of it costs,

is paid in the span, but for the price of the room that there is at the moment: cut the flow where values are not made by R. Spans
of one chain are apart in time; spans of different chains, and stores, have one price for all. At the end what must be there and
does not fit into the fastest level has been stored. `docs/exact.md` has the proof with an example.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from pebbler.arrays import Bools, Ints
from pebbler.game.dataflow import NONE, Dataflow
from pebbler.game.starts import PlayedGraph
from pebbler.referee.certificates import NotProven, common_denominator, in_time, read_fraction, short
from pebbler.referee.kernels.pass_flow import FlowNet, largest_flow
from pebbler.referee.kernels.reachability import mark_common, mark_from
from pebbler.referee.programs.compulsory_traffic import ValuePrices, compulsory_traffic, exactly
from pebbler.referee.programs.remade_values import op_room

__all__ = ["Moment", "PassLedger", "Span", "prove_passes"]

Moment = Sequence[int]  # ops
_LARGEST = 1 << 50  # of all amounts together
_WORK = 40_000_000  # steps that a flow takes at most; less flow is a weaker bound


@dataclass(frozen=True)
class Span:
    """A span's contribution to a bound: its gain, and the prices that it uses up."""

    gain: int
    loads: Ints  # per value
    stores: Ints  # per value
    reruns: Ints  # per op


class PassLedger:
    """Prices of values and ops that are not used up yet, in whole numbers: amounts times `over`.

    >>> from pebbler import machine, workloads
    >>> from pebbler.referee.rows.task import Task
    >>> ledger = PassLedger(Task(workloads.chain(30), machine("red-blue"), steady=False))
    >>> ledger.span([29], None, Fraction(1)).gain  # nodes that are read on the way back and do not fit beside it are made again
    20
    """

    def __init__(self, task: PlayedGraph) -> None:
        machine, flow = task.machine, task.graph.dataflow
        capacity = machine.level[0].capacity
        if machine.management != "explicit" or machine.operands != "fastest" or task.steady:
            raise NotProven("passes are known of one step where ops find their operands in the fastest level")
        if len(machine.level) < 2 or capacity is None:
            raise NotProven("there is no slower level, or room without end in the fastest")
        self.flow, self.room, self.prices = flow, capacity, ValuePrices.of(task)
        self.base = Fraction(compulsory_traffic(task, self.prices))
        prices, costs = self.prices, [exactly(cost) for cost in flow.op_cost.tolist()]
        load, store = min(prices.read[1:]) + prices.write[0], prices.read[0] + min(prices.write[1:])
        self.load, self.store = Fraction(load), Fraction(store)
        parts = {Fraction(one).denominator for one in (load, store, *costs)}
        self.over = common_denominator(dict(enumerate(Fraction(1, one) for one in parts)))
        whole = [int(cost * self.over) for cost in costs]
        units = int(flow.value_size.sum()) + self.room
        if sum(whole) + units * (self.load + self.store) * self.over >= _LARGEST:
            raise NotProven("its amounts are too large to be added up in whole numbers")
        made = flow.value_maker != NONE
        self.load_left: Ints = flow.value_size * int(self.load * self.over)
        self.store_left: Ints = np.where(made, flow.value_size * int(self.store * self.over), 0)
        self.rerun_left: Ints = np.array(whole, np.int64)
        # Whether a load of it may be the one that compulsory traffic has.
        first = [start is not None and 0 not in start for start in prices.start]
        self.loaded_once: Bools = ~made & np.array(first, np.bool_).reshape(-1)
        self.net = _net_of(flow)

    def charge_end(self) -> int:
        """Return the cost of storing results that do not fit into the fastest level at the end, and charge it."""
        last = (self.flow.value_maker != NONE) & self.flow.value_must_survive
        self.store_left[last] = 0
        excess = int(self.flow.value_size[last].sum()) - self.room
        return max(0, excess) * int(self.store * self.over)

    def span(self, first: Moment, until: Moment | None, rate: Fraction) -> Span:
        """Return a span's contribution to the bound if a unit of room is worth `rate`; nothing is charged."""
        flow, net = self.flow, self.net
        before, loaded, forced = self.sides(first, until)
        if until is not None and not forced.any():
            raise NotProven(f"nothing must run between {short(list(first))} and {short(list(until))}")
        # A unit of room is worth no more than a store and a load.
        price = int(min(rate, self.load + self.store) * self.over)
        capacity = np.minimum(self.load_left + self.store_left, flow.value_size * price)
        capacity[self.loaded_once & ~loaded] = 0
        room = self.room
        if len(first) == 1:
            inside = sorted(op_room(flow, first[0]))
            room -= int(flow.value_size[inside].sum())
            capacity[inside] = 0
        absorb = np.where(before, np.where(flow.op_can_rerun, self.rerun_left, _LARGEST), 0)
        read = np.zeros(flow.values, np.bool_)
        read[net.read_value[forced[net.read_op]]] = True
        made = flow.value_maker != NONE
        read[made] &= ~forced[flow.value_maker[made]]
        sources = np.flatnonzero(read & (capacity > 0))
        through, reads, kept = largest_flow(net, sources, capacity, absorb, forced, _WORK)
        total = _checked(net, forced, read, (through, reads, kept), (capacity, absorb))
        loads = np.minimum(through, self.load_left)
        reruns = np.where(flow.op_can_rerun, kept, 0)
        return Span(max(0, total - price * room), loads, through - loads, reruns)

    def sides(self, first: Moment, until: Moment | None) -> tuple[Bools, Bools, Bools]:
        """Return the runs and reads that always precede a moment, and the ops that first run between it and the next."""
        flow = self.flow
        some = np.zeros(flow.ops, np.bool_)
        some[list(first)] = True
        forced = mark_from(flow.after.start, flow.after.items, some, 1)
        before, loaded = self._common(first)
        if len(first) == 1:
            before[first[0]], forced[first[0]] = True, False
            loaded[flow.op_reads.row(first[0])] = True
        if until is not None:
            ends, _ = self._common(until)
            if len(until) == 1:
                ends[until[0]] = True
            forced &= ends
        return before, loaded, forced

    def _common(self, ops: Moment) -> tuple[Bools, Bools]:
        flow = self.flow
        rows, reads = flow.before, flow.op_reads
        ran, read = mark_common(rows.start, rows.items, np.array(ops, np.int64), reads.start, reads.items, flow.values)
        return ran, read

    def charge_chain(self, spans: Sequence[Span]) -> None:
        """Charge spans that do not overlap in time: each load and each run is in at most one of them. Stores are charged before."""
        if spans:
            self.load_left -= np.max([span.loads for span in spans], axis=0)
            self.rerun_left -= np.max([span.reruns for span in spans], axis=0)

    def chain(self, moments: Sequence[tuple[Moment, Fraction]], ends: float = math.inf) -> int:
        """Return the contribution to the bound of a chain of moments with prices of room, and charge it."""
        spans: list[Span] = []
        for number, (first, rate) in enumerate(moments):
            in_time(ends, number, "moments")
            until = moments[number + 1][0] if number + 1 < len(moments) else None
            span = self.span(first, until, rate)
            if span.gain > 0:
                self.store_left -= span.stores
                spans.append(span)
        self.charge_chain(spans)
        return sum(span.gain for span in spans)


def _net_of(flow: Dataflow) -> FlowNet:
    reads = flow.op_reads
    uses = np.argsort(reads.items, kind="stable")
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(reads.items, minlength=flow.values))])
    return FlowNet(
        np.where(flow.value_maker == NONE, -1, flow.value_maker), reads.start, reads.items,
        np.repeat(np.arange(flow.ops), np.diff(reads.start)), start.astype(np.int64), uses,
        flow.op_writes.start, flow.op_writes.items,
    )  # fmt: skip


def _checked(
    net: FlowNet, forced: Bools, sources: Bools, flow: tuple[Ints, Ints, Ints], most: tuple[Ints, Ints]
) -> int:
    """Return the amount that flows from the sources; raise if the flow breaks a limit."""
    through, reads, kept = flow
    right = bool((through >= 0).all() and (through <= most[0]).all() and (reads >= 0).all())
    right &= bool((kept >= 0).all() and (kept <= most[1]).all() and not reads[forced[net.read_op]].any())
    arrived = np.zeros(len(through), np.int64)
    np.add.at(arrived, net.read_value, reads)
    right &= bool((arrived == through)[~sources].all() and (arrived <= through).all())
    left = np.zeros(len(kept), np.int64)
    np.add.at(left, net.read_op, reads)
    made = net.maker >= 0
    came = np.zeros(len(kept), np.int64)
    np.add.at(came, net.maker[made], through[made])
    right &= bool((came == left + kept).all())
    if not right:
        raise NotProven("a flow does not add up")
    return int((through - arrived).sum())


def prove_passes(task: PlayedGraph, certificate: Mapping[str, Any], ends: float) -> Fraction:
    """Return the bound that a certificate of the formula `passes` proves."""
    listed = certificate.get("chains")
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise NotProven("it has no list of chains")
    ledger = PassLedger(task)
    gained = ledger.charge_end()
    for chain in listed:
        gained += ledger.chain(_read_chain(chain, ledger.flow.ops), ends)
    return ledger.base + Fraction(gained, ledger.over)


def _read_chain(chain: object, ops: int) -> list[tuple[Moment, Fraction]]:
    try:
        found: list[tuple[Moment, Fraction]] = [(list(first), read_fraction(rate)) for first, rate in chain]  # type: ignore[attr-defined]
        for first, _ in found:
            if not first or any(type(op) is not int or not 0 <= op < ops for op in first):
                raise ValueError
            if len(set(first)) < len(first):
                raise ValueError
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise NotProven(f"{short(chain)} is no chain of ops with a price of room") from error
    return found
