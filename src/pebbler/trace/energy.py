"""The `lru` price of any trace of lines: the referee's rule applied to accesses that do not come from a graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from pebbler.arrays import Array, Floats, Int32s, Ints
from pebbler.errors import InputError
from pebbler.referee.kernels.lru_stack import Runs
from pebbler.referee.lru_window import LruEnergy, TouchEnergy, price_window
from pebbler.trace.distances import Packer, StackDistance, check_words

__all__ = ["LruEnergy", "TouchEnergy", "lru_energy"]


# Up to here a Fenwick tree over the touches is as fast as the bitmap, whose set-up takes longer than a short trace.
FEW_TOUCHES = 1 << 14


def lru_energy(
    items: ArrayLike,
    writes: ArrayLike,
    capacities: Sequence[int | float | None],
    read_prices: Sequence[float],
    write_prices: Sequence[float],
    *,
    sizes: ArrayLike | None = None,
    line: int = 1,
    units: ArrayLike | None = None,
    steady: bool = False,
    detail: bool = False,
) -> LruEnergy:
    """Return the energy of touching `items` in order, under hardware LRU with write-back.

    An item is a line; or, with `sizes` (the lines of each touch's item), a run of lines that is always touched whole and
    in order: this gives the energy of the single lines, in the time of one touch. `capacities` are the levels' own, in
    units, fastest first, the last one unbounded (None); their running sums hold whole lines of `line` units. A touch prices
    `units` units (default: all of its lines) and a write-back moves whole lines. Without `steady` everything starts
    clean in the last level, and what has sunk dirty by the end is written back there and then. `steady` prices one
    repetition of an endless loop of this window. `detail` adds the energy of every touch.

    >>> result = lru_energy([1, 2, 1], [True, True, False], [1, None], [1, 10], [2, 20])
    >>> result.energy, result.read_units, result.write_units, result.write_back_units
    (54.0, (0, 1), (2, 0), (0, 2))
    """
    lines = check_words(items, "items")
    if lines.size == 0:
        raise InputError("there are no touches to price")
    reach, reads, stores = _levels(capacities, read_prices, write_prices, line)
    wrote = _matching(writes, "b", "writes", lines.size)
    runs = np.ones(lines.size, np.int64) if sizes is None else _matching(sizes, "iu", "sizes", lines.size)
    priced = runs * line if units is None else _matching(units, "iu", "units", lines.size)
    packer = Packer()
    ids = packer.ids(lines)
    if sizes is not None:
        _check_runs(ids, runs, packer.count)
    known = _line_depths(ids, packer.count, steady) if sizes is None and lines.size > FEW_TOUCHES else None
    return price_window(
        Runs(ids, wrote, runs, priced, packer.count, line),
        reach, reads, stores, steady=steady, detail=detail, depths=known,
    )  # fmt: skip


def _levels(
    capacities: Sequence[int | float | None], read_prices: Sequence[float], write_prices: Sequence[float], line: int
) -> tuple[Ints, Floats, Floats]:
    """Check the levels; return how many lines lie above the end of each but the last, and the prices."""
    count = len(capacities)
    if not 0 < count == len(read_prices) == len(write_prices):
        raise InputError(
            "capacities, read_prices and write_prices must have one entry per level, "
            f"got {count}, {len(read_prices)} and {len(write_prices)}"
        )
    if line < 1:
        raise InputError(f"line must be at least 1 unit, got {line}")
    held = []
    for place, capacity in enumerate(capacities[:-1]):
        if capacity is None or capacity < 1 or capacity != int(capacity):
            raise InputError(f"level {place}: capacity must be a whole number of at least 1, got {capacity}")
        held.append(int(capacity))
    prices = np.array([read_prices, write_prices], np.float64)
    if not np.isfinite(prices).all() or (prices < 0).any():
        raise InputError(f"prices must be finite and not negative, got {list(read_prices)} and {list(write_prices)}")
    return np.cumsum(np.array(held, np.int64)) // line, prices[0], prices[1]


def _matching(values: ArrayLike, kinds: str, what: str, length: int) -> Array:
    """Check a per-touch array; return it as bool or int64."""
    array = np.asarray(values)
    if array.shape != (length,):
        raise InputError(f"{what} must have one entry per touch: expected {length}, got shape {array.shape}")
    if array.dtype.kind not in kinds:
        raise InputError(f"{what} must be {'true or false' if kinds == 'b' else 'whole numbers'}, got {array.dtype}")
    if kinds != "b" and int(array.min()) < 0:
        raise InputError(f"{what} must not be negative, got {int(array.min())} at index {int(array.argmin())}")
    return np.ascontiguousarray(array, np.bool_ if kinds == "b" else np.int64)


def _check_runs(ids: Int32s, runs: Ints, count: int) -> None:
    """Refuse an item that is touched with two sizes: its lines would not share one depth."""
    size = np.empty(count, np.int64)
    size[ids] = runs
    wrong = np.flatnonzero(size[ids] != runs)
    if wrong.size:
        at = int(wrong[0])
        raise InputError(
            f"sizes: touch {at} has {int(runs[at])} lines, another touch of its item {int(size[ids[at]])}; split it"
        )


def _line_depths(ids: Int32s, count: int, steady: bool) -> tuple[Ints, Ints]:
    """Return the depth of every touch of a single line, and the last touch of every line.

    Depths of the second repetition when steady: those of its first touches come from touching them once more (see the kernel).
    """
    last = np.empty(count, np.int64)
    stack = StackDistance()
    depth = stack.feed(ids)
    first = np.flatnonzero(depth == 0)
    if steady:
        depth[first] = stack.feed(ids[first])
    last[ids] = np.arange(ids.size)
    return depth, last
