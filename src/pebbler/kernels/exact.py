"""A* over the states of the explicit game, on flat arrays and bit masks; `docs/exact.md` proves the normal form it relies on.

A state is one row of 64-bit words: `ran | commit << 32`, the start levels of the params (steady games only), and per level
the set of values that have a copy there. `commit` is 0, or 1 + the op that must be computed next (only copies that serve it
may come before), or `PLACING` while the start of a steady step is still being chosen.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = [
    "COMPUTE", "COPY", "COUNTERS", "DROP", "EXHAUSTED", "FOUND", "FULL", "MOVE", "PAUSED", "PLACE", "PLACING", "TOO_WIDE",
    "Game", "Pool", "begin", "rehash", "search",
]  # fmt: skip

Array = npt.NDArray  # of int64 unless said otherwise
PLACING = 63
COMPUTE, COPY, MOVE, DROP, PLACE = 0, 1, 2, 3, 4  # MOVE: a copy, and at once the drop of its source
FOUND, EXHAUSTED, PAUSED, FULL, TOO_WIDE = 0, 1, 2, 3, 4
COUNTERS = 5  # nodes in use, heap entries in use, goal node, whether the incumbent cut anything off, whether the pool overflowed


class Game(NamedTuple):
    """The rules of one game. Sets of values and of ops are bit masks."""

    size: Array
    by_size: Array  # values, largest first
    maker: Array
    survive: int
    cost: Array  # float64
    rerun: Array  # whether the op may ever run again
    reads: Array  # per op: values
    writes: Array
    destroys: Array
    before_first: Array  # per op: ops that its overwriting must wait for
    stale_after: Array  # per op: ops that overwrite what it makes
    read_start: Array  # reads with their multiplicity, as the price counts them
    read_items: Array
    capacity: Array
    read_price: Array  # float64
    write_price: Array
    fastest: bool
    lazy: bool  # slower levels are not cheaper to read, so the normal form holds
    steady: bool
    param_start: Array  # per param: its first and its final value
    param_end: Array


class Pool(NamedTuple):
    """The nodes found so far, a hash table over their states, and the open list as a binary heap."""

    rows: Array
    spent: Array  # float64
    parent: Array  # int32
    move: Array
    drops: Array  # values dropped at the target level just before the move
    table: Array  # int32
    heap_f: Array  # float64
    heap_g: Array  # float64
    heap_node: Array  # int32
    counters: Array
    sets: Array  # room for the sets of drops of one move


@njit(cache=True)
def _sum(mask, size):
    total = 0
    for v in range(len(size)):
        if mask >> v & 1:
            total += size[v]
    return total


@njit(cache=True)
def _useful(game, ran):
    """The values that some future move may still need."""
    useful = game.survive
    for op in range(len(game.cost) - 1, -1, -1):
        again = game.rerun[op] and not ran & game.stale_after[op] and game.writes[op] & useful
        if not ran >> op & 1 or again:
            useful |= game.reads[op]
    return useful


@njit(cache=True)
def _estimate(game, row):
    """A lower bound on what must still be paid from a state; infinite when something needed is lost."""
    size, maker, rp, wp, cap = game.size, game.maker, game.read_price, game.write_price, game.capacity
    values, ops, levels = len(size), len(game.cost), len(cap)
    ran = row[0] & 0xFFFFFFFF
    placing = row[0] >> 32 == PLACING
    anywhere = 0
    for level in range(levels):
        anywhere |= row[2 + level]
    unplaced = 0
    if placing:
        for p in range(len(game.param_start)):
            if row[1] >> (p * levels) & ((1 << levels) - 1) == 0:
                unplaced |= 1 << game.param_start[p]
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
        elif game.writes[op] & need & made & ~anywhere:
            if not game.rerun[op] or ran & game.stale_after[op]:
                return np.inf
            must |= 1 << op
        else:
            continue
        need |= game.reads[op]
        to_read |= game.reads[op]
        total += game.cost[op]
    cheapest = rp[0]
    for level in range(1, levels):
        cheapest = min(cheapest, rp[level])
    for v in range(values):
        if need >> v & 1 and made >> v & 1 and not anywhere >> v & 1 and maker[v] < 0:
            return np.inf
    if game.fastest:
        # Every value still to be read must get into the fastest level: by a load, or by running its maker again.
        last = -2
        loads = 0.0
        for v in range(values):
            op = maker[v]
            if op != last or op < 0:
                if last >= 0 and game.rerun[last] and not ran & game.stale_after[last]:
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
        if last >= 0 and game.rerun[last] and not ran & game.stale_after[last]:
            loads = min(loads, game.cost[last])
        total += loads
        if game.steady:
            for p in range(len(game.param_end)):
                v = game.param_end[p]
                wanted = row[1] >> (p * levels) & ((1 << levels) - 1)
                for level in range(1, levels):
                    if wanted >> level & 1 and not row[2 + level] >> v & 1:
                        total += size[v] * (cheapest + wp[level])
        return total
    count = np.zeros(values, np.int64)
    for op in range(ops):
        if must >> op & 1:
            for k in range(game.read_start[op], game.read_start[op + 1]):
                count[game.read_items[k]] += 1
    wanted_at = np.zeros(values, np.int64)
    if game.steady:
        for p in range(len(game.param_end)):
            wanted_at[game.param_end[p]] = row[1] >> (p * levels) & ((1 << levels) - 1)
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
        again = op >= 0 and game.rerun[op] and not ran & game.stale_after[op]
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
            if size[v] > cap[level]:
                continue
            if held >> level & 1 and not (fresh and not ran >> op & 1):
                best = min(best, count[v] * rp[level])
            elif missing >> level & 1:
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


@njit(cache=True)
def _before(pool, a, b):
    """Whether heap entry a comes before b: least f first, then the one that has paid most."""
    if pool.heap_f[a] != pool.heap_f[b]:
        return pool.heap_f[a] < pool.heap_f[b]
    return pool.heap_g[a] > pool.heap_g[b]


@njit(cache=True)
def _swap(pool, a, b):
    f, g, node = pool.heap_f[a], pool.heap_g[a], pool.heap_node[a]
    pool.heap_f[a], pool.heap_g[a], pool.heap_node[a] = pool.heap_f[b], pool.heap_g[b], pool.heap_node[b]
    pool.heap_f[b], pool.heap_g[b], pool.heap_node[b] = f, g, node


@njit(cache=True)
def _push(pool, f, g, node):
    i = pool.counters[1]
    pool.counters[1] += 1
    pool.heap_f[i], pool.heap_g[i], pool.heap_node[i] = f, g, node
    while i > 0 and _before(pool, i, (i - 1) >> 1):
        _swap(pool, i, (i - 1) >> 1)
        i = (i - 1) >> 1


@njit(cache=True)
def _remove_first(pool):
    pool.counters[1] -= 1
    last = pool.counters[1]
    _swap(pool, 0, last)
    i = 0
    while True:
        child = 2 * i + 1
        if child >= last:
            return
        if child + 1 < last and _before(pool, child + 1, child):
            child += 1
        if not _before(pool, child, i):
            return
        _swap(pool, child, i)
        i = child


@njit(cache=True)
def _hash(row):
    mixed = np.int64(0)
    for word in range(len(row)):
        mixed = (mixed ^ row[word]) * np.int64(-7046029254386353131)
        mixed ^= (mixed >> 29) & 0x7FFFFFFFF
    return mixed


@njit(cache=True)
def rehash(pool: Pool) -> None:
    """Enter every node into the pool's empty table."""
    mask = len(pool.table) - 1
    for node in range(pool.counters[0]):
        slot = _hash(pool.rows[node]) & mask
        while pool.table[slot] >= 0:
            slot = (slot + 1) & mask
        pool.table[slot] = node


