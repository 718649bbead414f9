"""Sets of small numbers as the bits of an integer, the form of `Dataflow.ancestors`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

__all__ = ["bit_set", "members"]


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
