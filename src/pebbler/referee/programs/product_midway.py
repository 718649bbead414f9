"""The least number of reads of a whole matrix product from outside a room, before and after one moment of the plan.

Elements that have been read by then were inside at the start or were read from outside; elements and sums that are still wanted are
inside, or will be read from outside. No order keeps both few at every moment. `docs/products.md` has the proof.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from pebbler.arrays import Ints

__all__ = ["Box", "least_midway_reads"]

Box = tuple[int, int, int]  # rows of the first matrix, columns of the second, what is added up

_MOST_CASES = 200_000
_MOMENTS = 64  # that are tried where there are more sums


@lru_cache(maxsize=1024)
def least_midway_reads(box: Box, room: int, at_start: int) -> int:
    """Return the least number of reads of elements, partial sums and results from outside of `room`, all results read at the end.

    `at_start` elements may be inside when it begins. 0 for products of many rows, columns and layers.

    >>> least_midway_reads((4, 4, 4), 16, 16)  # 16 elements do not fit at the start
    21
    """
    m, n, k = box
    if (m + 1) * (n + 1) * (k + 1) ** 2 > _MOST_CASES:
        return 0
    begun, done, open_too = _cases(box)
    best = 0
    for moment in np.unique(np.linspace(1, m * n, min(m * n, _MOMENTS)).astype(np.int64)).tolist():
        many = int(np.searchsorted(begun, moment, side="right"))
        most = m * k + k * n + moment - room  # done, beyond which nothing wanted is outside
        gone = np.minimum(done[:many], max(0, most))
        reads = np.maximum(0, most - gone) + np.maximum(0, gone + open_too[:many] - min(room, at_start))
        best = max(best, int(reads.min()))
    return best


@lru_cache(maxsize=16)
def _cases(box: Box) -> tuple[Ints, Ints, Ints]:
    """Return, for what may be done at a moment, the fewest sums begun, the most elements done, and the fewest touched but not done.

    Sorted by sums begun.
    """
    m, n, k = box
    rows, columns, of_left, of_right = (
        each.ravel() for each in np.meshgrid(*map(np.arange, (m + 1, n + 1, k + 1, k + 1)), indexing="ij")
    )
    # Elements of a matrix are done only in rows, or columns, of which all sums are begun.
    possible = ((rows > 0) | (of_left == 0)) & ((columns > 0) | (of_right == 0))
    rows, columns, of_left, of_right = (each[possible] for each in (rows, columns, of_left, of_right))
    begun = rows * n + columns * m - rows * columns
    order = np.argsort(begun, kind="stable")
    done = rows * of_left + columns * of_right
    open_too = of_right * (m - rows) + of_left * (n - columns)
    return begun[order], done[order], open_too[order]
