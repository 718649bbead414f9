"""Values that several ops want in the fastest level one after the other, and the cost of not staying there in between."""

from __future__ import annotations

from dataclasses import dataclass

from pebbler.game.dataflow import NONE, Dataflow
from pebbler.game.starts import PlayedGraph, looped_params
from pebbler.referee.programs.compulsory_traffic import Amount, ValuePrices
from pebbler.referee.programs.eviction_cost import copy_in, copy_out_and_in

__all__ = ["WantedValue", "stays"]


@dataclass(frozen=True)
class WantedValue:
    """A value that is wanted in the fastest level at the first runs of ops, each of which comes before the next in every order.

    Time is cut by these runs: gap i comes after that of `wanted[i]`, gap -1 before all of them. With `around` the last gap goes on
    into the next step, up to its first run. If the value is not in the fastest level at some moment of a gap, that costs `back[i]`;
    if it is ever so, that costs `away` besides. It may not exist, or not matter, in the gaps of `idle`.
    """

    values: frozenset[int]  # the value; for a param of a steady step its final value too
    size: int
    wanted: tuple[int, ...]
    back: Amount
    away: Amount
    idle: frozenset[int] = frozenset()
    around: bool = False
    tail: bool = False  # after the last run it need not come back

    def gaps(self, ran: int, waiting: int) -> set[int]:
        """Return the gaps in which a moment may be after the ops of `ran` and before those of `waiting`; empty if it may be idle.

        >>> stay = WantedValue(frozenset({7}), 1, (0, 1, 2), 1.0, 1.0, idle=frozenset({-1, 2}))
        >>> stay.gaps(ran=0b001, waiting=0b100), stay.gaps(ran=0b011, waiting=0b100), stay.gaps(ran=0b001, waiting=0)
        ({0, 1}, {1}, set())
        """
        last = len(self.wanted) - 1
        low = max((place for place, op in enumerate(self.wanted) if ran >> op & 1), default=-1)
        high = min((place - 1 for place, op in enumerate(self.wanted) if waiting >> op & 1), default=last)
        found = set(range(low, high + 1))
        if found & self.idle:
            return set()
        return {last if self.around and gap < 0 else gap for gap in found}

    def price(self, gap: int) -> Amount:
        """Return the cost of coming back within a gap."""
        return 0 if self.tail and gap == len(self.wanted) - 1 else self.back


def stays(task: PlayedGraph, prices: ValuePrices) -> list[WantedValue]:
    """Return all values that have to stay in the fastest level or pay for it.

    >>> from pebbler import machine, workloads
    >>> from pebbler.referee.rows.task import Task
    >>> task = Task(workloads.chain(3), machine("red-blue"), steady=False)
    >>> [(stay.wanted, int(stay.back), int(stay.away)) for stay in stays(task, ValuePrices.of(task))][:2]
    [((0, 6), 100, 0), ((0, 1, 5, 6), 1, 0)]
    """
    flow = task.graph.dataflow
    finals = {int(flow.start_value[tensor]): int(flow.final_value[tensor]) for tensor in looped_params(task)}
    merged = {final for first, final in finals.items() if final != first}
    found = []
    for value in range(flow.values):
        if value in finals:
            stay = _param(flow, prices, value, finals[value])
        elif value in merged or prices.start[value] == []:
            continue
        elif flow.value_maker[value] != NONE:
            stay = _made(flow, prices, value)
        else:
            stay = _started(flow, prices, value)
        if stay is not None and stay.size > 0 and stay.back + stay.away > 0:
            found.append(stay)
    return found


def _param(flow: Dataflow, prices: ValuePrices, value: int, final: int) -> WantedValue | None:
    """Return a steady step's param: what is updated is wanted by the next step, so it is copied out once if ever away."""
    readers = _in_turn(flow, value)
    if not readers:
        return None
    size, idle = int(min(flow.value_size[value], flow.value_size[final])), frozenset[int]()
    if final != value:
        updater = int(flow.value_maker[final])
        if updater not in readers:
            idle = frozenset({len(readers) - 1})  # nobody wants it any more
            readers = [*readers, updater]
    back = size * copy_in(prices, 0)
    away = size * copy_out_and_in(prices, 0) - back if final != value else 0
    return WantedValue(frozenset({value, final}), size, tuple(readers), back, away, idle, around=True)


def _made(flow: Dataflow, prices: ValuePrices, value: int) -> WantedValue | None:
    """Return the made values: they come back by a copy in, after a copy out, or by a rerun of their maker."""
    size, again = int(flow.value_size[value]), prices.again[value]
    readers, survives = _in_turn(flow, value), bool(flow.value_must_survive[value])
    if not readers and not survives:
        return None
    back = min(again, size * copy_in(prices, 0))
    away = max(0, min(again, size * copy_out_and_in(prices, 0)) - back)
    if survives:
        away = min(away, again, size * (prices.read[0] + min(prices.write[1:])))
    wanted = (int(flow.value_maker[value]), *readers)
    idle = frozenset({-1} if survives else {-1, len(wanted) - 1})
    return WantedValue(frozenset({value}), size, wanted, back, away, idle, tail=survives)


def _started(flow: Dataflow, prices: ValuePrices, value: int) -> WantedValue | None:
    """Return the start values: the first load is compulsory if they start elsewhere."""
    start, readers, size = prices.start[value], _in_turn(flow, value), int(flow.value_size[value])
    if start is None or not readers:
        return None
    away: Amount = 0
    back = size * copy_in(prices, 0)
    if start == [0]:
        away = size * copy_out_and_in(prices, 0) - back
    last = len(readers) - 1
    return WantedValue(
        frozenset({value}), size, tuple(readers), back, away, frozenset({last} if 0 in start else {-1, last})
    )


def _in_turn(flow: Dataflow, value: int) -> list[int]:
    """Return as many readers of a value as have to run one after the other, in that order."""
    readers = sorted(flow.value_readers.row(value).tolist(), key=lambda op: flow.ancestors[op].bit_count())
    best: dict[int, list[int]] = {}
    for op in readers:
        before = [best[other] for other in best if flow.ancestors[op] >> other & 1]
        best[op] = [*max(before, key=len, default=[]), op]
    return max(best.values(), key=len, default=[])
