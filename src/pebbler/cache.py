"""What a cache makes of a trace: Belady's optimum, sets and ways, several levels, write-backs, and who pays for them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pebbler.errors import InputError
from pebbler.lru import LruEnergy, TouchEnergy, lru_energy
from pebbler.reuse import check_words

__all__ = ["LruEnergy", "TouchEnergy", "attribute", "lru_energy"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def attribute(values: ArrayLike, owners: ArrayLike, count: int) -> Floats:
    """Return the sum of `values` for each of `count` owners (tensors, ops or kinds), given the owner of every value.

    >>> attribute([5.0, 1.0, 2.0], [0, 2, 0], 3).tolist()
    [7.0, 0.0, 1.0]
    """
    who = check_words(owners, "owners")
    what = np.asarray(values, np.float64)
    if what.shape != who.shape:
        raise InputError(f"values and owners must match, got {what.size} values and {who.size} owners")
    if who.size and int(who.max()) >= count:
        raise InputError(f"owners must be below {count}, got {int(who.max())} at index {int(who.argmax())}")
    return np.asarray(np.bincount(who, weights=what, minlength=count), np.float64)
