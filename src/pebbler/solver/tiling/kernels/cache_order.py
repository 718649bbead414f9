"""What an order costs on caches, allocator included, and a search over orders with that price inside.

Addresses are in lines. `Touching` is a graph as the cache sees it: what each op touches does not depend on the order, only
where it lies and how deep it has sunk do.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba.extending import overload

from pebbler.compiled import kernel
from pebbler.referee.kernels import recency_rank as recency
from pebbler.referee.kernels.lru_stack import window

__all__ = [
    "Nodes",
    "Ranking",
    "Touching",
    "allocate",
    "anneal",
    "cut_pieces",
    "legal",
    "lru_price",
    "price",
    "spread",
]

_recency_price = recency.price

Array = npt.NDArray[Any]


class Touching(NamedTuple):
    """The touches of every op (reads, then writes) and the storages they go to."""

    start: Array  # per op: its first touch
    storage: Array
    tensor: Array
    lines: Array
    units: Array
    write: Array
    fresh: Array  # a write whose op does not read the storage: it begins a new life there
    room: Array  # per storage, in lines
    home: Array  # per storage: its address for good, -1: allocated at each fresh write
    lasting: Array  # per storage: keeps the block it got to the end
    top: int  # the first address that is nobody's for good
    cost: Array  # per op
    reach: Array  # lines down to the end of each level but the last
    read: Array
    store: Array
    line: int
    steady: bool


class Ranking(NamedTuple):
    """A graph as note 000's rule sees it: whole tensors, by the recency of their last access."""

    cost: Array  # per op
    read: Array
    store: Array
    read_start: Array
    read_tensor: Array
    write_start: Array
    write_tensor: Array
    size: Array
    initial: Array
    capacity: Array


class Nodes(NamedTuple):
    """What a search moves about: runs of ops that stay together, and which node must wait for which."""

    start: Array  # per node: its first op
    ops: Array
    before_start: Array
    before: Array
    after_start: Array
    after: Array


@kernel
def allocate(t, order):  # type: ignore[no-untyped-def]
    """Return the touches of an order (indices into `t`), the first line of each, and which are a life's last.

    First fit, lowest address; a result never takes the block of something that its own op reads.
    """
    count = 0
    for op in order:
        count += t.start[op + 1] - t.start[op]
    touch = np.empty(count, np.int64)
    last = np.empty(count, np.bool_)
    where = np.empty(count, np.int64)
    anew = np.ones(len(t.room), np.bool_)
    i = count
    for s in range(len(order) - 1, -1, -1):
        for k in range(t.start[order[s] + 1] - 1, t.start[order[s]] - 1, -1):
            i -= 1
            touch[i] = k
            last[i] = anew[t.storage[k]]
            anew[t.storage[k]] = t.fresh[k]
    block = t.home.copy()
    free_at = np.empty(len(t.room) + 2, np.int64)
    free_room = np.empty(len(t.room) + 2, np.int64)
    frees = 0
    top = t.top
    i = 0
    for op in order:
        begin = i
        for k in range(t.start[op], t.start[op + 1]):
            root = t.storage[k]
            if block[root] < 0:
                room = t.room[root]
                found = -1
                for j in range(frees):
                    if free_room[j] >= room:
                        found = j
                        break
                if found >= 0:
                    block[root] = free_at[found]
                    free_at[found] += room
                    free_room[found] -= room
                    if free_room[found] == 0:
                        frees -= 1
                        for j in range(found, frees):
                            free_at[j] = free_at[j + 1]
                            free_room[j] = free_room[j + 1]
                elif frees > 0 and free_at[frees - 1] + free_room[frees - 1] == top:
                    frees -= 1
                    block[root] = free_at[frees]
                    top = free_at[frees] + room
                else:
                    block[root] = top
                    top += room
            where[i] = block[root]
            i += 1
        for j in range(begin, i):
            root = t.storage[touch[j]]
            if not last[j] or t.lasting[root]:
                continue
            at, room = block[root], t.room[root]
            block[root] = -1
            if room == 0:
                continue
            place = frees
            while place > 0 and free_at[place - 1] > at:
                place -= 1
            joins_next = place < frees and free_at[place] == at + room
            if place > 0 and free_at[place - 1] + free_room[place - 1] == at:
                free_room[place - 1] += room
                if joins_next:
                    free_room[place - 1] += free_room[place]
                    frees -= 1
                    for m in range(place, frees):
                        free_at[m] = free_at[m + 1]
                        free_room[m] = free_room[m + 1]
            elif joins_next:
                free_at[place] = at
                free_room[place] += room
            else:
                for m in range(frees, place, -1):
                    free_at[m] = free_at[m - 1]
                    free_room[m] = free_room[m - 1]
                free_at[place] = at
                free_room[place] = room
                frees += 1
    return touch, where, last


