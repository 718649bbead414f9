"""Bounds of large graphs: compulsory traffic, and what is alive across some ops, each found in time linear in the graph."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from pebbler.arrays import Floats, Ints
from pebbler.game.dataflow import NONE
from pebbler.solver.bounds import Bound, product_bounds
from pebbler.solver.bounds.compulsory_traffic import ValuePrices, compulsory_traffic
from pebbler.solver.bounds.eviction_cost import (
    bounded_rooms,
    cheapest_places,
    cheapest_places_and_shares,
    eviction_terms,
)
from pebbler.solver.bounds.kernels.reachability import mark_reachable
from pebbler.solver.problem import Problem

__all__ = ["large_bounds"]

_MOMENTS, _MOST_MOMENTS = 48, 400


def large_bounds(problem: Problem, seconds_left: Callable[[], float]) -> list[Bound]:
    """Return lower bounds for every legal plan of an explicit machine, found as far as time allows.

    >>> from pebbler import machine, workloads
    >>> problem = Problem.of(workloads.note_mlp(), machine("notes-explicit"), steady=True)
    >>> [round(bound.value) for bound in large_bounds(problem, lambda: 1.0)][:1]
    [10453825]
    """
    prices = ValuePrices.of(problem)
    base = compulsory_traffic(problem, prices)
    best = Bound(base, "every op runs once, and every value is brought to where it is read")
    rooms = bounded_rooms(problem.machine)
    fast = " and ".join(problem.machine.names[: len(rooms)])
    terms, flow = _Terms(problem, prices, rooms), problem.graph.dataflow
    gains: dict[int, float] = {}
    for op in terms.moments():
        if seconds_left() <= 0:
            break
        gains[op] = terms.gain(op)
        if base + gains[op] > best.value:
            when = "at the end" if op == flow.ops else f"across {problem.graph.op_names[op]}"
            best = Bound(base + gains[op], f"compulsory traffic, and what is alive {when} cannot all be in {fast}")
    together = terms.gain_together(sorted(gains, key=lambda op: -gains[op]), seconds_left)
    if base + together > best.value:
        best = Bound(base + together, f"compulsory traffic, and what is alive at some moments cannot all be in {fast}")
    best = Bound(problem.scale.lowered(best.value), best.proof)
    return sorted([best, *product_bounds(problem)], key=lambda bound: -bound.value)


class _Terms:
    """What values pay for not being in the levels within each boundary, as arrays over the values."""

    def __init__(self, problem: Problem, prices: ValuePrices, rooms: Ints) -> None:
        self.flow, self.fastest, self.rooms = problem.graph.dataflow, prices.fastest, rooms
        shape = (len(rooms), self.flow.values)
        self.cost = np.zeros(shape)
        self.since_maker, self.since_readers = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
        self.until_readers = np.zeros(shape, np.bool_)
        self.end_cost = np.zeros(shape)
        # A steady step's param is one value from the end of a step into the next: one way out and in pays for both.
        self.payer = np.arange(self.flow.values)
        for tensor in problem.looped_params:
            self.payer[self.flow.final_value[tensor]] = self.flow.start_value[tensor]
        for level, at_end in product(range(len(rooms)), (False, True)):
            for term in eviction_terms(problem, prices, level, at_end=at_end):
                (self.end_cost if at_end else self.cost)[level, term.value] = term.cost
                self.since_maker[level, term.value] = term.since == "maker"
                self.since_readers[level, term.value] = term.since == "readers"
                self.until_readers[level, term.value] = term.until == "readers"

    def moments(self) -> list[int]:
        """Return ops to look at: spread over program order, and those with most at stake there; the number of ops is the end."""
        flow = self.flow
        ops = flow.ops
        if len(self.rooms) == 0 or ops == 0:
            return []
        rows = flow.value_readers
        last = np.full(flow.values, -1, np.int64)
        some = np.diff(rows.start) > 0
        last[some] = rows.items[rows.start[1:][some] - 1]
        last[~self.until_readers.all(axis=0)] = ops - 1
        change = np.zeros(ops + 1)
        alive = (self.cost > 0).any(axis=0) & (last >= 0)
        if not alive.any():
            return [ops]
        np.add.at(change, np.maximum(flow.value_maker[alive], 0), flow.value_size[alive])
        np.add.at(change, last[alive] + 1, -flow.value_size[alive])
        held = np.cumsum(change[:ops])
        # Where values live shortly, others are alive at the next moment, and both can be counted.
        stay = np.average(last[alive] + 1 - np.maximum(flow.value_maker[alive], 0), weights=flow.value_size[alive])
        count = int(np.clip(3 * ops / max(stay, 1.0), _MOMENTS, _MOST_MOMENTS)) // 2
        spread = np.linspace(0, ops - 1, count).astype(np.int64)
        top = np.array([part[np.argmax(held[part])] for part in np.array_split(np.arange(ops), count) if len(part)])
        chosen = np.unique(np.concatenate([spread, top]))
        return [*(int(op) for op in chosen[np.argsort(-held[chosen], kind="stable")]), ops]

    def gain(self, op: int) -> float:
        """Return what must be paid at the least because not all that is alive across an op's first run is in the fast levels."""
        return cheapest_places(*self.disputed(op)[1:])

    def gain_together(self, ops: list[int], seconds_left: Callable[[], float]) -> float:
        """Return the same for several ops: of what a value pays for being out, each moment takes a share of what is left."""
        left, total = np.ones(self.flow.values), 0.0
        for op in ops:
            if seconds_left() <= 0:
                break
            values, size, beyond, rooms = self.disputed(op)
            # No two are the same: a param's last version is there only once its first is gone.
            payers = self.payer[values]
            gain, share = cheapest_places_and_shares(size, beyond * left[payers], rooms)
            total += gain
            left[payers] *= 1 - share
        return total

    def disputed(self, op: int) -> tuple[Ints, Floats, Floats, list[int]]:
        """Return the values alive across an op's first run, their sizes, what each pays beyond each boundary, and the rooms."""
        flow, rooms = self.flow, self.rooms
        if op == flow.ops:
            ran, waiting = np.ones(op, np.bool_), np.zeros(op, np.bool_)
        else:
            ran = mark_reachable(flow.before.start, flow.before.items, op, -1)
            ran[op] = True
            waiting = mark_reachable(flow.after.start, flow.after.items, op, 1)
        made = flow.value_maker != NONE
        ready = np.ones(flow.values, np.bool_)
        ready[made] = ran[flow.value_maker[made]]
        cost = self.end_cost if op == flow.ops else self.cost
        alive = (cost > 0) & (~self.since_maker | ready)
        alive &= ~self.since_readers | flow.read_by(ran)
        alive &= ~self.until_readers | flow.read_by(waiting)
        if self.fastest and op < flow.ops:
            inside = np.union1d(np.setdiff1d(flow.op_reads.row(op), flow.op_destroys.row(op)), flow.op_writes.row(op))
            rooms = rooms - int(flow.value_size[inside].sum())
            alive[:, inside] = False
        chosen = np.flatnonzero(alive.any(axis=0))
        beyond = np.where(alive, cost, 0.0)[:, chosen]
        return chosen, flow.value_size[chosen].astype(np.float64), beyond, rooms.tolist()
