"""The cost of a transformed graph on a machine: a quick schedule for comparing transforms, and a thorough search for the best.

On caches an order is all there is to choose; on explicit machines every order is priced with a placement of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pebbler.arrays import Ints
from pebbler.game.graph import Graph
from pebbler.game.moves import Moves
from pebbler.game.plan import Plan
from pebbler.referee.judgement import check
from pebbler.referee.kernels.cache_price import price
from pebbler.referee.pricing import cache_game
from pebbler.solver.paging.demand_paging import demand_plan
from pebbler.solver.paging.sequence_search import PagedSequence, PagingSearch
from pebbler.solver.problem import Problem, Start
from pebbler.solver.tiling.kernels.node_anneal import anneal
from pebbler.solver.tiling.list_order import nearest_first
from pebbler.solver.tiling.node_graph import NodeGraph

__all__ = ["CacheCandidate", "Candidate", "ExplicitCandidate", "candidate_of"]

SecondsLeft = Callable[[], float]
_BATCH = 250  # moves between two looks at the time left
_STUCK = 8  # batches without a gain before a walk uphill, and such walks before it ends
_POLISHED = 1_500  # ops; longer sequences are compared by their first placement
_PRICED = 3_000  # ops; longer ones are compared without prices of room


class Candidate(Protocol):
    """A transformed graph with the best schedule found for it so far."""

    nodes: NodeGraph
    energy: float

    def improve(self, seconds_left: SecondsLeft, effort: int) -> bool:
        """Search on, until `effort` is spent (return True) or no seconds are left (False)."""

    def moves(self) -> tuple[Moves, Start]:
        """Return the schedule as a plan's moves and start."""

    @property
    def graph(self) -> Graph:
        """The graph that the moves are for."""


def candidate_of(problem: Problem, nodes: NodeGraph, *, given: Ints | None = None) -> Candidate | None:
    """Return the nodes with a quick schedule: the best of a few orders; None when none of them fits.

    `given` is an order to take as it is.
    """
    transformed = problem.transformed(nodes.graph)
    machine = problem.machine
    if given is not None:
        sequences = [given]
    else:
        sequences = [np.arange(len(nodes), dtype=np.int64)]
        sequences += [nearest_first(nodes, machine, by_price=by_price) for by_price in (False, True)]
    if machine.management == "explicit":
        return ExplicitCandidate.best_of(transformed, nodes, sequences)
    return CacheCandidate.best_of(transformed, nodes, sequences)


