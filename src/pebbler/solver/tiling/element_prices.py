"""What one element must cost by where it is at a barrier: on caches a level, where a plan places it a set of levels.

Phases of a lasting element: from the end of the last step to the barrier it is read `early` times, from there to the end of the
step `late` times and, where it is updated, written once. All prices are from below: reads at a time unknown go to the cheapest
level.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from pebbler.arrays import Floats
from pebbler.game.machine import Machine
from pebbler.referee import pricing
from pebbler.solver.problem import Problem

__all__ = ["CachePrices", "ElementPrices", "ExplicitPrices"]


class ElementPrices(Protocol):
    """ElementPrices per element, from below."""

    ends_priced: bool  # whether what is where at the end matters without being steady
    cheapest_read: float

    def start_state(self, problem: Problem, tensor: int) -> int:
        """Return the state in which a value that does not wrap around starts."""

    def passing(self, reads: int, *, made: bool) -> float:
        """Return the least that making an element (or not) and reading it `reads` times costs."""

    def across(self, early: int, late: int, other: int) -> Floats:
        """Return the price of an element made before the barrier, by its state there: one row."""

    def lasting(self, early: int, late: int, other: int, updated: bool, afterwards: int, start: int | None) -> Floats:
        """Return the price of an element that lasts, by its state at the end of the step and at the barrier.

        `start` is the state it comes from, None where that is its state at the end (steady).
        """


class CachePrices:
    """LRU: a state is the level where the next touch finds an element, no higher than where it was at the barrier.

    What was written pays for every level that it sinks into.
    """

    ends_priced = True

    def __init__(self, machine: Machine) -> None:
        self.read, self.store = pricing.prices(machine, "read"), pricing.prices(machine, "write")
        self.levels = len(self.read)
        self.cheapest_read = float(self.read.min())
        self.below = np.minimum.accumulate(self.read[::-1])[::-1]  # the cheapest read from a level or deeper
        self.sunk = np.concatenate([[0.0], np.cumsum(self.store[1:])])

    def start_state(self, problem: Problem, tensor: int) -> int:
        """Nothing has been touched: the last level."""
        return self.levels - 1

    def passing(self, reads: int, *, made: bool) -> float:
        """Return the least that making an element (or not) and reading it `reads` times costs."""
        return reads * self.cheapest_read + (float(self.store[0]) if made else 0.0)

    def across(self, early: int, late: int, other: int) -> Floats:
        """Return the price of an element made before the barrier, by its level there."""
        touches = float(self.store[0]) + (early + other + late - 1) * self.cheapest_read
        row: Floats = touches + self.below + self.sunk
        return row[None, :]

    def lasting(self, early: int, late: int, other: int, updated: bool, afterwards: int, start: int | None) -> Floats:
        """Return the price of an element that lasts, by its level at the end of the step and at the barrier."""
        table = np.zeros((self.levels, self.levels))
        for i, j in np.ndindex(*table.shape):
            came_from = i if start is None else start
            total = (max(0, early - 1) + max(0, late - 1) + afterwards) * self.cheapest_read
            if early:
                total += float(self.below[came_from])
            if late:
                # Untouched since the last step, it has only sunk.
                total += float(self.below[j if early or other else max(came_from, j)])
            if other:
                total += (other - 1) * self.cheapest_read
                total += self.cheapest_read if early or late else float(self.below[came_from])
            if updated:
                total += float(self.store[0] + self.sunk[i if start is not None else max(i, j)])
            table[i, j] = total
        return table


class ExplicitPrices:
    """ExplicitCandidate: an element is in a set of levels, is read where that is cheapest, and copied or dropped at will.

    States are the non-empty sets of levels: state s is the set whose bits are s + 1.
    """

    ends_priced = False

    def __init__(self, machine: Machine) -> None:
        self.fastest = machine.operands == "fastest"
        read, self.write = pricing.prices(machine, "read"), pricing.prices(machine, "write")
        self.levels = len(read)
        sets = [[at for at in range(self.levels) if mask >> at & 1] for mask in range(1, 1 << self.levels)]
        self.held = np.array([[at in held for at in range(self.levels)] for held in sets])
        source = np.array([min(read[at] for at in held) for held in sets])
        self.cheapest_read = 0.0 if self.fastest else float(read.min())
        self.reading = np.where(self.held[:, 0], 0.0, np.inf) if self.fastest else source
        # Copies add a level, from the cheapest level held; drops are free; then all ways from set to set.
        self.path = np.full((len(sets), len(sets)), np.inf)
        for s in range(len(sets)):
            for at in range(self.levels):
                self.path[s, (s + 1 | 1 << at) - 1] = 0.0 if self.held[s, at] else source[s] + self.write[at]
                if self.held[s, at] and (s + 1) & ~(1 << at):
                    self.path[s, ((s + 1) & ~(1 << at)) - 1] = 0.0
        for via in range(len(sets)):
            self.path = np.minimum(self.path, self.path[:, via, None] + self.path[None, via, :])

    def start_state(self, problem: Problem, tensor: int) -> int:
        """Return the set of levels that a value starts in."""
        return sum(1 << level for level in problem.plan([]).start_levels()[tensor]) - 1

    def passing(self, reads: int, *, made: bool) -> float:
        """Return the least that making an element (or not) and reading it `reads` times costs."""
        if not made:
            return reads * self.cheapest_read
        return float((self._made()[:, None] + self._stay(reads)).min())

    def across(self, early: int, late: int, other: int) -> Floats:
        """Return the price of an element made before the barrier, by its state there."""
        row: Floats = (self._made()[:, None] + self._stay(early)).min(axis=0) + self._stay(late).min(axis=1)
        return row[None, :] + other * self.cheapest_read

    def lasting(self, early: int, late: int, other: int, updated: bool, afterwards: int, start: int | None) -> Floats:
        """Return the price of an element that lasts, by its state at the end of the step and at the barrier."""
        before = (
            self._stay(early) if start is None else np.repeat(self._stay(early)[start, None], len(self.path), axis=0)
        )
        if not updated:
            back = self._stay(late).T if start is None else self._stay(late).min(axis=1)[None, :]
        else:
            made = (self._made()[:, None] + self._stay(afterwards)).min(axis=0)
            back = self._stay(late).min(axis=1)[None, :] + (made[:, None] if start is None else made.min())
        table: Floats = before + back + other * self.cheapest_read
        return table

    def _made(self) -> Floats:
        """Return the price of making an element, by the state that it is then in: one level."""
        price = np.full(len(self.path), np.inf)
        for at in range(1 if self.fastest else self.levels):
            price[(1 << at) - 1] = 0.0 if self.fastest else self.write[at]
        return price

    def _stay(self, reads: int) -> Floats:
        """Return the least price of `reads` reads on the way from one state to another; all at the cheapest state of the way."""
        if reads == 0:
            return self.path
        through = self.path + (0.0 if self.fastest else reads) * np.where(np.isfinite(self.reading), self.reading, 0.0)
        through = np.where(np.isfinite(self.reading)[None, :], through, np.inf)
        table: Floats = (through[:, :, None] + self.path[None, :, :]).min(axis=1)
        return table
