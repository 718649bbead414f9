"""Reads that products need.

Pieces of a product work off points of a box; few elements of three sides have few points in common (Loomis and Whitney). So the
pieces of a family of products read at least D elements of their values from outside of a room, however they are ordered
(`tile_products`, proof in docs/products.md). Reads by all runs count, and copies; of sums those by the ops that add them up.
"""

from __future__ import annotations

from collections.abc import Iterator

from pebbler.referee.rows.leaf import Leaf
from pebbler.referee.rows.row import Row, at_least
from pebbler.referee.rows.tile_products import largest_piece

__all__ = ["product_reads"]


def product_reads(leaf: Leaf) -> Iterator[Row]:
    """A family of products reads so much from outside of the levels up to a tier."""
    family = leaf.family
    if not family.task.caches and family.task.machine.operands == "fastest":
        return
    for number, (products, touched) in enumerate(zip(family.products, family.touched_together, strict=True)):
        piece = largest_piece(touched, family.elements, leaf.tiles)
        values = [value for value in sorted(products.values) if value in leaf.parts]
        for tier in range(len(leaf.tiers) - 1):
            least = products.outside_reads(leaf.tier_room(tier), piece)
            if least > 0:
                far = [leaf.far_reads(value, tier, value in products.operands) for value in values]
                yield at_least("products", (number, tier), [(counter, 1) for one in far for counter in one], least)