@dataclass
class CacheCandidate:
    """A graph on caches: a sequence of nodes is a schedule."""

    problem: Problem
    nodes: NodeGraph
    sequence: Ints
    energy: float

    @classmethod
    def best_of(cls, problem: Problem, nodes: NodeGraph, sequences: list[Ints]) -> CacheCandidate:
        """Return the graph with the cheapest of some sequences."""
        game = cache_game(problem.graph, problem.machine, steady=problem.steady)
        priced = [(float(price(game, nodes.order(one))), i) for i, one in enumerate(sequences)]
        energy, best = min(priced)
        return cls(problem, nodes, sequences[best], energy)

    @property
    def graph(self) -> Graph:
        """The graph that the moves are for."""
        return self.nodes.graph

    def improve(self, seconds_left: SecondsLeft, effort: int) -> bool:
        """Move nodes: downhill first, then alternately annealing at low heat and downhill steps from the best."""
        game = cache_game(self.graph, self.problem.machine, steady=self.problem.steady)
        word = (self.problem.seed * 0x9E3779B97F4A7C15 + 0x2545F4914F6CDD1D) % 2**64
        random = np.array([word or 1], np.uint64)
        here, now = self.sequence, self.energy
        stale, vain, batch = 0, 0, max(10, min(_BATCH, 200_000 // max(1, len(self.sequence))))
        for done in range(0, effort, batch):
            if seconds_left() <= 0:
                return False
            heat = 0.0
            if stale >= _STUCK:
                if vain == _STUCK:
                    break
                # Walk a little uphill from the best.
                here, now, stale, heat = self.sequence, self.energy, 0, 2e-4 * self.energy
                vain += 1
            best, energy, here, now = anneal(
                game, self.nodes.arrays, here, now, min(batch, effort - done), heat, heat / 10, random
            )
            if energy < self.energy:
                vain = 0
                stale = 0 if energy < self.energy * (1 - 1e-6) else stale + 1
                self.sequence, self.energy = best, float(energy)
            else:
                stale += 1
        return True

    def moves(self) -> tuple[Moves, Start]:
        """Return the schedule as a plan's moves and start."""
        order = self.nodes.order(self.sequence)
        return Moves.computes(self.graph, self.problem.machine, order), self.problem.start


@dataclass
class ExplicitCandidate:
    """A graph on an explicit machine: a sequence of nodes, and where everything lives meanwhile."""

    problem: Problem
    nodes: NodeGraph
    paged: PagedSequence
    energy: float
    demand: Plan | None = None  # by a simple rule, as long as it is cheaper than the paged sequence

    @classmethod
    def best_of(cls, problem: Problem, nodes: NodeGraph, sequences: list[Ints]) -> ExplicitCandidate | None:
        """Return the graph with the cheapest of some sequences; None when none of them can be paged."""
        paging = PagingSearch(problem, lambda: 1.0)
        best: PagedSequence | None = None
        for sequence in sequences:
            paged = paging.page(nodes.order(sequence))
            if paged is not None and (best is None or paged.energy < best.energy):
                best = paged
        if best is None:
            return None
        if len(best.sequence) <= _POLISHED:
            best = paging.improve(best, 1)
        found = cls(problem, nodes, best, best.energy)
        if problem.machine.operands == "fastest":
            # There a first residency says little; loading on demand and throwing out what is needed last is a better guide.
            for order in (nodes.order(sequence) for sequence in sequences):
                plan = demand_plan(problem, order.tolist(), "farthest") if len(order) == len(nodes) else None
                if plan is not None and (energy := check(plan).energy) < found.energy:
                    found.energy, found.demand = energy, plan
        return found

    @property
    def graph(self) -> Graph:
        """The graph that the moves are for."""
        return self.nodes.graph

    def price_room(self) -> float:
        """Page the sequence once more, with prices of room; return the share of the energy that this saved.

        Where much passes through a level, what should stay in it shows only when its room has a price.
        """
        before = self.energy
        if len(self.paged.sequence) <= _PRICED:
            paging = PagingSearch(self.problem, lambda: 1.0)
            _, prices = paging.price_capacity(self.paged, 1)
            again = paging.page(self.paged.sequence, prices)
            if again is not None:
                self._take(paging.improve(again, 1))
        return 1 - self.energy / before if before else 0.0

    def improve(self, seconds_left: SecondsLeft, effort: int) -> bool:
        """Price the room and page again with those prices, then let order and residency change together, and so on."""
        paging = PagingSearch(self.problem, seconds_left)
        ops = len(self.graph.ops)
        step = max(10, min(2_000, 2_000_000 // (50 + ops)))
        heats, left, swept = (0.3, 0.0, 1.0), effort, -1.0
        while left > 0 and seconds_left() > 0:
            if swept != self.paged.energy:
                _, prices = paging.price_capacity(self.paged, 60)
                self._take(paging.improve(self.paged, 2, prices))
                again = paging.page(self.paged.sequence, prices)
                if again is not None and seconds_left() > 0:
                    self._take(paging.improve(again, 2, prices))
                self._take(paging.improve(paging.try_reruns(self.paged), 2))
                swept = self.paged.energy
            heat = heats[(effort - left) // step % len(heats)] / (1 + ops)
            self._take(paging.improve(paging.anneal(self.paged, min(left, step), heat, reruns=True), 2))
            left -= step
        return seconds_left() > 0

    def _take(self, paged: PagedSequence) -> None:
        if paged.energy < self.paged.energy:
            self.paged = paged
        if paged.energy < self.energy:
            self.energy, self.demand = paged.energy, None

    def moves(self) -> tuple[Moves, Start]:
        """Return the schedule as a plan's moves and start."""
        plan = self.demand or PagingSearch(self.problem, lambda: 0.0).plan(self.paged)
        return plan.moves, plan.start
