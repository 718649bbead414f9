"""Hash tables of the states that a search has met, in flat arrays with open addressing.

States are rows of words that are compared as a whole (`slot_of`), or so large that hashes of 128 bits stand for them (`mix`,
`is_cheapest`). The tables are powers of two long.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pebbler.arrays import Array
from pebbler.compiled import inner_kernel

__all__ = ["StatesMet", "is_cheapest", "mix", "slot_of"]

_A, _B = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)


@inner_kernel(forceinline=False)
def slot_of(table, mask, low, rows, key):  # type: ignore[no-untyped-def]
    """Return the slot that holds the number of the row that begins with the words of `key`, or the free slot for it.

    The slots are the first `mask` + 1 of `table`. Numbers below `low` count as none: 0, or where the rows in question begin.
    """
    mixed = np.int64(0)
    for word in range(len(key)):
        mixed = (mixed ^ key[word]) * np.int64(-7046029254386353131)
        mixed ^= (mixed >> 29) & 0x7FFFFFFFF
    slot = mixed & mask
    while True:
        number = table[slot]
        same = True
        if number >= low:
            for word in range(len(key)):
                same &= rows[number, word] == key[word]
        if same:
            return slot
        slot = (slot + 1) & mask


class StatesMet(NamedTuple):
    """States that were met, by their hashes, and what the cheapest way to each has cost."""

    hashes: Array  # uint64, two per slot
    paid: Array  # float64, negative in a free slot
    used: Array  # int64, one number: the states that are remembered

    @classmethod
    def room(cls, bits: int) -> StatesMet:
        """Return tables with room for as many states as half of so many bits count; of more, none are remembered."""
        hashes: npt.NDArray[np.uint64] = np.zeros((1 << bits, 2), np.uint64)
        return cls(hashes, np.full(1 << bits, -1.0), np.zeros(1, np.int64))


@inner_kernel
def mix(key, word):  # type: ignore[no-untyped-def]
    """Add a word to a hash of 128 bits."""
    w = np.uint64(word) + np.uint64(1)
    for i in range(2):
        x = key[i] ^ (w * (_A if i == 0 else _B))
        x ^= x >> np.uint64(31)
        x *= _B if i == 0 else _A
        x ^= x >> np.uint64(29)
        x *= np.uint64(0xBF58476D1CE4E5B9)
        key[i] = x ^ (x >> np.uint64(32))


@inner_kernel
def is_cheapest(met, key, paid):  # type: ignore[no-untyped-def]
    """Return whether no way to a state was as cheap so far, and remember this one if there is room: without, only time is lost."""
    mask = len(met.paid) - 1
    slot = np.int64(key[0] & np.uint64(mask))
    while met.paid[slot] >= 0 and (met.hashes[slot, 0] != key[0] or met.hashes[slot, 1] != key[1]):
        slot = (slot + 1) & mask
    known = met.paid[slot] >= 0
    if known and met.paid[slot] <= paid:
        return False
    if not known and 2 * met.used[0] >= mask:
        return True
    if not known:
        met.hashes[slot, 0], met.hashes[slot, 1] = key[0], key[1]
        met.used[0] += 1
    met.paid[slot] = paid
    return True
