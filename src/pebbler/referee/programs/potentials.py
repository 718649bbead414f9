"""Potentials of a game: for every state, the least that any row of moves from it weighs."""

from __future__ import annotations

import numpy as np

from pebbler.arrays import Ints

__all__ = ["settled"]


def settled(least: Ints, weight: Ints, ends: Ints, first: Ints, rounds: int) -> Ints | None:
    """Return the largest numbers that are at most `least`, and at most each move's weight plus the number where it ends.

    The moves are sorted by where they begin, the first of each state at `first`. `None` if they do not settle in so many rounds.

    >>> settled(np.zeros(2, np.int64), np.array([3, -2]), np.array([1, 0]), np.array([0, 1]), 5).tolist()  # 0 to 1, and back
    [0, -2]
    """
    for _ in range(rounds):
        then = np.minimum(least, np.minimum.reduceat(weight + least[ends], first))
        if np.array_equal(then, least):
            return least
        least = then
    return None
