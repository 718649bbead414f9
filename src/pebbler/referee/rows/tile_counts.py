"""The number of tiles.

A form cuts an axis into t tiles, and an op into as many pieces as the product of the t of its axes. Rows that speak of pieces,
and of reads by all pieces, have such products as counters (`tiles` of some axes), so that they hold for every tiling of a range
at once. If each t is between `least` and `most`, then t - least and most - t are not negative, nor are products of such factors,
one for each axis, nor these times the t of other axes. Multiplied out they are rows over products of all these axes, of some of
them, and of none. With a factor for every axis nothing more can be said: only mixtures of the corners of the range are left.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations, product

from pebbler.referee.rows.leaf import Leaf
from pebbler.referee.rows.row import ONE, Counter, Row, at_least

__all__ = ["tile_counts"]

_MOST_FACTORS = 4  # axes that have one each; of more axes two at a time


def tile_counts(leaf: Leaf) -> Iterator[Row]:
    """Products of numbers of tiles lie between those of their least and most."""
    family = leaf.family
    used = {axes for value in leaf.values for run in leaf.runs[value] for axes in run.axes}
    used |= {axes for _, axes in family.cutting.values()} | {family.summed[value] for value in leaf.values}
    products = {leaf.count(axes)[0][1:] for axes in used}
    every = {some for axes in products for size in range(1, len(axes) + 1) for some in combinations(axes, size)}
    for axes in sorted(every):
        yield from _rows(axes, tuple((leaf.tiles.tiles((axis,)), leaf.tiles.most_tiles((axis,))) for axis in axes))


@lru_cache(maxsize=1 << 14)
def _rows(axes: tuple[str, ...], numbers: tuple[tuple[int, int], ...]) -> list[Row]:
    """Return the rows over products of some axes, of which the least and the most number of tiles are given."""
    factors = [(("least", 1, -least), ("most", -1, most)) for least, most in numbers]
    size, found = len(axes) if len(axes) <= _MOST_FACTORS else 2, []
    for chosen in combinations(range(len(axes)), size):
        for ends in product(*(factors[at] for at in chosen)):
            # Multiplied out: the axes of each product, by their places, and its factor.
            terms = {tuple(at for at in range(len(axes)) if at not in chosen): 1}
            for at, (_, sign, number) in zip(chosen, ends, strict=True):
                longer = {tuple(sorted((*some, at))): sign * factor for some, factor in terms.items()}
                terms = {some: number * factor for some, factor in terms.items()} | longer
            of = (*axes, *(word for at, (end, *_) in zip(chosen, ends, strict=True) for word in (axes[at], end)))
            listed = [(_tiles(tuple(axes[at] for at in some)), factor) for some, factor in terms.items()]
            found.append(at_least("tiles", of, listed, 0))
    return found


def _tiles(axes: tuple[str, ...]) -> Counter:
    return ("tiles", *axes) if axes else ONE
