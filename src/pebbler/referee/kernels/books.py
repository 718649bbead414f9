"""The accounts that every price rule fills: amounts paid, by level, tensor and op."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pebbler.arrays import Floats, Ints

__all__ = ["Books"]


class Books(NamedTuple):
    """Energy by level, tensor, op and kind of move, and of every single move; kernels add to the arrays."""

    by_level: Floats
    by_tensor: Floats
    by_op: Floats
    by_kind: Floats
    step_energy: Floats
    peak: Ints  # units: the most that each level has held, where moves say what it holds

    @classmethod
    def empty(cls, levels: int, tensors: int, ops: int, steps: int) -> Books:
        """Return books with nothing in them yet.

        >>> Books.empty(levels=2, tensors=3, ops=1, steps=4).step_energy.tolist()
        [0.0, 0.0, 0.0, 0.0]
        """
        return cls(
            np.zeros(levels), np.zeros(tensors), np.zeros(ops), np.zeros(3), np.zeros(steps), np.zeros(levels, np.int64)
        )