@kernel
def lru_price(t, order):  # type: ignore[no-untyped-def]
    """Return the energy of running the ops in `order` under the `lru` rule."""
    touch, where, _ = allocate(t, order)
    item, write, lines, units, edges = cut_pieces(t, touch, where)
    energy = 0.0
    for op in order:
        energy += t.cost[op]
    if len(item) > 0:
        amounts = window(item, write, lines, units, lines * t.line, len(edges), t.reach, t.steady)
        for level in range(len(t.read)):
            energy += amounts[0, level] * t.read[level] + (amounts[1, level] + amounts[2, level]) * t.store[level]
    return energy


@kernel
def cut_pieces(t, touch, where):  # type: ignore[no-untyped-def]
    """Return the touches cut so that any two pieces are equal or share no line: item, write, lines and units of each.

    Also the line at which every item begins.
    """
    count = len(touch)
    edges = np.empty(2 * count, np.int64)
    for i in range(count):
        edges[2 * i] = where[i]
        edges[2 * i + 1] = where[i] + t.lines[touch[i]]
    edges = np.sort(edges)
    bounds = 0
    for i in range(2 * count):
        if bounds == 0 or edges[i] != edges[bounds - 1]:
            edges[bounds] = edges[i]
            bounds += 1
    edges = edges[:bounds]
    low = np.searchsorted(edges, where)
    pieces = 0
    for i in range(count):
        j = low[i]
        while edges[j] < where[i] + t.lines[touch[i]]:
            j += 1
        pieces += j - low[i]
    item = np.empty(pieces, np.int64)
    write = np.empty(pieces, np.bool_)
    lines = np.empty(pieces, np.int64)
    units = np.empty(pieces, np.int64)
    p = 0
    for i in range(count):
        k = touch[i]
        j = low[i]
        while edges[j] < where[i] + t.lines[k]:
            item[p] = j
            write[p] = t.write[k]
            lines[p] = edges[j + 1] - edges[j]
            units[p] = min(t.units[k] - (edges[j] - where[i]) * t.line, lines[p] * t.line)
            p += 1
            j += 1
    return item, write, lines, units, edges


@kernel
def recency_price(t, order):  # type: ignore[no-untyped-def]
    """Return the energy of running the ops in `order` under the `recency` rule."""
    nowhere = np.zeros(max(len(t.size), len(t.cost), len(t.read)) + 1)
    return _recency_price(
        order, t.read_start, t.read_tensor, t.write_start, t.write_tensor, t.size, t.initial, t.cost,
        t.capacity, t.read, t.store, nowhere, nowhere, nowhere, nowhere[:0],
    )  # fmt: skip


def price(t: Any, order: Array) -> float:
    """Return the energy of running the ops in `order` by the rule that `t` is for; in kernels only that rule is compiled."""
    return float(recency_price(t, order) if isinstance(t, Ranking) else lru_price(t, order))


@overload(price)
def _price_of(t, order):  # type: ignore[no-untyped-def]
    if t.instance_class is Ranking:
        return lambda t, order: recency_price(t, order)
    return lambda t, order: lru_price(t, order)


