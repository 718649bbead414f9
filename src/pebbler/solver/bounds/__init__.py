"""Lower bounds that hold for every legal schedule of a problem: compulsory traffic, and what cannot all stay in fast memory.

`docs/exact.md` and `docs/products.md` prove them. All allow recomputation, any order and any number of copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from ortools.graph.python import max_flow

from pebbler.game.bit_sets import members
from pebbler.game.dataflow import Dataflow
from pebbler.solver.bounds.compulsory_traffic import ValuePrices, compulsory_traffic
from pebbler.solver.bounds.eviction_cost import EvictionCost, bounded_rooms, cheapest_places, eviction_costs
from pebbler.solver.bounds.product_reads import product_bound
from pebbler.solver.bounds.remade_values import op_room
from pebbler.solver.problem import Problem

__all__ = ["Bound", "bounds", "product_bounds"]

CUTS = 12  # moments that get the full min-cut treatment, the most promising first
RATES = 6  # prices of room tried per moment
_SCALE = 1 << 40


@dataclass(frozen=True)
class Bound:
    """An energy that no legal plan is below, and why."""

    value: float
    proof: str


def bounds(problem: Problem, cuts: int = CUTS) -> list[Bound]:
    """Return lower bounds for every legal plan, the best first; `cuts` limits the work of the min-cut ones.

    >>> from pebbler import machine, workloads
    >>> [bound.value for bound in bounds(Problem.of(workloads.note_mlp(), machine("notes-explicit"), steady=True))][0]
    10453825.0
    """
    flow = problem.graph.dataflow
    found = [Bound(float(flow.op_cost.sum()), "every op runs at least once")]
    if problem.machine.management == "explicit" and flow.ops:
        prices = ValuePrices.of(problem)
        base = compulsory_traffic(problem, prices)
        found.append(Bound(base, "every op runs once, and every value is brought to where it is read"))
        found += _wavefronts(problem, prices, base, cuts)
        found += product_bounds(problem)
    found = [Bound(problem.scale.lowered(bound.value), bound.proof) for bound in found]
    return sorted(found, key=lambda bound: -bound.value)


def product_bounds(problem: Problem) -> list[Bound]:
    """Return the bound of matrix products among the ops, if there are any."""
    least = product_bound(problem)
    return [Bound(least, "matrix products: what must be read from outside of each level")] if least > 0 else []


@dataclass(frozen=True)
class _Moment:
    """The time just after an op ran first, or the end (no op): what is in dispute for the room left in the levels up to `level`."""

    op: int | None
    level: int
    free: int
    costs: Sequence[EvictionCost]


def _wavefronts(problem: Problem, prices: ValuePrices, base: float, cuts: int) -> list[Bound]:
    """Return the best bound from values that are alive at one moment and cannot all be in the fast levels then."""
    flow, machine = problem.graph.dataflow, problem.machine
    rooms = bounded_rooms(machine)
    before, after = (
        [eviction_costs(problem, prices, level, at_end=at_end) for level in range(len(rooms))]
        for at_end in (False, True)
    )
    moments: list[tuple[float, _Moment]] = []
    best = 0.0
    where: tuple[int | None, int] = (None, 0)
    for op in (*range(flow.ops), None):
        inside = op_room(flow, op) if prices.fastest and op is not None else set()
        free = rooms - int(flow.value_size[sorted(inside)].sum()) if inside else rooms
        disputed = [[one for one in at if one.value not in inside] for at in (after if op is None else before)]
        sure = [[one for one in at if one.alive(*_sides(flow, op))] for at in disputed]
        gains = [_cover([one], [int(room)]) for one, room in zip(sure, free, strict=True)]
        moments += [(gain, _Moment(op, level, int(free[level]), disputed[level])) for level, gain in enumerate(gains)]
        together = _cover(sure, free.tolist()) if len(rooms) > 1 else 0.0
        if together > best:
            best, where = together, (op, len(rooms))
    moments.sort(key=lambda item: -item[0])
    for number, (gain, moment) in enumerate(moments):
        if number < cuts:
            gain = max(gain, _cut(flow, moment))
        if gain > best:
            best, where = gain, (moment.op, moment.level + 1)
    if best == 0:
        return []
    op, levels = where
    when = "at the end" if op is None else f"across {flow.op_names[op]}"
    names = " and ".join(machine.names[:levels])
    return [Bound(base + best, f"compulsory traffic, and what is alive {when} cannot all be in {names}")]


def _sides(flow: Dataflow, op: int | None) -> tuple[int, int]:
    """Return the ops that have run at a moment, and those that have not."""
    return ((1 << flow.ops) - 1, 0) if op is None else (flow.ancestors[op] | 1 << op, flow.descendants[op])


def _cover(costs: Sequence[Sequence[EvictionCost]], free: Sequence[int]) -> float:
    """Return the least that must be paid when so many units of the values listed per boundary stay within it.

    >>> _cover([[EvictionCost(0, 2, 6.0, 0, 0), EvictionCost(1, 2, 2.0, 0, 0)]], [3])
    1.0
    """
    sizes = {one.value: one.size for at in costs for one in at}
    place = {value: number for number, value in enumerate(sizes)}
    beyond = np.zeros((len(free), len(sizes)))
    for level, at in enumerate(costs):
        for one in at:
            beyond[level, place[one.value]] = one.cost
    return cheapest_places(np.array(list(sizes.values()), np.float64), beyond, free)


def _cut(flow: Dataflow, moment: _Moment) -> float:
    """Return the same for the set of ops, run by then, that suits the plan best: a min cut for each price of room."""
    rates = np.unique([one.cost / one.size for one in moment.costs if one.cost > 0])
    if len(rates) > RATES:
        rates = rates[np.linspace(0, len(rates) - 1, RATES).astype(int)]
    best = 0.0
    for rate in rates.tolist():
        weights = [min(one.cost, rate * one.size) for one in moment.costs]
        total = sum(weights)
        if total - rate * moment.free <= best:
            continue
        whole = all(weight == int(weight) for weight in weights) and total < _SCALE
        scale = 1.0 if whole else _SCALE / total
        value = _min_cut(flow, moment, [int(w * scale) for w in weights]) / scale
        best = max(best, value - rate * moment.free)
    return best


def _min_cut(flow: Dataflow, moment: _Moment, weights: list[int]) -> int:
    """Return the least weight of values alive, over all sets of ops that are closed under what must run before."""
    source, sink, first = flow.ops, flow.ops + 1, flow.ops + 2
    endless = sum(weights) + 1
    tails, heads, amounts = [], [], []

    def edge(tail: int, head: int, amount: int) -> None:
        tails.append(tail)
        heads.append(head)
        amounts.append(amount)

    ran, waiting = _sides(flow, moment.op)
    for op, ops in enumerate(flow.predecessors()):
        for earlier in ops:
            edge(op, earlier, endless)
        if ran >> op & 1:
            edge(source, op, endless)
        if waiting >> op & 1:
            edge(op, sink, endless)
    node = first
    for one, weight in zip(moment.costs, weights, strict=True):
        if weight == 0:
            continue
        # The value's first node is on the source's side once an op of `since` has run, its second node until all of `until` have.
        for op in members(one.since):
            edge(op, node, endless)
        for op in members(one.until):
            edge(node + 1, op, endless)
        edge(node if one.since else source, node + 1 if one.until else sink, weight)
        node += 2
    flow_ = max_flow.SimpleMaxFlow()
    flow_.add_arcs_with_capacity(np.array(tails), np.array(heads), np.array(amounts))
    if flow_.solve(source, sink) != flow_.OPTIMAL:
        return 0
    return int(flow_.optimal_flow())
