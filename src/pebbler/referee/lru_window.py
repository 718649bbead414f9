"""The `lru` price of a window of touches: what it costs in a hierarchy of hardware caches, and where.

All levels share one LRU stack of lines: the first `capacity` lines are the fastest level, the next ones the second, and so
on. Reading costs the price of the level a line is found in, writing that of the fastest level, and a line that was written
pays for each level it sinks into since (write-back); sinking unchanged is free.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pebbler.arrays import Floats, Ints
from pebbler.referee.kernels import lru_stack as kernel
from pebbler.referee.kernels.lru_stack import Charges, Runs

__all__ = ["LruEnergy", "TouchEnergy", "price_window"]


@dataclass(frozen=True)
class TouchEnergy:
    """Energy of each touch, in order of the trace.

    `write_back` is charged to the touch that finds its line sunk; `owned_write_back` is the same energy, and that of the
    end of the window, charged to the write that made the line dirty.
    """

    level: NDArray[np.int8]
    read: Floats
    write: Floats
    write_back: Floats
    owned_write_back: Floats


@dataclass(frozen=True)
class LruEnergy:
    """Energy of a window under the `lru` rule, and the units that each level gives and takes, fastest first."""

    energy: float
    read_energy: float
    write_energy: float
    write_back_energy: float
    read_units: tuple[int, ...]
    write_units: tuple[int, ...]
    write_back_units: tuple[int, ...]
    touches: TouchEnergy | None = None


def price_window(
    runs: Runs,
    reach: Ints,
    reads: Floats,
    stores: Floats,
    *,
    steady: bool,
    detail: bool = False,
    depths: tuple[Ints, Ints] | None = None,
) -> LruEnergy:
    """Return the cost of touching `runs`; `reach` are the lines down to the end of each level but the last.

    `detail` adds the energy of every touch. `depths` are those of the touches and the last touch of each run, where they are
    known already.

    >>> runs = Runs(np.array([0, 1, 0]), np.array([True, True, False]), np.ones(3, int), np.ones(3, int), 2, 1)
    >>> price_window(runs, np.array([1]), np.array([1.0, 10]), np.array([2.0, 20]), steady=False).energy
    54.0
    """
    find_charges = kernel.window if depths is None else kernel.charge
    charges = find_charges(runs, *(depths or ()), reach, steady, detail)
    # Units are whole numbers, so that the energy does not depend on the order of summation.
    read, written, back = (tuple(int(n) for n in row) for row in charges.units)
    costs = [math.fsum(row * price) for row, price in zip(charges.units, (reads, stores, stores), strict=True)]
    touches = _price_touches(runs, charges, reads, stores) if detail else None
    return LruEnergy(math.fsum(costs), costs[0], costs[1], costs[2], read, written, back, touches)


def _price_touches(runs: Runs, charges: Charges, reads: Floats, stores: Floats) -> TouchEnergy:
    level, author = charges.level, charges.author
    down = np.cumsum(stores)
    moved = (runs.lines * runs.line).astype(np.float64)
    write_back: Floats = np.maximum(down[level] - down[charges.fresh], 0.0) * moved
    dirty = author >= 0
    owned = charges.owed @ stores + np.bincount(author[dirty], weights=write_back[dirty], minlength=len(level))
    read = np.where(runs.write, 0.0, runs.units * reads[level])
    written = np.where(runs.write, runs.units * stores[0], 0.0)
    return TouchEnergy(level, read, written, write_back, owned)
