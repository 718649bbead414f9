"""A pebble game of two levels as the flat arrays that `kernels.pebble_astar` plays.

`docs/exact.md` ("Pebble games of two levels") says what is left out, and why no plan costs more for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pebbler.arrays import Floats, Ints
from pebbler.extras.pebbles.kernels.pebble_state import ABOVE, READS, WITHIN, WRITES, PebbleGame
from pebbler.game.bit_sets import bit_set, members
from pebbler.game.dataflow import NONE
from pebbler.solver.bounds.priced_room import cheapest_excess
from pebbler.solver.problem import Problem

__all__ = ["PebbleRules", "pebble_rules"]

WORD = 62  # ops, and values, that a set has room for
MOST = 200  # pebbles: levels are bytes

# Per value, its readers and its maker; the values that are made where they are first read.
_OfValue = tuple[list[int], Ints, int]


@dataclass(frozen=True)
class PebbleRules:
    """The game, its start, and the meaning of its numbers."""

    game: PebbleGame
    fast: int  # the values that start in the fast level, and in the slow one
    slow: int
    values: list[int]  # per value of the game: its number in the graph
    inputs: list[list[int]]  # per op: inputs that only it reads, which every run loads and drops
    weightless: list[int]  # inputs of size 0 that start in the slow level: they come at once, and stay
    base: float  # what every plan pays beside the moves that are searched
    ops: list[int]  # per op of the game: its number in the graph
    sources: dict[int, int]  # per value that is made where it is first read: the op of the graph that makes it


def pebble_rules(problem: Problem, *, join_sources: bool = False) -> PebbleRules | None:
    """Return the game, or None where it is of another kind or too large.

    With `join_sources`, an op that makes a value from an input of its own runs with the first op that reads it, and is not listed.

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
    if (
        fast.capacity is None
        or slow.capacity is not None
        or not 0 < flow.ops <= 2 * WORD
        or len(flow.destroyed_values())
    ):
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
    sources = _sources(problem, inputs) if join_sources and not np.isfinite(again).any() else {}
    ops = [op for op in range(flow.ops) if op not in sources.values()]
    if len(values) > WORD or not 0 < len(ops) <= WORD or (again <= 0).any():
        return None
    number = {value: i for i, value in enumerate(values)}
    at_start = [bit_set(number[v] for v, levels in start.items() if v in number and at in levels) for at in (0, 1)]
    sources = {number[value]: op for value, op in sources.items()}
    game = _game(problem, _Parts(values, ops, sources, inputs), again, prices, at_start[0])
    if int(game.needs.max()) > game.capacity:
        return None
    base = float(flow.op_cost.sum()) + prices[0] * len(inside)
    weightless = [v for v, levels in start.items() if not flow.value_size[v] and 0 not in levels]
    return PebbleRules(game, at_start[0], at_start[1], values, inputs, weightless, base, ops, sources)


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
    """Return, per op, what a second run costs; infinity where it costs as much as to store all results and load what is read."""
    flow = problem.graph.dataflow
    again = np.full(flow.ops, math.inf)
    for op in np.flatnonzero(flow.op_can_rerun).tolist():
        price = float(flow.op_cost[op]) + prices[0] * len(inputs[op])
        results = [v for v in flow.op_writes.row(op).tolist() if flow.value_size[v]]
        if price < sum(prices[1] + prices[0] * (len(flow.value_readers.row(v)) > 0) for v in results):
            again[op] = price
    return again


def _sources(problem: Problem, inputs: list[list[int]]) -> dict[int, int]:
    """Return the values that an op makes from one input of its own and from nothing else, and that op.

    It can wait until the first op that reads its result: beside what that op reads, the place of that op's own result is free.
    """
    flow, size = problem.graph.dataflow, problem.graph.dataflow.value_size
    found = {}
    for op in range(flow.ops):
        writes = flow.op_writes.row(op).tolist()
        if len(writes) != 1 or flow.op_reads.row(op).tolist() != inputs[op] or len(inputs[op]) != 1:
            continue
        readers = flow.value_readers.row(writes[0]).tolist()
        if not readers or not size[writes[0]] or flow.value_must_survive[writes[0]]:
            continue
        if all(size[flow.op_writes.row(reader)].any() for reader in readers):
            found[writes[0]] = op
    return found


class _Parts(NamedTuple):
    """The values and ops of the graph in play, in this order; values made where they are first read; inputs of one op."""

    values: list[int]
    ops: list[int]
    sources: dict[int, int]
    inputs: list[list[int]]


