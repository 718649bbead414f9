"""The elements of a value, told apart by the size of the tiles that they are in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pebbler.solver.tiling.case_family import CaseFamily
from pebbler.solver.tiling.element_prices import ElementPrices
from pebbler.solver.tiling.last_touches import ReadFloor
from pebbler.solver.tiling.liveness import Axes
from pebbler.solver.tiling.tile_cases import TileCase

__all__ = ["TilePart", "read_floors", "tile_parts"]


class TilePart(NamedTuple):
    """Elements of a value that are in tiles of full size along some axes, with the prices of tiles that large."""

    number: int
    prices: ElementPrices
    full: Axes


def tile_parts(family: CaseFamily, case: TileCase, value: int) -> list[TilePart]:
    """Return how many elements of a value are in tiles of which size at least, with what each costs."""
    tensor, mates = family.elements.tensor(value), family.mates[value]
    parts = [
        TilePart(number, family.prices.of_tile(min(case.smallest(mate, axes) for mate in mates)), axes)
        for number, axes in (case.parts(tensor) if tensor.size else ())
    ]
    return parts[:1] + _merged(parts[1:])  # what comes with tiles of full size is worth telling apart


def _merged(parts: Iterable[TilePart]) -> list[TilePart]:
    """Return the parts with those that cost the same as one, along the axes that are full in all of them."""
    found: dict[int, TilePart] = {}
    for part in parts:
        known = found.get(id(part.prices))
        if known is not None:
            part = TilePart(known.number + part.number, part.prices, known.full & part.full)
        found[id(part.prices)] = part
    return list(found.values())


def read_floors(found: Iterable[tuple[TilePart, Iterable[ReadFloor]]]) -> list[tuple[int, int, float]]:
    """Return how many elements are read how often, at which least price."""
    return [
        (part.number, one.count, max(one.price, part.prices.cheapest_read)) for part, reads in found for one in reads
    ]
