"""The least depth in a cache of the elements that a piece reads, by their possible last touches.

Let a piece p of op u read an element e, and let q, a piece of op w, have touched e last in an earlier move. A tile is touched
whole, so the units above e when p reads it, and e itself, include its tile, all that q touches after its last touch of that tile,
and all that p touches before it. So e lies at least as deep as these together are large. What counts:

- *Which tiles.* A piece touches its reads in the op's order, then what it writes; sums that it goes on with are the last of the
  reads. What is added once to a sum, and what fusion may remove, is left out. A fused op reads what its parts read, one part
  after the other, each tensor where it comes first. So what comes before the tile of e includes what does so in the part that has
  it first, whichever that is; and after it come at least the results of each part that touches it, unless one of them overwrites
  it. Of all parts the least is taken. Where nothing can be fused the order is known.
- *How large.* Along the axes of e's value, where its tile has the full size, the tiles of q and p have, too. Along others a tile
  of q may be the smallest one, and so may one of p, unless p is known to be a piece of full size. An axis that an op needs whole
  counts in full.
- *Places.* Storages that are there at the start have addresses of their own; with allocator `own` all have. Others may follow
  each other at one address, but not two that one piece touches, nor while e is there: of those touched by q and of those touched
  by p only the larger sum counts. What is in both lists counts once.
- *Who.* Between the making of a value and a read of it, its storage is touched by its maker and its readers only; between two
  pieces of a sum by nobody. A value that is there at the start may have been touched last by whatever touches its storage, in the
  step before. But an op that overwrites a value has waited for all other readers: if there are any, q is one of them.
- *How often.* Every touch of e is followed by one next touch at most. So of u's reads of e no more are found within a reach than
  there are touches by ops w that may leave it there: the pieces of w that touch e, if w cannot run again; otherwise any number,
  as for w = u.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from pebbler.game.dataflow import NONE
from pebbler.referee.rows.elements import Axes, Elements
from pebbler.referee.rows.task import Task
from pebbler.referee.rows.tile_range import TileRange

__all__ = ["LastTouches"]

_MOST_KEPT = 50_000
_MOST_VALUES = 400  # in graphs of more values the time goes into cases

# Per storage: a tensor of which a piece touches a tile, and the axes of which it touches all.
Tiles = Mapping[int, tuple[int, Axes]]


@dataclass(frozen=True)
class _LastTouch:
    """A possible last touch of an element before a read: the units above it then, and how often this can be in a step."""

    above: tuple[tuple[Tiles, Tiles], ...]  # touched after it by that piece, and before it by the one that reads
    pieces: tuple[int, Axes] | None  # ops and the axes that cut them apart; None: any number, they may run again
    same: bool  # another piece of the readers themselves

    @property
    def may_be_next(self) -> bool:
        """Whether nothing need be above the element, any number of times."""
        return self.pieces is None and any(not after and not before for after, before in self.above)


class LastTouches:
    """Possible last touches of every value before each of its readers, for ranges that agree on the axes that are cut."""

    def __init__(self, task: Task, elements: Elements, reach: Sequence[int]) -> None:
        self.task, self.elements = task, elements
        self.reach = [units // task.machine.line for units in reach]  # in lines
        flow = self.flow = elements.flow
        self.known = flow.values <= _MOST_VALUES
        self.storage = [int(flow.storage[tensor]) for tensor in flow.value_tensor]
        starts = flow.start_value != NONE
        fixed = starts if task.machine.allocator == "reuse" else np.ones(len(starts), np.bool_)
        self.fixed = set(flow.storage[fixed].tolist())  # storages that never change places with others
        self.mates = [
            [task.graph.tensors[k] for k in np.flatnonzero(flow.storage == storage)] for storage in self.storage
        ]
        self._touches: dict[tuple[int, int | None], tuple[list[_LastTouch], Axes]] = {}
        self._found: dict[object, list[int | None]] = {}
        self._range: TileRange | None = None  # the range that was asked for last, and tiles that were measured for it
        self._of_tiles: dict[tuple[int, Axes, Axes], int] = {}

    def near(
        self, tiles: TileRange, value: int, group: int | None, *, full: Axes, full_piece: bool
    ) -> list[int | None]:
        """Return the greatest number of a group's reads of an element that are found within each reach; None for any number.

        The element is in a tile of full size along the axes `full`; the piece that reads it may be known to be of full size.
        Without a group it is its maker that adds to it.
        """
        if (value, group) not in self._touches:
            found = list(self._adding(value) if group is None else self._reading(value, group))
            self._touches[value, group] = found, self._axes(value, found)
        touches, axes = self._touches[value, group]
        if any(one.may_be_next for one in touches):
            return [None] * len(self.reach)  # its tile is all that is certain
        # What has been found for other ranges holds if they agree on these axes.
        ranges = tuple((one.least, one.most) for axis in axes if (one := tiles.ranges.get(axis)) is not None)
        key = (value, group, full, full_piece, ranges)
        if key not in self._found:
            if tiles is not self._range:
                self._range, self._of_tiles = tiles, {}
            if len(self._found) > _MOST_KEPT:
                self._found.clear()
            reader = int(self.flow.value_maker[value]) if group is None else group
            alone = group is None or self.elements.group.count(group) == 1  # else it may be cut by more axes
            others = self.elements.op_axes[reader] - self.elements.axes[int(self.flow.value_tensor[value])]
            reading = full | others if full_piece and alone else full
            size = min(tiles.smallest(mate, full) for mate in self.mates[value])
            levels = [(self._level(tiles, size, one, full, reading), one) for one in touches]
            self._found[key] = [self._most(tiles, levels, level) for level in range(len(self.reach))]
        return self._found[key]

    def made_between(self, tiles: TileRange, value: int, made: int, reader: int, full: Axes) -> int:
        """Return in how many levels, from the top, an element of a value is not found by the touch that follows two runs.

        The first is by the op that makes `made` from it; the other by an op that reads that, and does not touch the element.
        """
        maker, shared = int(self.flow.value_maker[made]), self.elements.tensor_axes(made)
        after = self._after(maker, value)
        between = _LastTouch(tuple((after, beside) for beside in self._touched(reader, value)), None, False)
        size = min(tiles.smallest(mate, full) for mate in self.mates[value])
        if tiles is not self._range:
            self._range, self._of_tiles = tiles, {}
        return self._level(tiles, size, between, full, full & shared)

    def _touched(self, op: int, value: int) -> Iterator[Tiles]:
        """Yield what a piece of an op touches, for each way to do without operands that fusion may remove: what these are made
        of.
        """
        elements = self.elements
        certain = self._tiles(op, (*elements.op_reads[op], *elements.op_writes[op]), value)
        ways: list[tuple[Tiles, Tiles]] = []
        for one in elements.op_reads[op]:
            if one in elements.vanishing:
                tensor, maker = int(self.flow.value_tensor[one]), int(self.flow.value_maker[one])
                kept = {self.storage[one]: (tensor, elements.whole[op])}
                ways.append((kept, self._tiles(maker, elements.op_reads[maker], value)))
        for chosen in product(*ways):
            yield {at: tile for tiles in (*chosen, certain) for at, tile in tiles.items()}

    def _most(self, tiles: TileRange, levels: Sequence[tuple[int, _LastTouch]], level: int) -> int | None:
        """Return the number of reads that may follow a touch that leaves the element within a level: the number of such touches."""
        total = 0
        for at, one in levels:
            if at > level:
                continue
            if one.pieces is None or one.same:
                return None
            total += one.pieces[0] * tiles.most_tiles(one.pieces[1])
        return total

    def _level(self, tiles: TileRange, size: int, touch: _LastTouch, own: Axes, reading: Axes) -> int:
        """Return the level in which an element is found at the least after one kind of touch."""
        least: int | None = None
        for after, before in touch.above:
            first = {at: self._lines(tiles, *touched, own) for at, touched in after.items()}
            then = {at: self._lines(tiles, *touched, reading) for at, touched in before.items()}
            apart = self.fixed.intersection({*first, *then})
            lines = sum(max(first.get(at, 0), then.get(at, 0)) for at in apart)
            # Other storages of the two lists may have had the same place, one after the other.
            lines += max(sum(lines for at, lines in touched.items() if at not in apart) for touched in (first, then))
            least = lines if least is None else min(least, lines)
        return bisect_left(self.reach, -(-size // self.task.machine.line) + (least or 0))

    def _lines(self, tiles: TileRange, tensor: int, whole: Axes, full: Axes) -> int:
        """Return the least number of lines of a tensor's tile, in full tiles along some axes and all tiles along others."""
        key = (tensor, whole, full)
        if key not in self._of_tiles:
            units = tiles.smallest(self.task.graph.tensors[tensor], full, whole)
            self._of_tiles[key] = -(-units // self.task.machine.line)
        return self._of_tiles[key]

    def _axes(self, value: int, touches: Iterable[_LastTouch]) -> Axes:
        """Return the axes whose tiles have to do with a read."""
        tensors = {int(self.flow.value_tensor[value])}
        axes: Axes = frozenset().union(*(one.pieces[1] for one in touches if one.pieces is not None))
        for one in touches:
            tensors |= {tensor for pair in one.above for tiles in pair for tensor, _ in tiles.values()}
        tensors |= {self.task.graph.tensor_index(mate.name) for mate in self.mates[value]}
        return axes.union(*(self.elements.axes[tensor] for tensor in tensors))

    def _reading(self, value: int, group: int) -> Iterator[_LastTouch]:
        """Yield who may have touched a value before some group of ops reads it."""
        if not self.known:
            yield _LastTouch((({}, {}),), None, True)
            return
        elements, flow = self.elements, self.flow
        readers = [op for op in elements.readers[value] if elements.group[op] == group]
        befores = [self._before(op, value) for op in readers]
        by_group: dict[int, list[int]] = {}
        for op in self._touching(value, readers):
            by_group.setdefault(elements.group[op], []).append(op)
        for other, ops in by_group.items():
            afters = self._afters(other, ops, value)
            again = any(bool(flow.op_can_rerun[op]) for op in ops)
            axes = frozenset().union(*(elements.op_axes[op] for op in range(flow.ops) if elements.group[op] == other))
            own = elements.axes[int(flow.value_tensor[value])]
            above = tuple((after, before) for after in afters for before in befores)
            yield _LastTouch(above, None if again else (len(ops), axes - own), other == group)

    def _adding(self, value: int) -> Iterator[_LastTouch]:
        """Yield who may have touched a sum before the next piece of it goes on: another piece, which was not fused."""
        maker = int(self.flow.value_maker[value])
        reads = self._tiles(maker, self.elements.op_reads[maker], value)
        yield _LastTouch(((self._after(maker, value), reads),), None, True)

    def _touching(self, value: int, readers: list[int]) -> list[int]:
        """Return the ops that may touch a value, or what is in its place in the step before, ahead of some readers."""
        elements, flow = self.elements, self.flow
        others = [op for op in elements.readers[value] if op not in readers]
        if flow.value_maker[value] != NONE:
            return sorted({int(flow.value_maker[value]), *elements.readers[value]})
        if not self.task.steady:
            return list(elements.readers[value])
        if readers == [int(flow.value_destroyer[value])] and others:
            return others  # all of it has been read by them since the step before
        own = self.storage[value]
        touched = (
            op
            for op in range(flow.ops)
            if any(self.storage[one] == own for one in (*elements.op_reads[op], *elements.op_writes[op]))
        )
        return list(touched)

    def _tiles(self, op: int, values: Iterable[int], value: int) -> Tiles:
        """Return the units of some values that a piece of an op always touches, apart from values in the same storage as one."""
        elements, flow = self.elements, self.flow
        added = set(self.task.graph.ops[op].meta.get("adds", ()))
        found: dict[int, tuple[int, Axes]] = {}
        for one in values:
            tensor = int(flow.value_tensor[one])
            name = self.task.graph.tensors[tensor].name
            if one in elements.vanishing or name in added or self.storage[one] == self.storage[value]:
                continue
            found.setdefault(self.storage[one], (tensor, elements.whole[op]))
        return found

    def _before(self, op: int, value: int) -> Tiles:
        """Return the units that a piece has touched before it reads a value: in a fused op, before the first read of the value."""
        reads = self.elements.op_reads[op]
        return self._tiles(op, reads[: reads.index(value)], value)

    def _after(self, op: int, value: int) -> Tiles:
        """Return the units that a piece of an op that is not fused touches after its last touch of a value's storage."""
        elements = self.elements
        touched = [*elements.op_reads[op], *elements.op_writes[op]]
        last = max(at for at, one in enumerate(touched) if self.storage[one] == self.storage[value])
        return self._tiles(op, touched[last + 1 :], value)

    def _afters(self, group: int, ops: list[int], value: int) -> list[Tiles]:
        """Return, for each op of a group, the units that its piece touches after its last touch of a value, in any fusion."""
        elements = self.elements
        if elements.group.count(group) == 1:
            return [self._after(ops[0], value)]
        together = [op for op, leader in enumerate(elements.group) if leader == group]
        if any(self.storage[one] == self.storage[value] for op in together for one in elements.op_writes[op]):
            return [{}]
        return [self._tiles(op, elements.op_writes[op], value) for op in ops]
