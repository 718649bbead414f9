"""Bounds of large graphs: compulsory traffic, and what is alive across some ops, each found in time linear in the graph."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from pebbler.arrays import Floats, Ints
from pebbler.referee.certificates import NotProven
from pebbler.referee.programs.compulsory_traffic import ValuePrices
from pebbler.referee.programs.moments import MomentTerms
from pebbler.solver.bounds.bound import Bound, certified_moments, product_bounds
from pebbler.solver.bounds.pass_search import pass_bounds
from pebbler.solver.bounds.priced_room import RoomPrices, priced_room
from pebbler.solver.problem import Problem

__all__ = ["large_bounds"]

_MOMENTS, _MOST_MOMENTS = 48, 400
_PROVING = 0.4  # of the time, for adding up exactly what was found
# Of the time, for what must come in more than once; up to some seconds, in which a graph of 10,000 ops is done, more of it.
_PASSES, _MORE_PASSES, _SECONDS = 0.1, 0.25, 3.0
_LONGER = 5  # times that moments take to be set up, compared with compulsory traffic


def large_bounds(problem: Problem, seconds_left: Callable[[], float]) -> list[Bound]:
    """Return lower bounds for every legal plan of an explicit machine, found as far as time allows.

    >>> from pebbler import machine, workloads
    >>> problem = Problem.of(workloads.note_mlp(), machine("notes-explicit"), steady=True)
    >>> [round(bound.value) for bound in large_bounds(problem, lambda: 1.0)][:1]
    [10453825]
    """
    begun, ends = seconds_left(), time.monotonic() + seconds_left()
    found = [certified_moments(problem, "every op runs once, and every value is brought to where it is read", [])]
    # What comes next takes a few times as long as this, before it looks at the clock itself.
    if seconds_left() < _LONGER * (begun - seconds_left()):
        return found
    terms = SampledMoments(problem, ValuePrices.of(problem))
    gains: dict[int, RoomPrices] = {}
    for op in terms.moments():
        if seconds_left() <= _PROVING * begun:
            break
        gains[op] = terms.priced(op)[1]
    ranked = sorted(gains, key=lambda op: -gains[op].gain)
    if ranked and gains[ranked[0]].gain > 0:
        found.append(terms.certified([(ranked[0], gains[ranked[0]].prices)]))
    priced = terms.together(ranked, lambda: seconds_left() - _PROVING * begun)
    if len(priced) > 1:
        with suppress(NotProven):  # if there is no time to add all of them up
            found.append(terms.certified(priced, ends))
    if seconds_left() > 0:
        found += product_bounds(problem)
    if seconds_left() > 0:
        share = max(_PASSES * begun, min(_MORE_PASSES * begun, _SECONDS))
        until = seconds_left() - share if begun < math.inf else 0.0
        found += pass_bounds(problem, lambda: seconds_left() - max(0.0, until))
    return sorted(found, key=lambda bound: -bound.value)


class SampledMoments(MomentTerms):
    """The moments that are considered, and the prices of room there."""

    def __init__(self, problem: Problem, prices: ValuePrices) -> None:
        super().__init__(problem, prices)
        self.problem = problem

    def certified(self, priced: list[tuple[int, Floats]], ends: float = math.inf) -> Bound:
        """Return the bound that moments with prices of room prove."""
        fast = " and ".join(self.problem.machine.names[: len(self.rooms)])
        op = priced[0][0]
        when = "at the end" if op == self.flow.ops else f"across {self.flow.op_names[op]}"
        when = when if len(priced) == 1 else "at some moments"
        words = f"compulsory traffic, and what is alive {when} cannot all be in {fast}"
        return certified_moments(self.problem, words, priced, ends)

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

    def priced(self, op: int, left: Floats | None = None) -> tuple[Ints, RoomPrices]:
        """Return the values alive at a moment, and the prices of room then for a remaining share of their costs."""
        found = self.at(op)
        cost = (self.end_cost if found.at_end else self.cost)[:, found.values]
        beyond = np.where(found.alive, cost, 0.0)
        if left is not None:
            beyond *= left[self.payer[found.values]]
        return found.values, priced_room(self.flow.value_size[found.values].astype(np.float64), beyond, found.rooms)

    def together(self, ops: list[int], seconds_left: Callable[[], float]) -> list[tuple[int, Floats]]:
        """Return prices of room for several moments; each takes a share of the remaining cost of a value's being out."""
        left = np.ones(self.flow.values)
        found: list[tuple[int, Floats]] = []
        for op in ops:
            if seconds_left() <= 0:
                break
            values, room = self.priced(op, left)
            if room.gain > 0:
                found.append((op, room.prices))
                left[self.payer[values]] *= 1 - room.shares
        return found
