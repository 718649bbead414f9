"""What a program costs on a machine: a quick price for comparing recipes, and a thorough search for the best of them.

On caches an order is all there is to choose; on explicit machines every order is priced with a placement of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from pebbler.graph import Graph
from pebbler.kernels.cache_order import anneal, price
from pebbler.plan import Move
from pebbler.solve.cache_order import touching_of
from pebbler.solve.locality import Program, nearest_first
from pebbler.solve.order import Placed, Sequences
from pebbler.solve.paging_game import game_of, moves_of
from pebbler.solve.problem import Problem, Start

__all__ = ["Cached", "Dish", "Explicit", "dish_of"]

Ints = npt.NDArray[np.int64]
Clock = Callable[[], float]
_BATCH = 250  # moves between two looks at the clock
_STUCK = 8  # batches without a gain before a walk uphill, and such walks before it ends
_POLISHED = 1_500  # ops; longer sequences are compared by their first placement


class Dish(Protocol):
    """A program with the best schedule found for it so far."""

    program: Program
    energy: float

    def improve(self, clock: Clock, effort: int) -> bool:
        """Search on, until `effort` is spent (return True) or the clock says that no seconds are left (False)."""

    def moves(self) -> tuple[list[Move], Start]:
        """Return the schedule as a plan's moves and start."""

    @property
    def graph(self) -> Graph:
        """The graph that the moves are for."""


def dish_of(problem: Problem, program: Program, *, given: Ints | None = None) -> Dish | None:
    """Return the program with a quick schedule: the best of a few orders; None when none of them fits.

    `given` is an order to take as it is.
    """
    transformed = problem.transformed(program.graph)
    machine = problem.machine
    if given is not None:
        sequences = [given]
    else:
        sequences = [np.arange(len(program), dtype=np.int64)]
        sequences += [nearest_first(program, machine, by_price=by_price) for by_price in (False, True)]
    if machine.management == "explicit":
        return Explicit.best_of(transformed, program, sequences)
    return Cached.best_of(transformed, program, sequences)


@dataclass
class Cached:
    """A program on caches: a sequence of nodes is a schedule."""

    problem: Problem
    program: Program
    sequence: Ints
    energy: float

    @classmethod
    def best_of(cls, problem: Problem, program: Program, sequences: list[Ints]) -> Cached:
        """Return the program with the cheapest of some sequences."""
        touching = touching_of(problem.graph, problem.machine, steady=problem.steady)
        priced = [(float(price(touching, program.order(one))), i) for i, one in enumerate(sequences)]
        energy, best = min(priced)
        return cls(problem, program, sequences[best], energy)

    @property
    def graph(self) -> Graph:
        """The graph that the moves are for."""
        return self.program.graph

    def improve(self, clock: Clock, effort: int) -> bool:
        """Move nodes about: downhill first, then in turns of a little heat and downhill again from the best."""
        touching = touching_of(self.graph, self.problem.machine, steady=self.problem.steady)
        word = (self.problem.seed * 0x9E3779B97F4A7C15 + 0x2545F4914F6CDD1D) % 2**64
        random = np.array([word or 1], np.uint64)
        here, now = self.sequence, self.energy
        stale, vain, batch = 0, 0, max(10, min(_BATCH, 200_000 // max(1, len(self.sequence))))
        for done in range(0, effort, batch):
            if clock() <= 0:
                return False
            heat = 0.0
            if stale >= _STUCK:
                if vain == _STUCK:
                    break
                # Walk a little uphill from the best.
                here, now, stale, heat = self.sequence, self.energy, 0, 2e-4 * self.energy
                vain += 1
            best, energy, here, now = anneal(
                touching, self.program.nodes, here, now, min(batch, effort - done), heat, heat / 10, random
            )
            if energy < self.energy:
                vain = 0
                stale = 0 if energy < self.energy * (1 - 1e-6) else stale + 1
                self.sequence, self.energy = best, float(energy)
            else:
                stale += 1
        return True

    def moves(self) -> tuple[list[Move], Start]:
        """Return the schedule as a plan's moves and start."""
        names = [op.name for op in self.graph.ops]
        return [("compute", names[op]) for op in self.program.order(self.sequence)], self.problem.start


@dataclass
class Explicit:
    """A program on an explicit machine: a sequence of nodes, and where everything lives meanwhile."""

    problem: Problem
    program: Program
    placed: Placed
    energy: float

    @classmethod
    def best_of(cls, problem: Problem, program: Program, sequences: list[Ints]) -> Explicit | None:
        """Return the program with the cheapest placement of some sequences; None when none can be placed."""
        seats = Sequences(problem.graph, game_of(problem), problem.seed, lambda: 1.0)
        best: Placed | None = None
        for sequence in sequences:
            placed = seats.place(program.order(sequence))
            if placed is not None and (best is None or placed.energy < best.energy):
                best = placed
        if best is not None and len(best.track.seq) <= _POLISHED:
            # A first placement says too little where operands must be in the fastest level.
            best = seats.polish(best, 1)
        return None if best is None else cls(problem, program, best, best.energy)

    @property
    def graph(self) -> Graph:
        """The graph that the moves are for."""
        return self.program.graph

    def improve(self, clock: Clock, effort: int) -> bool:
        """Price the room, place again with those prices, then let order and placement change together."""
        game = game_of(self.problem)
        seats = Sequences(self.graph, game, self.problem.seed, clock)
        _, prices = seats.price_room(self.placed, 60)
        self._take(seats.polish(self.placed, 2, prices))
        rounds = effort
        while rounds > 0 and clock() > 0:
            step = min(rounds, 2000)
            self._take(seats.search(self.placed, step, 1e-5, reruns=True))
            rounds -= step
        return clock() > 0

    def _take(self, placed: Placed) -> None:
        if placed.energy < self.energy:
            self.placed, self.energy = placed, placed.energy

    def moves(self) -> tuple[list[Move], Start]:
        """Return the schedule as a plan's moves and start."""
        return moves_of(self.problem, game_of(self.problem), self.placed.track, self.placed.routes)
