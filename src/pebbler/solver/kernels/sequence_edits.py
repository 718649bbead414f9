"""Edits of a sequence in place, as annealing makes them: ops put in, taken out, moved."""

from __future__ import annotations

import numpy.typing as npt

from pebbler.compiled import inner_kernel

__all__ = ["assign", "delete_at", "insert_at", "move_block"]


@inner_kernel
def assign(target: npt.NDArray, values: npt.NDArray) -> None:
    """Copy an array over the beginning of another; `target[:] = values` compiles for a second, because its error has a message."""
    for i in range(len(values)):
        target[i] = values[i]


@inner_kernel
def insert_at(sequence: npt.NDArray, length: int, at: int, op: int) -> None:
    """Put an op in at a position of a sequence that is `length` long before."""
    for p in range(length, at, -1):
        sequence[p] = sequence[p - 1]
    sequence[at] = op


@inner_kernel
def delete_at(sequence: npt.NDArray, length: int, at: int) -> None:
    """Take out the op at a position of a sequence that is `length` long before."""
    for p in range(at, length - 1):
        sequence[p] = sequence[p + 1]


@inner_kernel
def move_block(sequence: npt.NDArray, first: int, count: int, to: int) -> None:
    """Move `count` ops from position `first` to begin at position `to` of what is left: two parts change places, by three turns."""
    low, middle, high = first, first + count, to + count
    if to < first:
        low, middle, high = to, first, first + count
    _turn_round(sequence, low, middle)
    _turn_round(sequence, middle, high)
    _turn_round(sequence, low, high)


@inner_kernel
def _turn_round(sequence: npt.NDArray, low: int, high: int) -> None:
    for i in range((high - low) // 2):
        sequence[low + i], sequence[high - 1 - i] = sequence[high - 1 - i], sequence[low + i]
