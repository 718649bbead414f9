"""The least cost of a graph that has only one order, with prices of room: the formula `pages`.

It is for two levels, a fast one of some room and a slow one without end, and for graphs of which every op waits for the one before
it. Let running any op again cost at least as much as storing its results in the slow level and fetching them back. Then a
cheapest plan runs every op once, in program order: a second run is replaced by those copies, for which there is always room.

A *moment* is right after an op has run. With a price p of a unit of room at each moment, a plan costs at least

    what it pays for each value + the price of the room that each value takes at all moments - the sum of p * room,

because no more than the room is taken at any moment. Without the room, values have nothing to do with one another, but for
parameters of a steady step: their first value starts in the levels that the last one ends in. The least that a value pays is a
shortest path. Its *places* are the fast level, the slow one, or both, when it is made, at each op that reads it, and at the end
where it must survive. Between two of these ops it is in the fast level at all moments, and pays for room, or at none: if it is not
at some moment, there is a copy in the slow level then and later, and it may as well be there alone all the time.

A certificate has pairs of an op and the price at its moment; other moments have none. Amounts are added up exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Any, NamedTuple

from pebbler.game.dataflow import NONE
from pebbler.game.graph import Graph
from pebbler.game.starts import PlayedGraph, free_starts, looped_params, start_choices
from pebbler.referee.certificates import NotProven, in_time, read_fraction, short
from pebbler.referee.programs.compulsory_traffic import exactly, run_cost

__all__ = ["pages_excluded", "prove_pages"]

Number = int | Fraction
FAST, SLOW = 1, 2  # places are sums of these
_PLACES = (FAST, SLOW, FAST | SLOW)


def pages_excluded(task: PlayedGraph) -> str:
    """Return the reason why the formula does not apply to a graph on a machine; empty if it applies."""
    machine = task.machine
    rooms = [level.capacity for level in machine.level]
    if machine.management != "explicit" or len(rooms) != 2 or rooms[0] is None or rooms[1] is not None:
        return "there are not two levels, the slow one without end"
    if machine.results != "apart" or free_starts(task):
        return "starts or results follow rules of their own"
    if not order_is_forced(task.graph):
        return "program order is not the only order"
    if not reruns_never_pay(task):
        return "running an op again may be cheaper than a store and a fetch"
    return ""


def order_is_forced(graph: Graph) -> bool:
    """Whether program order is the only legal order: every op must wait for the one before it.

    >>> from pebbler.workloads import mlp
    >>> chain = Graph("chain").tensor("x", 1, kind="input").tensor("y", 1).tensor("z", 1, kind="output")
    >>> order_is_forced(chain.op("a", ["x"], ["y"]).op("b", ["y"], ["z"])), order_is_forced(mlp())
    (True, False)
    """
    return all(op in before for op, before in enumerate(graph.dataflow.before.lists()[1:]))


def reruns_never_pay(task: PlayedGraph) -> bool:
    """Whether rerunning any op costs at least as much as storing its results in the slow level and loading them again."""
    flow, machine = task.graph.dataflow, task.machine
    anywhere = machine.operands == "any"
    read, write = [[exactly(getattr(level, way)) for level in machine.level] for way in ("read", "write")]
    size = flow.value_size.tolist()
    for op in range(flow.ops):
        if flow.op_can_rerun[op]:
            again = exactly(float(flow.op_cost[op]))
            again += min(read) * sum(size[one] for one in set(flow.op_reads.row(op).tolist())) if anywhere else 0
            fetched = max(read) + write[1] + read[1] + (0 if anywhere else write[0])
            if again < fetched * sum(size[one] for one in flow.op_writes.row(op).tolist()):
                return False
    return True


class _PagedValue(NamedTuple):
    """A value: its size, the op that makes it, the ops that read it in order, and the op that overwrites it, if there are any."""

    size: int
    maker: int
    readers: list[int]
    destroyer: int
    survives: bool


class _ValuePaths:
    """The values of a graph on two levels, and the least that they pay for given prices of room."""

    def __init__(self, task: PlayedGraph) -> None:
        flow = task.graph.dataflow
        self.ops, self.anywhere = flow.ops, task.machine.operands == "any"
        self.read, self.write = (
            [exactly(getattr(level, way)) for level in task.machine.level] for way in ("read", "write")
        )
        self.values = [
            _PagedValue(
                int(flow.value_size[value]),
                int(flow.value_maker[value]),
                sorted(set(flow.value_readers.row(value).tolist())),
                int(flow.value_destroyer[value]),
                bool(flow.value_must_survive[value]),
            )
            for value in range(flow.values)
        ]
        looped = [tensor for tensor in looped_params(task) if flow.start_value[tensor] != NONE]
        # Per last value of a parameter of a steady step: the first one.
        self.loops = {int(flow.final_value[tensor]): int(flow.start_value[tensor]) for tensor in looped}
        if len(self.loops) < len(looped):
            raise NotProven("two parameters end as one value")
        self.start = {  # per other value that is there at the start: its places
            int(flow.start_value[tensor]): sum(1 << level for level in set(levels or ()))
            for tensor, levels in start_choices(task).items()
            if tensor not in looped
        }

    def least(self, prices: Sequence[Number]) -> Number:
        """Return the least sum that all values pay, with a price of a unit of room per moment."""
        sums = list(accumulate(prices, initial=0))
        total: Number = 0
        for number, value in enumerate(self.values):
            first = self.loops.get(number)
            if first == number:
                total += min(self._pays(value, sums, at, at) for at in _PLACES)
            elif first is not None:
                begins = self.values[first]
                total += min(self._pays(begins, sums, at, None) + self._pays(value, sums, 0, at) for at in _PLACES)
            elif number not in self.loops.values():
                total += self._pays(value, sums, self.start.get(number, 0), None)
        return total

    def _pays(self, value: _PagedValue, sums: Sequence[Number], start: int, end: int | None) -> Number:
        """Return the least that a value pays that starts in some places, or is made, and ends in some places, if these matter."""
        at, size = value.maker, value.size
        reach: dict[int, Number] = {start: 0}
        if at != NONE:
            reach = {FAST: size * (sums[at + 1] - sums[at])}
            if self.anywhere:
                reach = {FAST: reach[FAST] + size * self.write[0], SLOW: size * self.write[1]}
        for op in value.readers:
            room = sums[op + 1] - sums[op] if op != value.destroyer else 0
            reach = {
                place: paid + size * (room if place & FAST else 0) + size * self._reading(place)
                for place, paid in self._until(value, reach, sums[op] - sums[at + 1]).items()
                if self.anywhere or place & FAST
            }
            at = op
        if value.survives or end is not None:
            reach = self._until(value, reach, sums[self.ops] - sums[at + 1])
        return min(reach.values()) if end is None else reach[end]

    def _reading(self, place: int) -> Number:
        return self.read[0 if place & FAST else 1] if self.anywhere else 0

    def _until(self, value: _PagedValue, reach: Mapping[int, Number], room: Number) -> dict[int, Number]:
        """Return the least by the places at the end of some moments: near at all of them, for the price of room, or at none."""
        store, fetch = self.read[0] + self.write[1], self.read[1] + self.write[0]
        found: dict[int, Number] = {}
        for after in _PLACES:
            ways: list[Number] = []
            for before, paid in reach.items():
                stored = 0 if before & SLOW else store
                ways.append(paid + value.size * (stored + (fetch if after & FAST else 0)))
                if before & after & FAST:
                    ways.append(paid + value.size * (room + (stored if after & SLOW else 0)))
            found[after] = min(ways)
        return found


def prove_pages(task: PlayedGraph, certificate: Mapping[str, Any], ends: float) -> Fraction:
    """Return the bound that a certificate of the formula `pages` proves."""
    if excluded := pages_excluded(task):
        raise NotProven(f"no facts are known where {excluded}")
    ops, pairs = len(task.graph.ops), certificate.get("prices")
    if not isinstance(pairs, Sequence) or isinstance(pairs, str):
        raise NotProven(f"expected a list of ops and prices, got {short(pairs)}")
    prices: list[Number] = [0] * ops
    for pair in pairs:
        try:
            op, price = pair
            if type(op) is not int or not 0 <= op < ops:
                raise ValueError
            prices[op] += read_fraction(price)
        except (TypeError, ValueError, ZeroDivisionError) as error:
            raise NotProven(f"{short(pair)} is not an op with a price") from error
    in_time(ends, 0, "values")
    room = int(task.machine.level[0].capacity or 0)
    return Fraction(run_cost(task) + _ValuePaths(task).least(prices)) - room * sum(prices, Fraction())
