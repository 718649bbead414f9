"""The `lru` price rule: what a window of touches costs in a hierarchy of hardware caches.

All levels share one LRU stack of lines: the first `capacity` lines are the fastest level, the next ones the second, and so
on. Reading costs the price of the level a line is found in, writing that of the fastest level, and a line that was written
pays for each level it sinks into since (write-back); sinking unchanged is free.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pebbler.errors import InputError
from pebbler.referee.kernels import lru_stack as kernel
from pebbler.trace.distances import Packer, StackDistance, check_words

__all__ = ["LruEnergy", "TouchEnergy", "lru_energy"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# Up to here a Fenwick tree over the touches is as fast as the bitmap, whose set-up takes longer than a short trace.
FEW_TOUCHES = 1 << 14


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
    moved = runs * line
    priced = moved if units is None else _matching(units, "iu", "units", lines.size)
    packer = Packer()
    ids = packer.ids(lines)
    if sizes is not None:
        _check_runs(ids, runs, packer.count)
    if not detail and (sizes is not None or lines.size <= FEW_TOUCHES):
        amounts = kernel.window(ids, wrote, runs, priced, moved, packer.count, reach, steady)
        return _total(amounts, reads, stores, None)
    depth, last = _depths(ids, runs, packer.count, sizes is None, steady)
    level = np.empty(lines.size, np.int8)
    kernel.levels(depth, reach, level)
    current = np.full(packer.count, reach.size, np.int64)
    writer = np.full(packer.count, -1, np.int64)
    amounts = np.zeros((3, reach.size + 1), np.int64)
    fresh, author = np.empty(lines.size, np.int8), np.empty(lines.size, np.int64)
    if steady:
        kernel.count_units(ids, wrote, priced, moved, level, current, writer, amounts, fresh, author)
        amounts[:] = 0
    kernel.count_units(ids, wrote, priced, moved, level, current, writer, amounts, fresh, author)
    owed = np.zeros((lines.size if detail else 0, reach.size + 1), np.int64)
    if not steady:
        kernel.flush(ids, runs, moved, reach, last, current, writer, amounts, owed)
    if not detail:
        return _total(amounts, reads, stores, None)
    down = np.cumsum(stores)
    write_back: Floats = np.maximum(down[level] - down[fresh], 0.0) * moved.astype(np.float64)
    dirty = author >= 0
    owned = owed @ stores + np.bincount(author[dirty], weights=write_back[dirty], minlength=lines.size)
    read = np.where(wrote, 0.0, priced * reads[level])
    written = np.where(wrote, priced * stores[0], 0.0)
    return _total(amounts, reads, stores, TouchEnergy(level, read, written, write_back, owned))


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


def _matching(values: ArrayLike, kinds: str, what: str, length: int) -> NDArray[Any]:
    """Check a per-touch array; return it as bool or int64."""
    array = np.asarray(values)
    if array.shape != (length,):
        raise InputError(f"{what} must have one entry per touch: expected {length}, got shape {array.shape}")
    if array.dtype.kind not in kinds:
        raise InputError(f"{what} must be {'true or false' if kinds == 'b' else 'whole numbers'}, got {array.dtype}")
    if kinds != "b" and int(array.min()) < 0:
        raise InputError(f"{what} must not be negative, got {int(array.min())} at index {int(array.argmin())}")
    return np.ascontiguousarray(array, np.bool_ if kinds == "b" else np.int64)


def _check_runs(ids: NDArray[np.int32], runs: Ints, count: int) -> None:
    """Refuse an item that is touched with two sizes: its lines would not share one depth."""
    size = np.empty(count, np.int64)
    size[ids] = runs
    wrong = np.flatnonzero(size[ids] != runs)
    if wrong.size:
        at = int(wrong[0])
        raise InputError(
            f"sizes: touch {at} has {int(runs[at])} lines, another touch of its item {int(size[ids[at]])}; split it"
        )


def _depths(ids: NDArray[np.int32], runs: Ints, count: int, single: bool, steady: bool) -> tuple[Ints, Ints]:
    """Return the depth of every touch and the last touch of every item.

    Depths of the second repetition when steady: those of its first touches come from touching them once more (see the kernel).
    """
    last = np.empty(count, np.int64)
    if single and ids.size > FEW_TOUCHES:
        stack = StackDistance()
        depth = stack.feed(ids)
        first = np.flatnonzero(depth == 0)
        if steady:
            depth[first] = stack.feed(ids[first])
        last[ids] = np.arange(ids.size)
        return depth, last
    _, first = np.unique(ids, return_index=True)
    path = np.concatenate([ids, ids[first]]) if steady else ids
    depth = np.empty(path.size, np.int64)
    kernel.depths(path, runs[np.concatenate([np.arange(ids.size), first])] if steady else runs, depth, last)
    depth[first] = depth[ids.size :] if steady else 0
    return depth[: ids.size], last


def _total(amounts: Ints, reads: Floats, stores: Floats, touches: TouchEnergy | None) -> LruEnergy:
    """Price the units: they are whole numbers, so that the energy does not depend on the order of summation."""
    read, written, back = (tuple(int(n) for n in row) for row in amounts)
    costs = [math.fsum(row * price) for row, price in zip(amounts, (reads, stores, stores), strict=True)]
    return LruEnergy(math.fsum(costs), costs[0], costs[1], costs[2], read, written, back, touches)
