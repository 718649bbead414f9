"""A* over the states of a pebble game of two levels, one run of an op at a time (`docs/exact.md`, "Pebble games of two levels")."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pebbler.arrays import Array
from pebbler.compiled import kernel
from pebbler.extras.pebbles.kernels.pebble_state import (
    BEFORE,
    READS,
    WRITES,
    PebbleGame,
    at_least,
    bits,
    canonical_state,
    evictions,
    lift,
    out_price,
    tight_ahead,
    useful,
)
from pebbler.solver.exact.kernels.astar import EXHAUSTED, FOUND, FULL, PAUSED, TOO_WIDE
from pebbler.solver.exact.kernels.astar_estimate import inner
from pebbler.solver.kernels.open_list import OpenList, push, remove_first
from pebbler.solver.kernels.state_table import slot_of

__all__ = ["END", "PebblePool", "enter_all", "look"]

END = np.int64(1) << 62  # marks the state in which a plan has ended, among the ops that have run
_WIDEST = 10  # reads of one op between whose fates no rule decides


class PebblePool(NamedTuple):
    """The states found so far, listed by the ops that have run, and the open list; of int64 unless said otherwise."""

    # Per node: ops that have run, values in the slow level, loaded, of a level above 0; what `canonical_state` did to it.
    sets: Array
    levels: Array  # uint8, per node and value
    spent: Array  # float64; infinite once another state serves as well
    links: Array  # int32, per node: its parent, the op that ran, the next node in which the same ops have run
    table: Array  # int32: the first node of a list
    open: OpenList
    counters: Array  # nodes in use, the goal, whether the pool overflowed
    level: Array  # uint8: room for the levels of one state, twice
    counts: Array  # room for counts by level, twice
    reached: Array  # room for the sets of one state


@inner
def _slot(pool: PebblePool, ran: int) -> int:
    """The place in the table of the list of states in which just these ops have run."""
    return int(slot_of(pool.table, len(pool.table) - 1, 0, pool.sets, (ran,)))


@kernel
def enter_all(pool: PebblePool) -> None:
    """List every node that no other one replaces anew in the pool's empty table."""
    for node in range(pool.counters[0]):
        if pool.spent[node] == np.inf:
            continue
        slot = _slot(pool, pool.sets[node, 0])
        pool.links[node, 2] = pool.table[slot]
        pool.table[slot] = node


@inner
def _becomes(
    game: PebbleGame, sets: Array, level: Array, to_sets: Array, to_level: Array, most: float, count: Array
) -> bool:
    """Whether a state can have all that another one has for at most so much. Sets and levels are rows of the pool."""
    ran, slow, there = sets[0], sets[1], sets[3]
    # Most states differ in too many values: that is seen without looking at each.
    lacking, gone = to_sets[1] & ~slow, to_sets[3] & ~there
    paid = game.store * bits(lacking) + game.load * bits(gone)
    if paid > most or lacking & ~there or gone & ~slow:
        return False
    lower = False
    for v in range(len(level)):
        lower |= level[v] < to_level[v]
    if not lower:
        return True
    # How many more of its values must go so that the rest can have stayed, whatever stayed in the other state.
    width = game.capacity + 1
    for j in range(width):
        count[j] = count[width + j] = 0
    each = 0.0
    for v in range(len(level)):
        if level[v] > 0 and to_level[v] > 0:
            count[level[v]] += 1
            count[width + level[v]] = max(count[width + level[v]], np.int64(to_level[v]))
            each = max(each, out_price(game, ran, slow, v))
    total, highest, more = 0, 0, 0
    for j in range(1, width):
        total += count[j]
        highest = max(highest, count[width + j])
        more = max(more, min(total, highest) - j)
    return bool(paid + more * each <= most)


