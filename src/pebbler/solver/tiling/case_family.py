"""What cases of tilings have in common that agree on which axes are cut: dependences, readers, products and barriers."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cached_property

import numpy as np

from pebbler.game.dataflow import NONE
from pebbler.solver.problem import Problem
from pebbler.solver.tiling.capacity_lp import CapacityLP
from pebbler.solver.tiling.element_prices import ElementPrices
from pebbler.solver.tiling.liveness import Axes, Elements, Liveness
from pebbler.solver.tiling.tile_products import tile_products

__all__ = ["CaseFamily"]

_MOST_BARRIERS = 24  # those for which a linear program is solved
_MOST_OPS = 20_000
_FEW_VALUES = 48


class CaseFamily:
    """What the cases have in common that agree on which axes are cut, may be cut, or are whole."""

    def __init__(self, problem: Problem, prices: ElementPrices, program: CapacityLP, may_cut: Axes, cut: Axes) -> None:
        self.problem, self.prices, self.program = problem, prices, program
        self.tried: list[int] | None = None  # where there are many values: the barriers worth a look
        self.seconds_left: Callable[[], float] = lambda: math.inf
        self.elements = Elements(problem.graph, may_cut, cut)
        self.flow = self.elements.flow
        self.costs = math.fsum(self.flow.op_cost.tolist())  # every op runs at least once, in however many pieces
        values = range(self.flow.values)
        self.reads = [self.elements.reads(value) for value in values]
        self.reads_apart = [
            [self.elements.shared(op, value) for op in self.elements.readers[value]] for value in values
        ]
        self.products = list(tile_products(self.elements)) if problem.machine.line == 1 else []
        self.summed = [self.elements.summed(value) for value in values]
        self.cutting = {group: self.elements.cutting(group) for group in set(self.elements.group)}
        # What shares a storage is found where that was touched before.
        tensors, same = problem.graph.tensors, self.flow.storage[self.flow.value_tensor]
        self.mates = [[tensors[k] for k in np.flatnonzero(self.flow.storage == same[value])] for value in values]

    @cached_property
    def barriers(self) -> list[Liveness]:
        """The barriers across which most must live, by size."""
        flow = self.flow
        made = [value for value in range(flow.values) if flow.value_maker[value] != NONE]
        if flow.ops > _MOST_OPS:
            return []
        if self.tried is not None and flow.values > _FEW_VALUES:
            made = self.tried
        step = max(1, len(made) * flow.ops // 2_000_000)
        found: list[tuple[int, Liveness]] = []
        for number, value in enumerate(made[::step]):
            if number and self.seconds_left() <= 0:  # with fewer barriers less is proven, and nothing wrong
                break
            one = Liveness(self.elements, value)
            found += [(one.alive, one)] if one.after else []
        found.sort(key=lambda pair: (-pair[0], pair[1].value))
        return [one for _, one in found[:_MOST_BARRIERS]]

    def stated(self, least: Fraction) -> float:
        """Return a bound as a number no larger than it; the next whole number where every plan costs one."""
        least = max(least, Fraction())
        if self.program.whole_prices and self.costs == 0:  # pieces of an op cost fractions of it
            return float(math.ceil(least))
        return math.nextafter(float(least) + self.costs, 0.0) if least or self.costs else 0.0
