"""A sequence of ops with its residency, turned into a plan."""

from __future__ import annotations

import numpy as np

from pebbler.game.moves import MoveList
from pebbler.game.plan import Plan
from pebbler.referee import pricing
from pebbler.solver.paging.kernels.residency import (
    AFTER,
    AT_START,
    BOUNDED,
    DESTROYS,
    DURING,
    FIRST,
    MADE,
    RESULT,
    UNTIL_FIRST,
    WRAPS,
    Accesses,
    PagingArrays,
    Residency,
)
from pebbler.solver.problem import Problem

__all__ = ["residency_plan"]


def residency_plan(problem: Problem, arrays: PagingArrays, accesses: Accesses, residency: Residency) -> Plan:
    """Return the plan of a sequence with its residency.

    The copies between two ops are ordered so that they fit; where two levels would have to swap through each other, one value
    goes by the slowest.

    >>> from pebbler import machine, workloads
    >>> from pebbler.solver.paging.sequence_search import PagingSearch
    >>> search = PagingSearch(Problem.of(workloads.chain(1), machine("red-blue")), lambda: 1.0)
    >>> list(search.plan(search.page(np.arange(3))).moves)[:3]
    [Copy('N0', 'slow', 'fast'), Drop('N0', 'slow'), Compute('c1')]
    """
    return _MoveWriter(problem, arrays, accesses, residency).run()


class _MoveWriter:
    """Walks through the sequence and knows at any moment which levels hold the value of every storage."""

    def __init__(self, problem: Problem, arrays: PagingArrays, accesses: Accesses, residency: Residency) -> None:
        self.problem, self.arrays, self.accesses, self.residency = problem, arrays, accesses, residency
        self.read = pricing.prices(problem.machine, "read").tolist()
        self.capacity = arrays.capacity.tolist()
        self.tensor = problem.graph.dataflow.value_tensor.tolist()
        self.masks = arrays.masks.tolist()
        self.held = [self.masks[state] for state in residency.storage[:, AT_START]]
        self.value = arrays.storage[:, FIRST].tolist()
        self.used = [0] * len(self.capacity)
        for storage, value in enumerate(self.value):
            self._count(storage, self.held[storage] if value >= 0 else 0, 1)
        self.moves = MoveList()

    def run(self) -> Plan:
        arrays, accesses, residency = self.arrays, self.accesses, self.residency
        graph, machine = self.problem.graph, self.problem.machine
        start = dict(self.problem.start)
        for storage in np.flatnonzero(arrays.storage[:, WRAPS]):
            where = [machine.names[at] for at in self._levels(self.held[storage])]
            start[graph.tensor_names[self.tensor[self.value[storage]]]] = where[0] if len(where) == 1 else where
        by_position: list[list[int]] = [[] for _ in accesses.sequence]
        storage_of_access = np.repeat(np.arange(len(arrays.storage)), np.diff(accesses.start)).tolist()
        for access in np.argsort(accesses.when, kind="stable").tolist():
            by_position[accesses.when[access]].append(access)
        target = {
            storage: self.masks[state] for storage, state in enumerate(residency.storage[:, UNTIL_FIRST].tolist())
        }
        for op, here in zip(accesses.sequence.tolist(), by_position, strict=True):
            target |= {storage_of_access[e]: self.masks[residency.access[e, DURING]] for e in here}
            self._copy_and_drop(target)
            self._compute(op, {e: storage_of_access[e] for e in here})
            target = {storage_of_access[e]: self.masks[residency.access[e, AFTER]] for e in here}
        self._copy_and_drop(target)
        return self.problem.plan(self.moves.moves(graph, machine), start)

    def _compute(self, op: int, accesses: dict[int, int]) -> None:
        arrays, level = self.arrays, 0
        for access, storage in accesses.items():
            operand = arrays.operand[self.accesses.operand[access]]
            if operand[MADE] >= 0:
                level = int(self.residency.access[access, RESULT])
                if operand[DESTROYS]:
                    self._count(storage, self.held[storage], -1)
                    self.held[storage] = 0
                self.value[storage] = int(operand[MADE])
                self._count(storage, 1 << level & ~self.held[storage], 1)
                self.held[storage] |= 1 << level
        self.moves.compute(op, level)

    def _count(self, storage: int, mask: int, sign: int) -> None:
        """Count the room of a storage's value in the levels of `mask`."""
        size = int(self.arrays.size[self.value[storage]]) if self.value[storage] >= 0 else 0
        for at in self._levels(mask):
            self.used[at] += sign * size

    def _levels(self, mask: int) -> list[int]:
        return [at for at in range(len(self.used)) if mask >> at & 1]

    def _copy_and_drop(self, target: dict[int, int]) -> None:
        """Copy and drop until every storage of `target` is where it should be."""
        pending = {storage: mask for storage, mask in target.items() if mask != self.held[storage]}
        while pending:
            progress = False
            for storage, mask in list(pending.items()):
                progress |= self._drop_unwanted(storage, mask)
            for storage, mask in list(pending.items()):
                progress |= self._copy_missing(storage, mask)
                if self.held[storage] == mask:
                    del pending[storage]
            if not progress and pending:
                self._detour(pending)

    def _best_source(self, storage: int) -> int:
        return min(self._levels(self.held[storage]), key=lambda at: (self.read[at], at))

    def _drop_unwanted(self, storage: int, mask: int) -> bool:
        """Drop what is not wanted, except the copy that missing ones are made from."""
        keep = mask
        if mask & ~self.held[storage]:
            keep |= 1 << self._best_source(storage)
        return self._drop(storage, self.held[storage] & ~keep)

    def _copy_missing(self, storage: int, mask: int) -> bool:
        """Make the missing copies that fit, the cheapest to read first."""
        size, progress = int(self.arrays.size[self.value[storage]]), False
        for at in sorted(self._levels(mask & ~self.held[storage]), key=lambda at: (self.read[at], at)):
            if self.used[at] + size <= self.capacity[at]:
                self._copy(storage, at)
                progress = True
        return progress

    def _detour(self, pending: dict[int, int]) -> None:
        """Levels would have to swap: send the smallest value that can leave a full one through the slowest."""
        slowest = len(self.used) - 1
        if self.capacity[slowest] < BOUNDED:
            raise AssertionError("what is on one level only is never copied")
        stuck = [s for s, mask in pending.items() if self.held[s] & ~mask and self.held[s] != 1 << slowest]
        storage = min(stuck, key=lambda s: (int(self.arrays.size[self.value[s]]), s))
        if not self.held[storage] >> slowest & 1:
            self._copy(storage, slowest)
        self._drop(storage, self.held[storage] & ~pending[storage] & ~(1 << slowest))

    def _copy(self, storage: int, at: int) -> None:
        self.moves.copy(self.tensor[self.value[storage]], self._best_source(storage), at)
        self._count(storage, 1 << at, 1)
        self.held[storage] |= 1 << at

    def _drop(self, storage: int, mask: int) -> bool:
        """Drop the copies in the levels of `mask`; return whether there are any."""
        for at in self._levels(mask):
            self.moves.drop(self.tensor[self.value[storage]], at)
        self._count(storage, mask, -1)
        self.held[storage] &= ~mask
        return mask != 0