@njit(cache=True)
def _reach(game, pool, row, spent, parent, move, drops, cutoff):
    """Enter a state reached at cost `spent`, unless it is known to be reached as cheaply or cannot lead to a better plan."""
    if row[0] >> 32 != PLACING:
        useful = _useful(game, row[0] & 0xFFFFFFFF)
        for word in range(2, len(row)):
            row[word] &= useful
    mask = len(pool.table) - 1
    slot = _hash(row) & mask
    while True:
        node = pool.table[slot]
        if node < 0:
            break
        same = True
        for word in range(len(row)):
            if pool.rows[node, word] != row[word]:
                same = False
                break
        if same:
            if spent >= pool.spent[node] - 1e-12 * (1 + pool.spent[node]):
                return
            break
        slot = (slot + 1) & mask
    f = spent + _estimate(game, row)
    if f >= cutoff:
        if f < np.inf:
            pool.counters[3] = 1
        return
    if pool.counters[0] == len(pool.spent) or pool.counters[1] + 1 == len(pool.heap_f):
        pool.counters[4] = 1
        return
    if node < 0:
        node = pool.counters[0]
        pool.counters[0] += 1
        pool.table[slot] = node
        for word in range(len(row)):
            pool.rows[node, word] = row[word]
    pool.spent[node] = spent
    pool.parent[node] = parent
    pool.move[node] = move
    pool.drops[node] = drops
    _push(pool, f, spent, node)


