"""Some values are alive at a moment whatever has run by then: the formula `cut`.

Stop a plan right after an op has run for the first time, or at its end, and let S be the ops that have run. S has with an op all
that must run before it, the op itself, and nothing that must run after it. A value is *alive* if an op of its `since` is in S and
one of its `until` is not (`pebbler.referee.programs.eviction_cost`); if it is not in the fast levels then, it costs something.

A *path* is a list of values. The first has a `since` in every S, the last an `until` in none, and of any two that follow each other
some `since` of the second must run before an `until` of the first, or is that op. One of these values is alive, whatever S is: if
the first is not, all of its `until` are in S; then so is a `since` of the second; and so on.

A certificate has a moment, how many levels count as fast, a price of a unit of room in them, and paths with amounts. If the amounts
of the paths through each value come to no more than its eviction cost and than the price of its room, then everything that is
alive costs, with the price of the room that it takes, at least all amounts together; and there is only so much room.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

from pebbler.game.bit_sets import members
from pebbler.game.dataflow import Dataflow
from pebbler.game.starts import PlayedGraph
from pebbler.referee.certificates import NotProven, in_time, read_fraction, short
from pebbler.referee.programs.compulsory_traffic import ValuePrices, compulsory_traffic
from pebbler.referee.programs.eviction_cost import EvictionCost, bounded_rooms, eviction_costs
from pebbler.referee.programs.remade_values import op_room

__all__ = ["Disputes", "disputes", "prove_cut", "sides"]

_MOST_OPS = 5_000  # sets of ops are whole numbers of so many bits


def sides(flow: Dataflow, op: int | None) -> tuple[int, int]:
    """Return the ops that have run at a moment, and those that have not, as bits."""
    return ((1 << flow.ops) - 1, 0) if op is None else (flow.ancestors[op] | 1 << op, flow.descendants[op])


class Disputes:
    """The dispute over the room in the levels up to one at a moment: values that may be alive, and the room there is."""

    def __init__(self, costs: Sequence[EvictionCost], free: int) -> None:
        self.costs, self.free = costs, free


def disputes(task: PlayedGraph, prices: ValuePrices, op: int | None, level: int) -> Disputes:
    """Return the values that may be alive right after an op's first run, or at the end, besides those that the op holds."""
    flow = task.graph.dataflow
    inside = op_room(flow, op) if prices.fastest and op is not None else set()
    costs = [one for one in eviction_costs(task, prices, level, at_end=op is None) if one.value not in inside]
    room = int(bounded_rooms(task.machine)[level])
    return Disputes(costs, room - int(flow.value_size[sorted(inside)].sum()) if inside else room)


def prove_cut(task: PlayedGraph, certificate: Mapping[str, Any], ends: float) -> Fraction:
    """Return the bound that a certificate of the formula `cut` proves."""
    flow, machine = task.graph.dataflow, task.machine
    if machine.management != "explicit" or flow.ops > _MOST_OPS:
        raise NotProven("paths are known in graphs of some thousand ops where a plan places everything")
    op, level, listed = certificate.get("op"), certificate.get("level"), certificate.get("paths")
    if op is not None and (type(op) is not int or not 0 <= op < flow.ops):
        raise NotProven(f"there is no op {short(op)}")
    if type(level) is not int or not 0 <= level < len(machine.level) - 1:
        raise NotProven(f"{short(level)} is no level that others are slower than")
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise NotProven("it has no list of paths")
    prices = ValuePrices.of(task)
    found = disputes(task, prices, op, level)
    known = {one.value: one for one in found.costs}
    ran, waiting = sides(flow, op)
    charged: dict[int, Fraction] = defaultdict(Fraction)
    total = Fraction()
    try:
        rate = read_fraction(certificate.get("rate"))
        for number, (amount, *path) in enumerate(listed):
            in_time(ends, number, "paths")
            through = [known[value] for value in path]
            if not _one_is_alive(flow, through, ran, waiting):
                raise NotProven(f"none of the values {short(path)} need be alive then")
            total += read_fraction(amount)
            for value in path:
                charged[value] += read_fraction(amount)
    except (TypeError, ValueError, KeyError, ZeroDivisionError) as error:
        raise NotProven("a path is an amount and values that may be alive then") from error
    for value, amount in charged.items():
        if amount > min(known[value].cost, rate * known[value].size):
            raise NotProven(
                f"value {value} is charged {float(amount)}, above its eviction cost or the price of its room"
            )
    return Fraction(compulsory_traffic(task, prices)) + max(Fraction(), total - rate * found.free)


def _one_is_alive(flow: Dataflow, path: Sequence[EvictionCost], ran: int, waiting: int) -> bool:
    """Return whether one of these values is alive whenever the ops of `ran` have run and those of `waiting` have not."""
    if not path or (path[0].since and not path[0].since & ran) or (path[-1].until and not path[-1].until & waiting):
        return False
    return all(
        one.until and other.since and any((flow.ancestors[op] | 1 << op) & other.since for op in members(one.until))
        for one, other in pairwise(path)
    )
