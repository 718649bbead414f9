"""Long chains whose nodes differ in size, solved over some of their nodes.

A table of all segments and all amounts of memory is too large for a long chain, and counting memory in coarse grains wastes most of
it. But what waits while a long segment is done may as well be a small neighbour: so for long segments the recurrence runs over the
smallest node of every few only, for short ones over all, both at full resolution. The result is a schedule like any other; how much
better one might be that lets other nodes wait is left to the bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

__all__ = ["BandSplits", "select_nodes"]

Longs = npt.NDArray[np.int64]
Shorts = npt.NDArray[np.int16]


def select_nodes(sizes: Longs, count: int) -> Longs:
    """Return the first node, the last, and the smallest of every few between them: about `count` in all.

    >>> select_nodes(np.array([3, 2, 1, 2, 4, 1, 5, 5]), 4).tolist()
    [0, 2, 5, 7]
    """
    inner = np.arange(1, len(sizes) - 1)
    chosen = [int(group[np.argmin(sizes[group])]) for group in np.array_split(inner, max(1, count - 2)) if len(group)]
    return np.array([0, *chosen, len(sizes) - 1], np.int64)


@dataclass
class BandSplits:
    """The splits of long segments between chosen nodes, and of short ones between all. See `Splits`."""

    sizes: Longs  # of all nodes, in grains, rounded up
    nodes: Longs
    room: int  # in grains
    drop: Shorts  # by memory and segment of chosen nodes
    keep: Shorts
    band: int  # segments of so many steps, or fewer, are in the tables below
    band_drop: Shorts
    band_keep: Shorts
    how: Shorts
    top: int = 0
    bases: list[int] = field(default_factory=list)
    place: dict[int, int] = field(init=False)  # of a chosen node among them

    def __post_init__(self) -> None:
        self.place = {node: i for i, node in enumerate(self.nodes.tolist())}

    def inside(self, s: int, room: int) -> int:
        """See `Splits.inside`."""
        return room - int(self.sizes[s])

    def split(self, s: int, t: int, room: int, keep: bool) -> int:
        """See `Splits.split`."""
        found = abs(self._entry(s, t, room, keep))
        return found if t - s < self.band else int(self.nodes[found])

    def keeps(self, s: int, t: int, room: int) -> bool:
        """See `Splits.keeps`."""
        return self._entry(s, t, room, True) >= 0

    def carry(self, base: int, t: int) -> int:
        """See `Splits.carry`."""
        found = int(self.how[self.place[base], self.place[t + 1] - 1])
        return int(np.sign(found) * self.nodes[abs(found)])

    def _entry(self, s: int, t: int, room: int, keep: bool) -> int:
        if t - s < self.band:
            return int((self.band_keep if keep else self.band_drop)[room, s * self.band + t - s])
        a, b = self.place[s], self.place[t + 1] - 1
        return int((self.keep if keep else self.drop)[room, b * (b + 1) // 2 + a])
