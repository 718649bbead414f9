"""Replay of a plan, move by move: the values that every level holds, and the moments when they change.

A replay does not judge legality: for an illegal plan it shows what would happen, such as a read that finds a newer version. On a
machine with caches, moves do not place values. There all values are on level 0, and only overwritten values leave it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pebbler.game.dataflow import NONE
from pebbler.game.moves import COMPUTE, COPY, Move

if TYPE_CHECKING:
    from pebbler.game.plan import Plan

__all__ = ["Replay", "Step"]

Held = tuple[int, int]  # a value and the level that holds it


@dataclass(frozen=True, slots=True)
class Step:
    """The effect of one move. `reads` has a pair per operand of a compute, in order: (NONE, NONE) for a missing operand."""

    move: Move
    reads: tuple[Held, ...] = ()
    writes: tuple[Held, ...] = ()  # one per result, in order, whether or not the same value was there before
    added: tuple[Held, ...] = ()
    removed: tuple[Held, ...] = ()


class Replay:
    """The moves of a plan, one `Step` each; `held` says, per level, which value each storage holds after the last step.

    >>> from pebbler import Plan, machine, workloads
    >>> plan = Plan(workloads.chain(1), machine("red-blue"), [("compute", "c1"), ("drop", "N0", "fast")], {"N0": "fast"})
    >>> replay = plan.replay()
    >>> [(step.added, step.removed) for step in replay]
    [(((1, 0),), ()), ((), ((0, 0),))]
    >>> replay.held
    [{1: 1}, {}]
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.flow = plan.graph.dataflow
        self.explicit = plan.machine.management == "explicit"
        self.held: list[dict[int, int]] = [{} for _ in (plan.machine.level if self.explicit else (0,))]
        self.start: list[Held] = []
        self._ran: set[int] = set()
        storage = self.flow.storage
        for tensor, levels in plan.start_levels().items():
            value = int(self.flow.start_value[tensor])
            for level in levels if self.explicit else [0]:
                self.held[level][int(storage[tensor])] = value
                self.start.append((value, level))
        self._storage: list[int] = storage.tolist()
        self._tensor: list[int] = self.flow.value_tensor.tolist()
        self._reads: list[list[int]] = [row.tolist() for row in self.flow.op_reads]
        self._writes: list[list[int]] = [row.tolist() for row in self.flow.op_writes]

    def __iter__(self) -> Iterator[Step]:
        moves = self.plan.moves
        columns = zip(moves.kind.tolist(), moves.subject.tolist(), moves.level.tolist(), moves.to.tolist(), strict=True)
        for move, (kind, subject, level, to) in zip(moves, columns, strict=True):
            if kind == COMPUTE:
                yield self._compute(move, subject, level if self.explicit else 0)
            elif not self.explicit:
                yield Step(move)
            elif kind == COPY:
                yield self._copy(move, self._storage[subject], level, to)
            else:
                value = self.held[level].pop(self._storage[subject], NONE)
                yield Step(move, removed=() if value == NONE else ((value, level),))

    def _compute(self, move: Move, op: int, level: int) -> Step:
        reads = tuple(self.find(self._tensor[value]) for value in self._reads[op])
        writes = tuple((value, level) for value in self._writes[op])
        added: list[Held] = []
        removed: list[Held] = []
        for value in self._writes[op]:
            storage = self._storage[self._tensor[value]]
            for at, held in enumerate(self.held):
                # Running an op again brings back the same value, so that other copies of it stay.
                if storage in held and (op not in self._ran or at == level) and held[storage] != value:
                    removed.append((held.pop(storage), at))
            if self.held[level].get(storage) != value:
                added.append((value, level))
            self.held[level][storage] = value
        self._ran.add(op)
        return Step(move, reads, writes, tuple(added), tuple(removed))

    def _copy(self, move: Move, storage: int, source: int, target: int) -> Step:
        value = self.held[source].get(storage, NONE)
        if value == NONE:
            return Step(move, ((NONE, NONE),))
        before = self.held[target].get(storage, NONE)
        self.held[target][storage] = value
        reads, writes = ((value, source),), ((value, target),)
        if before == value:
            return Step(move, reads, writes)
        return Step(move, reads, writes, writes, () if before == NONE else ((before, target),))

    def find(self, tensor: int) -> Held:
        """Return the value in a tensor's storage and the fastest level that holds one, (NONE, NONE) if none does."""
        for level, held in enumerate(self.held):
            if self._storage[tensor] in held:
                return held[self._storage[tensor]], level
        return NONE, NONE
