"""The check that an order of pieces computes the same as program order: every read must find the same version."""

from __future__ import annotations

import numpy as np

from pebbler.arrays import Array
from pebbler.compiled import kernel

__all__ = ["finds_versions", "program_versions"]


@kernel
def program_versions(storage: Array, write: Array, held: Array) -> Array:
    """Return the version that each touch reads or writes in program order; `held` are those at the start, and then at the end."""
    version = np.empty(len(storage), np.int64)
    for k in range(len(storage)):
        if write[k]:
            held[storage[k]] += 1
        version[k] = held[storage[k]]
    return version


@kernel
def finds_versions(
    order: Array, start: Array, storage: Array, write: Array, version: Array, held: Array, again: Array
) -> bool:
    """Whether every read of an order finds its version, and no piece runs twice that may not run `again`.

    `held` are the versions at the start; afterwards those at the end.
    """
    ran = np.zeros(len(start) - 1, np.bool_)
    for piece in order:
        if ran[piece] and not again[piece]:
            return False
        ran[piece] = True
        for k in range(start[piece], start[piece + 1]):
            if write[k]:
                held[storage[k]] = version[k]
            elif held[storage[k]] != version[k]:
                return False
    return True
