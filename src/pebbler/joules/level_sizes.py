"""Memory levels found from the cost per byte at each footprint: plateaus, and the sizes where they end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["FoundLevel", "find_levels"]

_APART = 1.4  # two levels differ by more than this factor, or they are one
_NEAR = 1.1  # of its plateau: up to here a footprint fits


@dataclass(frozen=True)
class FoundLevel:
    """A plateau: what a byte costs there, and the largest footprint that still costs no more (None: the last level)."""

    cost: float
    capacity: int | None


def find_levels(footprints: Sequence[int], costs: Sequence[float]) -> list[FoundLevel]:
    """Return the levels that a sweep over footprints shows, fastest first; `costs` are per byte, in any unit.

    No footprint counts as costing more than a larger one: whatever else ran made it cost more. Costs are then cut into the
    plateaus that explain their logarithms best, each of two points or more, as long as another plateau halves what is
    left unexplained and neighbours differ by two fifths.

    >>> sizes = [2**k for k in range(10, 22)]
    >>> found = find_levels(sizes, [1.0 if size <= 2**13 else 3.0 if size <= 2**18 else 10.0 for size in sizes])
    >>> [(round(level.cost, 9), level.capacity) for level in found]
    [(1.0, 8192), (3.0, 262144), (10.0, None)]
    """
    order = np.argsort(np.asarray(footprints), kind="stable")
    sizes = [int(footprints[i]) for i in order]
    logs = np.log(np.minimum.accumulate(np.asarray(costs, float)[order][::-1])[::-1])
    best = [(0, len(logs))]
    unexplained = _spread(logs, best)
    for count in range(2, len(logs) // 2 + 1):
        cuts = _segments(logs, count)
        left = _spread(logs, cuts)
        if left > 0.5 * unexplained or unexplained < 1e-6:
            break
        best, unexplained = cuts, left
    plateaus = [float(np.exp(np.median(logs[begin:end]))) for begin, end in best]
    kept: list[tuple[int, int]] = []
    for cut, cost in zip(best, plateaus, strict=True):
        if kept and cost < _APART * float(np.exp(np.median(logs[slice(*kept[-1])]))):
            kept[-1] = (kept[-1][0], cut[1])
        else:
            kept.append(cut)
    costs_kept = [float(np.exp(np.median(logs[begin:end]))) for begin, end in kept]
    found = []
    for i, (cost, (_, end)) in enumerate(zip(costs_kept, kept, strict=True)):
        fits = [size for size, log in zip(sizes, logs, strict=True) if np.exp(log) <= _NEAR * cost]
        found.append(FoundLevel(cost, None if i == len(kept) - 1 else max(fits, default=sizes[end - 1])))
    return found


def _segments(logs: np.ndarray, count: int) -> list[tuple[int, int]]:
    """Return the cut into `count` segments of at least two points with the least squared distance to their means."""
    n = len(logs)
    sums, squares = np.concatenate([[0.0], np.cumsum(logs)]), np.concatenate([[0.0], np.cumsum(logs**2)])

    def cost(begin: int, end: int) -> float:
        return float(squares[end] - squares[begin] - (sums[end] - sums[begin]) ** 2 / (end - begin))

    least = np.full((count + 1, n + 1), np.inf)
    source = np.zeros((count + 1, n + 1), int)
    least[0, 0] = 0.0
    for k in range(1, count + 1):
        for end in range(2 * k, n + 1):
            for begin in range(2 * (k - 1), end - 1):
                total = least[k - 1, begin] + cost(begin, end)
                if total < least[k, end]:
                    least[k, end], source[k, end] = total, begin
    cuts, end = [], n
    for k in range(count, 0, -1):
        cuts.append((int(source[k, end]), end))
        end = int(source[k, end])
    return cuts[::-1]


def _spread(logs: np.ndarray, cuts: Sequence[tuple[int, int]]) -> float:
    return float(sum(((logs[begin:end] - logs[begin:end].mean()) ** 2).sum() for begin, end in cuts))
