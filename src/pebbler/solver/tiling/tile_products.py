"""Products among the ops of a graph that can be tiled, and how often their pieces must read from outside of the fast levels.

An op multiplies when each of its axes is in two of three tensors: two that it reads and that nobody makes, and the one it writes.
Whatever its pieces are, so many points of the box of its axes cannot be worked off from few elements; `docs/products.md` has the
proof for pieces.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from pebbler.game.dataflow import NONE
from pebbler.solver.tiling.liveness import Elements
from pebbler.solver.tiling.tile_cases import TileCase

__all__ = ["TileProduct", "largest_piece", "tile_products"]

_LENGTHS = (2.0, 1.0, 0.5, 0.25)  # of a segment, as multiples of the room


@dataclass(frozen=True)
class TileProduct:
    """An op that multiplies: the two values it reads, the one it makes, and how many points its axes have together."""

    op: int
    values: tuple[int, int, int]
    points: int
    sums: int  # elements of the value it makes

    def outside_reads(self, room: int, largest_piece: int) -> int:
        """Return how many reads of the three values, by ops and copies together, are from outside of `room` at least.

        No piece touches more than `largest_piece` of their elements.

        >>> TileProduct(0, (0, 1, 2), 32 * 1000 * 20, 32 * 1000).outside_reads(64, 72) > 100_000
        True
        """
        best = 0.0
        for share in _LENGTHS:
            length = max(1, int(share * room))
            ends = (length, length + max(0, largest_piece - 1))
            # Entries per point rise with the length of a segment up to 2 * room, then fall: they are fewest at one end.
            rate = min(end / _most_points(room + end) for end in ends)
            best = max(best, rate * (self.points - _most_points(room + length)))
        return max(0, math.floor(best * (1 - 1e-9)) - self.sums)


def _most_points(elements: int) -> float:
    """Return how many points so many elements of three sides have at most, as real numbers."""
    return float((elements / 3) ** 1.5 * (1 + 1e-12))


def tile_products(elements: Elements) -> Iterator[TileProduct]:
    """Yield the ops that multiply two values that nobody makes, whatever is cut and fused."""
    graph, flow = elements.graph, elements.flow
    for op in range(flow.ops):
        if len(elements.op_writes[op]) != 1 or elements.op_writes[op][0] in elements.vanishing:
            continue
        made = elements.op_writes[op][0]
        storage = flow.storage[flow.value_tensor[made]]
        if any(flow.storage[flow.value_tensor[read]] == storage for read in elements.op_reads[op]):
            continue  # an update in place
        added = graph.ops[op].meta.get("adds", ())
        given = [
            read
            for read in dict.fromkeys(elements.op_reads[op])
            if flow.value_maker[read] == NONE and elements.tensor(read).name not in added
        ]
        axes = elements.op_axes[op]
        for left, right in combinations(given, 2):
            sides = [dict(elements.tensor(value).axes or ()) for value in (left, right, made)]
            found = [[side[axis] for side in sides if axis in side] for axis in sorted(axes)]
            if all(len(one) > 1 and len(set(one)) == 1 for one in found):
                points = math.prod(one[0] for one in found)
                yield TileProduct(op, (left, right, made), points, int(flow.value_size[made]))
                break


def largest_piece(product: TileProduct, elements: Elements, case: TileCase) -> int:
    """Return how many elements of the three values one piece touches at most."""
    return sum(case.largest(elements.tensor(value), elements.kept_whole[product.op]) for value in product.values)