@njit(cache=True)
def _drop_sets(game, able, need, sets):
    """Fill `sets` with every smallest set of values out of `able` whose sizes add up to `need`; return how many, or -1."""
    if need <= 0:
        sets[0] = 0
        return 1
    order = np.empty(len(game.size), np.int64)
    left = np.zeros(len(game.size) + 1, np.int64)
    n = 0
    for v in game.by_size:
        if able >> v & 1 and game.size[v] > 0:
            order[n] = v
            n += 1
    for i in range(n - 1, -1, -1):
        left[i] = left[i + 1] + game.size[order[i]]
    found = 0
    chosen = np.empty(n + 1, np.int64)
    depth, i, total, mask = 0, 0, 0, 0
    # Largest first: a set is smallest of its kind just when its last and lightest member is what fills the need.
    while True:
        if i < n and total + left[i] >= need:
            v = order[i]
            if total + game.size[v] >= need:
                if found == len(sets):
                    return -1
                sets[found] = mask | 1 << v
                found += 1
                i += 1
            else:
                chosen[depth] = i
                depth += 1
                total += game.size[v]
                mask |= 1 << v
                i += 1
        else:
            if depth == 0:
                return found
            depth -= 1
            i = chosen[depth]
            total -= game.size[order[i]]
            mask &= ~(1 << order[i])
            i += 1


@njit(cache=True)
def _droppable(game, row, level, keep_fast, op):
    """The copies at a level that may go without making op impossible or losing something for good."""
    ran = row[0] & 0xFFFFFFFF
    elsewhere = 0
    for other in range(len(game.capacity)):
        if other != level:
            elsewhere |= row[2 + other]
    able = row[2 + level]
    if op >= 0:
        able &= ~(game.reads[op] if keep_fast else game.reads[op] & ~elsewhere)
    required = game.survive
    for later in range(len(game.cost)):
        if not ran >> later & 1:
            required |= game.reads[later]
    for v in range(len(game.size)):
        if (able & required & ~elsewhere) >> v & 1:
            maker = game.maker[v]
            if maker < 0 or not game.rerun[maker] or ran & game.stale_after[maker]:
                able &= ~(1 << v)
    return able


@njit(cache=True)
def _expand(game, pool, node, row, child, cutoff):
    """Enter all the states that one move of the normal form leads to; False when there was not enough room for it."""
    levels, ops, values = len(game.capacity), len(game.cost), len(game.size)
    ran, commit, spent = row[0] & 0xFFFFFFFF, row[0] >> 32, pool.spent[node]
    if commit == PLACING:
        _place(game, pool, node, row, child, cutoff)
        return True
    useful = _useful(game, ran)
    anywhere = 0
    used = np.zeros(levels, np.int64)
    for level in range(levels):
        anywhere |= row[2 + level]
        used[level] = _sum(row[2 + level], game.size)
    for op in range(ops):
        if commit > 0 and op != commit - 1:
            continue
        if game.reads[op] & ~anywhere:
            continue
        if ran >> op & 1:
            if not game.rerun[op] or ran & game.stale_after[op] or not game.writes[op] & useful:
                continue
        elif game.before_first[op] & ~ran:
            continue
        for level in range(1 if game.fastest else levels):
            if not _compute(game, pool, node, row, child, cutoff, op, level, used[level]):
                return False
        if game.lazy:
            for v in range(values):
                if game.reads[op] >> v & 1 and not _promote(game, pool, node, row, child, cutoff, op, v, used):
                    return False
            if not _save(game, pool, node, row, child, cutoff, op, used, useful):
                return False
    if not game.lazy:
        for v in range(values):
            if anywhere >> v & 1:
                source = -1
                for level in range(levels):
                    if row[2 + level] >> v & 1 and (source < 0 or game.read_price[level] < game.read_price[source]):
                        source = level
                for level in range(levels):
                    if not row[2 + level] >> v & 1:
                        if not _copy(game, pool, node, row, child, cutoff, -1, v, source, level, used, COPY):
                            return False
                    elif not game.fastest and _droppable(game, row, level, False, -1) >> v & 1:
                        # Where slower copies are cheaper to read, it may pay to be rid of a faster one.
                        child[:] = row
                        child[2 + level] &= ~(1 << v)
                        code = DROP | v << 3 | level << 11 | level << 17
                        _reach(game, pool, child, spent, node, code, 0, cutoff)
    return True


