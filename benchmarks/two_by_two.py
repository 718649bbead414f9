"""The least energy of a 2 x 2 x 2 product on the distance grid, by looking at every state that could lead to less.

Run `python -m benchmarks.two_by_two [LIMIT]` from the repository root. It prints the optimum, or that no program costs
LIMIT or less.

Why every state is there: a product is read by one addition, and a result once at the end, so an op that runs twice has one
run too many, and leaving it out costs nothing. Matrix elements are not needed once their two products are made; then they
leave their cells, and the result may take one. Of two copies of a value one may be dropped at any time, which is done when
its cell is needed. All cells beyond the 16th count as one level without end at the price of the nearest, so nothing that is
possible is left out. States that differ by exchanging the two values of an index, or A and B transposed, count as one.

How much a state must still cost at least: a matrix element that is needed `u` times and lies at distance `l` costs `min(u
l, l + u)`, since a copy reads it first; a product or a result costs its distance once; what is not made yet is read by its
op from different cells.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import product
from typing import Any

import numpy as np
from numba import njit

LEVELS = 5
ROOM = np.array([1, 3, 5, 7, 10**6])
CHEAPEST = np.array([0, 1, 3, 5, 7])  # of so many different cells
VALUES = 20  # A: 2 i + k, B: 4 + 2 k + j, products: 8 + 4 i + 2 j + k, results: 16 + 2 i + j


def exchanges() -> np.ndarray:
    """Return where each value goes when indices are exchanged or the matrices transposed."""
    found = []
    for si, sj, sk, turned in product((0, 1), repeat=4):
        to = np.zeros(VALUES, np.int64)
        for i, j, k in product((0, 1), repeat=3):
            x, y, z = i ^ si, j ^ sj, k ^ sk
            if turned:
                to[2 * i + k], to[4 + 2 * k + j] = 4 + 2 * z + x, 2 * y + z
                x, y = y, x
            else:
                to[2 * i + k], to[4 + 2 * k + j] = 2 * x + z, 4 + 2 * z + y
            to[8 + 4 * i + 2 * j + k], to[16 + 2 * i + j] = 8 + 4 * x + 2 * y + z, 16 + 2 * x + y
        found.append(to)
    return np.array(found)


@njit(cache=False)
def key_of(state: np.ndarray, changes: np.ndarray) -> tuple[int, int]:
    """Return a state as two numbers, the same for all that exchanges make of it."""
    best_high, best_low = np.int64(-1), np.int64(-1)
    turned = np.zeros(VALUES, np.int64)
    for change in changes:
        for value in range(VALUES):
            turned[change[value]] = state[value]
        high, low = np.int64(0), np.int64(0)
        for value in range(8):
            high = high << 5 | turned[value]
        for value in range(16, 20):
            high = high << 5 | turned[value]
        for value in range(8, 16):
            low = low << 5 | turned[value]
        if best_high < 0 or high < best_high or (high == best_high and low < best_low):
            best_high, best_low = high, low
    return best_high, best_low


@njit(cache=False)
def state_of(high: int, low: int, state: np.ndarray) -> None:
    """Fill in a state from its two numbers."""
    for value in range(19, 15, -1):
        state[value] = high & 31
        high >>= 5
    for value in range(7, -1, -1):
        state[value] = high & 31
        high >>= 5
    for value in range(15, 7, -1):
        state[value] = low & 31
        low >>= 5


@njit(cache=False)
def nearest(mask: int) -> int:
    """Return the distance of the nearest copy."""
    far = 1
    while not mask & 1:
        mask >>= 1
        far += 1
    return far


@njit(cache=False)
def uses(state: np.ndarray, value: int) -> int:
    """Return how many products still need a matrix element."""
    count = 0
    for other in range(2):
        if value < 4:
            i, k, j = value // 2, value % 2, other
        else:
            k, j, i = (value - 4) // 2, value % 2, other
        count += state[8 + 4 * i + 2 * j + k] == 0 and state[16 + 2 * i + j] == 0
    return count


@njit(cache=False)
def still(state: np.ndarray, cheapest: np.ndarray) -> int:
    """Return what must still be paid at least."""
    total = 0
    for value in range(8):
        if state[value]:
            needed, far = uses(state, value), nearest(state[value])
            total += min(needed * far, far + needed)
    unmade = 0
    for result in range(4):
        if state[16 + result]:
            total += nearest(state[16 + result])
            continue
        unmade += 1
        missing = 0
        for k in range(2):
            mask = state[8 + 2 * result + k]
            if mask:
                total += nearest(mask)
            else:
                missing += 1
        total += cheapest[missing]
    return total + cheapest[unmade]


@njit(cache=False)
def search(
    limit: int, starts: np.ndarray, changes: np.ndarray, room: np.ndarray, cheapest: np.ndarray, bits: int
) -> tuple[int, int]:
    """Return the least energy up to a limit (-1: there is none, -2: too many states), and how many states were looked at."""
    size = 1 << bits
    highs, lows, paid = np.full(size, -1, np.int64), np.zeros(size, np.int64), np.zeros(size, np.int16)
    stacks = [np.zeros(1 << 16, np.int64) for _ in range(limit + 1)]
    filled = np.zeros(limit + 1, np.int64)
    state, then = np.zeros(VALUES, np.int64), np.zeros(VALUES, np.int64)
    made = np.zeros((64, VALUES), np.int64)
    costs = np.zeros(64, np.int64)
    count, looked = 0, 0
    for number in range(-len(starts), limit + 1):
        least = number
        if number < 0:
            least = -1
        while True:
            fresh = 0
            spent = 0
            if number < 0:
                made[0], costs[0], fresh = starts[number + len(starts)], 0, 1
            else:
                if filled[number] == 0:
                    break
                filled[number] -= 1
                entry = stacks[number][filled[number]]
                slot, spent = entry >> 8, entry & 255
                if paid[slot] != spent:
                    continue
                looked += 1
                state_of(highs[slot], lows[slot], state)
                if state[16] and state[17] and state[18] and state[19]:
                    return least, looked
                # Every op and every copy, with its result in every level.
                for value in range(VALUES):
                    op_cost = 0
                    if value >= 16 and not state[value]:
                        first = 8 + 2 * (value - 16)
                        if not (state[first] and state[first + 1]):
                            continue
                        op_cost = nearest(state[first]) + nearest(state[first + 1])
                    elif 8 <= value < 16 and not state[value]:
                        i, j, k = (value - 8) // 4, (value - 8) // 2 % 2, value % 2
                        if state[16 + 2 * i + j]:
                            continue
                        op_cost = nearest(state[2 * i + k]) + nearest(state[4 + 2 * k + j])
                    elif not state[value]:
                        continue
                    else:
                        op_cost = nearest(state[value])
                    for level in range(LEVELS):
                        if state[value] >> level & 1:
                            continue
                        then[:] = state
                        then[value] |= 1 << level
                        if value >= 16 and not state[value]:
                            then[8 + 2 * (value - 16)] = 0
                            then[9 + 2 * (value - 16)] = 0
                        for element in range(8):
                            if then[element] and uses(then, element) == 0:
                                then[element] = 0
                        held = 0
                        for one in range(VALUES):
                            held += then[one] >> level & 1
                        if held <= room[level]:
                            made[fresh], costs[fresh] = then, spent + op_cost
                            fresh += 1
                        else:
                            for one in range(VALUES):
                                if one != value and then[one] >> level & 1 and then[one] != 1 << level:
                                    made[fresh], costs[fresh] = then, spent + op_cost
                                    made[fresh, one] &= ~(1 << level)
                                    fresh += 1
                        if fresh > 40:
                            count = _enter(
                                made, costs, fresh, limit, changes, cheapest, highs, lows, paid, stacks, filled, count
                            )
                            fresh = 0
                            if count < 0:
                                return -2, looked
            count = _enter(made, costs, fresh, limit, changes, cheapest, highs, lows, paid, stacks, filled, count)
            if count < 0:
                return -2, looked
            if number < 0:
                break
    return -1, looked


@njit(cache=False)
def _enter(made, costs, fresh, limit, changes, cheapest, highs, lows, paid, stacks, filled, count):  # type: ignore[no-untyped-def]
    """Keep new states that could lead to a program within the limit; return how many are known, -1 if there is no room for more."""
    mask = len(highs) - 1
    for i in range(fresh):
        least = costs[i] + still(made[i], cheapest)
        if least > limit:
            continue
        high, low = key_of(made[i], changes)
        slot = (high * 1000003 ^ low * 7919 ^ (high >> 21)) & mask
        while highs[slot] >= 0 and (highs[slot] != high or lows[slot] != low):
            slot = (slot + 1) & mask
        if highs[slot] >= 0 and paid[slot] <= costs[i]:
            continue
        if highs[slot] < 0:
            count += 1
            if 10 * count > 9 * len(highs):
                return -1
        highs[slot], lows[slot], paid[slot] = high, low, costs[i]
        if filled[least] == len(stacks[least]):
            longer = np.zeros(2 * len(stacks[least]), np.int64)
            longer[: filled[least]] = stacks[least]
            stacks[least] = longer
        stacks[least][filled[least]] = slot << 8 | costs[i]
        filled[least] += 1
    return count


def starts() -> np.ndarray:
    """Return every way to place the eight elements."""
    found = []
    for levels in product(range(LEVELS), repeat=8):
        if all(levels.count(level) <= ROOM[level] for level in range(LEVELS)):
            found.append([1 << level for level in levels] + [0] * 12)
    return np.array(found, np.int64)


def prove(limit: int, bits: int = 24) -> dict[str, Any]:
    """Return the optimum if it is within the limit, and how many states were looked at."""
    began = time.perf_counter()
    found, looked = search(limit, starts(), exchanges(), ROOM, CHEAPEST, bits)
    if found == -2:
        raise MemoryError(f"more than {1 << bits:,} states")
    answer = {"limit": limit, "optimum": found if found >= 0 else None, "states": looked}
    return answer | {"seconds": round(time.perf_counter() - began, 1)}


if __name__ == "__main__":
    print(json.dumps(prove(int(sys.argv[1]) if len(sys.argv) > 1 else 58)))
