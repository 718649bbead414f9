"""The values that are certainly in memory when an op runs, summed per op. Sets of values are bits, processed in blocks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pebbler.compiled import kernel

__all__ = ["kept_units"]

_WORDS = 8  # of 64 bits per block: memory stays linear in the ops

Ints = npt.NDArray[np.int64]


@kernel
def _weigh_bytes(block: Ints, size: Ints, weight: Ints) -> None:
    """Fill in the units of every set of eight neighbours in a block."""
    for byte in range(len(weight)):
        for mask in range(256):
            weight[byte, mask] = 0
            for i in range(8):
                at = 8 * byte + i
                if mask >> i & 1 and at < len(block):
                    weight[byte, mask] += size[block[at]]


@kernel
def kept_units(
    before_start: Ints, before: Ints, r_start: Ints, reads: Ints, w_start: Ints, writes: Ints,
    chosen: Ints, at_start: npt.NDArray, survive: npt.NDArray, size: Ints,
) -> Ints:  # fmt: skip
    """Return, per op, the units of `chosen` values that exist before it and are read or survive after it, in every order.

    `before_*` are the ops that each op waits for, all of them earlier in number; values that the op itself reads do not count.
    """
    ops, values = len(before_start) - 1, len(size)
    total, one = np.zeros(ops, np.int64), np.uint64(1)
    bit = np.full(values, -1, np.int64)
    weight = np.zeros((8 * _WORDS, 256), np.int64)
    earlier, later = np.empty((ops, _WORDS), np.uint64), np.empty((ops, _WORDS), np.uint64)
    for first in range(0, len(chosen), 64 * _WORDS):
        block = chosen[first : first + 64 * _WORDS]
        start, end = np.zeros(_WORDS, np.uint64), np.zeros(_WORDS, np.uint64)
        for i in range(len(block)):
            v = block[i]
            bit[v] = i
            if at_start[v]:
                start[i >> 6] |= one << np.uint64(i & 63)
            if survive[v]:
                end[i >> 6] |= one << np.uint64(i & 63)
        _weigh_bytes(block, size, weight)
        for op in range(ops):
            for word in range(_WORDS):
                earlier[op, word], later[op, word] = start[word], end[word]
            for k in range(before_start[op], before_start[op + 1]):
                other = before[k]
                for word in range(_WORDS):
                    earlier[op, word] |= earlier[other, word]
                for j in range(w_start[other], w_start[other + 1]):
                    i = bit[writes[j]]
                    if i >= 0:
                        earlier[op, i >> 6] |= one << np.uint64(i & 63)
        for op in range(ops - 1, -1, -1):
            for k in range(r_start[op], r_start[op + 1]):
                i = bit[reads[k]]
                if i >= 0:
                    # What an op reads is needed by those before it, and is no part of what it finds besides.
                    earlier[op, i >> 6] &= ~(one << np.uint64(i & 63))
            for word in range(_WORDS):
                both = earlier[op, word] & later[op, word]
                byte = 8 * word
                while both != 0:
                    total[op] += weight[byte, both & np.uint64(255)]
                    both >>= np.uint64(8)
                    byte += 1
            for k in range(r_start[op], r_start[op + 1]):
                i = bit[reads[k]]
                if i >= 0:
                    later[op, i >> 6] |= one << np.uint64(i & 63)
            for k in range(before_start[op], before_start[op + 1]):
                for word in range(_WORDS):
                    later[before[k], word] |= later[op, word]
        for i in range(len(block)):
            bit[block[i]] = -1
    return total