@inner
def _reach(
    game: PebbleGame, pool: PebblePool, ran: int, slow: int, level: Array, spent: float, came: tuple, cutoff: float
) -> None:
    """Enter a state, unless one that is listed serves as well or it cannot lead to a better plan. `came`: node, op, loads."""
    if not ran & END and spent + tight_ahead(game, ran, slow) >= cutoff:
        return
    ran, slow, turned = canonical_state(game, ran, slow, level, pool.level[1])
    level = pool.level[1]
    sets, slot = pool.reached, _slot(pool, ran)
    sets[0], sets[1], sets[2], sets[3], sets[4] = ran, slow, came[2], 0, turned
    for v in range(len(level)):
        if level[v] > 0:
            sets[3] |= np.int64(1) << v
    slack = game.rounding * spent
    node = np.int64(pool.table[slot])
    while node >= 0:
        more = spent + slack - pool.spent[node]
        if more >= 0 and _becomes(game, pool.sets[node], pool.levels[node], sets, level, more, pool.counts):
            return
        node = np.int64(pool.links[node, 2])
    f = spent
    if not ran & END:
        f += at_least(game, ran, slow, level, pool.counts)
    if f >= cutoff:
        return
    if pool.counters[0] == len(pool.spent) or pool.open.used[0] + 1 == len(pool.open.node):
        pool.counters[2] = 1
        return
    _unlist(game, pool, slot, sets, level, spent)
    node = pool.counters[0]
    pool.counters[0] += 1
    for part in range(len(sets)):
        pool.sets[node, part] = sets[part]
    for v in range(len(level)):
        pool.levels[node, v] = level[v]
    pool.spent[node] = spent
    pool.links[node, 0], pool.links[node, 1], pool.links[node, 2] = came[0], came[1], pool.table[slot]
    pool.table[slot] = node
    push(pool.open, f, spent, node)


@inner
def _unlist(game: PebbleGame, pool: PebblePool, slot: int, sets: Array, level: Array, spent: float) -> None:
    """Take the states that a new one replaces out of a list; the new one has to be entered in the same slot."""
    node, last = np.int64(pool.table[slot]), np.int64(-1)
    while node >= 0:
        after = np.int64(pool.links[node, 2])
        more = pool.spent[node] - spent
        if more >= 0 and _becomes(game, sets, level, pool.sets[node], pool.levels[node], more, pool.counts):
            pool.spent[node] = np.inf
            if last < 0:
                pool.table[slot] = after
            else:
                pool.links[last, 2] = after
        else:
            last = node
        node = after


@inner
def _undecided(game: PebbleGame, ran: int, slow: int, later: int, level: Array, op: int) -> int:
    """The reads of an op that may have stayed and for which it may yet be better that they did not, to the good of others."""
    reads = game.ops[op, READS]
    inside = np.int64(0)
    for v in range(len(level)):
        if reads >> v & 1 and level[v] > 0:
            inside |= 1 << v
    room, keeps = game.capacity - game.needs[op], bits(inside)
    found = np.int64(0)
    for v in range(len(level)):
        if not inside >> v & 1:
            continue
        # What it costs if it did not stay, less what its copy in the slow level is worth after that.
        own = game.load + (0.0 if (slow | later) >> v & 1 else game.store)
        for w in range(len(level)):
            touched = level[w] >= level[v] and w != v and level[w] > 0
            if not reads >> w & 1:
                touched = touched and later >> w & 1 and level[w] - keeps < room
            if touched and out_price(game, ran, slow, w) > own:
                found |= 1 << v
                break
    return int(found)


@inner
def _stay(game: PebbleGame, level: Array, reads: int, gone: int, firm: int) -> int:
    """Let the reads stay but for those gone, and lower what others can; return those that must go too, or -1 if a firm one must."""
    out = np.int64(0)
    for j in range(1, game.capacity + 1):
        for v in range(len(level)):
            if (reads & ~gone & ~out) >> v & 1 and level[v] <= j:
                if level[v] == 0:
                    if firm >> v & 1:
                        return -1
                    out |= 1 << v
                    continue
                own = level[v]
                reads &= ~(1 << v)
                for w in range(len(level)):
                    if w != v and level[w] >= own:
                        level[w] -= 1
    return int(out)


@inner
def _expand(game: PebbleGame, pool: PebblePool, node: int, cutoff: float) -> bool:
    """Enter all the states that one more run leads to; False when there are too many ways."""
    ran, slow, before = pool.sets[node, 0], pool.sets[node, 1], pool.levels[node]
    wanted, values = useful(game, ran), len(before)
    spent = pool.spent[node]
    there, surely = np.int64(0), np.int64(0)
    for v in range(values):
        if before[v] > 0:
            there |= 1 << v
        if before[v] == game.capacity:
            surely |= 1 << v
    for op in range(len(game.again)):
        row = game.ops[op]
        reads, writes = row[READS], row[WRITES]
        if row[BEFORE] & ~ran or reads & ~(there | slow):
            continue
        paid = spent
        if ran >> op & 1:
            if game.again[op] == np.inf or not writes & wanted & ~surely:
                continue
            paid += game.again[op]
        after = ran | np.int64(1) << op
        later = useful(game, after)
        open_ = _undecided(game, ran, slow, later, before, op)
        if bits(open_) > _WIDEST:
            return False
        gone = open_
        while True:
            _run(game, pool, node, op, after, later, gone, open_, there, paid, cutoff)
            if gone == 0:
                break
            gone = (gone - 1) & open_
    return True


