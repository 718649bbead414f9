"""What the ops of very many cases of tilings touch, as arrays over cases: how often, in pieces and tiles of which size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from pebbler.arrays import Bools, Floats, Ints
from pebbler.game.dataflow import NONE, Dataflow
from pebbler.referee import pricing
from pebbler.solver.tiling.case_family import CaseFamily
from pebbler.solver.tiling.liveness import Axes, Elements
from pebbler.solver.tiling.tile_products import ProductFamily

__all__ = ["BoxTouches", "Boxes", "ReadStep", "total_of"]


@dataclass(frozen=True)
class Boxes:
    """Ranges of tile sizes: per box (row) and cut axis (column) the least and the most."""

    least: Ints
    most: Ints

    def __len__(self) -> int:
        return len(self.least)

    def split(self) -> Boxes:
        """Return the halves of every box along the axis where sizes differ most; boxes of one size are left out."""
        ratio = self.most / self.least
        axis = np.argmax(ratio, axis=1) if ratio.shape[1] else np.zeros(len(self), np.int64)
        rows = np.flatnonzero((self.most > self.least).any(axis=1))
        low_most, high_least = self.most[rows].copy(), self.least[rows].copy()
        at = np.arange(len(rows)), axis[rows]
        middle = np.floor(np.sqrt(self.least[rows][at].astype(np.float64) * self.most[rows][at])).astype(np.int64)
        middle = np.clip(middle, self.least[rows][at], self.most[rows][at] - 1)
        low_most[at], high_least[at] = middle, middle + 1
        return Boxes(
            np.concatenate([self.least[rows], high_least]),
            np.concatenate([low_most, self.most[rows]]),
        )


class _BoxFacts(Protocol):
    """What is the same for all boxes."""

    family: CaseFamily
    elements: Elements
    flow: Dataflow
    axes: list[str]
    extents: Ints
    prices: list[float]
    values: list[int]


@dataclass(frozen=True)
class _Tiles:
    """Which part of a value's elements is in tiles of full size at least, and what touching such a tile cannot undercut."""

    part: Floats
    level: Ints
    read: Floats
    write: Floats


class ReadStep(NamedTuple):
    """What one step of prices is worth for the reads of a value by a group of ops, all of them and one."""

    raised: Floats
    weight: Floats
    by_tiles: Floats


