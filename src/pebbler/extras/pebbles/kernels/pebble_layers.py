"""All positions of a pebble game of two levels after one run, after two, and so on (`docs/exact.md`, "Layer by layer").

A position is the set of ops that have run, the set of values in the fast level, and those of them that the slow level holds
too. No op runs twice, so every value that is needed and not in the fast level is in the slow one, and all positions of a layer
have as many ops run.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pebbler.arrays import Array
from pebbler.compiled import kernel
from pebbler.extras.pebbles.kernels.pebble_state import (
    BEFORE,
    READS,
    WITHIN,
    WRITES,
    PebbleGame,
    bits,
    exists,
    first_loads,
    moment_ahead,
    stores_ahead,
)
from pebbler.solver.exact.kernels.astar_estimate import inner
from pebbler.solver.kernels.state_table import slot_of

__all__ = ["Layers", "Outlook", "enter_newest", "expand_layer"]

_ONE = np.int64(1)


class Layers(NamedTuple):
    """The positions found so far, layer after layer; of int64 unless said otherwise."""

    sets: Array  # per position: the ops that have run, the values in the fast level, those of them that are saved
    paid: Array  # float64
    parent: Array  # int32
    op: Array  # int8: the op that ran last
    table: Array  # int32: positions by hash; what lies before the layer in question counts as empty
    counters: Array  # positions, where the newest layer begins


class Outlook(NamedTuple):
    """Arrays for the facts that all positions with the same ops run have in common."""

    ahead: Array  # int64, per op that has not run: the values that it, or ops before it, will read
    moment: Array  # float64, per number of values stored: first loads, and what the tightest moment still costs
    evicted: Array  # int64: which of the candidates go, then the candidates


@kernel
def enter_newest(layers: Layers) -> None:
    """Enter the newest layer's positions into an empty table."""
    low, mask = layers.counters[1], len(layers.table) - 1
    for node in range(low, layers.counters[0]):
        layers.table[slot_of(layers.table, mask, low, layers.sets, layers.sets[node])] = node


@inner
def _cost_of(layers: Layers, table: Array, mask: int, ran: int, fast: int, saved: int) -> float:
    """Return the cost paid for a position of a table, or infinity if it is not there."""
    node = table[slot_of(table, mask, 0, layers.sets, (ran, fast, saved))]
    return float(layers.paid[node]) if node >= 0 else np.inf


@inner
def _to_read(game: PebbleGame, ran: int) -> int:
    """The values that exist and that ops still to run will read."""
    found = np.int64(0)
    for v in range(len(game.readers)):
        if game.readers[v] & ~ran and exists(game, ran, v):
            found |= _ONE << v
    return int(found)


@inner
def _first_read(game: PebbleGame, ran: int, op: int) -> int:
    """The values that a run of an op begins with making, as none has read them before."""
    found = game.made_at_read & game.ops[op, READS]
    for v in range(len(game.readers)):
        if found >> v & 1 and game.readers[v] & ran:
            found &= ~(_ONE << v)
    return int(found)


@inner
def _replaced(game: PebbleGame, layers: Layers, table: Array, mask: int, reads: int, node: int) -> bool:
    """Whether another position of the table comes to this one, or to a better one, by a store or a load and a drop, for no more."""
    ran, fast, saved = layers.sets[node]
    most = layers.paid[node]
    outside = reads & ~fast
    left = fast
    while left:
        v = left & -left
        left &= left - 1
        if saved & v:
            if _cost_of(layers, table, mask, ran, fast, saved & ~v) + game.store <= most:
                return True
        elif _cost_of(layers, table, mask, ran, fast, saved | v) <= most:
            return True
        others = outside
        while others:
            u = others & -others
            others &= others - 1
            instead = fast & ~v | u
            if _cost_of(layers, table, mask, ran, instead, saved & ~v | u) + game.load <= most:
                return True
            if _cost_of(layers, table, mask, ran, instead, saved & ~v) + game.load + game.store <= most:
                return True
    return False


@inner
def _not_replaced(game: PebbleGame, layers: Layers, nodes: Array, start: int, end: int, table: Array) -> int:
    """Move those of some positions with the same ops run that no other of them replaces to the front; return where they end."""
    mask = np.int64(1)
    while mask < 4 * (end - start):
        mask *= 2
    mask -= 1
    for slot in range(mask + 1):
        table[slot] = -1
    for i in range(start, end):
        table[slot_of(table, mask, 0, layers.sets, layers.sets[nodes[i]])] = nodes[i]
    reads = _to_read(game, layers.sets[nodes[start], 0])
    kept = start
    for i in range(start, end):
        if not _replaced(game, layers, table, mask, reads, nodes[i]):
            nodes[kept], nodes[i] = nodes[i], nodes[kept]
            kept += 1
    return kept


@inner
def _look_ahead(game: PebbleGame, ran: int, reads: int, outlook: Outlook) -> None:
    """Write down the tightest moment; and, per op that has not run and after which values come back, what is read until then."""
    for stored in range(len(outlook.moment)):
        outlook.moment[stored] = first_loads(game, ran) + moment_ahead(game, ran, stored)
    for op in range(len(game.needs)):
        outlook.ahead[op] = 0
        if ran >> op & 1 or game.tail[op] <= 0:
            continue
        until = game.ops[op, WITHIN] & ~ran
        for v in range(len(game.readers)):
            if reads >> v & 1 and game.readers[v] & until:
                outlook.ahead[op] |= _ONE << v


