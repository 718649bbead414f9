"""What the reads of an element are counted at in a case of tilings, at the least."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pebbler.game.dataflow import NONE
from pebbler.solver.tiling.case_family import CaseFamily
from pebbler.solver.tiling.element_prices import Reads
from pebbler.solver.tiling.last_touches import ReadFloor
from pebbler.solver.tiling.liveness import Axes, Readers
from pebbler.solver.tiling.tile_cases import TileCase

__all__ = ["CaseReads"]


@dataclass(frozen=True)
class CaseReads:
    """How often elements are read in a case, and for how much: by how deep they lie on caches, or by raised prices."""

    family: CaseFamily
    case: TileCase
    least_price: Mapping[int, float] = field(default_factory=dict)  # per group of ops that reads
    least_of_value: Mapping[int, float] = field(default_factory=dict)

    def writes(self, value: int) -> int:
        """Return how often an element of a value is written at least: a sum by every piece of it."""
        made = self.family.flow.value_maker[value] != NONE
        return self.case.tiles(self.family.summed[value]) if made else 0

    def of(self, value: int, readers: Readers, *, full: Axes) -> Reads:
        """Return the reads of an element by groups of ops; it is in a tile of full size along the axes `full`."""
        return Reads(
            tuple(
                (one.count, max(one.price, self._counted_at(value, group)))
                for group, axes in readers.items()
                for one in self.by(value, group, axes, full=full)
            )
        )

    def by(self, value: int, group: int, readers: set[Axes], *, full: Axes) -> list[ReadFloor]:
        """Return the reads of an element by one group of ops, before any price is raised.

        They are as many as those of the op among them that reads it most.
        """
        number = max(self.case.tiles(axes) for axes in readers)
        if self.family.last_touches is None:
            return [ReadFloor(number, 0.0)]
        pieces = self.full_pieces(value, group, readers)
        return self.family.last_touches.floors(self.case, value, group, number, pieces, full=full)

    def full_pieces(self, value: int, group: int, readers: set[Axes]) -> int:
        """Return how many of the reads of an element in full tiles are by pieces of full size, at least."""
        if (value, group) in self.family.added:
            return 0
        return min(self.case.full_tiles(axes) for axes in readers)

    def adding_by(self, value: int, *, full: Axes) -> list[ReadFloor]:
        """Return the reads of a sum by the pieces that go on with it, before any price is raised."""
        number = self.writes(value) - 1
        if self.family.last_touches is None or number < 1:
            return [ReadFloor(number, 0.0)] if number > 0 else []
        pieces = self.case.full_tiles(self.family.summed[value]) - 1
        return self.family.last_touches.floors(self.case, value, None, number, pieces, full=full)

    def adding(self, value: int, *, full: Axes) -> Reads:
        """Return the reads of a sum by the pieces that go on with it; on caches with what is written back in between."""
        if self.writes(value) <= 1:
            return Reads()
        least = self._counted_at(value, self.family.elements.group[int(self.family.flow.value_maker[value])])
        found = self.adding_by(value, full=full)
        return Reads(tuple((one.count, max(one.price, least) + one.written_back) for one in found))

    def _counted_at(self, value: int, group: int) -> float:
        """Return the least price that reads of a value by a group of ops are counted at."""
        return self.least_of_value.get(value, self.least_price.get(group, 0.0))
