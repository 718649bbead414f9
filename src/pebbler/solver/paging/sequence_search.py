"""Sequences of ops with a residency for every storage, and a search for better ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pebbler.game.dataflow import NONE, Rows
from pebbler.game.graph import Graph
from pebbler.game.plan import Plan
from pebbler.solver.paging.kernels.residency import Accesses, Residency, empty_residency, list_accesses, total_cost
from pebbler.solver.paging.kernels.residency_search import lagrangian_bound, page_storages, room_time_per_use
from pebbler.solver.paging.kernels.sequence_annealing import SequenceWork, search_sequences
from pebbler.solver.paging.kernels.sequence_changes import RerunRules
from pebbler.solver.paging.paging_arrays import arrays_of
from pebbler.solver.paging.residency_plan import residency_plan
from pebbler.solver.problem import Problem

__all__ = ["PagedSequence", "PagingSearch", "rerun_rules"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def rerun_rules(graph: Graph, most: int) -> RerunRules:
    """Return which ops may run again and until when; sequences may be up to `most` long.

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
