"""Splits boxes of tilings where their bounds are weakest, thousands at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from pebbler.arrays import Floats
from pebbler.solver.problem import Problem
from pebbler.solver.tiling.box_floor import BoxFloor
from pebbler.solver.tiling.box_touches import Boxes
from pebbler.solver.tiling.capacity_lp import CapacityLP
from pebbler.solver.tiling.case_family import CaseFamily
from pebbler.solver.tiling.element_prices import ElementPrices
from pebbler.solver.tiling.liveness import Axes
from pebbler.solver.tiling.tile_cases import TileCase

__all__ = ["BOX_PROOF", "BoxSearch"]

BOX_PROOF = "every tiling: what pieces of each size touch, and how much of that levels hold, box by box"

_MOST_AXES = 7  # with more there are too many sets of axes that may be cut
_MOST_OPS = 400
_FACTORS, _FIRST = (2.0, 4.0, 16.0), 40_000  # how wide ranges are to begin with, so that there are no more than this
_AT_ONCE = 800  # boxes that are split together


@dataclass
class _BoxSet:
    """The boxes of one set of cut axes, with their bounds."""

    floor: BoxFloor
    boxes: Boxes
    bounds: Floats


class BoxSearch:
    """Boxes that together leave no tiling out."""

    def __init__(
        self, problem: Problem, prices: ElementPrices, program: CapacityLP, sizes: Mapping[str, int] | None = None
    ) -> None:
        self.problem, self.prices, self.program, self.sizes = problem, prices, program, sizes
        self.case = TileCase.all_of(problem.graph)
        self.parts: list[_BoxSet] = []
        few = len(self.case.ranges) <= _MOST_AXES and len(problem.graph.ops) <= _MOST_OPS
        self.possible = few and len(program.found_within[0]) > 1

    def run(self, work: int, seconds_left: Callable[[], float]) -> float:
        """Return the bound of the weakest box once so many boxes have been looked at, or no seconds are left; 0 without any."""
        if not self.possible or (not self.parts and not self._begin(seconds_left)):
            return 0.0
        looked_at = 0
        while looked_at < work and seconds_left() > 0:
            every = np.concatenate([part.bounds for part in self.parts])
            cut_off = np.partition(every, min(_AT_ONCE, len(every)) - 1)[min(_AT_ONCE, len(every)) - 1]
            weakest, split = every.min(), 0
            for part in self.parts:
                split += self._split(part, cut_off)
            looked_at += max(1, split)
            if split == 0 or (min(part.bounds.min() for part in self.parts) == weakest and self._stuck(weakest)):
                break
        return float(min(part.bounds.min() for part in self.parts))

    def _begin(self, seconds_left: Callable[[], float]) -> bool:
        """Make the box of all sizes for every set of cut axes; return whether there was time for that."""
        if self.sizes is not None:
            case = TileCase.of_sizes(self.problem.graph, self.sizes)
            floor = self._floor(case.cut)
            tiles = np.array([[case.ranges[axis].least for axis in floor.axes]], np.int64)
            self.parts = [_BoxSet(floor, Boxes(tiles, tiles), floor.bounds(Boxes(tiles, tiles)))]
            return True
        factor = next((one for one in _FACTORS if self._count(one) <= _FIRST), math.inf)
        parts: list[_BoxSet] = []
        for count in range(len(self.case.ranges) + 1):
            for cut in combinations(sorted(self.case.ranges), count):
                if parts and seconds_left() <= 0:
                    return False
                floor = self._floor(frozenset(cut))
                boxes = floor.grid(factor)
                parts.append(_BoxSet(floor, boxes, floor.bounds(boxes)))
        self.parts = parts
        return True

    def _floor(self, cut: Axes) -> BoxFloor:
        """Return what bounds the boxes in which just these axes are cut."""
        family = CaseFamily(self.problem, self.prices, self.program, cut | frozenset(self.case.loose), cut)
        family.loose = dict(self.case.loose)
        return BoxFloor(family, {axis: one.extent for axis, one in self.case.ranges.items()})

    def _count(self, factor: float) -> float:
        """Return how many boxes there are to begin with, about."""
        return math.prod(2 + math.log(one.extent, factor) for one in self.case.ranges.values())

    def _split(self, part: _BoxSet, cut_off: float) -> int:
        """Split the boxes of a part that are no better than a bound; return how many new ones there are."""
        weak = part.bounds <= cut_off
        weak &= (part.boxes.most > part.boxes.least).any(axis=1)
        if not weak.any():
            return 0
        halves = Boxes(part.boxes.least[weak], part.boxes.most[weak]).split()
        # What holds for a box holds for its halves.
        bounds = np.maximum(part.floor.bounds(halves), np.tile(part.bounds[weak], 2))
        part.boxes = Boxes(
            np.concatenate([part.boxes.least[~weak], halves.least]),
            np.concatenate([part.boxes.most[~weak], halves.most]),
        )
        part.bounds = np.concatenate([part.bounds[~weak], bounds])
        return len(halves)

    def _stuck(self, weakest: float) -> bool:
        """Whether a box of one size is the weakest: then nothing more can be gained."""
        return any(
            bool(((part.bounds <= weakest) & (part.boxes.most == part.boxes.least).all(axis=1)).any())
            for part in self.parts
        )