@inner
def _least(game: PebbleGame, ran: int, made: int, reads: int, fast: int, saved: int, outlook: Outlook) -> float:
    """A lower bound on what loads and stores must still cost."""
    missing = reads & ~fast
    loads = game.load * bits(missing)
    for op in range(len(game.needs)):
        if outlook.ahead[op]:
            loads = max(loads, game.load * bits(missing & outlook.ahead[op]) + game.tail[op])
    below = made & ~fast | saved
    stored = bits(below & (reads | game.survive) & ~game.given)
    moment = outlook.moment[min(stored, len(outlook.moment) - 1)]
    return float(max(moment, loads + game.store * stores_ahead(game, ran, below)))


@inner
def _enter(layers: Layers, low: int, sets: tuple, paid: float, least: float, cutoff: float, came: tuple) -> None:
    """List a position, unless it cannot lead to a better plan. `came`: the position before, and the op that ran."""
    if paid + least >= cutoff:
        return
    slot = slot_of(layers.table, len(layers.table) - 1, low, layers.sets, sets)
    node = np.int64(layers.table[slot])
    if node < low:
        node = layers.counters[0]
        layers.counters[0] += 1
        layers.table[slot] = node
        layers.sets[node, 0], layers.sets[node, 1], layers.sets[node, 2] = sets
    elif layers.paid[node] <= paid:
        return
    layers.paid[node] = paid
    layers.parent[node], layers.op[node] = came


@inner
def _next_choice(chosen: Array, count: int, of: int) -> bool:
    """Turn `count` ascending numbers below `of` into the next such choice; False after the last one."""
    a = count - 1
    while a >= 0 and chosen[a] == of - count + a:
        a -= 1
    if a < 0:
        return False
    chosen[a] += 1
    for b in range(a + 1, count):
        chosen[b] = chosen[b - 1] + 1
    return True


@inner
def _run(
    game: PebbleGame, layers: Layers, low: int, node: int, op: int, made: int, reads: int, outlook: Outlook, cutoff: float
) -> bool:  # fmt: skip
    """Enter the positions after a run of an op, one per smallest set of values that makes room; False if there is no space."""
    ran, fast, saved = layers.sets[node]
    own = game.ops[op, READS] | game.ops[op, WRITES]
    after = ran | _ONE << op
    loads = game.ops[op, READS] & ~fast & ~_first_read(game, ran, op)
    paid = layers.paid[node] + game.load * bits(loads)
    saved |= loads
    wanted = reads | game.survive & ~saved
    there = fast | own
    going = max(0, bits(there) + game.needs[op] - bits(own) - game.capacity)
    candidates, evicted = 0, outlook.evicted
    half = len(evicted) // 2
    left = fast & ~own
    while left:
        evicted[half + candidates] = left & -left
        left &= left - 1
        candidates += 1
    for a in range(going):
        evicted[a] = a
    while True:
        if layers.counters[0] == len(layers.paid):
            return False
        gone = np.int64(0)
        for a in range(going):
            gone |= evicted[half + evicted[a]]
        stays = there & ~gone & wanted
        # Results that nothing reads any more are alike: those with the smallest numbers go first.
        alike, rest = gone & ~reads, stays & ~reads & ~own
        if not (alike and rest and (rest & -rest) < alike):
            price = paid + game.store * bits(gone & ~saved)
            least = _least(game, after, made, reads, stays, saved & stays, outlook)
            _enter(layers, low, (after, stays, saved & stays), price, least, cutoff, (node, op))
        if not _next_choice(evicted, going, candidates):
            return True


@kernel
def expand_layer(game: PebbleGame, layers: Layers, nodes: Array, outlook: Outlook, cutoff: float) -> int:
    """Enter what follows positions of a layer into the next one; return how many were done before space ran out.

    `nodes` are sorted by the ops that have run; their order changes. What did not fit is to be done again with more space.
    A position that another one of `nodes` replaces leads nowhere.
    """
    low = layers.counters[1]
    table = np.empty(8 * len(nodes), np.int32)
    start = 0
    while start < len(nodes):
        ran = layers.sets[nodes[start], 0]
        end = start
        while end < len(nodes) and layers.sets[nodes[end], 0] == ran:
            end += 1
        kept = _not_replaced(game, layers, nodes, start, end, table)
        for op in range(len(game.needs)):
            if ran >> op & 1 or game.ops[op, BEFORE] & ~ran:
                continue
            after = ran | _ONE << op
            made, reads = np.int64(0), _to_read(game, after)
            for v in range(len(game.maker)):
                if exists(game, after, v):
                    made |= _ONE << v
            _look_ahead(game, after, reads, outlook)
            for i in range(start, kept):
                if not _run(game, layers, low, nodes[i], op, made, reads, outlook, cutoff):
                    return start
        start = end
    return start
