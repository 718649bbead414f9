"""Time since the last write of the same word, on flat arrays."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from pebbler.compiled import kernel

__all__ = ["since_write"]


@kernel
def since_write(
    ids: npt.NDArray[Any], writes: npt.NDArray[Any], begin: int, written: npt.NDArray[Any]
) -> tuple[int, int]:
    """Return the sum, in accesses, and the number of the distances of reads to the last write of their word.

    `written` keeps each word's last write, -1: none. Reads of words that were never written do not count.
    """
    total, count = 0, 0
    for i in range(ids.size):
        word = ids[i]
        if writes[i]:
            written[word] = begin + i
        elif written[word] >= 0:
            total += begin + i - written[word]
            count += 1
    return total, count