def _game(problem: Problem, parts: _Parts, again: Floats, prices: tuple[float, float], fast: int) -> PebbleGame:
    flow, values = problem.graph.dataflow, parts.values
    capacity = (problem.machine.level[0].capacity or 0) // int(flow.value_size.max())
    place = {op: i for i, op in enumerate(parts.ops)}
    again = again[parts.ops]
    maker = np.array([place.get(int(op), NONE) for op in flow.value_maker[values]], np.int64)
    readers = [_renumbered(bit_set(flow.value_readers.row(value).tolist()), place) for value in values]
    survive = bit_set(i for i, value in enumerate(values) if flow.value_must_survive[value])
    cheap = bit_set(i for i, op in enumerate(maker.tolist()) if op != NONE and again[op] < math.inf)
    price = np.full(len(values), prices[0])
    for i in members(cheap):
        # One run brings all results.
        price[i] = min(price[i], again[maker[i]] / len(flow.op_writes.row(parts.ops[maker[i]])))
    made_at_read = bit_set(parts.sources)
    given = bit_set(np.flatnonzero(maker == NONE).tolist()) & ~made_at_read
    table = _table(problem, parts, place, (readers, maker, made_at_read), survive, cheap)
    needs = np.array(
        [
            int(row[READS] | row[WRITES]).bit_count() + len(parts.inputs[op])
            for row, op in zip(table, parts.ops, strict=True)
        ],
        np.int64,
    )
    return PebbleGame(
        capacity=capacity,
        load=prices[0],
        store=prices[1],
        rounding=problem.scale.rounding,
        survive=survive,
        given=given,
        made_at_read=made_at_read,
        cheap=cheap,
        repeat=bit_set(np.flatnonzero(again < math.inf).tolist()),
        ops=table,
        readers=np.array(readers, np.int64),
        maker=maker,
        needs=needs,
        again=again,
        price=price,
        tail=_tails(table, (readers, maker, made_at_read), price, capacity - needs),
        fetched=given & ~fast,
        least=float(price.min(initial=prices[0])),
        sets=np.empty((0, 1), np.int64),
        slots=np.empty(0, np.int32),
        tightest=np.empty((0, 1), np.uint8),
        fillings=np.empty(0, np.int64),
        least_after=np.empty((0, 1)),
        fixed=np.empty(0, np.int64),
        swap_start=np.zeros(1, np.int64),
        swaps=np.empty(0, np.int64),
        pair_start=np.zeros(1, np.int64),
        pairs=np.empty((0, 3), np.int64),
    )


def _renumbered(ops: int, place: dict[int, int]) -> int:
    return bit_set(place[op] for op in members(ops) if op in place)


def _table(
    problem: Problem, parts: _Parts, place: dict[int, int], of_value: _OfValue, survive: int, cheap: int
) -> Ints:
    """Return the game's table of ops: sets of values, then sets of ops."""
    flow, readers = problem.graph.dataflow, of_value[0]
    number = {value: i for i, value in enumerate(parts.values)}
    before, rows = flow.predecessors(), []
    for op in parts.ops:
        reads, writes = (
            bit_set(number[v] for v in row.row(op).tolist() if v in number) for row in (flow.op_reads, flow.op_writes)
        )
        within, above = (_renumbered(ops, place) for ops in (flow.ancestors[op] | 1 << op, flow.descendants[op]))
        later = bit_set(v for v, row in enumerate(readers) if row & above) | survive
        across = _made_by(within, of_value) & later & ~cheap & ~reads & ~writes
        rows.append((reads, writes, across, _renumbered(bit_set(before[op]), place), within, above))
    return np.array(rows, np.int64)


def _made_by(ops: int, of_value: _OfValue) -> int:
    """Return the values that are there once some ops have run: what they made, and what nothing makes."""
    readers, maker, made_at_read = of_value
    return bit_set(
        i
        for i, op in enumerate(maker.tolist())
        if (readers[i] & ops if made_at_read >> i & 1 else op == NONE or ops >> op & 1)
    )


def _tails(table: Ints, of_value: _OfValue, price: Floats, room: Ints) -> Floats:
    """Return, per op, the least that must be paid after its first run to bring values back.

    Just after it there is room for so many values beside its own. All others that the ops between it and a later op read, and that
    it finds made, have to be brought back before that later op's first run; what comes after that is paid for besides.
    """
    readers, tails = of_value[0], np.zeros(len(table))
    rows = table.tolist()
    for op in range(len(rows) - 1, -1, -1):
        above = rows[op][ABOVE]
        made = _made_by(rows[op][WITHIN], of_value) & ~(rows[op][READS] | rows[op][WRITES])
        ends = [(above, 0.0), *((above & rows[later][WITHIN], float(tails[later])) for later in members(above))]
        for between, after in ends:
            chosen = [i for i in members(made) if readers[i] & between]
            paid = cheapest_excess(np.ones(len(chosen)), price[chosen], int(room[op])) if chosen else 0.0
            tails[op] = max(tails[op], paid + after)
    return tails