@njit(cache=True)
def _place(game, pool, node, row, child, cutoff):
    """Choose the start levels of the next param of a steady step."""
    levels = len(game.capacity)
    p = 0
    while row[1] >> (p * levels) & ((1 << levels) - 1):
        p += 1
    v = game.param_start[p]
    for where in range(1, 1 << levels):
        child[:] = row
        child[1] |= where << (p * levels)
        fits = True
        for level in range(levels):
            if where >> level & 1:
                child[2 + level] |= 1 << v
                fits = fits and _sum(child[2 + level], game.size) <= game.capacity[level]
        if fits:
            if p == len(game.param_start) - 1:
                child[0] = 0
            _reach(game, pool, child, 0.0, node, PLACE, 0, cutoff)


@njit(cache=True)
def _compute(game, pool, node, row, child, cutoff, op, level, used):
    ran = row[0] & 0xFFFFFFFF
    new = game.writes[op] & ~row[2 + level]
    if game.fastest and game.reads[op] & ~row[2]:
        return True
    if ran >> op & 1 and new == 0:
        return True
    gone = game.destroys[op] & row[2 + level]
    need = used - _sum(gone, game.size) + _sum(new, game.size) - game.capacity[level]
    able = 0
    if need > 0:
        able = _droppable(game, row, level, game.fastest, op) & ~gone & ~game.writes[op]
    sets = _drop_sets(game, able, need, pool.sets)
    if sets < 0:
        return False
    for i in range(sets):
        drops = pool.sets[i]
        child[:] = row
        child[2 + level] &= ~drops
        paid = game.cost[op]
        if not game.fastest:
            for k in range(game.read_start[op], game.read_start[op + 1]):
                v = game.read_items[k]
                source = 0
                while not child[2 + source] >> v & 1:
                    source += 1
                paid += game.size[v] * game.read_price[source]
            paid += _sum(game.writes[op], game.size) * game.write_price[level]
        for other in range(len(game.capacity)):
            child[2 + other] &= ~game.destroys[op]
        child[2 + level] |= game.writes[op]
        child[0] = ran | 1 << op
        code = COMPUTE | op << 3 | level << 17
        _reach(game, pool, child, pool.spent[node] + paid, node, code, drops, cutoff)
    return True


@njit(cache=True)
def _copy(game, pool, node, row, child, cutoff, op, v, source, level, used, kind):
    """Copy v into a level after making room there; a MOVE also drops it at its source."""
    need = used[level] + game.size[v] - game.capacity[level]
    able = 0
    if need > 0:
        able = _droppable(game, row, level, game.fastest and level == 0, op)
    sets = _drop_sets(game, able, need, pool.sets)
    if sets < 0:
        return False
    for i in range(sets):
        drops = pool.sets[i]
        child[:] = row
        child[2 + level] = child[2 + level] & ~drops | 1 << v
        if kind == MOVE:
            child[2 + source] &= ~(1 << v)
        if op >= 0:
            child[0] = row[0] & 0xFFFFFFFF | (op + 1) << 32
        paid = game.size[v] * (game.read_price[source] + game.write_price[level])
        code = kind | v << 3 | source << 11 | level << 17
        _reach(game, pool, child, pool.spent[node] + paid, node, code, drops, cutoff)
    return True


@njit(cache=True)
def _promote(game, pool, node, row, child, cutoff, op, v, used):
    """Bring a read of op to where the read costs less (or, under `operands = "fastest"`, to where it is legal)."""
    fastest = 0
    while not row[2 + fastest] >> v & 1:
        fastest += 1
    for level in range(min(fastest, 1) if game.fastest else fastest):
        if game.fastest or game.read_price[level] < game.read_price[fastest]:
            if not _copy(game, pool, node, row, child, cutoff, op, v, fastest, level, used, COPY):
                return False
    return True


