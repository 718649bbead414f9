"""Values that cost nothing to recompute but need params that have left the fastest level, and these params.

A training step reads a param on its way forward and on its way back, and changes it at the end. The values between can be made
again on the way back, from the param and from what came before; but the param is wanted a little later than they are, when
other params have the room. `docs/exact.md` proves what is said of them in *Values made again*.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from pebbler.game.dataflow import NONE, Dataflow
from pebbler.referee.programs.compulsory_traffic import Amount, ValuePrices
from pebbler.referee.programs.eviction_cost import copy_out_and_in
from pebbler.referee.programs.wanted_values import WantedValue

__all__ = ["NOTHING_REMADE", "LineagePart", "ParamUpdate", "RemadeValues", "Remaking", "op_room", "remade_values"]

_DEEPEST = 3  # parts of a lineage: longer ones have hardly raised a bound
_MOST = 2_000  # remakings
_MOST_TRIED = 30_000  # lineages with two params; a graph whose ops read many changes has millions


@dataclass(frozen=True)
class ParamUpdate:
    """A start value, the last two ops that want it, and the change that the last one reads besides."""

    place: int  # of the value in the list of stays
    value: int
    near: int
    last: int
    change: int  # what the last one reads besides
    maker: int  # of the change
    gap: int  # between `near` and `last`


@dataclass(frozen=True)
class LineagePart:
    """Values made one from another without a param, and the size of the smallest."""

    values: frozenset[int]
    size: int


@dataclass(frozen=True)
class Remaking:
    """A lineage of parts that `second` needs for its change and that is recomputed only with the param of `first`."""

    parts: tuple[int, ...]
    first: ParamUpdate
    second: ParamUpdate

    @property
    def places(self) -> tuple[int, int]:
        """The two params, by their places in the list of stays."""
        return self.first.place, self.second.place

    @property
    def changes(self) -> set[int]:
        """The changes of the two params."""
        return {self.first.change, self.second.change}


@dataclass(frozen=True)
class RemadeValues:
    """Updates and lineages of a graph, and the cost of copying a value out and in beyond the charge of its own stay."""

    updates: tuple[ParamUpdate, ...] = ()
    parts: tuple[LineagePart, ...] = ()
    remakings: tuple[Remaking, ...] = ()
    copies: dict[int, Amount] = field(default_factory=dict)


NOTHING_REMADE = RemadeValues()


def remade_values(flow: Dataflow, prices: ValuePrices, found: list[WantedValue], capacity: int) -> RemadeValues:
    """Return the updates of a graph, and the lineages whose recomputation needs a param to come in once more.

    >>> from pebbler import Level, Machine, workloads
    >>> from pebbler.referee.programs.wanted_values import stays
    >>> from pebbler.referee.rows.task import Task
    >>> graph = workloads.get("deep-mlp:n=20,hidden=100,layers=4,batch=32")
    >>> levels = (Level("fast", 0, 0, capacity=30_000), Level("slow", 1, 1))
    >>> two = Machine("two", graph.unit, levels, "explicit", "fastest")
    >>> task = Task(graph, two, steady=True)
    >>> prices = ValuePrices.of(task)
    >>> remade = remade_values(graph.dataflow, prices, stays(task, prices), 30_000)
    >>> [[graph.dataflow.op_names[update.near] for update in (one.second, one.first)] for one in remade.remakings]
    [['bwd_dh2', 'bwd_dh1'], ['bwd_dh3', 'bwd_dh2'], ['bwd_dh3', 'bwd_dh1']]
    """
    updates = tuple(_updates(flow, found))
    changed: dict[int, list[ParamUpdate]] = {}
    for update in updates:
        changed.setdefault(update.value, []).append(update)
    rooms = _Rooms(flow)
    paths: list[tuple[tuple[int, ...], ParamUpdate, ParamUpdate]] = []
    members: dict[int, set[int]] = {}
    tried = ((second, path, first) for second in updates for path, first in _lineages(flow, changed, second))
    for second, path, first in islice(tried, _MOST_TRIED):
        if _excludes(rooms, capacity, first, second, path):
            paths.append((tuple(path), first, second))
            for root, values in path.items():
                members.setdefault(root, set()).update(values)
            if len(paths) == _MOST:
                break
    number = {root: place for place, root in enumerate(members)}
    parts = tuple(
        LineagePart(frozenset(values), int(flow.value_size[sorted(values)].min())) for values in members.values()
    )
    remakings = tuple(Remaking(tuple(number[root] for root in roots), first, second) for roots, first, second in paths)
    copied = {value for part in parts for value in part.values} | {update.change for update in updates}
    both = copy_out_and_in(prices, 0)
    copies: dict[int, Amount] = {}
    for value in sorted(copied):
        price = int(flow.value_size[value]) * both
        copies[value] = price - min(price, prices.again[value])
    return RemadeValues(updates, parts, remakings, copies)


def op_room(flow: Dataflow, op: int) -> set[int]:
    """Return the units in the fastest level right after an op has run: its results, and the reads that it did not overwrite."""
    left = set(flow.op_reads.row(op).tolist()) - set(flow.op_destroys.row(op).tolist())
    return left | set(flow.op_writes.row(op).tolist())


class _Rooms:
    """The room of ops, looked up again and again."""

    def __init__(self, flow: Dataflow) -> None:
        self.flow = flow
        self.size: list[int] = flow.value_size.tolist()
        self._known: dict[int, tuple[set[int], int]] = {}

    def crowd(self, op: int, *values: int) -> int:
        """Return the size of an op's room and of some values together."""
        if op not in self._known:
            room = op_room(self.flow, op)
            self._known[op] = room, sum(self.size[value] for value in room)
        room, taken = self._known[op]
        return taken + sum(self.size[value] for value in set(values) - room)


