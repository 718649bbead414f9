"""Reuse between consecutive pieces on caches.

Let every full piece of some ops touch at least z elements, and let q be the first run of a full piece of one of them, u, and h
the last run of such a piece before it. What h did not touch lies below all that h touched. So if z and the smallest tile of u are
more than a reach together, q finds within that reach only what h has touched as well, and what others have touched since. Two
pieces of u differ in their indices along some cut axis, so they share only tiles that lack it (of a product, one tile of three).
What others touch in a step is counted once; pieces that are not of full size, and that run again, find an element beyond the
reach before q finds it within: such reads stand on the other side of the row (`piece_rows` has the amounts). Each of them comes
between h and q, so if every one of several ops is among those that push for all of them, it counts for one q of one op only: in
their rows together, once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pebbler.referee.rows.leaf import Leaf
from pebbler.referee.rows.piece_rows import PieceRow
from pebbler.referee.rows.row import Counter, Number, Row, at_most

__all__ = ["row_of_pieces"]


def row_of_pieces(leaf: Leaf) -> Iterator[Row]:
    """The first runs of an op's pieces find at most so many elements within a reach, besides those that later runs have fetched."""
    family, task = leaf.family, leaf.family.task
    if family.piece_rows is None or leaf.tiles.loose:
        return
    for level in task.levels[:-1]:
        rows = {op: family.piece_rows.of(leaf.tiles, op, task.reach[level]) for op in family.piece_rows.ops}
        known = {op: row for op, row in rows.items() if row is not None}
        together = {op for op, row in known.items() if row.ops.issuperset(known)}
        for ops in [*([op] for op in known), *([sorted(together)] if len(together) > 1 else [])]:
            yield _row(leaf, {op: known[op] for op in ops}, level)


def _row(leaf: Leaf, ops: Mapping[int, PieceRow], level: int) -> Row:
    elements, task = leaf.family.elements, leaf.family.task
    near, beyond = task.levels[: level + 1], task.levels[level + 1 :]
    groups = {elements.group[op] for op in ops}
    made = {value for op in ops for value in elements.op_writes[op]}
    terms: list[tuple[Counter, Number]] = []
    for op, row in ops.items():
        number, axes = leaf.family.cutting[elements.group[op]]
        tiles, factor = leaf.most_count(axes)
        terms.append((tiles, -number * factor * row.each))
    for value in dict.fromkeys(value for op in ops for value in (*elements.op_reads[op], *elements.op_writes[op])):
        for part in range(len(leaf.parts.get(value, ()))):
            terms += [(one, 1) for one in leaf.reads(value, part, near) if one[1] in groups]
            if value in made:
                terms += [(one, 1) for one in leaf.adds(value, part, near)]
            terms += [(one, -1) for one in leaf.later(value, part, beyond)]
    return at_most("row of pieces", (level, *ops), terms, sum(row.more for row in ops.values()))
