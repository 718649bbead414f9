"""Cheapest way through all red sets of a chain without slow memory, by Dijkstra's algorithm.

A position is the next backward step and the set of red nodes. Where memory is tight, few sets fit; those that cannot lead to less
than a known schedule are not looked at either. Everything else is tried, so the answer holds for any sizes and costs.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np

from pebbler.arrays import Floats, Ints
from pebbler.compiled import kernel
from pebbler.solver.kernels.state_table import slot_of

__all__ = ["BACKWARD", "LONGEST", "search_red_sets"]

LONGEST = 61  # forward steps: a set is a 64-bit number
BACKWARD = 0


class Positions(NamedTuple):
    """Positions by number, and a hash table of their numbers."""

    key: Ints  # the next backward step, and the set of red nodes
    least: Floats
    before: Ints
    move: Ints  # the one that leads here: a node that is computed, less than 0 one that is dropped; or `BACKWARD`
    slots: Ints


@kernel
def _number(positions: Positions, count: int, step: int, red: int) -> int:
    """Return the number of a position, or `count`, the next one, if it is new."""
    at = slot_of(positions.slots, positions.slots.size - 1, 0, positions.key, (step, red))
    if positions.slots[at] < 0:
        positions.slots[at] = count
        positions.key[count, 0], positions.key[count, 1] = step, red
    return int(positions.slots[at])


@kernel
def search_red_sets(size: Ints, prefix: Floats, memory: int, limit: float, most: int) -> tuple[bool, float, Ints]:
    """Return whether the search came to its end within `most` positions, the least cost below `limit`, and its moves.

    Backward steps cost nothing here. Infinity and no moves if there is no such schedule.
    """
    n = size.size - 1
    slots = 1 << 10
    while slots < 2 * most:
        slots *= 2
    positions = Positions(
        np.zeros((most + 1, 2), np.int64),
        np.full(most + 1, np.inf),
        np.full(most + 1, -1, np.int64),
        np.zeros(most + 1, np.int64),
        np.full(slots, -1, np.int64),
    )
    nothing = np.empty(0, np.int64)
    count = _number(positions, 0, n, 1) + 1
    positions.least[0] = 0.0
    heap = [(0.0, 0)]
    while len(heap) > 0:
        cost, here = heapq.heappop(heap)
        if cost > positions.least[here]:
            continue
        step, red = positions.key[here]
        if step < 0:
            return True, cost, _moves_to(positions, here)
        used = 0
        for k in range(n + 1):
            used += size[k] * (red >> k & 1)
        ready = red >> step & 1 == 1 and (step == n or red >> (step + 1) & 1 == 1)
        for k in range(min(step + 2, n + 1)):
            there, rest, price, move = red, step, 0.0, k
            if k == 0:  # stands for the backward step; N_0 stays, and what lies above the step is not needed any more
                if not ready:
                    continue
                there, rest, move = red & ((1 << (step + 1)) - 1), step - 1, BACKWARD
            elif red >> k & 1 == 1:
                there, move = red & ~(1 << k), -k
            elif red >> (k - 1) & 1 == 1 and used + size[k] <= memory:
                there, price = red | 1 << k, prefix[k] - prefix[k - 1]
            else:
                continue
            if not _may_win(prefix, rest, there, cost + price, limit):
                continue
            number = _number(positions, count, rest, there)
            if number == count:
                count += 1
                if count > most:
                    return False, np.inf, nothing
            if cost + price < positions.least[number]:
                positions.least[number] = cost + price
                positions.before[number], positions.move[number] = here, move
                heapq.heappush(heap, (cost + price, number))
    return True, np.inf, nothing


@kernel
def _may_win(prefix: Floats, step: int, red: int, cost: float, limit: float) -> bool:
    """Say whether a position may lead to less than the limit: the next step's node has to be made from a red one."""
    if step >= 0:
        source = step
        while red >> source & 1 == 0:
            source -= 1
        cost += prefix[step] - prefix[source]
    return bool(cost < limit)


@kernel
def _moves_to(positions: Positions, here: int) -> Ints:
    count, at = 0, here
    while positions.before[at] >= 0:
        at = positions.before[at]
        count += 1
    moves = np.empty(count, np.int64)
    while positions.before[here] >= 0:
        count -= 1
        moves[count] = positions.move[here]
        here = positions.before[here]
    return moves
