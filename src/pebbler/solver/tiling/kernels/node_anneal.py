"""A search over orders on caches, with the referee's price inside."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pebbler.arrays import Array
from pebbler.compiled import inner_kernel, kernel
from pebbler.referee.kernels.cache_price import price
from pebbler.solver.kernels.sequence_edits import assign, move_block

__all__ = ["Nodes", "anneal", "legal", "spread"]


class Nodes(NamedTuple):
    """The nodes that a search moves: runs of ops that stay together, and the nodes that each must wait for."""

    start: Array  # per node: its first op
    ops: Array
    before_start: Array
    before: Array
    after_start: Array
    after: Array


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


@inner_kernel
def _uniform(random):  # type: ignore[no-untyped-def]
    """Return a number from 0 to below 1; `random` is the state of the generator (xorshift) and moves on."""
    state = random[0]
    state ^= state << np.uint64(13)
    state ^= state >> np.uint64(7)
    state ^= state << np.uint64(17)
    random[0] = state
    return (state >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@kernel
def anneal(game, nodes, sequence, energy, rounds, hot, cold, random):  # type: ignore[no-untyped-def]
    """Return the best sequence after `rounds` random moves and its energy, and where the walk has come to and its energy.

    A move takes a node, or a run of nodes, to another place, or turns a run of nodes round; `random` is the generator's state.
    """
    n = len(sequence)
    here = sequence.copy()
    now = energy
    best, best_price = sequence.copy(), energy
    place = np.empty(n, np.int64)
    for i in range(n):
        place[here[i]] = i
    trial, draws = here.copy(), np.empty(4, np.float64)
    for step in range(rounds):
        for j in range(4):
            draws[j] = _uniform(random)
        first = int(draws[0] * n)
        count = 1
        if draws[1] > 0.5:
            count = min(n - first, 1 + int(2.0 ** (draws[2] * 6.0)))
        turn = draws[1] > 0.85
        assign(trial, here)
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
            move_block(trial, first, count, to)
            low, high = min(first, to), max(first, to) + count
        if legal(nodes, trial, place, low, high):
            cost = price(game, spread(nodes, trial))
            heat = hot * (cold / hot) ** (step / max(1, rounds - 1)) if hot > 0 else 0.0
            if cost <= now or (heat > 0 and _uniform(random) < np.exp((now - cost) / heat)):
                now = cost
                assign(here, trial)
                if now < best_price:
                    best_price = now
                    assign(best, here)
                continue
        for i in range(low, high):
            place[here[i]] = i
    return best, best_price, here, now
