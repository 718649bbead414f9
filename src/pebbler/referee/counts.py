"""The counters of a legal plan of a form: the numbers that rows refer to.

A plan costs at least the sum of its counters, each times its price (`Leaf.price`): no read, write, copy or write-back is in two
of them. An *element* is one unit of a value of the source graph, wherever the tile is that has it. A run of a piece is *first* if
the piece has not run before, else *later*. The *moment* of a leaf is right after the move by which all pieces that make its
values have run. Elements of a value are told apart by parts (`Leaf.parts`): which of them are in which part makes no difference
to a row, as long as each is in a tile of full size along the axes of its part.

- ("run",): what ops cost, all runs together.
- ("read", group, time, value, part, full, level): elements read by first runs, by the level that they are found in; what an op
  reads twice counts once, where it is found first. `group` is that of the source op that reads, `time` when it certainly runs,
  before the moment or after it, or, where that depends on the plan, when it does (early or late); `full` says whether the piece
  is of full size.
- ("add", value, part, full, level): elements of a sum that is not complete, read by pieces that go on with it.
- ("more", phase, value, part, level): elements read by later runs, before or after the moment; without those that are in "again".
- ("again", phase, made, its part, value, part, level): of the elements that a later run reads, the share of a value that it makes
  again and that crosses the moment: one over the number of values that might be made from one such read (`Elements.sharing`), and
  of that in each part of the value as much as the run makes elements of it.
- ("tiles", axes...): how many pieces these axes together cut something into.
- ("remade", phase, value, part): elements written by later runs; of a sum, by those of the piece that begins it.
- ("twice", value, part): elements of which there is such a run in the step, however many there are.
- ("begun twice", value, part, operand): the same before the moment of a sum that crosses it; an element counts for the share that
  the piece that begins it reads, of those of the operand that go into it.

Those of caches and of machines where a plan places everything are in `cache_counters` and `placed_counters`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from typing import Literal

import numpy as np

from pebbler.arrays import Ints
from pebbler.game.dataflow import NONE
from pebbler.game.moves import COMPUTE
from pebbler.game.plan import Plan
from pebbler.referee.parts import Parts, parts_of
from pebbler.referee.pieces import Pieces
from pebbler.referee.rows.leaf import Leaf, Phase, Time
from pebbler.referee.rows.row import Counter, Number

__all__ = ["Counts", "Parts"]


class Counts:
    """The counters of one plan in the setting of one leaf, while they are added up."""

    def __init__(self, plan: Plan, pieces: Pieces, leaf: Leaf, parts: Parts | None = None) -> None:
        self.plan, self.pieces, self.leaf = plan, pieces, leaf
        self.parts = parts_of(pieces, leaf) if parts is None else parts
        self.found: dict[Counter, Number] = defaultdict(int)
        order, kind = plan.moves.subject.tolist(), plan.moves.kind.tolist()
        self.first_run: dict[int, int] = {}  # per op: the move that runs it first
        for move, op in enumerate(order):
            if kind[move] == COMPUTE:
                self.first_run.setdefault(op, move)
                self.found["run",] += pieces.cost[op]
        self.moment = self._last_move()
        self._count_tiles()
        self._read: set[tuple[int, int]] = set()  # moves, and values that they have read
        self._twice: set[int] = set()  # values of the form that a later run has made, and those before the moment
        self._begun_twice: set[int] = set()

    @cached_property
    def _remaking(self) -> dict[int, list[int]]:
        """Per value that is charged for what making it again reads: its operands."""
        both = (*self.leaf.remade.items(), *self.leaf.begun_again.items())
        return {value: [operand for operand, _, _ in operands] for value, operands in both}

    def _last_move(self) -> int:
        """Return the move after which the moment is; without a moment, none."""
        if self.leaf.moment is None:
            return NONE
        makers = {int(self.leaf.family.flow.value_maker[value]) for value in self.leaf.moment.values}
        return max(self.first_run[op] for op, ops in enumerate(self.pieces.ops) if makers.intersection(ops))

    def when(self, move: int) -> Literal["before", "after"]:
        """Return whether a move comes before the moment or after it."""
        return "after" if move > self.moment else "before"

    def _count_tiles(self) -> None:
        """Count the pieces into which axes cut a value or op, for all sets of axes that rows may refer to."""
        ranges = self.leaf.tiles.ranges
        tiles = {axis: -(-one.extent // self.pieces.sizes.get(axis, one.extent)) for axis, one in ranges.items()}
        used = {row for _, row in self.leaf.family.cutting.values()}
        open_axes = sorted(axis for axis in tiles if any(axis in axes for axes in used))
        for size in range(1, len(open_axes) + 1):
            for axes in combinations(open_axes, size):
                self.found["tiles", *axes] = math.prod(tiles[axis] for axis in axes)

    def when_told(self, move: int, value: int) -> Phase:
        """Return whether a move comes before or after the moment, for source values whose rows distinguish the two."""
        return self.when(move) if len(self.leaf.told_apart(value)) > 1 else "any"

    def tile(self, value: int) -> Ints:
        """Return the elements of a value of the form."""
        return self.pieces.elements[int(self.pieces.flow.value_tensor[value])]

    def add(
        self,
        head: Counter,
        value: int,
        levels: Ints | int,
        *,
        middle: Counter = (),
        factor: Number = 1,
        chosen: Ints | None = None,
    ) -> None:
        """Count elements of a value of the form by part and level: those of its tile, or those `chosen` of it."""
        parts = self.parts.get(self.pieces.value[value])
        if parts is None:
            return  # of a value that fusion may do away with
        elements = parts[self.tile(value)]
        elements = elements if chosen is None else elements[chosen]
        below = len(self.leaf.family.task.levels)
        for at, number in enumerate(np.bincount(elements * below + levels).tolist()):
            if number:
                self.found[*head, at // below, *middle, at % below] += number * factor

    def read(self, move: int, op: int, value: int, levels: Ints | int) -> None:
        """Count the reads of a value of the form by one run; a value read twice counts once."""
        if self.pieces.value[value] not in self.parts or (move, value) in self._read:
            return
        self._read.add((move, value))
        if self.first_run[op] != move:
            self._read_again(move, op, value, levels)
        elif self.pieces.goes_on(op, value):
            self._read_first(("add", self.pieces.value[value]), op, value, levels)
        else:
            group, time = self._reader(move, op, self.pieces.value[value])
            self._read_first(("read", group, time, self.pieces.value[value]), op, value, levels)

    def _read_first(self, head: Counter, op: int, value: int, levels: Ints | int) -> None:
        """Count reads by a first run; only of the first part it is told apart whether the piece is of full size."""
        below, full = len(self.leaf.family.task.levels), self.pieces.full[op]
        elements = self.parts[self.pieces.value[value]][self.tile(value)]
        for at, number in enumerate(np.bincount(elements * below + levels).tolist()):
            if number:
                self.found[*head, at // below, full and at < below, at % below] += number

    def _reader(self, move: int, op: int, value: int) -> tuple[int, Time]:
        """Return the group of a piece that reads a value of the source, and when it runs."""
        elements, moment = self.leaf.family.elements, self.leaf.moment
        readers = [one for one in self.pieces.ops[op] if value in elements.op_reads[one]]
        time: Time = "any"
        if moment is not None and moment.before.intersection(readers):
            time = "before"
        elif moment is not None and moment.after.intersection(readers):
            time = "after"
        elif self.leaf.tells_early:
            time = "early" if self.when(move) == "before" else "late"
        return elements.group[readers[0]], time

    def _read_again(self, move: int, op: int, value: int, levels: Ints | int) -> None:
        """Count the reads of a later run, with the share of each value that it makes again."""
        elements, phase, read = self.leaf.family.elements, self.when(move), self.pieces.value[value]
        remaking, rest = self._remaking, Fraction(1)
        # Per value that is made again from this one: the tiles that this run makes.
        tiles: dict[int, list[Ints]] = defaultdict(list)
        for made in self.pieces.flow.op_writes.row(op).tolist():
            if read in remaking.get(self.pieces.value[made], ()):
                tiles[self.pieces.value[made]].append(self.tile(made))
        for one, made_now in tiles.items():
            share = Fraction(1, elements.sharing(int(self.leaf.family.flow.value_maker[one]), read))
            rest -= share
            parts = self.parts[one][np.concatenate(made_now)]
            for part, number in enumerate(np.bincount(parts).tolist()):
                if number:
                    self.add(
                        ("again", phase, one, part, read), value, levels, factor=share * Fraction(number, len(parts))
                    )
        if rest:
            self.add(("more", phase if self.leaf.tells_early else "any", read), value, levels, factor=rest)

    def made_again(self, move: int, op: int, value: int) -> bool:
        """Count the elements of a value that a run recomputes; return whether it is a later run."""
        if self.first_run[op] == move:
            return False
        if (made := self.pieces.value[value]) in self.parts:
            numbers = np.bincount(self.parts[made][self.tile(value)]).tolist()
            for part, number in enumerate(numbers):
                self.found["remade", self.when(move), made, part] += number
            self._made_twice(op, value, numbers, early=self.when(move) == "before")
        return True

    def _made_twice(self, op: int, value: int, numbers: list[int], *, early: bool) -> None:
        """Count the elements of a value of the form that are made twice, the first time that this is so."""
        made, size = self.pieces.value[value], self.leaf.family.flow.value_size
        if value not in self._twice:
            self._twice.add(value)
            for part, number in enumerate(numbers):
                self.found["twice", made, part] += number
        if early and value not in self._begun_twice and made in self.leaf.begun_again:
            self._begun_twice.add(value)
            for read in dict.fromkeys(self.pieces.flow.op_reads.row(op).tolist()):
                first = self.pieces.value[read]
                share = Fraction(len(self.tile(read)), max(1, int(size[first]))) * Fraction(
                    int(size[made]), max(1, len(self.tile(value)))
                )
                for part, number in enumerate(numbers):
                    self.found["begun twice", made, part, first] += share * number

    def renewed(self, value: int) -> None:
        """Count the elements of a value of the form whose first touch after the moment is a write, and that are read later."""
        made = self.pieces.value[value]
        for part, number in enumerate(np.bincount(self.parts[made][self.tile(value)]).tolist()):
            if number:
                self.found["renewed", made, part] += number
