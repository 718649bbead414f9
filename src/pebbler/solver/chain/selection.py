"""Long chains whose nodes differ in size, solved over some of their nodes.

A table of all segments and all amounts of memory is too large for a long chain, and counting memory in coarse grains wastes most of
it. But what waits while a long segment is done may as well be a small neighbour: so for long segments the recurrence runs over the
smallest node of every few only, for short ones over all, both at full resolution. The result is a schedule like any other; how much
better one might be that lets other nodes wait is left to the bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pebbler.arrays import Ints, Shorts

__all__ = ["BandSplits", "GeneralSplits", "select_nodes"]


def select_nodes(sizes: Ints, count: int) -> Ints:
    """Return the first node, the last, and the smallest of every few between them: about `count` in all.

    >>> select_nodes(np.array([3, 2, 1, 2, 4, 1, 5, 5]), 4).tolist()
    [0, 2, 5, 7]
    """
    inner = np.arange(1, len(sizes) - 1)
    chosen = [int(group[np.argmin(sizes[group])]) for group in np.array_split(inner, max(1, count - 2)) if len(group)]
    return np.array([0, *chosen, len(sizes) - 1], np.int64)


@dataclass
class GeneralSplits:
    """The splits of a general chain, by segment and memory in grains. See `Splits`."""

    sizes: Ints  # of all nodes, in grains, rounded up
    room: int  # in grains
    drop: Shorts
    keep: Shorts
    how: Shorts = field(default_factory=lambda: np.zeros((0, 0), np.int16))  # nothing is stored
    top: int = 0
    bases: list[int] = field(default_factory=list)

    def inside(self, s: int, room: int) -> int:
        return room - int(self.sizes[s])

    def split(self, s: int, t: int, room: int, keep: bool) -> int:
        return abs(self.entry(s, t, room, keep))

    def keeps(self, s: int, t: int, room: int) -> bool:
        return self.entry(s, t, room, True) >= 0

    def carry(self, base: int, t: int) -> int:
        return int(self.how[base, t])

    def entry(self, s: int, t: int, room: int, keep: bool) -> int:
        """Return the split of a segment, negative where the pebble above is better not kept."""
        return int((self.keep if keep else self.drop)[room, t * (t + 1) // 2 + s])


@dataclass(kw_only=True)
class BandSplits(GeneralSplits):
    """The splits of long segments between chosen `nodes`, and of segments of at most `band` steps between all nodes."""

    nodes: Ints
    band: int
    band_drop: Shorts
    band_keep: Shorts

    def __post_init__(self) -> None:
        self.place = {node: i for i, node in enumerate(self.nodes.tolist())}

    def split(self, s: int, t: int, room: int, keep: bool) -> int:
        found = super().split(s, t, room, keep)
        return found if t - s < self.band else int(self.nodes[found])

    def carry(self, base: int, t: int) -> int:
        found = super().carry(self.place[base], self.place[t + 1] - 1)
        return int(np.sign(found) * self.nodes[abs(found)])

    def entry(self, s: int, t: int, room: int, keep: bool) -> int:
        if t - s < self.band:
            return int((self.band_keep if keep else self.band_drop)[room, s * self.band + t - s])
        return super().entry(self.place[s], self.place[t + 1] - 1, room, keep)