@njit(cache=True)
def _save(game, pool, node, row, child, cutoff, op, used, useful):
    """Copy values out of a level that needs room for op, each just before its copy there goes."""
    levels, values = len(game.capacity), len(game.size)
    bounded = 0  # what might come into a level because another bounded level needs room
    for level in range(levels - 1):
        bounded |= row[2 + level]
    for source in range(levels - 1):
        here = row[2 + source]
        coming = game.writes[op] & ~here
        for v in range(values):
            if game.reads[op] >> v & 1 and not here >> v & 1:
                fastest = 0
                while not row[2 + fastest] >> v & 1:
                    fastest += 1
                if fastest > source and (source == 0 or not game.fastest):
                    coming |= 1 << v
        if game.fastest and source > 0:
            coming &= ~game.writes[op]
        if levels > 2:
            coming |= bounded & ~here
        staying = here & ~game.destroys[op]
        if _sum(staying, game.size) + _sum(coming, game.size) <= game.capacity[source]:
            # Room for op, and its copies into this level, without any drop. (Between its moves the old version of an update
            # is still there, but then its promotions alone must not fit.)
            if _sum(here, game.size) + _sum(coming & ~game.writes[op], game.size) <= game.capacity[source]:
                continue
        for v in range(values):
            if not here >> v & 1 or game.size[v] == 0:
                continue
            if game.fastest and source == 0 and game.reads[op] >> v & 1:
                continue
            cheaper = False
            for other in range(levels):
                if other != source and row[2 + other] >> v & 1 and game.read_price[other] <= game.read_price[source]:
                    cheaper = True
            if cheaper:
                continue
            for level in range(levels):
                if level == source or row[2 + level] >> v & 1:
                    continue
                if not _copy(game, pool, node, row, child, cutoff, op, v, source, level, used, MOVE):
                    return False
                # A copy to two levels before the drop; from a level of equal price the second can be made later.
                if levels > 2 and game.read_price[level] > game.read_price[source]:
                    if not _copy(game, pool, node, row, child, cutoff, op, v, source, level, used, COPY):
                        return False
    return True


@njit(cache=True)
def _finished(game, row):
    ops, levels = len(game.cost), len(game.capacity)
    if row[0] != (1 << ops) - 1:
        return False
    anywhere = 0
    for level in range(levels):
        anywhere |= row[2 + level]
    if game.survive & ~anywhere:
        return False
    if game.steady:
        for p in range(len(game.param_end)):
            wanted = row[1] >> (p * levels) & ((1 << levels) - 1)
            for level in range(levels):
                if wanted >> level & 1 and not row[2 + level] >> game.param_end[p] & 1:
                    return False
    return True


@njit(cache=True)
def begin(game: Game, pool: Pool, row: npt.NDArray, cutoff: float) -> None:
    """Enter the first state."""
    _reach(game, pool, row, 0.0, -1, PLACE, 0, cutoff)


@njit(cache=True)
def search(game: Game, pool: Pool, pops: int, cutoff: float) -> int:
    """Look at up to `pops` states, best first; return why it stopped.

    FOUND leaves the goal in `counters[2]`; FULL asks for a larger pool; after PAUSED the smallest f is `heap_f[0]`.
    """
    row = np.empty(pool.rows.shape[1], np.int64)
    child = np.empty(pool.rows.shape[1], np.int64)
    for _ in range(pops):
        if pool.counters[1] == 0:
            return EXHAUSTED
        node = pool.heap_node[0]
        f, g = pool.heap_f[0], pool.heap_g[0]
        if g > pool.spent[node] or f >= cutoff:
            _remove_first(pool)
            if f >= cutoff:
                pool.counters[3] = 1
            continue
        row[:] = pool.rows[node]
        if _finished(game, row):
            pool.counters[2] = node
            return FOUND
        _remove_first(pool)
        enough = _expand(game, pool, node, row, child, cutoff)
        if not enough or pool.counters[4]:
            # Expanding it again in a larger pool finds again what was entered, and the rest. (Its own entry left room for this.)
            _push(pool, f, g, node)
            return FULL if enough else TOO_WIDE
    return PAUSED
