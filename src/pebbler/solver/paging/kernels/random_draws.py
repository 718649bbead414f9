"""Random whole numbers inside kernels, from a generator whose state is the caller's."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pebbler.solver.paging.kernels.residency import INNER

__all__ = ["draw"]


@INNER
def draw(rng: npt.NDArray[Any], below: Any) -> Any:
    """Return a whole number in 0 .. below - 1 from the generator `rng` (xorshift64*, one word of state, never 0)."""
    x = rng[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    rng[0] = x
    return np.int64(((x * np.uint64(2685821657736338717)) >> np.uint64(33)) % np.uint64(below))
