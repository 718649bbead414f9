"""The counters of a plan on caches, where the machine decides what is where.

All are read off the touches of one step, with the level that the referee finds each in; of a steady plan, of the repetition that is
priced. A *unit* of a storage is touched when its line is.

- ("written", value): elements written by first runs.
- ("sunk", value, part, level): elements of the complete value written back from a level to the one below, whoever touches their
  place next, or at the end; those of a sum that is not complete are paid for with the "add" that finds them there. (What the
  piece that adds pushes out between its read of a sum and its write is in no counter, so there a plan costs more than they do.)
- ("found", tensor, part, i, j): elements of a start value; the first touch of the step finds them in level i, and the first after
  the moment in level j, which may be the first of the next step. In a plan that is not steady i is the last level, and what is
  not touched again is found where it lies at the end. Where it is not told apart (`alive`), j is 0.
- ("end", tensor, part, level): elements of the value that an updated tensor has at the end, by where they lie then; not in steady
  plans.
- ("alive", value, part, level): elements of a value that crosses the moment, by the level where the first touch after it finds
  them, if that is a read. (If it is a write, the element is made again.)
- ("kept", value, part, level): the same of values that are kept for sums that wait (`sums_wait`); ("waits", value, part, level):
  elements of such sums whose first touch after the moment is a read, by a piece that goes on with them.
- ("renewed", value, part): elements of values kept for sums whose first touch after the moment is a write, and that are read later.
- ("outside", level, side, phase, tensor, part): elements that are outside of X or of Y (`near_twice`) of one of the two phases.
- ("touched far", level, phase, tensor, part): elements that are found within a level both times, and beyond it by a read of the
  phase that is not their first; ("touched near", ...): of others reads from below the fastest level, or from anywhere if that is
  the level, at most two of each that are not its first of the phase.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pebbler.arrays import Bools, Ints
from pebbler.game.dataflow import NONE
from pebbler.game.plan import Plan
from pebbler.referee import pricing
from pebbler.referee.counts import Counts
from pebbler.referee.kernels.cache_price import LruGame
from pebbler.referee.lru_window import price_window
from pebbler.referee.pieces import Pieces
from pebbler.referee.rows.cache_moments import alive
from pebbler.referee.rows.leaf import Few
from pebbler.referee.rows.near_twice import paired
from pebbler.referee.touches import Touches

__all__ = ["CachePlay", "Touch"]


@dataclass(frozen=True)
class Touch:
    """A touch of a tile by one run: which value of the form is read or written, and in which level each unit is found."""

    move: int
    op: int
    value: int
    write: bool
    units: slice  # their addresses
    levels: Ints


class CachePlay:
    """A plan on caches, touch by touch."""

    def __init__(self, plan: Plan, pieces: Pieces) -> None:
        self.plan, self.pieces = plan, pieces
        machine = plan.machine.in_unit(plan.graph.unit)
        self.line, self.steady = machine.line, bool(plan.steady)
        game = pricing.cache_game(plan.graph, machine, steady=self.steady)
        assert isinstance(game, LruGame)
        self.reach, self.levels = game.reach, len(machine.level)
        self.home = game.touches.home
        order = plan.moves.order
        touches = Touches.of(game.touches, order)
        runs, touched, _ = touches.in_lines(self.line)
        window = price_window(runs, game.reach, game.read, game.store, steady=self.steady, detail=True)
        assert window.touches is not None
        level = np.repeat(np.repeat(window.touches.level.astype(np.int64), runs.lines), self.line)
        width = np.bincount(np.repeat(touched, runs.lines), minlength=len(touches.units)) * self.line
        ends = np.cumsum(width)
        flow = plan.graph.dataflow
        rows = [[*flow.op_reads.row(op).tolist(), *flow.op_writes.row(op).tolist()] for op in range(flow.ops)]
        values = [value for op in order.tolist() for value in rows[op]]
        self.touches = [
            Touch(
                move,
                int(order[move]),
                values[number],
                bool(touches.write[number]),
                slice(int(touches.address[number]), int(touches.address[number] + touches.units[number])),
                level[ends[number] - width[number] :][: int(touches.units[number])],
            )
            for number, move in enumerate(touches.step.tolist())
        ]
        self.room = max((-(-one.units.stop // self.line) * self.line for one in self.touches), default=0)
        self.room = max(self.room, game.touches.top * self.line)

    @cached_property
    def end(self) -> Ints:
        """The level of each unit at the end; the last level for untouched units."""
        last = np.full(self.room // self.line, -1)
        for number, one in enumerate(self.touches):
            last[self._lines(one)] = number
        # Lines of one touch lie in the stack with the first one deepest.
        stack = np.lexsort((np.arange(len(last)), last))[::-1]
        depth = np.empty(len(last), np.int64)
        depth[stack] = np.arange(1, len(last) + 1)
        level = np.where(last < 0, self.levels - 1, np.searchsorted(self.reach, depth))
        return np.asarray(np.repeat(level, self.line))

    def _lines(self, one: Touch) -> slice:
        return slice(one.units.start // self.line, -(-one.units.stop // self.line))

    def place(self, tensor: int) -> slice:
        """Return the addresses of a tensor of the form that has a value at the start."""
        first = int(self.home[int(self.pieces.flow.storage[tensor])]) * self.line
        return slice(first, first + int(self.pieces.flow.tensor_size[tensor]))

    def first_found(self, after: int = -1) -> Ints:
        """Return the level where each unit is found by its first touch after a move; the number of levels where there is none."""
        found = np.full(self.room, self.levels)
        for one in reversed(self.touches):
            if one.move > after:
                found[one.units] = one.levels
        return found

    @cached_property
    def write_backs(self) -> list[tuple[int, Ints, int]]:
        """Values of the form that are written back, the places of elements in their tiles, and the level that these come from."""
        return list(self._write_backs())

    def _write_backs(self) -> Iterator[tuple[int, Ints, int]]:
        fresh = np.full(self.room, self.levels - 1)  # the deepest level that is up to date
        author, element = np.full(self.room, -1), np.full(self.room, -1)
        for again in (True, False) if self.steady else (False,):
            for one in self.touches:
                at = one.units
                if not again:
                    yield from self._sunk(fresh[at], one.levels, author[at], element[at])
                fresh[at] = 0 if one.write else np.maximum(fresh[at], one.levels)
                if one.write:
                    author[at], element[at] = one.value, np.arange(at.stop - at.start)
        if not self.steady:
            yield from self._sunk(fresh, self.end, author, element)

    def _sunk(self, fresh: Ints, found: Ints, author: Ints, element: Ints) -> Iterator[tuple[int, Ints, int]]:
        for level in range(int(fresh.min(initial=self.levels)), int(found.max(initial=0))):
            sunk = (fresh <= level) & (level < found) & (author >= 0)
            for value in np.unique(author[sunk]).tolist():
                yield value, element[sunk & (author == value)], level

    def count(self, counts: Counts) -> None:
        """Add the counters of a leaf."""
        for one in self.touches:
            if not one.write:
                counts.read(one.move, one.op, one.value, one.levels)
            elif not counts.made_again(one.move, one.op, one.value):
                counts.found["written", self.pieces.value[one.value]] += len(one.levels)
        for value, elements, level in self.write_backs:
            if self.pieces.completes[value]:
                counts.add(("sunk", self.pieces.value[value]), value, level, chosen=elements)
        self._count_starts(counts)
        self._count_crossing(counts)
        for near in counts.leaf.near:
            self._count_outside(counts, near.level)
            self._count_touched_again(counts, near.level)

    def _count_starts(self, counts: Counts) -> None:
        leaf, below = counts.leaf, self.levels
        first, then = self.first_found(), self.first_found(counts.moment)
        first = np.where(first == below, below - 1, first) if self.steady else np.full(self.room, below - 1)
        then = np.where(then == below, first if self.steady else self.end, then)
        for start in leaf.starts:
            apart = alive(leaf, start)
            for tensor in self.pieces.tiles_of(start.tensor):
                at, value = self.place(tensor), int(self.pieces.flow.start_value[tensor])
                for level in range(below):
                    chosen = np.flatnonzero(first[at] == level)
                    found = then[at][chosen] if apart else 0
                    counts.add(("found", start.tensor), value, found, middle=(level,), chosen=chosen)
                if not self.steady and start.update != NONE:
                    counts.add(("end", start.tensor), value, self.end[at])

    def _count_crossing(self, counts: Counts) -> None:
        seen: set[int] = set()
        for one in self.touches:
            if one.move > counts.moment and one.value not in seen and self.pieces.completes[one.value]:
                seen.add(one.value)
                value = self.pieces.value[one.value]
                if not one.write and counts.leaf.crossing(value):
                    counts.add(("alive", value), one.value, one.levels)
        self._count_kept(counts)

    def _count_kept(self, counts: Counts) -> None:
        leaf, flow = counts.leaf, self.pieces.flow
        sums = {one.total for one in leaf.waiting_sums}
        late = [one for one in self.touches if one.move > counts.moment] if sums else []
        read = {one.value for one in late if not one.write}
        seen: set[int] = set()
        for one in late:
            tensor, value = int(flow.value_tensor[one.value]), self.pieces.value[one.value]
            if tensor not in seen:
                seen.add(tensor)
                if value in leaf.kept and one.write and one.value in read:
                    counts.renewed(one.value)
                elif value in leaf.kept and not one.write and self.pieces.completes[one.value]:
                    counts.add(("kept", value), one.value, one.levels)
                elif value in sums and not one.write and not self.pieces.completes[one.value]:
                    counts.add(("waits", value), one.value, one.levels)

    def sides(self, counts: Counts, level: int, phase: int) -> dict[str, Bools]:
        """Return, per unit, whether it is in X and in Y of a phase: whether a reach of others is touched before it, and after
        it.
        """
        lines = [self._lines(one) for one in self.touches if (one.move > counts.moment) == bool(phase)]
        found = {}
        for side, order in (("X", lines), ("Y", [*reversed(lines)])):
            others = np.full(self.room // self.line, -1)
            touched = 0
            for at in order:
                for line in range(at.start, at.stop) if side == "X" else range(at.stop - 1, at.start - 1, -1):
                    if others[line] < 0:
                        others[line], touched = touched, touched + 1
            found[side] = np.repeat((others < 0) | (others >= self.reach[level]), self.line)
        return found

    def few(self, counts: Counts, level: int) -> Few:
        """Return in which phase no element of the parameters that pair is both in X and in Y."""
        places = [self.place(tensor) for start in paired(counts.leaf) for tensor in self.pieces.tiles_of(start.tensor)]
        names: tuple[Few, Few] = ("first", "second")
        for phase, name in enumerate(names):
            sides = self.sides(counts, level, phase)
            if not any((sides["X"][at] & sides["Y"][at]).any() for at in places):
                return name
        return "neither"

    def _count_outside(self, counts: Counts, level: int) -> None:
        for phase in (0, 1):
            for side, inside in self.sides(counts, level, phase).items():
                for start in paired(counts.leaf):
                    for tensor in self.pieces.tiles_of(start.tensor):
                        parts = counts.parts[start.first][self.pieces.elements[tensor]]
                        for part, number in enumerate(np.bincount(parts[~inside[self.place(tensor)]]).tolist()):
                            counts.found["outside", level, side, phase, start.tensor, part] += number

    def _count_touched_again(self, counts: Counts, level: int) -> None:
        both = (self.first_found() <= level) & (self.first_found(counts.moment) <= level)
        for phase in (0, 1):
            again, far = self._touched_again(counts, level, phase)
            touched = {"far": np.minimum(far, 1), "near": np.where(far > 0, 0, np.minimum(again, 2))}
            for kind, numbers in touched.items():
                for start in paired(counts.leaf):
                    for tensor in self.pieces.tiles_of(start.tensor):
                        parts = counts.parts[start.first][self.pieces.elements[tensor]]
                        weights = (numbers * both)[self.place(tensor)]
                        for part, number in enumerate(np.bincount(parts, weights).tolist()):
                            counts.found[f"touched {kind}", level, phase, start.tensor, part] += int(number)

    def _touched_again(self, counts: Counts, level: int, phase: int) -> tuple[Ints, Ints]:
        """Return, per unit, its reads in a phase besides the first: those from below the fastest level, and from beyond a level."""
        seen, again, far = (np.zeros(self.room, np.int64) for _ in range(3))
        known: set[tuple[int, int]] = set()  # what an op reads twice counts once
        for one in self.touches:
            if (one.move > counts.moment) != bool(phase) or one.write or (one.move, one.value) in known:
                continue
            known.add((one.move, one.value))
            again[one.units] += seen[one.units] * (one.levels >= min(level, 1))
            far[one.units] += seen[one.units] * (one.levels > level)
            seen[one.units] = 1
        return again, far
