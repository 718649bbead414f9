"""The counters of a plan where moves say what is where.

An element is in the levels that hold its tile. A moment is after a move, or before the first one.

- ("begun", value, part, level), ("added", ...), ("made", ...): elements written to a level by first runs that begin a sum of
  several pieces, go on with it, and complete it; what one piece makes is "made" by it.
- ("made again", phase, value, part, level): elements of complete values written to a level by later runs, before or after the
  moment, or at any time (`Leaf.told_apart`).
- ("copy", phase, value, part, source, target): elements copied, likewise, of complete values and of sums that are not.
- ("between", value, part, levels): elements of the value that a parameter has at the start of a steady step, by the cheapest and
  the dearest of the levels that they are in, once if that is the same.
- ("then", value, part, levels): elements that are there at the moment, likewise. Where a level holds more than its
  capacity until operands are dropped (`results = "over"`), that is after these drops.
- ("kept", value, part, levels), ("waits", ...): those of them that are kept for sums that wait, and of these sums, if the next run
  that touches them reads them; ("renewed", value, part): those that the next run writes, and a later one reads (`sums_wait`).
- ("stays", tensor, part, tier): elements that, in one version or another, are in a level of a tier at every moment of the step.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from pebbler.game.moves import COMPUTE, COPY, Compute
from pebbler.game.plan import Plan
from pebbler.game.replay import Step
from pebbler.referee import pricing
from pebbler.referee.counts import Counts
from pebbler.referee.pieces import Pieces

__all__ = ["PlacedPlay"]

_Levels = frozenset[int]


class PlacedPlay:
    """A plan on an explicit machine, played move by move."""

    def __init__(self, plan: Plan, pieces: Pieces) -> None:
        self.plan, self.pieces = plan, pieces
        replay = plan.replay()
        # Per moment, the first before any move: the value that each storage holds, and the levels that have it.
        self.held = [self._held(replay.held)]
        self.steps: list[Step] = []
        for step in replay:
            self.steps.append(step)
            self.held.append(self._held(replay.held))

    def _held(self, levels: list[dict[int, int]]) -> dict[int, tuple[int, _Levels]]:
        found: dict[int, set[int]] = defaultdict(set)
        values: dict[int, int] = {}
        for level, held in enumerate(levels):
            for storage, value in held.items():
                found[storage].add(level)
                values[storage] = value
        return {storage: (value, frozenset(found[storage])) for storage, value in values.items()}

    def count(self, counts: Counts) -> None:
        """Add the counters of a leaf."""
        moves = self.plan.moves
        kinds = zip(moves.kind.tolist(), moves.subject.tolist(), self.steps, strict=True)
        for move, (kind, subject, step) in enumerate(kinds):
            if kind == COMPUTE:
                for value, level in step.reads:
                    counts.read(move, subject, value, level)
                for value, level in step.writes:
                    self._count_write(counts, move, value, level, again=counts.made_again(move, subject, value))
            elif kind == COPY:
                (value, source), (_, target) = step.reads[0], step.writes[0]
                copied = self.pieces.value[value]
                counts.add(("copy", counts.when_told(move, copied), copied), value, target, middle=(source,))
        if self.plan.steady:
            self._count_held(counts, "between", 0)
        if counts.leaf.moment is not None:
            self._count_held(counts, "then", self._fitting(counts.moment + 1))
            self._count_kept(counts, self._fitting(counts.moment + 1))
        self._count_stays(counts)

    def _fitting(self, moment: int) -> int:
        """Return the first moment, from a given one, at which the contents of every level fit.

        Where results take the room of operands, that is after the drops that follow the move.
        """
        room = pricing.capacities(self.plan.machine.in_unit(self.plan.graph.unit))
        sizes = self.pieces.flow.value_size
        while True:
            held = self.held[moment].values()
            if all(
                sum(int(sizes[value]) for value, at in held if level in at) <= units for level, units in enumerate(room)
            ):
                return moment
            moment += 1

    def _count_write(self, counts: Counts, move: int, value: int, level: int, *, again: bool) -> None:
        begins, completes = self.pieces.begins[value], self.pieces.completes[value]
        if not again:
            kind = "made" if completes else "begun" if begins else "added"
            counts.add((kind, self.pieces.value[value]), value, level)
        elif completes:
            made = self.pieces.value[value]
            counts.add(("made again", counts.when_told(move, made), made), value, level)

    def _count_held(self, counts: Counts, kind: str, moment: int) -> None:
        for value, levels in self.held[moment].values():
            if self.pieces.completes[value] and self.pieces.value[value] in counts.parts:
                self._count_places(counts, kind, value, levels)

    def _count_places(self, counts: Counts, kind: str, value: int, levels: _Levels) -> None:
        parts = counts.parts[self.pieces.value[value]][counts.tile(value)]
        for part, number in enumerate(np.bincount(parts).tolist()):
            if number:
                ends = {min(levels, key=counts.leaf.by_price): 0, max(levels, key=counts.leaf.by_price): 0}
                counts.found[kind, self.pieces.value[value], part, tuple(ends)] += number

    def _count_kept(self, counts: Counts, moment: int) -> None:
        leaf, flow = counts.leaf, self.pieces.flow
        sums = {one.total for one in leaf.waiting_sums}
        steps = self.steps[counts.moment + 1 :] if sums else []
        runs = [step for step in steps if isinstance(step.move, Compute)]
        read = {value for step in runs for value, _ in step.reads}
        seen: set[int] = set()
        for step in runs:
            for write, touched in ((False, step.reads), (True, step.writes)):
                for value, _ in touched:
                    tensor, source = int(flow.value_tensor[value]), self.pieces.value[value]
                    if tensor not in seen:
                        seen.add(tensor)
                        _, levels = self.held[moment].get(int(flow.storage[tensor]), (value, frozenset[int]()))
                        if source in leaf.kept and write and value in read:
                            counts.renewed(value)
                        elif source in leaf.kept and not write and self.pieces.completes[value]:
                            self._count_places(counts, "kept", value, levels)
                        elif source in sums and not write and not self.pieces.completes[value]:
                            self._count_places(counts, "waits", value, levels)

    def _count_stays(self, counts: Counts) -> None:
        flow = self.pieces.flow
        for tensor in counts.leaf.family.lasting:
            for tile in self.pieces.tiles_of(tensor):
                storage, value = int(flow.storage[tile]), int(flow.start_value[tile])
                for tier, near in enumerate(counts.leaf.tiers):
                    if all(storage in held and held[storage][1].intersection(near) for held in self.held):
                        parts = counts.parts[self.pieces.value[value]][self.pieces.elements[tile]]
                        for part, number in enumerate(np.bincount(parts).tolist()):
                            counts.found["stays", tensor, part, tier] += number
