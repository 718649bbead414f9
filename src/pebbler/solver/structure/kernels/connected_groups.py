"""Groups of things that pairs connect."""

from __future__ import annotations

import numpy as np

from pebbler.arrays import Ints
from pebbler.compiled import kernel

__all__ = ["connected_groups"]


@kernel
def connected_groups(count: int, one: Ints, other: Ints) -> Ints:
    """Return per thing the least of its group, where the pairs `one[i]`, `other[i]` are in one group each."""
    least = np.arange(count)
    for i in range(len(one)):
        a, b = one[i], other[i]
        while least[a] != a:
            least[a] = least[least[a]]
            a = least[a]
        while least[b] != b:
            least[b] = least[least[b]]
            b = least[b]
        if a < b:
            least[b] = a
        else:
            least[a] = b
    for i in range(count):
        least[i] = least[least[i]]  # smaller ones are done
    return least
