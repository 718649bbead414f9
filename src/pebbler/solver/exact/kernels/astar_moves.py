"""The moves of the explicit game that are worth a look, in the normal form that `docs/exact.md` proves.

A move is packed into one integer, and made after some smallest set of drops that gives it room where it goes; an op whose
results may go over what is dropped right after runs before its drops.
"""

from __future__ import annotations

import numpy as np

from pebbler.arrays import Array
from pebbler.compiled import separate_kernel
from pebbler.solver.exact.kernels.astar_estimate import (
    BEFORE_FIRST,
    DESTROYS,
    READS,
    RERUN,
    STALE_AFTER,
    WRITES,
    ExactGame,
    inner,
    total_size,
    useful_values,
)

__all__ = ["COMPUTE", "COPY", "DROP", "MOVE", "PLACE", "drop_sets", "list_moves", "make", "room"]

COMPUTE, COPY, MOVE, DROP, PLACE = 0, 1, 2, 3, 4  # MOVE: a copy, and at once the drop of its source
# Bits of a move: kind 0-2, op or value 3-10, source 11-16, target 17-22, 1 + the op that it serves 23-31.


@separate_kernel(_nrt=False)
def list_moves(game: ExactGame, row: Array, moves: Array) -> int:
    """Fill `moves` with all the moves from a state, room aside; return how many, or -1 when there are too many."""
    levels, ops, values = len(game.capacity), len(game.cost), len(game.size)
    ran, commit = row[0] & 0xFFFFFFFF, row[0] >> 32
    useful = useful_values(game, ran)
    anywhere = np.int64(0)
    for level in range(levels):
        anywhere |= row[2 + level]
    count = np.int64(0)
    for op in range(ops):
        if count + levels * (1 + values * (1 + 2 * levels)) > len(moves):
            return -1
        if (commit > 0 and op != commit - 1) or game.ops[op, READS] & ~anywhere:
            continue
        if ran >> op & 1:
            if not game.ops[op, RERUN] or ran & game.ops[op, STALE_AFTER] or not game.ops[op, WRITES] & useful:
                continue
        elif game.ops[op, BEFORE_FIRST] & ~ran:
            continue
        for level in range(1 if game.fastest else levels):
            if not (game.fastest and game.ops[op, READS] & ~row[2]) and not (
                ran >> op & 1 and not game.ops[op, WRITES] & ~row[2 + level]
            ):
                moves[count] = COMPUTE | op << 3 | level << 17 | (op + 1) << 23
                count += 1
        if game.lazy:
            count = _promotions(game, row, op, moves, count)
            count = _saves(game, row, op, moves, count)
    if not game.lazy:
        if count + levels * values > len(moves):
            return -1
        count = _anything(game, row, anywhere, moves, count)
    return int(count)


@inner
def _promotions(game: ExactGame, row: Array, op: int, moves: Array, count: int) -> int:
    """Bring a read of op to where the read costs less (or, under `operands = "fastest"`, to where it is legal)."""
    for v in range(len(game.size)):
        if game.ops[op, READS] >> v & 1:
            fastest = 0
            while not row[2 + fastest] >> v & 1:
                fastest += 1
            for level in range(min(fastest, 1) if game.fastest else fastest):
                if game.fastest or game.read_price[level] < game.read_price[fastest]:
                    moves[count] = COPY | v << 3 | fastest << 11 | level << 17 | (op + 1) << 23
                    count += 1
    return count


@inner
def _needs_room(game: ExactGame, row: Array, op: int, level: int) -> bool:
    """Whether op, and the copies that may come before it, could fail to fit into a level without a drop there."""
    levels = len(game.capacity)
    here = row[2 + level]
    coming = 0
    for v in range(len(game.size)):
        if game.ops[op, READS] >> v & 1 and not here >> v & 1 and (level == 0 or not game.fastest):
            fastest = 0
            while not row[2 + fastest] >> v & 1:
                fastest += 1
            if fastest > level:
                coming |= 1 << v
    if levels > 2:
        # With a third level, what another bounded level must get rid of may come here too.
        for other in range(levels - 1):
            coming |= row[2 + other] & ~here
    written = game.ops[op, WRITES] & ~here if level == 0 or not game.fastest else 0
    # Before op runs, its results are not there yet; after it, the old version is gone.
    before = total_size(here | coming, game.size)
    after = total_size((here & ~game.ops[op, DESTROYS]) | coming | written, game.size)
    return bool(max(before, after) > game.capacity[level])


