"""Sweeps over an array, repeated inside one call, so that small and large footprints take the same number of calls."""

from __future__ import annotations

from pebbler.arrays import Floats
from pebbler.compiled import kernel

__all__ = ["read_again", "write_again"]


@kernel(fastmath=True)
def read_again(data: Floats, rounds: int) -> float:
    """Read all of `data` `rounds` times; the sum keeps the compiler from leaving it out."""
    total = 0.0
    for _ in range(rounds):
        part = 0.0
        for i in range(len(data)):
            part += data[i]
        total = part - total * 0.5  # depends on the round, so that rounds are not merged
    return total


@kernel
def write_again(data: Floats, rounds: int) -> None:
    """Write all of `data` `rounds` times, something else each time."""
    for step in range(rounds):
        for i in range(len(data)):
            data[i] = step
