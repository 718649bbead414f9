"""ByteDMD's LRU stack of live values, as a Fenwick tree over the order of last use."""

from __future__ import annotations

import math

import numpy as np

from pebbler.arrays import Int32s, Ints
from pebbler.compiled import kernel

__all__ = ["cost", "depths"]


@kernel
def _last_uses(left: Int32s, right: Int32s, arguments: int, returned: Int32s) -> Ints:
    """Return the last instruction that reads each value: -1 for none, the number of instructions for returned values."""
    uses = np.full(arguments + len(left), -1, dtype=np.int64)
    for i in range(len(left)):
        if left[i] >= 0:
            uses[left[i]] = i
        if right[i] >= 0:
            uses[right[i]] = i
    for value in returned:
        uses[value] = len(left)
    return uses


@kernel
def _most_live(uses: Ints, left: Int32s, right: Int32s, arguments: int) -> int:
    live = 0
    for value in range(arguments):
        live += uses[value] >= 0
    most = live
    for i in range(len(left)):
        a, b = left[i], right[i]
        live -= a >= 0 and uses[a] == i
        live -= b >= 0 and b != a and uses[b] == i
        live += uses[arguments + i] >= 0
        most = max(most, live)
    return most


@kernel
def _add(tree: Int32s, slot: int, amount: int) -> None:
    i = slot + 1
    while i < len(tree):
        tree[i] += amount
        i += i & -i


@kernel
def _push(tree: Int32s, owner: Ints, slot_of: Ints, top: int, value: int) -> int:
    """Put a value on top, and return the next free slot."""
    owner[top] = value
    slot_of[value] = top
    _add(tree, top, 1)
    return top + 1


@kernel
def _count_to(tree: Int32s, slot: int) -> int:
    """Return the number of live values at or below a slot."""
    total = 0
    i = slot + 1
    while i > 0:
        total += tree[i]
        i -= i & -i
    return total


@kernel
def _compact(tree: Int32s, owner: Ints, slot_of: Ints) -> int:
    """Close the gaps that moved and dropped values left, and return the first free slot."""
    free = 0
    for slot in range(len(owner)):
        value = owner[slot]
        if value >= 0:
            owner[slot] = -1
            owner[free] = value
            slot_of[value] = free
            free += 1
    tree[:] = 0
    for i in range(1, len(tree)):
        tree[i] += i <= free
        above = i + (i & -i)
        if above < len(tree):
            tree[above] += tree[i]
    return free


@kernel
def depths(left: Int32s, right: Int32s, arguments: int, returned: Int32s) -> Ints:
    """Return the stack depth of every read, in read order.

    Instruction i reads values left[i] and right[i] (-1: nothing) and makes value arguments + i. Values below `arguments`
    are on the stack at the start, the last one on top.
    """
    uses = _last_uses(left, right, arguments, returned)
    most = _most_live(uses, left, right, arguments)
    # Every move takes a fresh slot on top. Twice the room makes closing the gaps cost O(1) per move, and keeps the
    # tree no deeper than the stack needs.
    capacity = 2 * most + 64
    tree = np.zeros(capacity + 1, dtype=np.int32)
    owner = np.full(capacity, -1, dtype=np.int64)
    slot_of = np.full(arguments + len(left), -1, dtype=np.int64)
    top = 0
    live = 0
    for value in range(arguments):
        if uses[value] >= 0:
            top = _push(tree, owner, slot_of, top, value)
            live += 1
    result = np.empty(2 * len(left), dtype=np.int64)
    read = 0
    for i in range(len(left)):
        if top + 3 > capacity:
            top = _compact(tree, owner, slot_of)
        a, b = left[i], right[i]
        for value in (a, b):
            if value >= 0:
                result[read] = live + 1 - _count_to(tree, slot_of[value])
                read += 1
        for position, value in enumerate((a, b)):
            if value < 0 or (position == 1 and value == a):
                continue
            _add(tree, slot_of[value], -1)
            owner[slot_of[value]] = -1
            if uses[value] == i:
                live -= 1
            else:
                top = _push(tree, owner, slot_of, top, value)
        made = arguments + i
        if uses[made] >= 0:
            top = _push(tree, owner, slot_of, top, made)
            live += 1
    return result[:read].copy()


@kernel
def _sum_of_roots(n: int) -> int:
    """Return the sum of ceil(sqrt(k)) for k = 1..n: j appears 2j - 1 times, the last root the rest of the times."""
    root = int(math.sqrt(n))
    while root * root < n:
        root += 1
    while (root - 1) * (root - 1) >= n and root > 0:
        root -= 1
    whole = root - 1
    return whole * (whole + 1) * (4 * whole - 1) // 6 + root * (n - whole * whole)


@kernel
def cost(depth: Ints, width: int) -> int:
    """Return the sum over reads of the ceil(sqrt(k)) of each of its `width` bytes."""
    total = 0
    for d in depth:
        total += _sum_of_roots(d * width) - _sum_of_roots((d - 1) * width)
    return total
