"""Elements that consecutive large pieces can find near on a cache (for lines of one unit).

Let U be ops that are never fused and that cannot run again once all their pieces have run, and let every full piece of them touch
at least z elements, without what is added once to a sum. Let q be the first run of a full piece of u in U, R a reach, and h the
last run of a full piece of an op in U before it. If a tile of q was not touched by h nor after it, all that h has touched lies
above it. So if z and the smallest tile of u are more than R together, q finds within R only what h has touched as well, and what
others have touched since:

- *By h.* It is another piece than q, since q runs for the first time. If it is one of u, the two differ in their indices along
  some cut axis, and have only tiles in common that lack it: at most the largest sum of tiles that lack one axis. If it is one of
  another op in U, what both ops touch (`_shared`).
- *By ops that are not in U.* Each touch is followed by one next touch, so all q together find no more than these ops touch in a
  step, which is known where they can never run again (`_others`). A storage that they may touch any number of times counts in
  full for every q (`_any_time`). What u itself adds up is touched by nobody else before it is complete.
- *By pieces of U that are not of full size, in first runs.* One with a smaller tile along an axis has only tiles in common with q
  that lack the axis, and there is one q after it. There are at most as many as combinations of tiles of the other axes
  (`_short`).
- *By pieces that are not of full size, running again*, which those that begin a sum may do before the next one goes on. The first
  of these touches of a tile after h finds it beyond R. Such reads stand in the row (`row_of_pieces`). If it writes the tile, that
  is not so: what u adds up counts in full, if an axis that it is summed over may have a smaller tile.

A q that is not of full size finds no more than it touches (`_small`), and the first one of a step no more than R. So all q find
so much for every piece, and so much more in the step.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pebbler.game.dataflow import NONE
from pebbler.game.graph import Tensor
from pebbler.referee.rows.elements import Axes, Elements
from pebbler.referee.rows.tile_range import AxisRange, TileRange

__all__ = ["PieceRow", "PieceRows"]


@dataclass(frozen=True)
class PieceRow:
    """The most elements that an op's pieces find in some room: a number per piece, and one for the whole step."""

    each: int
    more: int
    ops: frozenset[int] = frozenset()  # those whose full pieces push out what they have not touched


