"""The least number of reads of a whole matrix product from outside a room, before and after one moment of the plan.

Elements that have been read by then were inside at the start or were read from outside; elements and sums that are still wanted are
inside, or will be read from outside; and when all results are read at the end, few of them are inside. No order keeps all of that
few at every moment. `docs/products.md` has the proof.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from pebbler.arrays import Ints

__all__ = ["Box", "least_midway_reads"]

Box = tuple[int, int, int]  # rows of the first matrix, columns of the second, what is added up

_MOST_CASES = 200_000
_NEVER = 2**40


@lru_cache(maxsize=1024)
def least_midway_reads(box: Box, room: int, at_start: int) -> int:
    """Return the least number of reads of elements, partial sums and results from outside of `room`, all results read at the end.

    `at_start` elements may be inside when it begins. 0 for products of many rows, columns and layers.

    >>> least_midway_reads((4, 4, 4), 9, 9), least_midway_reads((4, 4, 4), 16, 16)  # 23 and 16 elements do not fit at the start
    (38, 21)
    """
    m, n, k = box
    if (m + 1) * (n + 1) * (k + 1) ** 2 > _MOST_CASES:
        return 0
    touched = np.arange(m * k + k * n + 1) + _least_touched_too(box)  # by sums begun and elements done
    wanted = m * k + k * n - np.arange(m * k + k * n + 1) + np.arange(m * n + 1)[:, None] - room
    results, least = max(0, m * n - room), np.full(m * n + 1, _NEVER)
    for lines in range(m + n + 1):  # rows and columns of elements that are all touched
        complete = np.minimum(_crossings(m, n, lines), np.arange(m * n + 1))[:, None]
        before = np.maximum(0, np.maximum(touched, k * lines) - min(room, at_start))
        after = np.maximum(np.maximum(0, wanted), np.maximum(0, wanted - complete) + results)
        least = np.minimum(least, (before + after).min(axis=1))
    return int(least[1:].max())


def _crossings(m: int, n: int, lines: int) -> int:
    """Return the number of crossings of so many rows and columns at most."""
    return max(rows * min(n, lines - rows) for rows in range(min(m, lines) + 1))


@lru_cache(maxsize=16)
def _least_touched_too(box: Box) -> Ints:
    """Return the fewest elements that are touched but not done, by how many sums are begun and how many elements are done."""
    m, n, k = box
    rows, columns, of_left, of_right = (
        each.ravel() for each in np.meshgrid(*map(np.arange, (m + 1, n + 1, k + 1, k + 1)), indexing="ij")
    )
    # Elements of a matrix are done only in rows, or columns, of which all sums are begun.
    possible = ((rows > 0) | (of_left == 0)) & ((columns > 0) | (of_right == 0))
    rows, columns, of_left, of_right = (each[possible] for each in (rows, columns, of_left, of_right))
    begun, done = rows * n + columns * m - rows * columns, rows * of_left + columns * of_right
    least = np.full((m * n + 1, m * k + k * n + 1), _NEVER)
    np.minimum.at(least, (begun, done), of_right * (m - rows) + of_left * (n - columns))
    least = np.minimum.accumulate(least)  # more may be begun, and fewer done
    return np.minimum.accumulate(least[:, ::-1], axis=1)[:, ::-1]