@inner
def _run(
    game: PebbleGame, pool: PebblePool, node: int, op: int, after: int, later: int,
    gone: int, open_: int, there: int, paid: float, cutoff: float,
) -> None:  # fmt: skip
    """Enter the states after a run before which the reads `gone` did not stay and the other undecided ones did."""
    reads, writes = game.ops[op, READS], game.ops[op, WRITES]
    slow, level = pool.sets[node, 1], pool.level[0]
    for v in range(len(level)):
        level[v] = pool.levels[node, v]
    out = _stay(game, level, reads & there, gone, open_ & ~gone)
    if out < 0:
        return
    loads = reads & ~there | gone | out
    slow_after = (slow | gone | out) & later
    paid += game.load * bits(loads) + game.store * bits((gone | out) & ~slow)
    room, lost = game.capacity - game.needs[op], np.int64(0)
    for v in range(len(level)):
        if not later >> v & 1:
            level[v] = 0
        elif (reads | writes) >> v & 1:
            level[v] = game.capacity
        elif level[v] > room:
            level[v] = room
        if there >> v & 1 and level[v] == 0 and (later & ~slow_after) >> v & 1:
            lost |= 1 << v
    spare = np.int64(0)  # of what is surely out now, that which need not be stored
    for v in range(len(level)):
        if lost >> v & 1 and (game.cheap >> v & 1 or not (game.survive >> v & 1 or game.readers[v] & ~after)):
            spare |= 1 << v
    lift(game, level, pool.counts)
    left = spare
    while True:
        stored = lost & ~left
        total = paid + game.store * bits(stored)
        _reach(game, pool, after, slow_after | stored, level, total, (node, op, loads), cutoff)
        if left == 0:
            return
        left = (left - 1) & spare


@inner
def _end(game: PebbleGame, pool: PebblePool, node: int, cutoff: float) -> None:
    """Enter the end of the plan: what must survive and is in neither memory for sure is stored."""
    ran, slow, before = pool.sets[node, 0], pool.sets[node, 1], pool.levels[node]
    unsaved = game.survive & ~slow
    for v in range(len(before)):
        if unsaved >> v & 1 and before[v] == 0:
            return
    level = pool.level[0]
    for v in range(len(before)):
        level[v] = 0
    paid = pool.spent[node] + game.store * evictions(game, before, unsaved, pool.counts)
    _reach(game, pool, ran | END, np.int64(0), level, paid, (node, np.int64(0), np.int64(0)), cutoff)


@kernel
def look(game: PebbleGame, pool: PebblePool, pops: int, cutoff: float) -> int:
    """Look at up to `pops` states, best first; return why it stopped. The pool's first node is entered by the caller.

    FOUND leaves the goal in `counters[1]`; FULL asks for a larger pool.
    """
    everything = (np.int64(1) << len(game.again)) - 1
    for _ in range(pops):
        if pool.open.used[0] == 0:
            return EXHAUSTED
        node, f, g = np.int64(pool.open.node[0]), pool.open.estimate[0], pool.open.paid[0]
        if pool.spent[node] == np.inf or f >= cutoff:
            remove_first(pool.open)
            continue
        if pool.sets[node, 0] & END:
            pool.counters[1] = node
            return FOUND
        remove_first(pool.open)
        if pool.sets[node, 0] == everything:
            _end(game, pool, node, cutoff)
        enough = _expand(game, pool, node, cutoff)
        if not enough or pool.counters[2]:
            # Expanding it again in a larger pool finds again what was entered, and the rest. (Its own entry left room for this.)
            push(pool.open, f, g, node)
            pool.counters[2] = 0
            return FULL if enough else TOO_WIDE
    return PAUSED


@kernel
def expand_each(game: PebbleGame, pool: PebblePool, nodes: Array, cutoff: float) -> bool:
    """Enter what follows each of some nodes; False when there was not enough room, or there were too many ways."""
    everything = (np.int64(1) << len(game.again)) - 1
    for i in range(len(nodes)):
        node = np.int64(nodes[i])
        if pool.spent[node] == np.inf or pool.sets[node, 0] & END:
            continue
        if pool.sets[node, 0] == everything:
            _end(game, pool, node, cutoff)
        if not _expand(game, pool, node, cutoff) or pool.counters[2]:
            return False
    return True
