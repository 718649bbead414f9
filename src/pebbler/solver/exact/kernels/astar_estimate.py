"""Lower bounds on the remaining cost of a state of the explicit game, on flat arrays and bit masks.

A state is one row of 64-bit words: `ran | commit << 32`, the start levels of the params (steady games only), and per level
the set of values that have a copy there. `commit` is 0, or 1 + the op that must be computed next (only copies that serve it
may come before), or `PLACING` while the start of a steady step is still being chosen.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pebbler.arrays import Array
from pebbler.compiled import inner_kernel, kernel, separate_kernel

__all__ = [
    "BEFORE_FIRST", "DESTROYS", "PLACING", "READS", "RERUN", "STALE_AFTER", "WRITES",
    "ExactGame", "estimate", "finished", "inner", "total_size", "useful_values",
]  # fmt: skip

PLACING = 63
# Columns of the table of ops. The first three are values; then the ops that its first run must wait for because it overwrites,
# the ops that overwrite what it makes, and whether it may run again at all. One table, because numba compiles by the array.
READS, WRITES, DESTROYS, BEFORE_FIRST, STALE_AFTER, RERUN = 0, 1, 2, 3, 4, 5
inner = inner_kernel(forceinline=False)


class ExactGame(NamedTuple):
    """The rules of one game. Sets of values and of ops are bit masks; arrays are of int64 unless said otherwise."""

    size: Array
    by_size: Array  # values, largest first
    maker: Array
    survive: int
    cost: Array  # float64
    ops: Array  # a row per op: see READS ... RERUN
    read_start: Array  # reads with their multiplicity, as the price counts them
    read_items: Array
    capacity: Array
    read_price: Array  # float64
    write_price: Array
    fastest: bool
    over: bool  # what an op makes may take the room of what is dropped right after
    lazy: bool  # slower levels are not cheaper to read, and params end as large as they start, so the normal form holds
    steady: bool
    params: Array  # the first and the final value of every param


@inner
def total_size(mask: int, size: Array) -> int:
    """The sizes of a set of values, added up."""
    total = 0
    for v in range(len(size)):
        if mask >> v & 1:
            total += size[v]
    return total


@inner
def useful_values(game: ExactGame, ran: int) -> int:
    """The values that some future move may still need."""
    useful = game.survive
    for op in range(len(game.cost) - 1, -1, -1):
        again = game.ops[op, RERUN] and not ran & game.ops[op, STALE_AFTER] and game.ops[op, WRITES] & useful
        if not ran >> op & 1 or again:
            useful |= game.ops[op, READS]
    return useful


@inner
def finished(game: ExactGame, row: Array) -> bool:
    """Whether a state ends the game legally, once spare copies of params are dropped."""
    ops, levels = len(game.cost), len(game.capacity)
    if row[0] != (1 << ops) - 1:
        return False
    anywhere = 0
    for level in range(levels):
        anywhere |= row[2 + level]
    if game.survive & ~anywhere:
        return False
    if game.steady:
        for p in range(game.params.shape[1]):
            wanted = row[1] >> (p * levels) & ((1 << levels) - 1)
            for level in range(levels):
                if wanted >> level & 1 and not row[2 + level] >> game.params[1, p] & 1:
                    return False
    return True


@inner
def _cheapest_read(game: ExactGame) -> float:
    cheapest = game.read_price[0]
    for level in range(1, len(game.capacity)):
        cheapest = min(cheapest, game.read_price[level])
    return float(cheapest)


@inner
def _add_loads(
    game: ExactGame, row: Array, total: float, made: int, unplaced: int, anywhere: int, must: int, to_read: int
) -> float:
    """Add to `total` what reads cost under `operands = "fastest"`, and the copies that bring params back."""
    size, maker, rp, wp = game.size, game.maker, game.read_price, game.write_price
    values, levels, ran = len(size), len(game.capacity), row[0] & 0xFFFFFFFF
    # Every value still to be read must get into the fastest level: by a load, or by running its maker again.
    last = -2
    loads = 0.0
    for v in range(values):
        op = maker[v]
        if op != last or op < 0:
            if last >= 0 and game.ops[last, RERUN] and not ran & game.ops[last, STALE_AFTER]:
                loads = min(loads, game.cost[last])
            total += loads
            loads = 0.0
            last = op
        outside = to_read & made & ~row[2] & ~unplaced & anywhere
        if outside >> v & 1 and not (op >= 0 and must >> op & 1):
            best = np.inf
            for level in range(1, levels):
                if row[2 + level] >> v & 1:
                    best = min(best, rp[level])
            loads += size[v] * (best + wp[0])
    if last >= 0 and game.ops[last, RERUN] and not ran & game.ops[last, STALE_AFTER]:
        loads = min(loads, game.cost[last])
    total += loads
    if game.steady:
        for p in range(game.params.shape[1]):
            v = game.params[1, p]
            wanted = row[1] >> (p * levels) & ((1 << levels) - 1)
            for level in range(1, levels):
                if wanted >> level & 1 and not row[2 + level] >> v & 1:
                    total += size[v] * (_cheapest_read(game) + wp[level])
    return total


@kernel
def _add_accesses(game: ExactGame, row: Array, total: float, unplaced: int, must: int) -> float:
    """Add to `total` what writes, reads and copies cost under `operands = "any"`, value by value."""
    size, maker, rp, wp, cap = game.size, game.maker, game.read_price, game.write_price, game.capacity
    values, ops, levels, ran = len(size), len(game.cost), len(cap), row[0] & 0xFFFFFFFF
    cheapest = _cheapest_read(game)
    count = np.zeros(values, np.int64)
    for op in range(ops):
        if must >> op & 1:
            for k in range(game.read_start[op], game.read_start[op + 1]):
                count[game.read_items[k]] += 1
    wanted_at = np.zeros(values, np.int64)
    if game.steady:
        for p in range(game.params.shape[1]):
            wanted_at[game.params[1, p]] = row[1] >> (p * levels) & ((1 << levels) - 1)
    for v in range(values):
        if size[v] == 0:
            continue
        held = 0
        if unplaced >> v & 1:
            held = (1 << levels) - 1
        else:
            for level in range(levels):
                if row[2 + level] >> v & 1:
                    held |= 1 << level
        op = maker[v]
        fresh = op >= 0 and must >> op & 1  # it will be written by its maker
        again = op >= 0 and game.ops[op, RERUN] and not ran & game.ops[op, STALE_AFTER]
        if not fresh and held == 0:
            continue
        missing = wanted_at[v] & ~held
        pay = 0.0
        copies = 0
        for level in range(levels):
            if missing >> level & 1:
                pay += wp[level]
                copies += 1
        if copies > 0 and not again:
            pay += cheapest * (copies - 1 if fresh and op >= 0 else copies)
        # All reads come from one best level: one that has a copy or will get one for the end, or a further one to be written.
        best = np.inf
        for level in range(levels):
            if size[v] > cap[level] and not (game.over and count[v] == 0):
                continue
            if (held >> level & 1 and not (fresh and not ran >> op & 1)) or missing >> level & 1:
                best = min(best, count[v] * rp[level])
            else:
                extra = wp[level]
                if not fresh and not again:
                    source = np.inf
                    for other in range(levels):
                        if (held | missing) >> other & 1:
                            source = min(source, rp[other])
                    extra += source
                best = min(best, extra + count[v] * rp[level])
        total += size[v] * (pay + best)
    return total


@separate_kernel(_nrt=False)
def estimate(game: ExactGame, row: Array) -> float:
    """A lower bound on what must still be paid from a state; infinite when something needed is lost."""
    maker, values, ops, levels = game.maker, len(game.size), len(game.cost), len(game.capacity)
    ran = row[0] & 0xFFFFFFFF
    placing = row[0] >> 32 == PLACING
    anywhere = 0
    for level in range(levels):
        anywhere |= row[2 + level]
    unplaced = 0
    if placing:
        for p in range(game.params.shape[1]):
            if row[1] >> (p * levels) & ((1 << levels) - 1) == 0:
                unplaced |= 1 << game.params[0, p]
    anywhere |= unplaced
    made = 0
    for v in range(values):
        if maker[v] < 0 or ran >> maker[v] & 1:
            made |= 1 << v
    # Ops that must run, now or again, and the values that they and the end need.
    total = 0.0
    need, must, to_read = game.survive, 0, 0
    for op in range(ops - 1, -1, -1):
        if not ran >> op & 1:
            must |= 1 << op
        elif game.ops[op, WRITES] & need & made & ~anywhere:
            if not game.ops[op, RERUN] or ran & game.ops[op, STALE_AFTER]:
                return np.inf
            must |= 1 << op
        else:
            continue
        need |= game.ops[op, READS]
        to_read |= game.ops[op, READS]
        total += game.cost[op]
    for v in range(values):
        if need >> v & 1 and made >> v & 1 and not anywhere >> v & 1 and maker[v] < 0:
            return np.inf
    if game.fastest:
        return float(_add_loads(game, row, total, made, unplaced, anywhere, must, to_read))
    return float(_add_accesses(game, row, total, unplaced, must))
