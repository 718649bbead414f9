"""The number of tiles.

A form cuts an axis into t tiles, and an op into as many pieces as the product of the t of its axes. Rows that speak of pieces,
and of reads by all pieces, have such products as counters (`tiles` of some axes), so that they hold for every tiling of a range
at once. If each t is between `least` and `most`, then (t - least) (u - least') and the like are not negative for two axes: rows
over products of both, of one of them, and of neither, whatever other axes they are multiplied with.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from pebbler.referee.rows.leaf import Leaf
from pebbler.referee.rows.row import ONE, Counter, Row, at_least

__all__ = ["tile_counts"]


def tile_counts(leaf: Leaf) -> Iterator[Row]:
    """Products of numbers of tiles lie between those of their least and most."""
    family = leaf.family
    used = {axes for value in leaf.values for run in leaf.runs[value] for axes in run.axes}
    used |= {axes for _, axes in family.cutting.values()} | {family.summed[value] for value in leaf.values}
    products = {leaf.count(axes)[0][1:] for axes in used}
    every = {some for axes in products for size in range(1, len(axes) + 1) for some in combinations(axes, size)}
    for axes in sorted(every):
        if len(axes) == 1:
            least, most = leaf.tiles.tiles(axes), leaf.tiles.most_tiles(axes)
            yield at_least("tiles", (*axes, "least"), [(_tiles(axes), 1)], least)
            yield at_least("tiles", (*axes, "most"), [(_tiles(axes), -1)], -most)
        for one, other in combinations(axes, 2):
            first, second = (tuple(axis for axis in axes if axis != gone) for gone in (other, one))
            neither = tuple(axis for axis in first if axis != one)
            # (t - a) (u - b) >= 0, or <= 0 where one of them is at its least and the other at its most.
            for name, a, b, sign in (
                ("least", leaf.tiles.tiles((one,)), leaf.tiles.tiles((other,)), 1),
                ("most", leaf.tiles.most_tiles((one,)), leaf.tiles.most_tiles((other,)), 1),
                ("first least", leaf.tiles.tiles((one,)), leaf.tiles.most_tiles((other,)), -1),
                ("second least", leaf.tiles.most_tiles((one,)), leaf.tiles.tiles((other,)), -1),
            ):
                terms = [(_tiles(axes), 1), (_tiles(first), -b), (_tiles(second), -a), (_tiles(neither), a * b)]
                yield at_least("tiles", (*axes, one, other, name), [(tiles, sign * by) for tiles, by in terms], 0)


def _tiles(axes: tuple[str, ...]) -> Counter:
    return ("tiles", *axes) if axes else ONE
