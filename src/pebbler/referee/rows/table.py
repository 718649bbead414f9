"""The table of rows: every fact that certificates are made of."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from pebbler.referee.rows.cache_moments import cache_moments
from pebbler.referee.rows.far_twice import far_twice
from pebbler.referee.rows.kept_terms import kept_terms
from pebbler.referee.rows.last_touch import last_touch
from pebbler.referee.rows.leaf import Leaf
from pebbler.referee.rows.made_again import made_again
from pebbler.referee.rows.near_twice import near_twice
from pebbler.referee.rows.piece_room import piece_room
from pebbler.referee.rows.placements import lasting, placements
from pebbler.referee.rows.product_traffic import product_reads
from pebbler.referee.rows.pushed_after import pushed_after
from pebbler.referee.rows.pushed_out import pushed_between, pushed_out
from pebbler.referee.rows.row import Row
from pebbler.referee.rows.row_of_pieces import row_of_pieces
from pebbler.referee.rows.task import Task
from pebbler.referee.rows.tile_counts import tile_counts
from pebbler.referee.rows.visits import runs, visits
from pebbler.referee.rows.written_back import written_back

__all__ = ["NAMES", "Facts", "facts_of", "rows_of"]

Facts = Callable[[Leaf], Iterator[Row]]
ON_CACHES: tuple[Facts, ...] = (
    runs,
    visits,
    piece_room,
    last_touch,
    written_back,
    product_reads,
    cache_moments,
    made_again,
    kept_terms,
    near_twice,
    far_twice,
    pushed_out,
    pushed_between,
    pushed_after,
    row_of_pieces,
    tile_counts,
)
PLACED: tuple[Facts, ...] = (
    runs,
    visits,
    piece_room,
    product_reads,
    placements,
    made_again,
    kept_terms,
    lasting,
    tile_counts,
)
# The names of rows of facts that take long to work out. None of them is `whole`: without weights they prove nothing.
NAMES: Mapping[Facts, frozenset[str]] = {
    last_touch: frozenset({"last touch"}),
    piece_room: frozenset({"room of pieces", "room of all pieces", "room of full pieces"}),
    product_reads: frozenset({"products"}),
    made_again: frozenset({"made again", "read to make", "tile made again from", "room made again"}),
    row_of_pieces: frozenset({"row of pieces"}),
    tile_counts: frozenset({"tiles"}),
    lasting: frozenset({"stays", "leaves", "returns"}),
}


def facts_of(task: Task) -> tuple[Facts, ...]:
    """Return the facts that are known of plans of a task."""
    return ON_CACHES if task.caches else PLACED


def rows_of(leaf: Leaf, named: Collection[object] | None = None) -> list[Row]:
    """Return all rows of a leaf; where the names of those that have weights are given, not some that have other names."""
    every = facts_of(leaf.family.task)
    some = every if named is None else [one for one in every if one not in NAMES or not NAMES[one].isdisjoint(named)]
    return [row for facts in some for row in facts(leaf)]
