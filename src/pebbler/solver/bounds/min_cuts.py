"""The cheapest set of values that can be alive at a moment, by min cuts; the flow through the cut is the proof."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from ortools.graph.python import max_flow

from pebbler.game.bit_sets import members
from pebbler.game.dataflow import Dataflow
from pebbler.referee.programs.compulsory_traffic import ValuePrices
from pebbler.referee.programs.cuts import Disputes, disputes, sides
from pebbler.solver.bounds.bound import Bound, certified
from pebbler.solver.problem import Problem

__all__ = ["best_cut"]

RATES = 6  # prices of room tried per moment
_SCALE = 1 << 40


def best_cut(problem: Problem, prices: ValuePrices, op: int | None, level: int) -> Bound | None:
    """Return the least cost at a moment over all sets of ops that may have run by then: a min cut for each price of room."""
    flow = problem.graph.dataflow
    found = disputes(problem, prices, op, level)
    rates = np.unique([float(one.cost) / one.size for one in found.costs if one.cost > 0])
    if len(rates) > RATES:
        rates = rates[np.linspace(0, len(rates) - 1, RATES).astype(int)]
    best: tuple[float, Fraction, float, list[list[int]]] | None = None
    for rough in rates.tolist():
        rate = Fraction(rough).limit_denominator(10**6)
        weights = [min(Fraction(one.cost), rate * one.size) for one in found.costs]
        total = float(sum(weights))
        if total - float(rate) * found.free <= (best[0] if best else 0.0):
            continue
        scale = 1 if all(weight.denominator == 1 for weight in weights) and total < _SCALE else _SCALE / total
        paths = _paths(flow, found, op, [int(weight * Fraction(scale)) for weight in weights])
        gain = sum(amount for amount, *_ in paths) / scale - float(rate) * found.free
        if gain > (best[0] if best else 0.0):
            best = gain, rate, scale, paths
    if best is None:
        return None
    _, rate, scale, paths = best
    listed = [[str(Fraction(amount) / Fraction(scale)), *values] for amount, *values in paths]
    when = "at the end" if op is None else f"across {flow.op_names[op]}"
    names = " and ".join(problem.machine.names[: level + 1])
    words = f"compulsory traffic, and what is alive {when} cannot all be in {names}"
    return certified(problem, words, "cut", op=op, level=level, rate=str(rate), paths=listed)


def _paths(flow: Dataflow, found: Disputes, op: int | None, weights: list[int]) -> list[list[int]]:
    """Return the flow against the least weight of values alive, over all sets of ops that are closed under what must run before.

    It comes as paths: an amount, and the values that it goes through.
    """
    source, sink, first = flow.ops, flow.ops + 1, flow.ops + 2
    endless = sum(weights) + 1
    tails: list[int] = []
    heads: list[int] = []
    amounts: list[int] = []

    def edge(tail: int, head: int, amount: int) -> None:
        tails.append(tail)
        heads.append(head)
        amounts.append(amount)

    ran, waiting = sides(flow, op)
    for number, ops in enumerate(flow.predecessors()):
        for earlier in ops:
            edge(number, earlier, endless)
        if ran >> number & 1:
            edge(source, number, endless)
        if waiting >> number & 1:
            edge(number, sink, endless)
    weighted: dict[int, int] = {}  # values by their edges
    node = first
    for one, weight in zip(found.costs, weights, strict=True):
        if weight == 0:
            continue
        # The value's first node is on the source's side once an op of `since` has run, its second node until all of `until` have.
        for other in members(one.since):
            edge(other, node, endless)
        for other in members(one.until):
            edge(node + 1, other, endless)
        weighted[len(tails)] = one.value
        edge(node if one.since else source, node + 1 if one.until else sink, weight)
        node += 2
    network = max_flow.SimpleMaxFlow()
    network.add_arcs_with_capacity(np.array(tails), np.array(heads), np.array(amounts))
    if network.solve(source, sink) != network.OPTIMAL:
        return []
    flows = {arc: int(network.flow(arc)) for arc in range(len(tails)) if network.flow(arc)}
    return list(_walks(flows, tails, heads, weighted, source, sink))


def _walks(
    flows: dict[int, int], tails: list[int], heads: list[int], weighted: dict[int, int], source: int, sink: int
) -> Iterator[list[int]]:
    """Yield amounts with the values on their way, until all that flows out of the source has arrived."""
    leaving: dict[int, list[int]] = {}
    for arc in flows:
        leaving.setdefault(tails[arc], []).append(arc)
    while leaving.get(source):
        way: list[int] = []
        at = source
        while at != sink:
            arcs = leaving[at]
            while not flows[arcs[-1]]:
                arcs.pop()
            way.append(arcs[-1])
            at = heads[arcs[-1]]
            begins = [number for number, arc in enumerate(way) if tails[arc] == at]
            if begins:  # what flows round in a circle goes nowhere
                circle, way = way[begins[0] :], way[: begins[0]]
                least = min(flows[arc] for arc in circle)
                for arc in circle:
                    flows[arc] -= least
        amount = min(flows[arc] for arc in way)
        for arc in way:
            flows[arc] -= amount
        yield [amount, *(weighted[arc] for arc in way if arc in weighted)]
        while leaving[source] and not flows[leaving[source][-1]]:
            leaving[source].pop()
