"""The counters of a plan: its reads, writes and copies as the numbers that rows refer to.

`counts` has those of every machine, `cache_counters` those of caches, `placed_counters` those of machines where a plan places
everything.
"""

from __future__ import annotations

from pebbler.game.plan import Plan
from pebbler.referee.cache_counters import CachePlay
from pebbler.referee.counts import Counts
from pebbler.referee.parts import Parts
from pebbler.referee.pieces import Pieces
from pebbler.referee.placed_counters import PlacedPlay
from pebbler.referee.rows.leaf import Few, Leaf
from pebbler.referee.rows.row import Counter, Number

__all__ = ["Played", "count"]


class Played:
    """A legal plan of a form of some graph, played once; it is counted in the setting of as many leaves as are asked for."""

    def __init__(self, plan: Plan, pieces: Pieces | None = None) -> None:
        self.plan = plan
        self.pieces = Pieces(plan.graph, plan.source or plan.graph) if pieces is None else pieces
        explicit = plan.machine.management == "explicit"
        self.play = PlacedPlay(plan, self.pieces) if explicit else CachePlay(plan, self.pieces)

    def count(self, leaf: Leaf, parts: Parts | None = None) -> dict[Counter, Number]:
        """Return the counters that are not 0, with elements in the parts that are given."""
        counts = Counts(self.plan, self.pieces, leaf, parts)
        self.play.count(counts)
        return counts.found

    def few(self, leaf: Leaf, level: int) -> Few:
        """Return the assumption about a level of a cache that holds at the leaf's moment (`near_twice`)."""
        assert isinstance(self.play, CachePlay)
        return self.play.few(Counts(self.plan, self.pieces, leaf, {}), level)


def count(plan: Plan, leaf: Leaf, parts: Parts | None = None) -> dict[Counter, Number]:
    """Return the counters of a legal plan of a form of the leaf's graph; those that are 0 are left out.

    >>> from pebbler import machine, workloads
    >>> from pebbler.referee.rows.family import Family
    >>> from pebbler.referee.rows.task import Task
    >>> from pebbler.referee.rows.tile_range import TileRange
    """
    return Played(plan).count(leaf, parts)
