"""Ranges of tilings: for every axis a range of tile sizes. What holds in each of a set of ranges that leaves none out always holds.

A tiling cuts an axis into tiles of one size, the last one smaller where it does not divide (`game.transform.tile`), and does so in
every tensor that has the axis. So a range says how many pieces there are at least, and how large their tiles are.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np

from pebbler.game.graph import Graph, Tensor

__all__ = ["AxisRange", "TileRange"]

_MOST_SIZES = 1 << 20  # tile sizes of a range that are looked at one by one

_FEW = 8  # parts of a tensor with less than such a share of its elements are not told apart


@dataclass(frozen=True)
class AxisRange:
    """An axis that is cut into tiles of a size between `least` and `most`; whole where that is all of it.

    >>> AxisRange(1000, 300, 400).tiles, AxisRange(1000, 300, 400).full, AxisRange(1000, 300, 320).rest
    (3, 668, 40)
    """

    extent: int
    least: int
    most: int

    @property
    def whole(self) -> bool:
        """Whether it is certainly not cut."""
        return self.least == self.extent

    @property
    def cut(self) -> bool:
        """Whether it certainly is."""
        return self.most < self.extent

    @property
    def tiles(self) -> int:
        """The least number of tiles."""
        return -(-self.extent // self.most)

    @cached_property
    def full(self) -> int:
        """The least number of indices in tiles of full size."""
        if self.most - self.least > _MOST_SIZES:
            return max(self.extent - self.most + 1, self.least)
        sizes = np.arange(self.least, self.most + 1)
        return int((self.extent // sizes * sizes).min())

    @cached_property
    def rest(self) -> int:
        """The least size of the last tile."""
        if self.most - self.least > _MOST_SIZES:
            return 1
        sizes = np.arange(self.least, self.most + 1)
        left = self.extent % sizes
        return int(np.where(left == 0, sizes, left).min())

    def halves(self) -> tuple[AxisRange, AxisRange] | None:
        """Return two ranges that together are this one: cut and whole first, then smaller and larger tiles; None for one size."""
        if self.least == self.most:
            return None
        middle = self.extent - 1 if not self.cut else math.isqrt(self.least * self.most)
        return AxisRange(self.extent, self.least, middle), AxisRange(self.extent, middle + 1, self.most)


@dataclass(frozen=True)
class TileRange:
    """A range of tile sizes for every axis that can be cut."""

    ranges: Mapping[str, AxisRange]
    # Axes with several extents, and the largest: they can be cut only if fusion does away with all but one.
    loose: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def all_of(cls, graph: Graph) -> TileRange:
        """Return the range that covers every tiling of a graph: an axis can be cut if it has one extent wherever it is.

        >>> from pebbler.workloads import mlp
        >>> [(axis, one.least, one.most) for axis, one in TileRange.all_of(mlp(n=20, hidden=1000)).ranges.items()]
        [('hidden', 1, 1000), ('n', 1, 20)]
        """
        extents: dict[str, set[int]] = {}
        for tensor in graph.tensors:
            for axis, extent in tensor.axes or ():
                extents.setdefault(axis, set()).add(extent)
        one = {axis: min(found) for axis, found in extents.items() if len(found) == 1 and min(found) > 1}
        loose = {axis: max(found) for axis, found in extents.items() if len(found) > 1}
        return cls({axis: AxisRange(extent, 1, extent) for axis, extent in one.items()}, loose)

    @classmethod
    def of_sizes(cls, graph: Graph, sizes: Mapping[str, int]) -> TileRange:
        """Return the range of one tiling; axes that are not named stay whole."""
        every = cls.all_of(graph)
        ranges = every.ranges
        size = {axis: min(sizes.get(axis, one.extent), one.extent) for axis, one in ranges.items()}
        return cls({axis: AxisRange(one.extent, size[axis], size[axis]) for axis, one in ranges.items()}, every.loose)

    @property
    def one_size(self) -> bool:
        """Whether the range is of one tiling."""
        return all(one.least == one.most for one in self.ranges.values())

    def splits(self) -> Iterator[tuple[str, tuple[TileRange, TileRange]]]:
        """Yield ways to split the range in two: along axes that may be cut or whole, and the two whose tiles are least known."""
        known = sorted((one.most / one.least, axis) for axis, one in self.ranges.items() if one.cut or one.whole)
        skipped = {axis for _, axis in known[:-2]}
        for axis, one in self.ranges.items():
            halves = one.halves()
            if halves is not None and axis not in skipped:
                first, second = ({**self.ranges, axis: half} for half in halves)
                yield axis, (TileRange(first, self.loose), TileRange(second, self.loose))

    @property
    def cut(self) -> frozenset[str]:
        """The axes that certainly are cut."""
        return frozenset(axis for axis, one in self.ranges.items() if one.cut)

    @property
    def open(self) -> frozenset[str]:
        """The axes that may be cut."""
        return frozenset(axis for axis, one in self.ranges.items() if not one.whole) | frozenset(self.loose)

    def tiles(self, axes: Iterable[str]) -> int:
        """Return into how many pieces these axes together cut something at least."""
        return math.prod([self._least[axis] for axis in axes if axis in self._least])

    def most_tiles(self, axes: Iterable[str]) -> int:
        """Return into how many pieces these axes together cut something at most."""
        return math.prod([self._most[axis] for axis in axes if axis in self._most])

    @cached_property
    def _least(self) -> dict[str, int]:
        return {axis: one.tiles for axis, one in self.ranges.items()}

    @cached_property
    def _most(self) -> dict[str, int]:
        return {axis: -(-one.extent // one.least) for axis, one in self.ranges.items()} | dict(self.loose)

    def full_tiles(self, axes: Iterable[str]) -> int:
        """Return the least number of pieces of full size that these axes together make."""
        return math.prod(one.extent // one.most for axis in axes if (one := self.ranges.get(axis)) is not None)

    def most_full(self, axes: Iterable[str]) -> int:
        """Return the greatest number of pieces of full size that these axes together make."""
        tiles = {axis: one.extent // one.least for axis, one in self.ranges.items()} | dict(self.loose)
        return math.prod(tiles[axis] for axis in axes if axis in tiles)

    def share(self, axes: Iterable[str]) -> Fraction:
        """Return the greatest share of these axes together that one tile covers."""
        found = [self.ranges[axis] for axis in axes if axis in self.ranges]
        return Fraction(math.prod(one.most for one in found), math.prod(one.extent for one in found))

    def least_share(self, axes: Iterable[str]) -> Fraction:
        """Return the least share of these axes together that one tile covers."""
        found = [self.ranges[axis] for axis in axes if axis in self.ranges]
        loose = math.prod(self.loose[axis] for axis in axes if axis in self.loose)
        share = Fraction(math.prod(min(one.least, one.rest) for one in found), math.prod(one.extent for one in found))
        return share / loose

    def full(self, tensor: Tensor) -> tuple[int, int]:
        """Return the least number of a tensor's elements in tiles of full size, and the least size of these tiles."""
        count, units = 1, 1
        for axis, extent in tensor.axes or ():
            one = self.ranges.get(axis)
            count *= extent if one is None else one.full
            units *= one.least if one is not None else 1 if axis in self.loose else extent
        return (count, units) if tensor.axes is not None else (tensor.size, tensor.size)

    def parts(self, tensor: Tensor) -> list[tuple[int, frozenset[str]]]:
        """Return the least numbers of a tensor's elements in full tiles, by the axes along which they are full; all axes first.

        Parts with few elements count as one.

        >>> tiles = TileRange({"i": AxisRange(10, 4, 4), "j": AxisRange(9, 5, 5)})
        >>> [(count, sorted(axes)) for count, axes in tiles.parts(Tensor("t", 90, "temp", (("i", 10), ("j", 9))))]
        [(40, ['i', 'j']), (32, ['i']), (18, [])]
        """
        found: list[tuple[int, frozenset[str]]] = [(1 if tensor.axes is not None else tensor.size, frozenset())]
        for axis, extent in tensor.axes or ():
            one = self.ranges.get(axis)
            full = extent if one is None else min(extent, one.full)
            found = [
                (count * indices, axes | {axis} if in_full else axes)
                for count, axes in found
                for indices, in_full in ((full, True), (extent - full, False))
                if indices
            ]
        few = [part for part in found[1:] if part[0] * _FEW < tensor.size]
        if len(few) > 1:  # they count as one, along the axes that are full in all of them
            rest = sum(count for count, _ in few), frozenset.intersection(*(axes for _, axes in few))
            found = [part for part in found if part not in few] + [rest]
        return found

    def full_part(self, tensor: Tensor, whole: Iterable[str]) -> int:
        """Return the least size of the part of a tensor that a full-size piece touches, if it covers some axes in full."""
        units = 1
        for axis, extent in tensor.axes or ():
            one = self.ranges.get(axis)
            units *= extent if axis in whole or (one is None and axis not in self.loose) else one.least if one else 1
        return units if tensor.axes is not None else tensor.size

    def largest(self, tensor: Tensor, whole: Iterable[str]) -> int:
        """Return the greatest size of the part of a tensor that one piece touches, if the piece covers some axes in full."""
        units = 1
        for axis, extent in tensor.axes or ():
            one = self.ranges.get(axis)
            units *= extent if one is None or axis in whole else one.most
        return units if tensor.axes is not None else tensor.size

    def smallest(self, tensor: Tensor, full: Collection[str] = (), whole: Collection[str] = ()) -> int:
        """Return the least size of all tiles of a tensor, or of all tiles with the full size along some axes.

        What needs some axes `whole` touches all tiles along them.
        """
        units = 1
        for axis, extent in tensor.axes or ():
            one = self.ranges.get(axis)
            if one is not None and axis not in whole:
                units *= one.least if axis in full else min(one.least, one.rest)
            else:
                units *= 1 if axis in self.loose else extent
        return units if tensor.axes is not None else tensor.size
