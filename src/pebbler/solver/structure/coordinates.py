"""Coordinates of ops, and orders that run blocks of them, as a textbook does with the loops of a program.

A *coordinate* is a number per op that never falls from an op to one that waits for it. So blocks of a coordinate may run one after
the other, blocks of a second one within each, and so on: every such order is legal. Three words of a table give i, j and k, and
blocks of j, within them blocks of k, within them program order are bars; steps of a line of points give leaning strips.
Coordinates are drawn from what every graph has:

- places in simple orders, the depth of an op, and how far it is from the end,
- the most edges of some classes on a path to the op. A class has the edges from operands of one place among the reads, or those
  between ops of one distance in program order,
- the largest number of an op before it that reads an input, or the least number of an op after it that makes an output, where any
  coordinate, or the place within a depth, gives the numbers,
- groups of ops that operands at some places of the reads connect, of which one number is the least: the rows of a matrix, where one
  place is for an entry and another for an earlier one of its row,
- how often one coordinate has fallen when ops are sorted by another: rows, where it is the place in a row that falls.

Within the last blocks ops run in the order of a walk through the whole graph, or in that of a walk through the block alone: some
stages of an FFT are many small FFTs.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from pebbler.arrays import Bools, Ints
from pebbler.game.dataflow import NONE, Dataflow
from pebbler.solver.structure.kernels.block_walks import walk_blocks
from pebbler.solver.structure.kernels.connected_groups import connected_groups
from pebbler.solver.structure.kernels.longest_paths import longest_paths

__all__ = ["Coordinates", "Key"]

_FAR = 1 << 40
_CLASSES = 8  # the largest, of each kind
_LEAST = 0.02  # of the edges, in a class
_KEPT = 48  # coordinates at a time
_WALKED = 0.4  # how often the last blocks are walked


@dataclass(frozen=True)
class Block:
    """Blocks of a coordinate: how many of its numbers each has, and how many of the first one's are missing.

    The last ones of a key may be `walked`: depth first within what encloses them, from ends in the order of the numbers; `onward`
    from there to ends that share some of that, before the next.
    """

    coordinate: Ints
    length: int
    shift: int = 0
    walked: Literal["", "down", "onward"] = ""

    def numbers(self, ops: Ints) -> Ints:
        """Return the number of the block of each of these ops."""
        found: Ints = (self.coordinate[ops] + self.shift) // self.length
        return found


Key = tuple[Block, ...]  # from the outermost blocks to the last one, which is a place in an order


class Coordinates:
    """Coordinates of one graph, drawn at random, and orders by blocks of them.

    >>> from pebbler.workloads import chain
    >>> flow = chain(3).dataflow
    >>> drawn = Coordinates(flow, np.arange(7).reshape(1, 7), np.random.default_rng(0))
    >>> drawn.order(drawn.key(), np.arange(7)).tolist()
    [0, 1, 2, 3, 4, 5, 6]
    """

    def __init__(self, flow: Dataflow, walks: Ints, rng: np.random.Generator) -> None:
        self.rng, ops = rng, flow.ops
        reader = np.repeat(np.arange(ops), np.diff(flow.op_reads.start))
        maker = flow.value_maker[flow.op_reads.items]
        slot = np.arange(len(reader)) - flow.op_reads.start[reader]
        made = maker != NONE
        # For groups, also what is there at the start: its place comes after the ops. Ops that read as much do the same.
        self.reader, self.source = reader, np.where(made, maker, ops + flow.op_reads.items)
        self.connects = self._largest(slot * (1 + len(reader)) + np.diff(flow.op_reads.start)[reader])
        self.things = ops + flow.values
        waits = np.repeat(np.arange(ops), np.diff(flow.before.start))
        source, target = np.concatenate([maker[made], flow.before.items]), np.concatenate([reader[made], waits])
        slot = np.concatenate([slot[made], np.full(len(waits), NONE)])
        rows = np.argsort(target, kind="stable")
        self.items, target, slot = source[rows], target[rows], slot[rows]
        self.start = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(target, minlength=ops))])
        after = np.argsort(self.items, kind="stable")
        self.after = (
            np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(self.items, minlength=ops))]),
            target[after],
        )
        self.classes = [self._largest(slot), self._largest(np.where(slot == NONE, NONE, target - self.items))]
        self.walks = [np.argsort(walk) for walk in walks]
        self.begins, self.ends = np.zeros(ops, np.bool_), np.diff(flow.after.start) == 0
        self.begins[reader[~made]] = True
        lasting = flow.value_maker[flow.value_must_survive]
        self.ends[lasting[lasting != NONE]] = True
        zero, one = np.zeros(ops, np.int64), np.ones(len(self.items), np.int64)
        depth = longest_paths(self.start, self.items, one, zero, False)
        height = longest_paths(self.start, self.items, one, zero, True)
        self.numbers = [*self.walks, depth, -height]  # what closures begin with
        for level in (depth, -height):
            place = np.lexsort((np.arange(ops), level))
            first = np.searchsorted(level[place], level[place])
            self.numbers.append(np.empty(ops, np.int64))
            self.numbers[-1][place] = np.arange(ops) - first
        self.drawn: list[Ints] = []
        for number in (*self.walks, depth, -height):
            self._keep(number)
        for number, backward in product(self.numbers, (False, True)):
            self._keep(self._closed(number, self.ends if backward else self.begins, backward))

    @staticmethod
    def _largest(label: Ints) -> Ints:
        """Return per edge its class: 0 for small ones, and for edges that carry nothing."""
        labels, which, counts = np.unique(label, return_inverse=True, return_counts=True)
        counts[labels == NONE] = 0
        place = np.empty(len(labels), np.int64)
        place[np.argsort(-counts, kind="stable")] = np.arange(1, len(labels) + 1)
        place[(place > _CLASSES) | (counts < _LEAST * counts.sum())] = 0
        return place[which]

    def _keep(self, numbers: Ints) -> Ints:
        """Return the ranks of numbers, and keep them for later draws if they differ from all known ranks."""
        found = np.unique(numbers, return_inverse=True)[1].astype(np.int64)
        if found.max() == 0 or any(np.array_equal(found, other) for other in self.drawn):
            return found
        if len(self.drawn) < _KEPT:
            self.drawn.append(found)
        else:
            self.drawn[int(self.rng.integers(len(self.walks), _KEPT))] = found
        return found

    def _any(self, numbers: list[Ints]) -> Ints:
        return numbers[int(self.rng.integers(len(numbers)))]

    def _counted(self) -> Ints:
        """Return the most edges of some classes on a path to each op."""
        counted = self.rng.random(_CLASSES + 1) < 0.4
        counted[0] = False
        weight = counted[self._any(self.classes)].astype(np.int64)
        return np.asarray(longest_paths(self.start, self.items, weight, np.zeros(len(self.begins), np.int64), False))

    def _closed(self, numbers: Ints, marked: Bools, backward: bool) -> Ints:
        """Return the largest number of marked ops before each op or, backward, the least of those after it."""
        first = np.where(marked, -numbers if backward else numbers, -_FAR)
        found = longest_paths(self.start, self.items, np.zeros(len(self.items), np.int64), first, backward)
        return -found if backward else np.asarray(found)

    def _grouped(self, numbers: Ints) -> Ints:
        """Return the least number in the group of each op, up to it; reads at some places connect groups."""
        counted = self.rng.random(_CLASSES + 1) < 0.4
        chosen = counted[self.connects] & (self.connects > 0)
        group = connected_groups(self.things, self.reader[chosen], self.source[chosen])[: len(numbers)]
        least = np.full(self.things, _FAR)
        np.minimum.at(least, group, numbers)
        return self._closed(least[group], np.ones_like(self.ends), False)

    @staticmethod
    def _fallen(numbers: Ints, other: Ints) -> Ints:
        """Return the number of times a coordinate has fallen up to each op, when ops are sorted by another one."""
        place = np.lexsort((other, numbers))
        last = np.concatenate([np.diff(numbers[place]) > 0, [True]])
        most = other[place[last]]  # of the ops with one number
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.diff(most) < 0)])[numbers]

    def draw(self) -> Ints:
        """Return a coordinate: a new one, or one that was drawn before."""
        kind = self.rng.random()
        if kind < 0.5:
            return self._any(self.drawn)
        if kind < 0.65:
            return self._keep(self._counted())
        if kind < 0.78:
            return self._keep(self._grouped(self._any([*self.numbers, *self.drawn])))
        if kind < 0.88:
            return self._keep(self._fallen(self._any(self.drawn), self._any(self.drawn)))
        backward = bool(self.rng.random() < 0.5)
        marked = np.ones_like(self.ends) if self.rng.random() < 0.3 else self.ends if backward else self.begins
        return self._keep(self._closed(self._any([*self.numbers, *self.drawn]), marked, backward))

    def _block(self) -> Block:
        coordinate = self.draw()
        length = int(np.exp(self.rng.uniform(0, np.log(max(2.0, (int(coordinate.max()) + 1) / 2)))))
        return Block(coordinate, length, int(self.rng.integers(length)))

    def _walk(self) -> Block:
        walk, kind = self.walks[int(self.rng.integers(len(self.walks)))], self.rng.random()
        return Block(walk, 1, walked="down" if kind < _WALKED / 2 else "onward" if kind < _WALKED else "")

    def key(self) -> Key:
        """Return blocks of one to three coordinates and the order within them."""
        return (*(self._block() for _ in range(int(self.rng.integers(1, 4)))), self._walk())

    def changed(self, key: Key) -> Key:
        """Return a key with a block changed, exchanged, added or left out."""
        rng, blocks = self.rng, list(key)
        at, kind = int(rng.integers(len(blocks))), rng.random()
        if at == len(blocks) - 1:
            return (*blocks[:-1], self._walk()) if kind < 0.5 else (*blocks[:-1], self._block(), blocks[-1])
        one = blocks[at]
        if kind < 0.5:
            length = max(1, one.length + round(max(1.0, 0.4 * one.length) * rng.normal()))
            blocks[at] = Block(one.coordinate, length, int(rng.integers(length)))
        elif kind < 0.7:
            blocks[at] = Block(self.draw(), one.length, one.shift)
        elif kind < 0.8:
            del blocks[at]
        else:
            other = int(rng.integers(len(blocks) - 1))
            blocks[at], blocks[other] = blocks[other], blocks[at]
        return tuple(blocks)

    def order(self, key: Key, ops: Ints) -> Ints:
        """Return these ops, consecutive in a legal order, block by block."""
        columns = [block.numbers(ops) for block in key]
        place = np.lexsort(columns[::-1])
        ranked = ops[place]
        if key[-1].walked and len(ops):
            block = np.zeros(len(ops), np.int64)
            for column in columns[:-1]:
                block[1:] |= np.diff(column[place]) != 0
            rows, onward = (self.start, self.items), key[-1].walked == "onward"
            ranked = np.asarray(walk_blocks(ranked, np.cumsum(block), rows, self.after, onward))
        return ranked
