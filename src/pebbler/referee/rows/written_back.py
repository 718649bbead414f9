"""Writes and write-backs.

On a cache every element is written once by each piece that adds to it, to the fastest level. A made value whose element is found
below level t by any read has been written back that far. Each element is counted once (`sunk`), at the write price of the level
below t. An element has at most n first-run reads, so at least one n-th of the reads found below t are of different elements. An
element in a tile that does not fit into level t is found below t by every read.
"""

from __future__ import annotations

from collections.abc import Iterator

from pebbler.game.dataflow import NONE
from pebbler.referee.rows.leaf import Leaf
from pebbler.referee.rows.row import Row, at_least

__all__ = ["written_back"]


def written_back(leaf: Leaf) -> Iterator[Row]:
    """An element that is read from below a level has been written back to there."""
    task = leaf.family.task
    for value in leaf.values:
        if leaf.family.flow.value_maker[value] == NONE:
            continue
        size = int(leaf.family.flow.value_size[value])
        tiles, factor = leaf.count(leaf.family.summed[value])
        yield at_least("written", (value,), [(("written", value), 1), (tiles, -factor * size)], 0, whole=True)
        if not leaf.runs[value]:
            continue
        most = max(1, sum(leaf.tiles.most_tiles(axes) for axes in leaf.family.reads_apart[value]))
        for part, (number, _, _, deep) in enumerate(leaf.parts[value]):
            for level in task.levels[:-1]:
                sunk = ("sunk", value, part, level)
                if deep > level:
                    yield at_least("tile sinks", (value, part, level), [(sunk, 1)], number)
                else:
                    below = leaf.reads(value, part, task.levels[level + 1 :])
                    terms = [(sunk, most), *((counter, -1) for counter in below)]
                    yield at_least("written back", (value, part, level), terms, 0)