class PieceRows:
    """The ops of a graph whose pieces come one after the other, each piece once; for cases that agree on which axes are cut."""

    def __init__(self, elements: Elements) -> None:
        self.elements, self.flow = elements, elements.flow
        groups = elements.group
        # Ops that are never fused and that cannot run again once they have run.
        self.ops = [op for op in range(self.flow.ops) if groups.count(groups[op]) == 1 and not elements.can_rerun(op)]
        self.touched = {op: self._storages(op) for op in range(self.flow.ops)}
        self.group_axes: dict[int, Axes] = {}
        for op, group in enumerate(groups):
            self.group_axes[group] = self.group_axes.get(group, frozenset()) | elements.op_axes[op]

    def of(self, tiles: TileRange, op: int, room: int) -> PieceRow | None:
        """Return the greatest number of elements that the pieces of an op find in some room; None if unknown."""
        if op not in self.ops or tiles.loose:
            return None
        sizes = {one: self._least(tiles, one) for one in self.ops}
        smallest = min(sizes[op].values(), default=0)
        row = [one for one in self.ops if sum(sizes[one].values()) + smallest > room]
        if not smallest or op not in row:
            return None
        largest = self._most(tiles, op)
        free = {storage for storage in largest if self._any_time(tiles, op, storage, row)}
        each = sum(largest[storage] for storage in free)
        each += max(self._shared(tiles, op, other, largest, free) for other in row)
        if each >= room:
            return None
        touched = [storage for storage in largest if storage not in free | self._own(op)]
        more = room + sum(self._others(tiles, storage, row) for storage in touched)
        # Pieces that are not of full size do not push everything out: what they touch may still be there.
        for other in row:
            common = [storage for storage in largest if storage in self.touched[other] and storage not in free]
            for axis, count in self._short(tiles, other).items():
                more += count * sum(largest[one] for one in common if axis not in self._axes(one))
        for axis, count in self._short(tiles, op).items():
            more += count * max(0, min(room, self._small(tiles, op, axis)) - each)
        return PieceRow(each, more, frozenset(row))

    def _storages(self, op: int) -> dict[int, list[int]]:
        """Return the storages that an op touches, with its values there."""
        found: dict[int, list[int]] = {}
        for value in (*self.elements.op_reads[op], *self.elements.op_writes[op]):
            found.setdefault(int(self.flow.storage[self.flow.value_tensor[value]]), []).append(value)
        return found

    def _own(self, op: int) -> set[int]:
        """Return the storages of what an op makes and nobody else touches until it is complete: temps that it does not update."""
        read = {int(self.flow.storage[self.flow.value_tensor[value]]) for value in self.elements.op_reads[op]}
        made = {int(self.flow.storage[self.flow.value_tensor[value]]) for value in self.elements.op_writes[op]}
        starts = set(self.flow.storage[self.flow.start_value != NONE].tolist())
        return made - read - starts

    def _least(self, tiles: TileRange, op: int) -> dict[int, int]:
        """Return the least units of each storage that every full-size piece touches, without additions of only some pieces."""
        elements, added = self.elements, set(self.elements.graph.ops[op].meta.get("adds", ()))
        return {
            storage: min(tiles.full_part(elements.tensor(value), elements.whole[op]) for value in values)
            for storage, values in self.touched[op].items()
            if not any(elements.tensor(value).name in added for value in values)
        }

    def _most(self, tiles: TileRange, op: int) -> dict[int, int]:
        """Return the most units of each storage that a piece of an op touches."""
        elements = self.elements
        return {
            storage: max(tiles.largest(elements.tensor(value), elements.whole[op]) for value in values)
            for storage, values in self.touched[op].items()
        }

    def _shared(self, tiles: TileRange, op: int, other: int, largest: Mapping[int, int], free: Collection[int]) -> int:
        """Return the most units, apart from those found anyway, that a piece shares with a piece of `other`, or of its own op."""
        common = [storage for storage in largest if storage in self.touched[other] and storage not in free]
        if op != other:
            return sum(largest[storage] for storage in common)
        lacking = [[one for one in common if axis not in self._axes(one)] for axis in self._cut(tiles, op)]
        return max((sum(largest[storage] for storage in some) for some in lacking), default=0)

    def _small(self, tiles: TileRange, op: int, axis: str) -> int:
        """Return the most units touched by a piece that has a smaller tile along an axis."""
        one = tiles.ranges[axis]
        rest = one.extent % one.least if one.least == one.most else max(1, one.most - 1)
        short = TileRange({**tiles.ranges, axis: AxisRange(one.extent, 1, rest)})
        return sum(self._most(short, op).values())

    def _cut(self, tiles: TileRange, op: int) -> list[str]:
        """Return the axes along which pieces of an op may differ."""
        return sorted((self.elements.op_axes[op] - self.elements.whole[op]) & tiles.open)

    def _tensors(self, storage: int) -> list[Tensor]:
        """Return the tensors that share a storage."""
        return [self.elements.graph.tensors[tensor] for tensor in np.flatnonzero(self.flow.storage == storage)]

    def _axes(self, storage: int) -> Axes:
        """Return the axes that all tensors of a storage have."""
        return frozenset.intersection(
            *(frozenset(axis for axis, _ in one.axes or ()) for one in self._tensors(storage))
        )

    def _any_time(self, tiles: TileRange, op: int, storage: int, row: Sequence[int]) -> bool:
        """Whether a storage may be touched any number of times between the pieces of an op by what is not one of those in a row."""
        if len({tensor.axes for tensor in self._tensors(storage)}) > 1:
            return True  # not always touched whole
        if storage in self._own(op):
            # Only by the piece that begins it, which may run again; if it is of full size, it is one of those in the row.
            beside = [tiles.ranges[axis] for axis in self._cut(tiles, op) if axis not in self._axes(storage)]
            return not all(_even(one) for one in beside)
        others = (one for one, touched in self.touched.items() if storage in touched and one not in row)
        return any(bool(self.flow.op_can_rerun[other]) for other in others)

    def _others(self, tiles: TileRange, storage: int, row: Sequence[int]) -> int:
        """Return the most touches of elements of a storage in a step by ops outside the row."""
        total = 0
        for op, touched in self.touched.items():
            if storage in touched and op not in row:
                apart = self.group_axes[self.elements.group[op]] - self._axes(storage)
                size = max(self.elements.tensor(value).size for value in touched[storage])
                total += size * tiles.most_tiles(apart)
        return total

    def _short(self, tiles: TileRange, op: int) -> dict[str, int]:
        """Return the axes that may have a smaller tile, and how many pieces of an op have one along each at most."""
        ranges = {axis: tiles.ranges[axis] for axis in self._cut(tiles, op)}
        number = {axis: -(-one.extent // one.least) for axis, one in ranges.items()}
        return {axis: math.prod(number.values()) // number[axis] for axis, one in ranges.items() if not _even(one)}


def _even(one: AxisRange) -> bool:
    """Whether all tiles of an axis are of full size."""
    return one.least == one.most and one.extent % one.least == 0
