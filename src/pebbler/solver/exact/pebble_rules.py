"""A pebble game of two levels as the flat arrays that `kernels.pebble_astar` plays.

`docs/exact.md` ("Pebble games of two levels") says what is left out, and why no plan costs more for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pebbler.arrays import Floats, Ints
from pebbler.game.bit_sets import bit_set, members
from pebbler.game.dataflow import NONE
from pebbler.solver.bounds.eviction_cost import cheapest_excess
from pebbler.solver.exact.kernels.pebble_state import READS, WRITES, PebbleGame
from pebbler.solver.problem import Problem

__all__ = ["PebbleRules", "pebble_rules"]

WORD = 62  # ops, and values, that a set has room for
MOST = 200  # pebbles: levels are bytes


@dataclass(frozen=True)
class PebbleRules:
    """The game, its start, and what its numbers stand for."""

    game: PebbleGame
    fast: int  # the values that start in the fast level, and in the slow one
    slow: int
    values: list[int]  # per value of the game: its number in the graph
    inputs: list[list[int]]  # per op: inputs that only it reads, which every run loads and drops
    weightless: list[
        int
    ]  # inputs of size 0 that start in the slow level: they come at once, and nothing of size 0 ever goes
    base: float  # what every plan pays beside the moves that are searched


def pebble_rules(problem: Problem) -> PebbleRules | None:
    """Return the game, or None where it is of another kind or too large.

    >>> from pebbler import machine, workloads
    >>> rules = pebble_rules(Problem.of(workloads.chain(3), machine("red-blue"), start={"N0": "fast"}))
    >>> rules.game.load, rules.game.store, len(rules.values), rules.base
    (100.0, 100.0, 4, 7.0)
    """
    flow, machine = problem.graph.dataflow, problem.machine
    if machine.management != "explicit" or machine.operands != "fastest" or len(machine.level) != 2 or problem.steady:
        return None
    if not problem.plain:
        return None
    fast, slow = machine.level
    if fast.capacity is None or slow.capacity is not None or not 0 < flow.ops <= WORD or len(flow.destroyed_values()):
        return None
    size = int(flow.value_size.max())
    if size == 0 or np.setdiff1d(flow.value_size, [0, size]).size or fast.capacity // size > MOST:
        return None
    prices = (float(size * (slow.read + fast.write)), float(size * (fast.read + slow.write)))
    start = {int(flow.start_value[tensor]): levels or [] for tensor, levels in problem.start_choices().items()}
    inputs = _inputs_of_one_op(problem, start, prices)
    inside = {value for row in inputs for value in row}
    values = [value for value in range(flow.values) if value not in inside and flow.value_size[value]]
    again = _prices_of_running_again(problem, inputs, prices)
    if len(values) > WORD or (again <= 0).any():
        return None
    number = {value: i for i, value in enumerate(values)}
    at_start = [bit_set(number[v] for v, levels in start.items() if v in number and at in levels) for at in (0, 1)]
    game = _game(problem, values, inputs, again, prices, at_start[0])
    if int(game.needs.max()) > game.capacity:
        return None
    base = float(flow.op_cost.sum()) + prices[0] * len(inside)
    weightless = [v for v, levels in start.items() if not flow.value_size[v] and 0 not in levels]
    return PebbleRules(game, at_start[0], at_start[1], values, inputs, weightless, base)


def _inputs_of_one_op(problem: Problem, start: dict[int, list[int]], prices: tuple[float, float]) -> list[list[int]]:
    """Return, per op, the inputs that it alone reads and that are best loaded just before and dropped just after it."""
    flow = problem.graph.dataflow
    found: list[list[int]] = [[] for _ in range(flow.ops)]
    for value, levels in start.items():
        readers = set(flow.value_readers.row(value).tolist())
        if levels == [1] and len(readers) == 1 and flow.value_size[value]:
            op = readers.pop()
            results = int(np.count_nonzero(flow.value_size[flow.op_writes.row(op)]))
            if results <= 1 or not flow.op_can_rerun[op] or flow.op_cost[op] >= results * sum(prices):
                found[op].append(value)
    return found


def _prices_of_running_again(problem: Problem, inputs: list[list[int]], prices: tuple[float, float]) -> Floats:
    """Return, per op, what a second run costs; infinity where it costs as much as to store all results and load them."""
    flow = problem.graph.dataflow
    again = np.full(flow.ops, math.inf)
    for op in np.flatnonzero(flow.op_can_rerun).tolist():
        price = float(flow.op_cost[op]) + prices[0] * len(inputs[op])
        if price < np.count_nonzero(flow.value_size[flow.op_writes.row(op)]) * sum(prices):
            again[op] = price
    return again


def _game(
    problem: Problem, values: list[int], inputs: list[list[int]], again: Floats, prices: tuple[float, float], fast: int
) -> PebbleGame:
    flow = problem.graph.dataflow
    capacity = (problem.machine.level[0].capacity or 0) // int(flow.value_size.max())
    number = {value: i for i, value in enumerate(values)}
    maker = flow.value_maker[values].astype(np.int64)
    readers = [bit_set(flow.value_readers.row(value).tolist()) for value in values]
    survive = bit_set(i for i, value in enumerate(values) if flow.value_must_survive[value])
    cheap = bit_set(i for i, op in enumerate(maker.tolist()) if op != NONE and again[op] < math.inf)
    price = np.full(len(values), prices[0])
    for i in members(cheap):
        price[i] = min(price[i], again[maker[i]] / len(flow.op_writes.row(maker[i])))  # one run brings all results
    reads, writes = (
        [bit_set(number[v] for v in row if v in number) for row in rows]
        for rows in (flow.op_reads.lists(), flow.op_writes.lists())
    )
    needs = np.array([(a | b).bit_count() + len(c) for a, b, c in zip(reads, writes, inputs, strict=True)], np.int64)
    across = []
    for op in range(flow.ops):
        made = _made_by(flow.ancestors[op] | 1 << op, maker)
        later = bit_set(i for i, row in enumerate(readers) if row & flow.descendants[op]) | survive
        across.append(made & later & ~cheap & ~reads[op] & ~writes[op])
    before = [bit_set(row) for row in flow.predecessors()]
    within = [ancestors | 1 << op for op, ancestors in enumerate(flow.ancestors)]
    table = np.array([reads, writes, across, before, within, flow.descendants], np.int64).T.copy()
    room = capacity - needs
    given = bit_set(np.flatnonzero(maker == NONE).tolist())
    return PebbleGame(
        capacity=capacity,
        load=prices[0],
        store=prices[1],
        survive=survive,
        given=given,
        cheap=cheap,
        repeat=bit_set(np.flatnonzero(again < math.inf).tolist()),
        ops=table,
        readers=np.array(readers, np.int64),
        maker=maker,
        needs=needs,
        again=again,
        price=price,
        tail=_tails(problem, table, (readers, maker, price), room),
        fetched=given & ~fast,
        least=float(price.min(initial=prices[0])),
        sets=np.empty(0, np.int64),
        slots=np.empty(0, np.int32),
        tightest=np.empty((0, 1), np.uint8),
    )


def _made_by(ops: int, maker: Ints) -> int:
    """Return the values that are there once some ops have run: what they made, and what nothing makes."""
    return bit_set(i for i, op in enumerate(maker.tolist()) if op == NONE or ops >> op & 1)


def _tails(problem: Problem, table: Ints, of_value: tuple[list[int], Ints, Floats], room: Ints) -> Floats:
    """Return, per op, the least that must be paid after its first run to bring values back.

    Just after it there is room for so many values beside its own. All others that the ops between it and a later op read, and that
    it finds made, have to be brought back before that later op's first run; what comes after that is paid for besides.
    """
    flow, (readers, maker, price) = problem.graph.dataflow, of_value
    tails = np.zeros(flow.ops)
    for op in range(flow.ops - 1, -1, -1):
        made = _made_by(flow.ancestors[op] | 1 << op, maker) & ~int(table[op, READS] | table[op, WRITES])
        ends = [(flow.descendants[op], 0.0)]
        for later in members(flow.descendants[op]):
            ends.append((flow.descendants[op] & (flow.ancestors[later] | 1 << later), float(tails[later])))
        for between, after in ends:
            chosen = [i for i in members(made) if readers[i] & between]
            paid = cheapest_excess(np.ones(len(chosen)), price[chosen], int(room[op])) if chosen else 0.0
            tails[op] = max(tails[op], paid + after)
    return tails
