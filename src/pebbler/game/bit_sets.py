"""Sets of small integers stored as the bits of one integer, as in `Dataflow.ancestors`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from pebbler.arrays import Bools

__all__ = ["as_matrix", "bit_set", "members", "subsets"]


def bit_set(items: Iterable[int]) -> int:
    """Return a set as bits; an item may be there more than once.

    >>> bit_set([0, 3, 3])
    9
    """
    bits = 0
    for item in items:
        bits |= 1 << int(item)
    return bits


def members(bits: int) -> Iterator[int]:
    """Yield the numbers of a set, the smallest first.

    >>> list(members(9))
    [0, 3]
    """
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def subsets(bits: int) -> Iterator[int]:
    """Yield all subsets of a set, the empty one first.

    >>> list(subsets(5))
    [0, 1, 4, 5]
    """
    part = 0
    while True:
        yield part
        part = (part - bits) & bits
        if part == 0:
            return


def as_matrix(sets: Sequence[int]) -> Bools:
    """Return sets of 0 .. n - 1, one per number, as a matrix of n rows.

    >>> as_matrix([0, 1, 3]).astype(int).tolist()
    [[0, 0, 0], [1, 0, 0], [1, 1, 0]]
    """
    width = (len(sets) + 7) // 8
    rows = np.frombuffer(b"".join(bits.to_bytes(width, "little") for bits in sets), np.uint8).reshape(len(sets), width)
    return np.unpackbits(rows, axis=1, count=len(sets), bitorder="little").astype(np.bool_)