def _updates(flow: Dataflow, found: list[WantedValue]) -> Iterator[ParamUpdate]:
    for place, stay in enumerate(found):
        if len(stay.wanted) < 2:
            continue
        near, last = stay.wanted[-2:]
        reads = set(flow.op_reads.row(last).tolist())
        both = reads & set(flow.op_reads.row(near).tolist()) & stay.values
        for value in sorted(both):
            if flow.value_maker[value] == NONE:
                for change in sorted(reads - {value}):
                    maker = int(flow.value_maker[change])
                    if maker != NONE:
                        yield ParamUpdate(place, value, near, last, change, maker, len(stay.wanted) - 2)


def _lineages(
    flow: Dataflow, changed: dict[int, list[ParamUpdate]], second: ParamUpdate
) -> Iterator[tuple[dict[int, set[int]], ParamUpdate]]:
    """Yield the values that a change is made from, back to each op that reads another param, grouped by part."""
    for start in flow.op_reads.row(second.maker).tolist():
        value, part, path = start, set[int](), dict[int, set[int]]()
        while flow.value_maker[value] != NONE and len(path) < _DEEPEST:
            part.add(value)
            reads = flow.op_reads.row(int(flow.value_maker[value])).tolist()
            params = [read for read in reads if read in changed]
            if params:
                path = {**path, value: part}
                part = set()
            for param in params:
                if param != second.value:
                    for first in changed[param]:
                        yield path, first
            made = [read for read in reads if flow.value_maker[read] != NONE]
            if len(made) != 1:
                break
            value = made[0]


def _excludes(rooms: _Rooms, capacity: int, first: ParamUpdate, second: ParamUpdate, path: dict[int, set[int]]) -> bool:
    """Say whether the two params cannot each stay in one piece while the lineage of a path is made again."""
    return (
        rooms.crowd(second.near, first.value, second.change) > capacity
        and rooms.crowd(second.maker, first.value, second.value) > capacity
        and rooms.crowd(first.maker, first.value, second.value) > capacity
        and _read_between(rooms.flow, first, second, set().union(*path.values()))
    )


def _read_between(flow: Dataflow, first: ParamUpdate, second: ParamUpdate, lineage: set[int]) -> bool:
    """Say whether a lineage is read after the second param was wanted, in every order, and before the first one's change."""
    return any(
        flow.ancestors[reader] >> second.near & 1 and flow.ancestors[first.maker] >> reader & 1
        for value in lineage
        for reader in flow.value_readers.row(value).tolist()
    )
