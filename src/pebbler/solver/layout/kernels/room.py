"""Room in the levels over time: how much is taken in every slot, and whether a span of slots is free."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pebbler.arrays import Ints
from pebbler.compiled import inner_kernel

__all__ = ["RoomOverTime", "empty_room"]

_ALL = np.uint64(2**64 - 1)
_ONE = np.uint64(1)


class RoomOverTime(NamedTuple):
    """Per level and slot the units that are taken; where all values have one unit, full slots as bits besides."""

    capacity: Ints
    taken: np.ndarray  # int32 by level and slot
    full: np.ndarray  # uint64 by level and 64 slots; unused where sizes differ
    single: bool  # whether all values have one unit


def empty_room(capacity: Ints, slots: int, single: bool) -> RoomOverTime:
    """Return room of which nothing is taken."""
    levels = len(capacity)
    return RoomOverTime(
        capacity, np.zeros((levels, slots), np.int32), np.zeros((levels, (slots >> 6) + 1), np.uint64), bool(single)
    )


@inner_kernel
def fits(room, level, first, end, size):  # type: ignore[no-untyped-def]
    """Return whether so many units are free in all slots from `first` to before `end`."""
    if first >= end:
        return True
    if not room.single:
        for slot in range(first, end):
            if room.taken[level, slot] + size > room.capacity[level]:
                return False
        return True
    low, high = first >> 6, (end - 1) >> 6
    head, tail = _ALL << np.uint64(first & 63), _ALL >> np.uint64(63 - ((end - 1) & 63))
    if low == high:
        return (room.full[level, low] & head & tail) == 0
    if room.full[level, low] & head:
        return False
    for word in range(low + 1, high):
        if room.full[level, word]:
            return False
    return (room.full[level, high] & tail) == 0


@inner_kernel
def occupy(room, level, first, end, units):  # type: ignore[no-untyped-def]
    """Take units in all slots from `first` to before `end`, or give them back if they are negative."""
    limit = room.capacity[level]
    for slot in range(first, end):
        now = room.taken[level, slot] + units
        room.taken[level, slot] = now
        bit = _ONE << np.uint64(slot & 63)
        if now >= limit:
            room.full[level, slot >> 6] |= bit
        else:
            room.full[level, slot >> 6] &= ~bit
