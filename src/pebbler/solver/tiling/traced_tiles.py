"""The pieces of a tiled graph as flat arrays, without building it: what each touches, in which version, and what it costs.

Ops and tensors are numbered as in the graph that `pebbler.game.transform.tile` would make, axis after axis in the order of
their names: the pieces of each stand together, the first axis outermost. So an order of pieces is an order of that graph's ops,
and the price that the `lru` rule gives it here is the price there, a hundred times sooner.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pebbler.arrays import Bools, Floats, Ints
from pebbler.game.dataflow import NONE
from pebbler.game.graph import Graph, Op, Tensor
from pebbler.game.machine import Machine
from pebbler.referee import pricing
from pebbler.referee.kernels.allocation import OpTouches
from pebbler.referee.kernels.cache_price import LruGame, lru_price
from pebbler.solver.tiling.blocked_loops import best_loops
from pebbler.solver.tiling.kernels.piece_versions import finds_versions, program_versions

__all__ = ["PricedTiles", "TracedTiles"]

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class _Cuts:
    """The axes that are cut, in the order in which they are, and how long the tiles of each are."""

    lengths: dict[str, Ints]

    @classmethod
    def of(cls, extents: Mapping[str, int], sizes: Sizes) -> _Cuts:
        cut = {axis: size for axis, size in sorted(sizes.items()) if size < extents[axis]}
        ends = {axis: np.minimum(np.arange(0, extents[axis], size) + size, extents[axis]) for axis, size in cut.items()}
        return cls({axis: np.diff(end, prepend=0) for axis, end in ends.items()})

    def shape(self, axes: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(len(self.lengths[axis]) for axis in axes)

    def part(self, axes: tuple[str, ...]) -> Floats:
        """Return the share of the whole of each tile of these axes, the first axis outermost."""
        found = np.ones(1)
        for axis in axes:
            lengths = self.lengths[axis]
            found = np.multiply.outer(found, lengths / lengths.sum()).reshape(-1)
        return found


class TracedTiles:
    """A graph cut into tiles of some sizes, for pricing orders of its pieces."""

    def __init__(self, graph: Graph, extents: Mapping[str, int], sizes: Sizes) -> None:
        self.graph, self.cuts = graph, _Cuts.of(extents, sizes)
        self._axes = [self._cut_axes(tensor) for tensor in graph.tensors]
        self.loops = [self._loops(op) for op in graph.ops]
        counts = [math.prod(self.cuts.shape(axes)) for axes in self._axes]
        self._first_tile = np.cumsum([0, *counts])
        pieces = [math.prod(self.cuts.shape(axes)) for axes in self.loops]
        self.first = np.cumsum([0, *pieces])
        self._index: dict[int, dict[str, Ints]] = {}
        self._inner: dict[tuple[int, frozenset[str], float], tuple[tuple[str, int], ...]] = {}

    @property
    def pieces(self) -> int:
        """The number of pieces of all ops."""
        return int(self.first[-1])

    def _cut_axes(self, tensor: Tensor) -> tuple[str, ...]:
        own = {axis for axis, _ in tensor.axes or ()}
        return tuple(axis for axis in self.cuts.lengths if axis in own)

    def _loops(self, op: Op) -> tuple[str, ...]:
        touched = {axis for name in (*op.reads, *op.writes) for axis in self._axes[self.graph.tensor_index(name)]}
        return tuple(axis for axis in self.cuts.lengths if axis in touched and axis not in op.whole)

    def index(self, op: int) -> dict[str, Ints]:
        """Return, per loop of an op, which tile each of its pieces is of."""
        if op not in self._index:
            loops = self.loops[op]
            rows = np.indices(self.cuts.shape(loops)).reshape(len(loops), -1) if loops else ()
            self._index[op] = dict(zip(loops, rows, strict=True))
        return self._index[op]

    def count(self, axis: str) -> int:
        """Return into how many tiles an axis is cut."""
        return len(self.cuts.lengths.get(axis, (0,)))

    def inner_loops(self, op: int, outer: tuple[str, ...], room: float) -> tuple[tuple[str, int], ...]:
        """Return an op's best loops within given outer ones, each with how many tiles it goes on at a time.

        `room` is that of the memory in which its blocks are to stay.
        """
        key = op, frozenset(outer) & frozenset(self.loops[op]), room
        if key not in self._inner:
            one = self.graph.ops[op]
            names = list(dict.fromkeys((*one.writes, *one.reads)))
            axes = [self._axes[self.graph.tensor_index(name)] for name in names]
            tiles = {loop: self.count(loop) for loop in self.loops[op] if loop not in outer}
            uses = np.array([[loop in own for loop in tiles] for own in axes], np.bool_)
            looped = [
                set(self.loops[op]) & set(own) for own in axes
            ]  # tiles of axes that stay whole are touched together
            units = [
                self.graph.tensor_named(name).size / math.prod(self.count(axis) for axis in own)
                for name, own in zip(names, looped, strict=True)
            ]
            whole = [
                size * math.prod(count for loop, count in tiles.items() if loop in own)
                for size, own in zip(units, axes, strict=True)
            ]
            price = [2.0 if name in one.writes else 1.0 for name in names]
            self._inner[key] = best_loops(tiles, uses, units, whole, price, self._summed(op), room).loops
        loops = self._inner[key]
        added = [loop for loop in (*outer, *(loop for loop, _ in loops)) if loop in self._summed(op)]
        if added == sorted(added) or len(set(added)) < 2:
            return loops
        return tuple((loop, 1) for loop in self.loops[op] if loop not in outer)

    def _summed(self, op: int) -> frozenset[str]:
        """Return the axes whose tiles an op adds up."""
        axes = [self._axes[self.graph.tensor_index(name)] for name in self.graph.ops[op].writes]
        return frozenset(loop for loop in self.loops[op] if any(loop not in own for own in axes))

    @cached_property
    def can_be_cut(self) -> bool:
        """Whether the graph can be cut so: sums that update their operands cannot, nor storages shared by unlike tensors."""
        flow = self.graph.dataflow
        for number, tensor in enumerate(self.graph.tensors):
            if self._axes[number] != self._axes[flow.storage[number]] and tensor.overwrites is not None:
                return False
        for op in self.graph.ops:
            loops = set(self.loops[self.graph.op_index(op.name)])
            sums = [name for name in op.writes if loops - set(self._axes[self.graph.tensor_index(name)])]
            if sums and (any(name in op.reads for name in sums) or op.meta.keys() & {"parts", "gather", "accumulates"}):
                return False
            whole = set(op.whole) & self.cuts.lengths.keys()
            if whole and op.meta.keys() & {"parts", "gather"}:
                return False
        return True

    def _tiles(self, op: int, name: str, index: Mapping[str, Ints]) -> Ints:
        """Return the tiles of a tensor that each piece of an op touches: a row per piece, all along axes that stay whole."""
        tensor = self.graph.tensor_index(name)
        pieces = int(self.first[op + 1] - self.first[op])
        found = np.zeros((pieces, 1), np.int64)
        for axis in self._axes[tensor]:
            count = len(self.cuts.lengths[axis])
            if axis in index:
                found = found * count + index[axis][:, None]
            else:
                found = (found[:, :, None] * count + np.arange(count)).reshape(pieces, -1)
        return np.asarray(found + self._first_tile[tensor])

    def _touched(self, op: int) -> tuple[Ints, Bools]:
        """Return the tiles that each piece of an op touches, a row per piece (NONE where it does not), and which are written."""
        one, index = self.graph.ops[op], self.index(op)
        adds = one.meta.get("adds", ())
        columns, written, sums = [], [], []
        any_later = np.zeros(int(self.first[op + 1] - self.first[op]), np.bool_)
        for name in one.writes:
            own = self._axes[self.graph.tensor_index(name)]
            later = np.zeros(len(any_later), np.bool_)
            for axis, at in index.items():
                if axis not in own:
                    later |= at > 0
            any_later |= later
            if later.any():
                sums.append(np.where(later[:, None], self._tiles(op, name, index), NONE))
        for name in one.reads:
            tiles = self._tiles(op, name, index)
            columns.append(np.where(any_later[:, None], NONE, tiles) if name in adds else tiles)
        columns += sums
        written += [False] * sum(column.shape[1] for column in columns)
        for name in one.writes:
            columns.append(self._tiles(op, name, index))
            written += [True] * columns[-1].shape[1]
        return np.concatenate(columns, axis=1), np.array(written, np.bool_)

    @cached_property
    def _sizes(self) -> Ints:
        """The units of every tile."""
        found = [
            tensor.size * self.cuts.part(axes) for tensor, axes in zip(self.graph.tensors, self._axes, strict=True)
        ]
        return np.rint(np.concatenate(found)).astype(np.int64)

    @cached_property
    def _storages(self) -> Ints:
        """The storage of every tile, by its number as a tile."""
        roots = self.graph.dataflow.storage
        own = np.repeat(np.arange(len(self.graph.tensors)), np.diff(self._first_tile))
        return np.asarray(np.arange(len(own)) - self._first_tile[own] + self._first_tile[roots[own]])

    def storages_of(self, tensors: list[bool]) -> Ints:
        """Return the storages of all tiles of some tensors, each once."""
        chosen = np.repeat(np.array(tensors, np.bool_), np.diff(self._first_tile))
        return np.unique(self._storages[chosen])

    def touches(self, allocator: str, line: int) -> OpTouches:
        """Return the touches of each piece, as `referee.touches.touches_of_ops` does for the built graph."""
        lengths, tiles, written, fresh = [], [], [], []
        for op in range(len(self.graph.ops)):
            rows, writes = self._touched(op)
            there = rows != NONE
            roots = np.where(there, self._storages[rows], NONE)
            again = (roots[:, :, None] == np.where(writes, NONE - 1, roots)[:, None, :]).any(axis=2)
            lengths.append(there.sum(axis=1))
            tiles.append(rows[there])
            written.append(np.broadcast_to(writes, rows.shape)[there])
            fresh.append((~again & writes)[there])
        sizes, tensors = self._sizes, self.graph.tensors
        room, touched = -(-sizes // line), np.concatenate(tiles)
        home = np.full(len(sizes), NONE, np.int64)
        lasting = np.ones(len(sizes), np.bool_)
        if allocator == "own":
            fixed = np.unique(self._storages)
        else:
            fixed = self.storages_of([tensor.kind in ("input", "param") for tensor in tensors])
            lasting[:] = False
            lasting[self.storages_of([tensor.kind != "temp" for tensor in tensors])] = True
        home[fixed] = np.cumsum(room[fixed]) - room[fixed]
        return OpTouches(
            start=np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(lengths))]),
            storage=self._storages[touched],
            tensor=touched,
            lines=room[touched],
            units=sizes[touched],
            write=np.concatenate(written),
            fresh=np.concatenate(fresh),
            room=room,
            home=home,
            lasting=lasting,
            top=int(room[fixed].sum()),
            line=line,
        )

    @cached_property
    def costs(self) -> Floats:
        """The cost of each piece by itself."""
        parts = [op.cost * self.cuts.part(loops) for op, loops in zip(self.graph.ops, self.loops, strict=True)]
        return np.concatenate(parts)


class PricedTiles:
    """The pieces of a tiled graph on a machine: which orders are legal, and what they cost under LRU."""

    def __init__(self, tiles: TracedTiles, machine: Machine, *, steady: bool) -> None:
        self.tiles = tiles
        self.game = LruGame(
            touches=tiles.touches(machine.allocator, machine.line),
            cost=tiles.costs,
            reach=np.cumsum(pricing.capacities(machine)[:-1]) // machine.line,
            read=pricing.prices(machine, "read"),
            store=pricing.prices(machine, "write"),
            steady=steady,
        )
        touches = self.game.touches
        kinds = [tensor.kind for tensor in tiles.graph.tensors]
        self._begins = np.zeros(len(touches.room), np.int64)
        self._begins[tiles.storages_of([kind in ("input", "param") for kind in kinds])] = 1
        self._kept = tiles.storages_of([kind in ("param", "output") for kind in kinds])
        self._ends = self._begins.copy()
        self._versions = program_versions(touches.storage, touches.write, self._ends)
        overwrites = touches.write & (self._versions > 1)
        counts = np.concatenate([np.zeros(1, np.int64), np.cumsum(overwrites)])
        once = np.repeat([op.once for op in tiles.graph.ops], np.diff(tiles.first))
        self._again = (counts[touches.start[1:]] == counts[touches.start[:-1]]) & ~once

    def price(self, order: Ints) -> float:
        """Return the energy of an order of pieces; infinite if it does not compute the same as program order."""
        touches, held = self.game.touches, self._begins.copy()
        found = finds_versions(order, touches.start, touches.storage, touches.write, self._versions, held, self._again)
        if not found or (held[self._kept] != self._ends[self._kept]).any():
            return math.inf
        return float(lru_price(self.game, order))
