"""Orders of a tiled graph as loop nests that ops share: a group of ops runs tile by tile of its loops, all ops for each tile.

That is how a flash-like attention runs: scores, softmax and mix of one tile of queries before the next. An op of the group that
lacks a loop runs before or after all turns of it, whichever the other ops of the group need.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pebbler.arrays import Ints
from pebbler.game.graph import Graph
from pebbler.solver.tiling.traced_tiles import TracedTiles

__all__ = ["Group", "NestOrders", "OpAxes"]

BEFORE, INSIDE, AFTER = 0, 1, 2  # where an op runs, seen from a loop of its group


@dataclass(frozen=True)
class Group:
    """Ops that run together, by number, one after the other for every turn of the loops that they share."""

    ops: tuple[int, ...]
    loops: tuple[str, ...] = ()  # outermost first
    back: frozenset[str] = frozenset()  # loops that begin with the last tile


class OpAxes:
    """Which axes each op of a graph loops over, and which ops must not be exchanged because of which tensors."""

    def __init__(self, graph: Graph, axes: Iterable[str]) -> None:
        cut, flow = set(axes), graph.dataflow
        self.axes_of: dict[int, set[str]] = {}  # of storages
        for number, tensor in enumerate(graph.tensors):
            own = {axis for axis, _ in tensor.axes or ()} & cut
            root = int(flow.storage[number])
            self.axes_of[root] = self.axes_of.get(root, own) & own
        self.loops: list[frozenset[str]] = []
        self.reads: list[frozenset[int]] = []
        self.writes: list[frozenset[int]] = []
        for op in graph.ops:
            reads = frozenset(int(flow.storage[graph.tensor_index(name)]) for name in op.reads)
            writes = frozenset(int(flow.storage[graph.tensor_index(name)]) for name in op.writes)
            touched = {axis for name in (*op.reads, *op.writes) for axis, _ in graph.tensor_named(name).axes or ()}
            self.loops.append(frozenset(touched & cut) - set(op.whole))
            self.reads.append(reads)
            self.writes.append(writes)
        ops = range(len(graph.ops))
        # Per two ops, the storages because of which they must stay in turn: both touch them, and one of them writes.
        self.shared = [
            [(self.writes[a] & (self.reads[b] | self.writes[b])) | (self.reads[a] & self.writes[b]) for b in ops]
            for a in ops
        ]
        self._sides: dict[tuple[tuple[int, ...], tuple[str, ...]], list[tuple[int, ...]] | None] = {}

    def sides(self, ops: tuple[int, ...], loops: tuple[str, ...]) -> list[tuple[int, ...]] | None:
        """Return where each op of a group runs, seen from each of its loops; None where the ops cannot share these loops.

        Two ops that must stay in turn may share a turn of a loop only if what they share is of that turn alone.

        >>> from pebbler.workloads import attention
        >>> axes = OpAxes(attention(), ["heads", "keys", "tokens"])
        >>> axes.sides((1, 3, 4, 5), ("heads", "tokens"))  # fwd_k, fwd_scores, fwd_softmax, fwd_mix
        [(1, 0), (1, 1), (1, 1), (1, 1)]
        >>> axes.sides((1, 3), ("keys",))  # tiles of keys are made one by one, and used one by one
        [(1,), (1,)]
        >>> axes.sides((3, 4, 5), ("keys",)) is None  # softmax needs the scores of all keys, before mix needs any
        True
        """
        if (ops, loops) not in self._sides:
            self._sides[ops, loops] = self._find_sides(ops, loops)
        return self._sides[ops, loops]

    def _find_sides(self, ops: tuple[int, ...], loops: tuple[str, ...]) -> list[tuple[int, ...]] | None:
        found: list[list[int]] = []
        for place, op in enumerate(ops):
            mine = []
            for number, loop in enumerate(loops):
                if loop in self.loops[op]:
                    mine.append(INSIDE)
                    continue
                earlier = (before for before in range(place) if self.shared[ops[before]][op])
                mine.append(AFTER if any(found[before][number] != BEFORE for before in earlier) else BEFORE)
            for before in range(place):
                storages = self.shared[ops[before]][op]
                if storages and not self._in_turn(storages, found[before], mine, loops):
                    return None
            found.append(mine)
        return [tuple(one) for one in found]

    def _in_turn(self, storages: frozenset[int], first: list[int], second: list[int], loops: Sequence[str]) -> bool:
        """Whether all that two ops share is touched by the first of them first, for every tile."""
        for storage in storages:
            for number, loop in enumerate(loops):
                a, b = first[number], second[number]
                if a < b:
                    break
                if a > b or (a == INSIDE and loop not in self.axes_of[storage]):
                    return False
        return True


class NestOrders:
    """Orders of the pieces of one tiled graph, group by group; groups that were met before are not ordered again."""

    def __init__(self, tiles: TracedTiles, axes: OpAxes, place: Sequence[int], room: float) -> None:
        """`place` is the op of the (fused) graph that each op of a group has become, negative where it is part of a later one.

        `room` is that of the memory in which blocks of an op's operands are to stay.
        """
        self.tiles, self.axes, self.place, self.room = tiles, axes, place, room
        self._known: dict[Group, Ints | None] = {}

    def order(self, groups: Sequence[Group]) -> Ints | None:
        """Return the pieces of all groups in turn; None where the ops of a group cannot share its loops."""
        found = []
        for group in groups:
            if group not in self._known:
                self._known[group] = self._pieces(group)
            pieces = self._known[group]
            if pieces is None:
                return None
            found.append(pieces)
        return np.concatenate(found)

    def _pieces(self, group: Group) -> Ints | None:
        sides = self.axes.sides(group.ops, group.loops)
        if sides is None:
            return None
        ops = [(self.place[op], side) for op, side in zip(group.ops, sides, strict=True) if self.place[op] >= 0]
        keys, pieces = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for turn, (op, side) in enumerate(ops):
            index, inner = self.tiles.index(op), self.tiles.inner_loops(op, group.loops, self.room)
            key = np.zeros(int(self.tiles.first[op + 1] - self.tiles.first[op]), np.int64)
            for loop, where in zip(group.loops, side, strict=True):
                count = self.tiles.count(loop)
                at = np.int64(-1 if where == BEFORE else count) if loop not in index else index[loop]
                turned = loop in group.back and loop in index
                key = key * (count + 2) + 1 + (count - 1 - at if turned else at)
            key = key * len(ops) + turn
            rank = np.zeros(len(key), np.int64)
            for loop, step in inner:
                rank = rank * self.tiles.count(loop) + index[loop] // step
            sequence = np.lexsort((rank, key)) if inner else np.argsort(key, kind="stable")
            keys.append(key[sequence])
            pieces.append(sequence + self.tiles.first[op])
        return np.concatenate(pieces)[np.argsort(np.concatenate(keys), kind="stable")]