@kernel
def spread(nodes, sequence):  # type: ignore[no-untyped-def]
    """Return the ops of a sequence of nodes."""
    count = 0
    for node in sequence:
        count += nodes.start[node + 1] - nodes.start[node]
    order = np.empty(count, np.int64)
    i = 0
    for node in sequence:
        for k in range(nodes.start[node], nodes.start[node + 1]):
            order[i] = nodes.ops[k]
            i += 1
    return order


@kernel
def legal(nodes, sequence, place, low, high):  # type: ignore[no-untyped-def]
    """Whether the nodes at positions `low` to `high` - 1 come after all that they wait for; fills `place` there."""
    for i in range(low, high):
        place[sequence[i]] = i
    for i in range(low, high):
        for k in range(nodes.before_start[sequence[i]], nodes.before_start[sequence[i] + 1]):
            if place[nodes.before[k]] > i:
                return False
    return True


@kernel
def shift(sequence, first, count, to):  # type: ignore[no-untyped-def]
    """Move `count` nodes from position `first` to begin at position `to` of what is left."""
    block = sequence[first : first + count].copy()
    if to > first:
        for i in range(first, to):
            sequence[i] = sequence[i + count]
    else:
        for i in range(first + count - 1, to + count - 1, -1):
            sequence[i] = sequence[i - count]
    sequence[to : to + count] = block


@kernel
def anneal(t, nodes, sequence, energy, rounds, hot, cold, random):  # type: ignore[no-untyped-def]
    """Return the best sequence after `rounds` random moves and its energy, and where the walk has come to and its energy.

    A move takes a node, or a run of nodes, to another place, or turns a run of nodes round; `random` is the state of
    the generator (xorshift) and moves on.
    """
    n = len(sequence)
    state = random[0]
    here = sequence.copy()
    now = energy
    best, best_price = sequence.copy(), energy
    place = np.empty(n, np.int64)
    for i in range(n):
        place[here[i]] = i
    trial = here.copy()
    for step in range(rounds):
        draws = np.empty(4, np.float64)
        for j in range(4):
            state ^= state << np.uint64(13)
            state ^= state >> np.uint64(7)
            state ^= state << np.uint64(17)
            draws[j] = (state >> np.uint64(11)) * (1.0 / 9007199254740992.0)
        first = int(draws[0] * n)
        count = 1
        if draws[1] > 0.5:
            count = min(n - first, 1 + int(2.0 ** (draws[2] * 6.0)))
        turn = draws[1] > 0.85
        trial[:] = here
        if turn:
            if count < 2:
                continue
            low, high = first, first + count
            for i in range(count):
                trial[low + i] = here[high - 1 - i]
        else:
            # Anywhere between the last node that it waits for and the first that waits for it.
            floor, ceiling = 0, n - count
            if count == 1:
                node = here[first]
                for k in range(nodes.before_start[node], nodes.before_start[node + 1]):
                    floor = max(floor, place[nodes.before[k]] + 1)
                for k in range(nodes.after_start[node], nodes.after_start[node + 1]):
                    ceiling = min(ceiling, place[nodes.after[k]] - 1)
            else:
                reach = 1 + int(2.0 ** (draws[2] * 8.0))
                floor, ceiling = max(0, first - reach), min(ceiling, first + reach)
            to = floor + int(draws[3] * (ceiling - floor + 1))
            if to == first or ceiling < floor:
                continue
            shift(trial, first, count, to)
            low, high = min(first, to), max(first, to) + count
        if legal(nodes, trial, place, low, high):
            cost = price(t, spread(nodes, trial))
            heat = hot * (cold / hot) ** (step / max(1, rounds - 1)) if hot > 0 else 0.0
            better = cost <= now
            if not better and heat > 0:
                state ^= state << np.uint64(13)
                state ^= state >> np.uint64(7)
                state ^= state << np.uint64(17)
                chance = (state >> np.uint64(11)) * (1.0 / 9007199254740992.0)
                better = chance < np.exp((now - cost) / heat)
            if better:
                now = cost
                here[:] = trial
                if now < best_price:
                    best_price = now
                    best[:] = here
                continue
        for i in range(low, high):
            place[here[i]] = i
    random[0] = state
    return best, best_price, here, now
