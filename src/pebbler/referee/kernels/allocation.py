"""The two allocators on flat arrays: where each touch of an order lies. Addresses count lines.

What each op touches does not depend on the order (`OpTouches`); where it lies does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pebbler.arrays import Array
from pebbler.compiled import inner_kernel, kernel

__all__ = ["OpTouches", "allocate", "allocate_until"]


class OpTouches(NamedTuple):
    """The touches of every op (its reads in order, then its writes) and the storages they go to."""

    start: Array  # per op: its first touch
    storage: Array
    tensor: Array
    lines: Array
    units: Array
    write: Array
    fresh: Array  # a write whose op does not read the storage: the storage's old content ends before it
    room: Array  # per storage, in lines
    home: Array  # per storage: its address for good, -1: allocated at each fresh write
    lasting: Array  # per storage: keeps the block it got to the end
    top: int  # the first address that is nobody's for good
    line: int  # units


class FreeList(NamedTuple):
    """Free blocks by address, neighbours merged; `state` holds how many there are and the first address never used."""

    at: Array
    room: Array
    state: Array


@kernel
def allocate(touches, order):  # type: ignore[no-untyped-def]
    """Return the touches of an order (indices into `touches`), the first line of each, and which end a storage's content.

    First fit, lowest address; a result never takes the block of something that its own op reads.
    """
    count, storages = _count_touches(touches, order), len(touches.room)
    touch, last, where = np.empty(count, np.int64), np.empty(count, np.bool_), np.empty(count, np.int64)
    _list_touches(touches, order, touch, last, np.ones(storages, np.bool_))
    free = FreeList(np.empty(storages + 2, np.int64), np.empty(storages + 2, np.int64), np.array([0, touches.top]))
    _place(touches, order, touch, last, touches.home.copy(), free, where)
    return touch, where, last


@kernel
def allocate_until(touches, order, ended):  # type: ignore[no-untyped-def]
    """Return the same for the beginning of an order, where `ended[i]` has the storages, as bits, whose content run i uses last."""
    count, storages = _count_touches(touches, order), len(touches.room)
    touch, last, where = np.empty(count, np.int64), np.empty(count, np.bool_), np.empty(count, np.int64)
    i = count
    for s in range(len(order) - 1, -1, -1):
        left = ended[s]
        for k in range(touches.start[order[s] + 1] - 1, touches.start[order[s]] - 1, -1):
            i -= 1
            bit = np.int64(1) << touches.storage[k]
            touch[i] = k
            last[i] = left & bit != 0
            left &= ~bit
    free = FreeList(np.empty(storages + 2, np.int64), np.empty(storages + 2, np.int64), np.array([0, touches.top]))
    _place(touches, order, touch, last, touches.home.copy(), free, where)
    return touch, where, last


@inner_kernel
def _count_touches(touches, order):  # type: ignore[no-untyped-def]
    count = 0
    for op in order:
        count += touches.start[op + 1] - touches.start[op]
    return count


@inner_kernel
def _list_touches(touches, order, touch, last, ends):  # type: ignore[no-untyped-def]
    """Write the touches of an order, and which of them are the last before their storage is written afresh, or at all."""
    i = len(touch)
    for s in range(len(order) - 1, -1, -1):
        for k in range(touches.start[order[s] + 1] - 1, touches.start[order[s]] - 1, -1):
            i -= 1
            touch[i] = k
            last[i] = ends[touches.storage[k]]
            ends[touches.storage[k]] = touches.fresh[k]


@inner_kernel
def _place(touches, order, touch, last, block, free, where):  # type: ignore[no-untyped-def]
    """Write the first line of every touch; `block` is the address of each storage, -1 while it has none."""
    i = 0
    for op in order:
        begin = i
        for k in range(touches.start[op], touches.start[op + 1]):
            storage = touches.storage[k]
            if block[storage] < 0:
                block[storage] = _take(free, touches.room[storage])
            where[i] = block[storage]
            i += 1
        # Only now, after the op has its results, do the blocks that it used last become free.
        for j in range(begin, i):
            storage = touches.storage[touch[j]]
            if last[j] and not touches.lasting[storage]:
                _give(free, block[storage], touches.room[storage])
                block[storage] = -1


@inner_kernel
def _take(free, room):  # type: ignore[no-untyped-def]
    """Return the address of a block of `room` lines: the lowest free one that is large enough."""
    count, top = free.state
    for j in range(count):
        if free.room[j] >= room:
            at = free.at[j]
            free.at[j] += room
            free.room[j] -= room
            if free.room[j] == 0:
                _remove(free, j)
            return at
    if count > 0 and free.at[count - 1] + free.room[count - 1] == top:
        top = free.at[count - 1]
        free.state[0] -= 1
    free.state[1] = top + room
    return top


@inner_kernel
def _give(free, at, room):  # type: ignore[no-untyped-def]
    """Take back a block of `room` lines and merge it with free neighbours."""
    if room == 0:
        return
    count = free.state[0]
    place = count
    while place > 0 and free.at[place - 1] > at:
        place -= 1
    joins_next = place < count and free.at[place] == at + room
    if place > 0 and free.at[place - 1] + free.room[place - 1] == at:
        free.room[place - 1] += room
        if joins_next:
            free.room[place - 1] += free.room[place]
            _remove(free, place)
    elif joins_next:
        free.at[place] = at
        free.room[place] += room
    else:
        for j in range(count, place, -1):
            free.at[j] = free.at[j - 1]
            free.room[j] = free.room[j - 1]
        free.at[place] = at
        free.room[place] = room
        free.state[0] += 1


@inner_kernel
def _remove(free, place):  # type: ignore[no-untyped-def]
    """Take a block out of the list."""
    free.state[0] -= 1
    for j in range(place, free.state[0]):
        free.at[j] = free.at[j + 1]
        free.room[j] = free.room[j + 1]
