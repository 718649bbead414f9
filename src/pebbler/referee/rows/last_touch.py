"""The least depth of the elements that a piece reads.

On a cache let a piece p of op u read an element e, and let q be the piece that touched e last. The units above e when p reads it
include all of its tile, what q touched after it, and what p touched before it: e lies at least as deep as these together are large
(`last_touches` says which tiles count, and how large they are). Each touch of e is followed by one next touch at most. So of u's
reads of e no more are found within a reach than there are touches by those ops that may leave it there: as many as they have
pieces that touch e, if they cannot run again; otherwise any number.

A tile itself is touched whole, so no element of it is found in a level that does not hold the tile.
"""

from __future__ import annotations

from collections.abc import Iterator

from pebbler.referee.rows.leaf import Leaf
from pebbler.referee.rows.row import Counter, Row, at_most

__all__ = ["last_touch"]


def last_touch(leaf: Leaf) -> Iterator[Row]:
    """A group's reads of a value found within a reach are at most so many."""
    for value in leaf.values:
        for run in leaf.runs[value]:
            for part in range(len(leaf.parts[value])):
                heads = [("read", run.group, time, value, part) for time in run.times]
                yield from _near(leaf, heads, (run.group, run.phase, value, part), value, run.group)
        for part in range(len(leaf.parts[value]) if leaf.writes(value) > 1 else 0):
            yield from _near(leaf, [("add", value, part)], (value, part), value, None)


def _near(leaf: Leaf, heads: list[Counter], of: tuple[object, ...], value: int, group: int | None) -> Iterator[Row]:
    part = leaf.parts[value][heads[0][-1]]
    for full in (False, True) if heads[0][-1] == 0 else (False,):
        near = leaf.family.last_touches.near(leaf.tiles, value, group, full=part.full, full_piece=full)
        near = [0 if level < part.deep else most for level, most in enumerate(near)]
        for level, most in enumerate(near):
            if most is None or (most == 0 and near[level + 1 : level + 2] == [0]):
                continue  # the row of the next level says it as well
            terms = [((*head, full, at), 1) for head in heads for at in range(level + 1)]
            yield at_most("last touch", (*of, full, level), terms, most * part.number)