@inner
def _saves(game: ExactGame, row: Array, op: int, moves: Array, count: int) -> int:
    """Copy values out of a level that needs room for op, each just before its copy there goes."""
    levels = len(game.capacity)
    for source in range(levels - 1):
        if not _needs_room(game, row, op, source):
            continue
        for v in range(len(game.size)):
            if not row[2 + source] >> v & 1 or game.size[v] == 0:
                continue
            if game.fastest and source == 0 and game.ops[op, READS] >> v & 1:
                continue
            cheaper = False
            for other in range(levels):
                if other != source and row[2 + other] >> v & 1 and game.read_price[other] <= game.read_price[source]:
                    cheaper = True  # the copy can be made from there, later
            if cheaper:
                continue
            for level in range(levels):
                if level == source or row[2 + level] >> v & 1:
                    continue
                moves[count] = MOVE | v << 3 | source << 11 | level << 17 | (op + 1) << 23
                count += 1
                # A copy to two levels before the drop; from a level of equal price the second can be made later. Or op reads
                # it where it was, and its result goes over it.
                below = levels > 2 and game.read_price[level] > game.read_price[source]
                if below or (game.over and game.ops[op, READS] >> v & 1):
                    moves[count] = COPY | v << 3 | source << 11 | level << 17 | (op + 1) << 23
                    count += 1
    return count


@inner
def _anything(game: ExactGame, row: Array, anywhere: int, moves: Array, count: int) -> int:
    """Every copy from its cheapest source, and every drop that may make a read cheaper: no normal form is known here."""
    for v in range(len(game.size)):
        if anywhere >> v & 1:
            source = -1
            for level in range(len(game.capacity)):
                if row[2 + level] >> v & 1 and (source < 0 or game.read_price[level] < game.read_price[source]):
                    source = level
            for level in range(len(game.capacity)):
                if not row[2 + level] >> v & 1:
                    moves[count] = COPY | v << 3 | source << 11 | level << 17
                    count += 1
                elif not game.fastest and _droppable(game, row, level, np.int64(-1)) >> v & 1:
                    moves[count] = DROP | v << 3 | level << 11 | level << 17
                    count += 1
    return count


@inner
def _droppable(game: ExactGame, row: Array, level: int, op: int) -> int:
    """The copies at a level that may go without making op impossible or losing something for good."""
    ran = row[0] & 0xFFFFFFFF
    elsewhere = 0
    for other in range(len(game.capacity)):
        if other != level:
            elsewhere |= row[2 + other]
    able = row[2 + level]
    if op >= 0:
        able &= ~(game.ops[op, READS] if game.fastest and level == 0 else game.ops[op, READS] & ~elsewhere)
    required = game.survive
    for later in range(len(game.cost)):
        if not ran >> later & 1:
            required |= game.ops[later, READS]
    for v in range(len(game.size)):
        if (able & required & ~elsewhere) >> v & 1:
            maker = game.maker[v]
            if maker < 0 or not game.ops[maker, RERUN] or ran & game.ops[maker, STALE_AFTER]:
                able &= ~(1 << v)
    return int(able)


@separate_kernel
def drop_sets(game: ExactGame, able: int, need: int, sets: Array) -> int:
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


@inner
def make(game: ExactGame, row: Array, move: int, drops: int) -> float:
    """Make a move with its drops in the row itself; return what it costs."""
    kind, what, source, target = move & 7, move >> 3 & 255, move >> 11 & 63, move >> 17 & 63
    if not (game.over and kind == COMPUTE):
        row[2 + target] &= ~drops
    if kind == DROP:
        row[2 + target] &= ~(1 << what)
        return 0.0
    if kind == COMPUTE:
        paid = game.cost[what]
        if not game.fastest:
            for k in range(game.read_start[what], game.read_start[what + 1]):
                v = game.read_items[k]
                level = 0
                while not row[2 + level] >> v & 1:
                    level += 1
                paid += game.size[v] * game.read_price[level]
            paid += total_size(game.ops[what, WRITES], game.size) * game.write_price[target]
        for level in range(len(game.capacity)):
            row[2 + level] &= ~game.ops[what, DESTROYS]
        row[2 + target] |= game.ops[what, WRITES]
        if game.over:
            row[2 + target] &= ~drops
        row[0] = (row[0] & 0xFFFFFFFF) | 1 << what
        return float(paid)
    row[2 + target] |= 1 << what
    if kind == MOVE:
        row[2 + source] &= ~(1 << what)
    row[0] = (row[0] & 0xFFFFFFFF) | move >> 23 << 32
    return float(game.size[what] * (game.read_price[source] + game.write_price[target]))


@inner
def room(game: ExactGame, row: Array, child: Array, move: int) -> tuple[int, int]:
    """Return the units that must leave the target level for a move, and the values that may; `child` is scratch space."""
    kind, what, target, op = move & 7, move >> 3 & 255, move >> 17 & 63, (move >> 23) - 1
    if kind == DROP:
        return 0, 0
    if game.over and kind == COMPUTE:
        for word in range(len(row)):
            child[word] = row[word]
        make(game, child, move, 0)
        need = total_size(child[2 + target], game.size) - game.capacity[target]
        return need, _droppable(game, child, target, np.int64(-1)) if need > 0 else 0
    here = row[2 + target]
    gone, new = 0, 1 << what
    if kind == COMPUTE:
        gone, new = game.ops[what, DESTROYS] & here, game.ops[what, WRITES]
    need = total_size((here & ~gone) | new, game.size) - game.capacity[target]
    if need <= 0:
        return need, 0
    return need, _droppable(game, row, target, op) & ~gone & ~new
