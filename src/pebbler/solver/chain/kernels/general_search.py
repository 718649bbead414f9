"""Cheapest way through every position of a chain game, by Dijkstra's algorithm.

A position is how far the first sweep or the backward pass has come, the red set and the blue set; in the adjoint convention
also the node that the running state holds. A node is stored when it is first computed or not at all, which loses nothing: slow
memory is unbounded and a later store costs the same. Everything else is tried, so the answer holds for any sizes and costs.

Without slow memory a position is the next backward step and the red set. Where memory is tight, few sets fit, and those that
cannot lead to less than a known schedule are not looked at either, so that chains of up to `LONGEST` steps are within reach.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pebbler.arrays import Floats, Ints
from pebbler.compiled import kernel
from pebbler.solver.kernels.state_table import slot_of

__all__ = [
    "BACKWARD",
    "COMPUTE",
    "DROP",
    "LOAD",
    "LONGEST",
    "RESTORE",
    "SNAP",
    "STEP_BACK",
    "STORE",
    "search",
    "search_red_sets",
]

COMPUTE, LOAD, STORE, DROP, BACKWARD, SNAP, RESTORE = range(7)


@kernel
def search(
    size: Ints, forward: Floats, backward: Floats, store: Floats, load: Floats, memory: int, adjoint: bool, limit: float
) -> tuple[float, Ints, Ints]:
    """Return the least energy below `limit` (infinity if there is none), and the moves as kinds and nodes."""
    nodes = size.size if not adjoint else size.size - 1
    last = nodes - 1
    full = (1 << nodes) - 1
    runs = nodes + 1 if adjoint else 1
    # A position packs (stage, running node + 1, red set, blue set). Stages count the nodes the first sweep has computed, and
    # from the top node on the backward steps done: no backward step comes before it.
    count = (2 * nodes * runs) << (2 * nodes)
    least = np.full(count, np.inf)
    before = np.full(count, -1, np.int64)
    by = np.zeros(count, np.int8)
    start = _pack(0, 1, 0, 0, nodes, runs) if adjoint else _pack(0, 0, 1, 0, nodes, runs)
    least[start] = 0.0
    heap = [(0.0, start)]
    while len(heap) > 0:
        cost, here = heapq.heappop(heap)
        if cost > least[here]:
            continue
        blue = here & full
        red = (here >> nodes) & full
        rest = here >> (2 * nodes)
        run = rest % runs - 1
        stage = rest // runs
        step = min(last, 2 * last - stage)
        if step < 0:
            return cost, *_walk(here, start, before, by)
        used = 0
        for k in range(nodes):
            if red >> k & 1:
                used += size[k]
        ready = run == step if adjoint else red >> step & 1 == 1 and (step == last or red >> (step + 1) & 1 == 1)
        if ready and stage >= last:
            there = _pack(stage + 1, run + 1, red, blue, nodes, runs)
            _relax(heap, least, before, by, here, there, cost + backward[step], limit, BACKWARD, step)
        for k in range(nodes):
            is_red, is_blue = red >> k & 1 == 1, blue >> k & 1 == 1
            held = run == k if adjoint else is_red
            # A store comes right after the node is first there, before the next one is computed.
            if held and not is_blue and stage == k:
                there = _pack(stage, run + 1, red, blue | 1 << k, nodes, runs)
                _relax(heap, least, before, by, here, there, cost + store[k], limit, STORE, k)
            if is_red:
                there = _pack(stage, run + 1, red & ~(1 << k), blue, nodes, runs)
                _relax(heap, least, before, by, here, there, cost, limit, DROP, k)
            fits = not is_red and used + size[k] <= memory
            if adjoint:
                if held and fits:
                    there = _pack(stage, run + 1, red | 1 << k, blue, nodes, runs)
                    _relax(heap, least, before, by, here, there, cost, limit, SNAP, k)
                if not held:
                    there = _pack(stage, k + 1, red, blue, nodes, runs)
                    if is_red:
                        _relax(heap, least, before, by, here, there, cost, limit, RESTORE, k)
                    elif is_blue:
                        _relax(heap, least, before, by, here, there, cost + load[k], limit, LOAD, k)
                    if k > 0 and run == k - 1:
                        there = _pack(max(stage, k), k + 1, red, blue, nodes, runs)
                        _relax(heap, least, before, by, here, there, cost + forward[k], limit, COMPUTE, k)
            elif fits:
                if k > 0 and red >> (k - 1) & 1:
                    there = _pack(max(stage, k), 0, red | 1 << k, blue, nodes, runs)
                    _relax(heap, least, before, by, here, there, cost + forward[k], limit, COMPUTE, k)
                if is_blue:
                    there = _pack(stage, 0, red | 1 << k, blue, nodes, runs)
                    _relax(heap, least, before, by, here, there, cost + load[k], limit, LOAD, k)
    return np.inf, np.empty(0, np.int64), np.empty(0, np.int64)


@kernel
def _pack(stage: int, run: int, red: int, blue: int, nodes: int, runs: int) -> int:
    return (stage * runs + run) << (2 * nodes) | red << nodes | blue


@kernel
def _relax(
    heap: list[tuple[float, int]],
    least: Floats,
    before: Ints,
    by: npt.NDArray[np.int8],
    here: int,
    there: int,
    cost: float,
    limit: float,
    kind: int,
    node: int,
) -> None:
    if cost < least[there] and cost < limit:
        least[there] = cost
        before[there] = here
        by[there] = kind * 16 + node
        heapq.heappush(heap, (cost, there))


@kernel
def _walk(here: int, start: int, before: Ints, by: npt.NDArray[np.int8]) -> tuple[Ints, Ints]:
    count, at = 0, here
    while at != start:
        at = before[at]
        count += 1
    kinds, nodes = np.empty(count, np.int64), np.empty(count, np.int64)
    at = here
    while at != start:
        count -= 1
        kinds[count], nodes[count] = by[at] // 16, by[at] % 16
        at = before[at]
    return kinds, nodes


# Without slow memory: all red sets -------------------------------------------------------------------------------------


LONGEST = 61  # forward steps: a set is a 64-bit number
STEP_BACK = 0


class Positions(NamedTuple):
    """Positions by number, and a hash table of their numbers."""

    key: Ints  # the next backward step, and the set of red nodes
    least: Floats
    before: Ints
    move: Ints  # the one that leads here: a node that is computed, less than 0 one that is dropped; or `STEP_BACK`
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
                there, rest, move = red & ((1 << (step + 1)) - 1), step - 1, STEP_BACK
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
