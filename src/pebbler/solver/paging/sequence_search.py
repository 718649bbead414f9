"""Sequences of ops with a residency for every storage, and a search for better ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pebbler.game.dataflow import NONE, Rows
from pebbler.game.graph import Graph
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
    empty_residency,
    list_accesses,
    total_cost,
)
from pebbler.solver.paging.kernels.residency_search import lagrangian_bound, page_storages, room_time_per_use
from pebbler.solver.paging.kernels.sequence_annealing import SequenceWork, search_sequences
from pebbler.solver.paging.kernels.sequence_changes import RerunRules
from pebbler.solver.paging.paging_arrays import arrays_of
from pebbler.solver.problem import Problem

__all__ = ["PagedSequence", "PagingSearch", "rerun_rules"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def rerun_rules(graph: Graph, most: int) -> RerunRules:
    """Return the ops that may rerun and until when; sequences may be up to `most` long.

    >>> from pebbler import workloads
    >>> int(rerun_rules(workloads.chain(3), 10).rerun.sum())
    7
    """
    flow = graph.dataflow
    killers = []
    for op in range(flow.ops):
        values = [*flow.op_reads.row(op).tolist(), *flow.op_writes.row(op).tolist()]
        found = {int(flow.value_destroyer[value]) for value in values} - {NONE, op}
        killers.append(sorted(found))
    rows = Rows.of(killers)
    return RerunRules(flow.value_maker, flow.op_can_rerun, rows.start, rows.items, most)


@dataclass(frozen=True)
class PagedSequence:
    """A sequence of ops, where every storage lives while it runs, and the energy of that."""

    accesses: Accesses
    residency: Residency
    energy: float

    @property
    def sequence(self) -> Ints:
        """The ops in the order in which they run, some perhaps more than once."""
        ops: Ints = self.accesses.sequence
        return ops


class PagingSearch:
    """Pages sequences of one problem and searches for better ones; deterministic for a seed.

    Paging a sequence is deciding for every storage which levels hold its value when.
    """

    def __init__(self, problem: Problem, clock: Callable[[], float]) -> None:
        """`clock` says how many seconds are left."""
        self.problem, self.clock = problem, clock
        self.arrays = arrays_of(problem)
        self.rng = np.array([(problem.seed * 0x9E3779B97F4A7C15 + 0x2545F4914F6CDD1D) % 2**64 or 1], np.uint64)

    def page(self, sequence: Ints, prices: Floats | None = None) -> PagedSequence | None:
        """Return the sequence, quickly paged: every storage the cheapest way in the room that is left; None if one finds none."""
        arrays = self.arrays
        accesses = list_accesses(arrays, np.ascontiguousarray(sequence, np.int64))
        residency = empty_residency(arrays, accesses)
        if (residency.used > arrays.capacity[:, None]).any():
            return None
        order = np.argsort(room_time_per_use(arrays, accesses), kind="stable")
        scale = 0.0 if prices is None else 1.0
        sums = self._price_sums(accesses, prices)
        found = page_storages(arrays, accesses, residency, order, sums, scale, 0, self.rng)
        return self._paged(accesses, residency) if found else None

    def improve(self, paged: PagedSequence, rounds: int, prices: Floats | None = None) -> PagedSequence:
        """Return the sequence with storages taken out and put back where that is no worse, up to `rounds` times per storage."""
        accesses = paged.accesses
        residency = Residency(*(array.copy() for array in paged.residency))
        price_sums = self._price_sums(accesses, prices)
        batch, none = 50, np.zeros(0, np.int64)
        left = rounds * len(residency.cost)
        while left > 0 and self.clock() > 0:
            page_storages(self.arrays, accesses, residency, none, price_sums, 0.0, min(batch, left), self.rng)
            left -= batch
        return self._paged(accesses, residency)

    def price_capacity(self, paged: PagedSequence, rounds: int) -> tuple[float, Floats]:
        """Return a lower bound on every residency of this sequence, and prices of room that prove it."""
        arrays = self.arrays._replace(step_price=0.0)
        prices = np.zeros(paged.residency.used.shape)
        bound = -np.inf
        for _ in range(max(1, rounds // 20)):
            if self.clock() <= 0:
                break
            better, prices = lagrangian_bound(arrays, paged.accesses, prices, paged.energy, 20, 4)
            stalled = better <= bound * (1 + 1e-5)
            bound = max(bound, better)
            if stalled:
                break
        return float(bound), prices

    def anneal(self, paged: PagedSequence, rounds: int, heat: float, *, reruns: bool) -> PagedSequence:
        """Return the best of `rounds` steps of simulated annealing from a sequence; `heat` is relative to its energy."""
        here = best = (paged.accesses, paged.residency)
        rules = rerun_rules(self.problem.graph, self._longest(paged) if reruns else len(paged.sequence))
        hot = heat * paged.energy
        done, batch = 0, max(1, min(200, 20_000 // (1 + len(paged.sequence))))
        cooling = 1e-3 ** (1 / max(1, rounds))
        while done < rounds and self.clock() > 0:
            count = min(batch, rounds - done)
            work = SequenceWork(0, 0, count, hot * cooling**done, hot * cooling ** (done + count))
            found = search_sequences(self.arrays, rules, *here, *best, work, self.rng)
            here, best = found[:2], found[2:]
            done += count
        return self._paged(*best)

    def try_reruns(self, paged: PagedSequence) -> PagedSequence:
        """Return the sequence after trying, from the end to the start, to make every operand again just before its use."""
        here = (paged.accesses, paged.residency)
        rules = rerun_rules(self.problem.graph, self._longest(paged))
        high, batch = len(paged.sequence), max(1, 4000 // (1 + len(paged.sequence)))
        while high > 0 and self.clock() > 0:
            work = SequenceWork(high, max(0, high - batch), 0, 0.0, 0.0)
            here = search_sequences(self.arrays, rules, *here, *here, work, self.rng)[:2]
            high -= batch
        return self._paged(*here)

    def plan(self, paged: PagedSequence) -> Plan:
        """Return the plan of a paged sequence."""
        return residency_plan(self.problem, self.arrays, paged.accesses, paged.residency)

    def _paged(self, accesses: Accesses, residency: Residency) -> PagedSequence:
        return PagedSequence(accesses, residency, total_cost(self.arrays, accesses, residency))

    def _longest(self, paged: PagedSequence) -> int:
        return max(len(paged.sequence), 3 * self.problem.graph.dataflow.ops) + 8

    def _price_sums(self, accesses: Accesses, prices: Floats | None) -> Floats:
        """Return prefix sums over slots of the prices of room."""
        sums = np.zeros((len(self.arrays.capacity), 2 * len(accesses.sequence) + 3))
        if prices is not None:
            sums[:, 1:] = np.cumsum(prices, axis=1)
        return sums


# A sequence of ops with its residency, turned into a plan -------------------------------------------------------------


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
        """Drop copies in unwanted levels, except the source of copies still to be made."""
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