class BoxTouches:
    """How often the ops of every box touch what."""

    def __init__(self, floor: _BoxFacts, boxes: Boxes) -> None:
        self.floor, self.family, self.elements, self.boxes = floor, floor.family, floor.elements, boxes
        self.zero: Floats = np.zeros(len(boxes))
        self._column = {axis: number for number, axis in enumerate(floor.axes)}
        column, extents = self._column, floor.extents
        self._fewest = {axis: (-(-extents[k] // boxes.most[:, k])).astype(np.float64) for axis, k in column.items()}
        self._most = {axis: (-(-extents[k] // boxes.least[:, k])).astype(np.float64) for axis, k in column.items()}
        self._known: dict[int, _Tiles] = {}
        self._sinking: dict[int, Floats] = {}
        self._pieces: dict[int, Floats] = {}
        self.read_steps: dict[tuple[int, int, int], ReadStep] = {}  # per group, value and step of prices
        self.reads: dict[int, dict[int, Floats]] = {group: {} for group in self.family.cutting}
        flow = floor.flow
        for value in floor.values:
            size, maker = float(flow.value_size[value]), int(flow.value_maker[value])
            for group, readers in self.family.reads[value].items():
                self.reads[group][value] = size * np.maximum.reduce([self._tiles(axes) for axes in readers])
            if maker != NONE and self.family.summed[value]:
                group = self.elements.group[maker]
                again = size * (self._tiles(self.family.summed[value]) - 1)
                self.reads[group][value] = self.reads[group].get(value, self.zero) + again

    def _tiles(self, axes: Iterable[str]) -> Floats:
        """Return into how many pieces these axes cut something at least."""
        return _product(self.zero, (self._fewest[axis] for axis in axes if axis in self._fewest))

    def _times(self, axes: Iterable[str]) -> Floats:
        """Return into how many pieces these axes cut something at most."""
        return _product(self.zero, (self._most[axis] for axis in axes if axis in self._most))

    @cached_property
    def _steps(self) -> tuple[Ints, Floats, Floats]:
        """Return sizes of tiles beyond which they fit into fewer levels; the least read and write price beyond each."""
        program = self.family.program
        if program.caches:
            below = np.array(self.floor.prices)
            return program.reach, below, np.full(len(below), program.write[0])
        room = pricing.capacities(program.machine)
        sizes = np.unique(room)
        fits = [room > size for size in (0, *sizes[:-1].tolist())]
        reads = [program.read[one].min() for one in fits]
        return sizes[:-1], np.array(reads), np.array([program.write[one].min() for one in fits])

    def tiles(self, value: int) -> _Tiles:
        """Return what is known of a value's tiles."""
        if value not in self._known:
            parts, units = [], []
            for tensor in self.family.mates[value]:
                part, size = self.zero + 1, self.zero + 1
                for axis, extent in tensor.axes or ():
                    if axis in self._column:
                        least, most = (one[:, self._column[axis]] for one in (self.boxes.least, self.boxes.most))
                        # Of a size s, floor(E / s) s indices are in full tiles: more than E - s, and more than a half.
                        full = np.maximum(np.maximum(extent - most + 1, least * (extent // most)), extent // 2 + 1)
                        part, size = part * (full / extent), size * least
                    else:
                        size = size * (1 if axis in self.family.loose else extent)
                parts.append(part)
                units.append(size if tensor.axes is not None else self.zero + tensor.size)
            sizes, reads, writes = self._steps
            line = self.family.program.machine.line
            smallest = np.ceil(np.minimum.reduce(units) / line) * line
            level = np.searchsorted(sizes, smallest, "left")
            self._known[value] = _Tiles(np.minimum.reduce(parts), level, reads[level], writes[level])
        return self._known[value]

    def reading(self, reads: Sequence[tuple[int, Floats]], at: int) -> Floats:
        """Return what reads cost if each is counted at no less than a price, and tiles of full size at what they cost."""
        price, total = self.floor.prices[at], self.zero.copy()
        for value, number in reads:
            tiles = self.tiles(value)
            total += number * (price + tiles.part * np.maximum(0.0, tiles.read - price))
        return total

    def beyond(self, reads: Sequence[tuple[int, Floats]], at: int) -> Floats:
        """Return how many of some reads are of tiles of full size that cost more than the price of a level."""
        price = self.floor.prices[at]
        tiles = [(self.tiles(value), number) for value, number in reads]
        return total_of(self.zero, (number * one.part * (one.read > price) for one, number in tiles))

    def writing(self) -> Floats:
        """Return what writing everything costs, and on caches what it pays on its way down to where its tile is found."""
        flow, total = self.floor.flow, self.zero.copy()
        program = self.family.program
        sunk = np.concatenate([[0.0], np.cumsum(program.write[1:])])
        for value in self.floor.values:
            if flow.value_maker[value] == NONE:
                continue
            size, tiles = float(flow.value_size[value]), self.tiles(value)
            writes = self._tiles(self.family.summed[value])
            least = program.write[0] if program.caches else program.write.min()
            total += size * writes * (least + tiles.part * np.maximum(0.0, tiles.write - least))
            if program.caches:
                total += size * tiles.part * (writes - (not self.family.reads[value])) * sunk[tiles.level]
        return total

    def written_within(self, value: int, price: float) -> Floats:
        """Return how many elements of a value are counted as written for no more than a price."""
        tiles = self.tiles(value)
        return np.asarray(float(self.floor.flow.value_size[value]) * (1 - tiles.part * (tiles.write > price)))

    def raised_write(self, value: int, price: float) -> Floats:
        """Return what more the first write of every element costs if it is counted at no less than a price."""
        tiles, least = self.tiles(value), self.family.program.write.min()
        own = tiles.part * np.maximum(0.0, price - np.maximum(tiles.write, least))
        rest = (1 - tiles.part) * max(0.0, price - least)
        return np.asarray(float(self.floor.flow.value_size[value]) * (own + rest))

    def pieces(self, group: int) -> Floats:
        """Return how many pieces a group of ops has at most; axes of several extents may be cut as finely as can be."""
        if group not in self._pieces:
            self._pieces[group] = self._most_pieces(*self.family.cutting[group])
        return self._pieces[group]

    def _most_pieces(self, ops: int, axes: Axes) -> Floats:
        loose = float(np.prod([self.family.loose[axis] for axis in axes if axis in self.family.loose]))
        return np.asarray(ops * loose * self._times(axes))

    def sinking(self, value: int) -> Floats:
        """Return which part of a way down from where it was written each read of a value pays for, 0 if nobody makes it."""
        if value not in self._sinking:
            share = self.zero
            if self.floor.flow.value_maker[value] != NONE:
                reads = total_of(self.zero, (self._times(axes) for axes in self.family.reads_apart[value]))
                reads += self._times(self.family.summed[value]) - 1
                share = np.asarray(1.0 / np.maximum(1.0, reads))
            self._sinking[value] = share
        return self._sinking[value]

    def may_rise(self, value: int, level: int) -> Floats:
        """Return which part of a value's elements may be found within a level: tiles that do not fit have paid for the way down."""
        tiles = self.tiles(value)
        deep: Bools = tiles.level > level
        return np.asarray(1.0 - tiles.part * deep)

    def least_part(self, value: int, axes: Axes) -> Floats:
        """Return how many indices of some axes a tile of full size of a value has at least."""
        return self._part(value, axes, {axis: self.boxes.least[:, k] for axis, k in self._column.items()})

    def whole_part(self, value: int, axes: Axes) -> Floats:
        """Return how many indices of some axes a value has."""
        return self._part(value, axes, {})

    def _part(self, value: int, axes: Axes, sizes: Mapping[str, Ints]) -> Floats:
        shape = self.elements.tensor(value).axes or ()
        return _product(self.zero, (np.asarray(sizes.get(axis, extent)) for axis, extent in shape if axis in axes))

    def full_pieces(self, axes: Axes) -> Floats:
        """Return how many pieces these axes cut something into that are of full size along all of them, at least."""
        cut = {axis: self._column[axis] for axis in axes if axis in self._column}
        return _product(self.zero, (self.floor.extents[k] // self.boxes.most[:, k] for k in cut.values()))

    def largest_piece(self, products: ProductFamily) -> Floats:
        """Return how many elements of products' values one of the pieces that count touches at most."""
        most = self.zero
        for touched in products.touched_together(self.elements):
            total = self.zero
            for op, value in touched:
                tensor, whole = self.elements.tensor(value), self.elements.kept_whole[op]
                units = self.zero + (1 if tensor.axes is not None else tensor.size)
                for axis, extent in tensor.axes or ():
                    cut = axis in self._column and axis not in whole
                    units = units * (self.boxes.most[:, self._column[axis]] if cut else extent)
                total = total + units
            most = np.maximum(most, total)
        return most


def total_of(zero: Floats, terms: Iterable[Floats]) -> Floats:
    """Return the sum of some arrays, zeros where there are none."""
    total = zero.copy()
    for term in terms:
        total += term
    return total


def _product(zero: Floats, factors: Iterable[Floats | Ints]) -> Floats:
    total = zero + 1
    for factor in factors:
        total *= factor
    return total
