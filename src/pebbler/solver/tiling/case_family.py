"""What cases of tilings have in common that agree on which axes are cut: dependences, readers, products and barriers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from functools import cached_property

import numpy as np

from pebbler.game.dataflow import NONE
from pebbler.solver.problem import Problem
from pebbler.solver.tiling.capacity_lp import CapacityLP
from pebbler.solver.tiling.element_prices import CachePrices, ElementPrices
from pebbler.solver.tiling.last_touches import LastTouches
from pebbler.solver.tiling.liveness import Axes, Elements, Liveness
from pebbler.solver.tiling.piece_rows import PieceRows
from pebbler.solver.tiling.tile_products import product_families

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
        self.loose: dict[str, int] = {}  # axes of several extents, and the largest, where boxes need them
        self.elements = Elements(problem.graph, may_cut, cut)
        self.flow = self.elements.flow
        self.costs = math.fsum(self.flow.op_cost.tolist())  # every op runs at least once, in however many pieces
        values = range(self.flow.values)
        self.reads = [self.elements.reads(value) for value in values]
        self.reads_apart = [
            [self.elements.shared(op, value) for op in self.elements.readers[value]] for value in values
        ]
        self.reader_count = Counter(
            (value, self.elements.group[op]) for value in values for op in self.elements.readers[value]
        )
        self.products = product_families(self.elements)
        self.summed = [self.elements.summed(value) for value in values]
        self.added = {  # values and groups of ops of which only the first piece of a sum reads them
            (value, self.elements.group[op])
            for value in values
            for op in self.elements.readers[value]
            if self.elements.added_once(op, value)
        }
        self.cutting = {group: self.elements.cutting(group) for group in set(self.elements.group)}
        # What shares a storage is found where that was touched before.
        tensors, same = problem.graph.tensors, self.flow.storage[self.flow.value_tensor]
        self.mates = [[tensors[k] for k in np.flatnonzero(self.flow.storage == same[value])] for value in values]
        made_alone = (
            value for value in values if self.flow.value_maker[value] != NONE and (same == same[value]).sum() == 1
        )
        self.written_apart = set(made_alone) if program.results_apart else set()
        # What an op reads is there beside what it writes, unless it overwrites that by something smaller.
        shrinking = {self.elements.group[op] for op in range(self.flow.ops) if self._shrinks(op)}
        self.written_apart -= {
            value for value in self.written_apart if self.elements.group[int(self.flow.value_maker[value])] in shrinking
        }
        self.last_touches = LastTouches(problem, self.elements, prices) if isinstance(prices, CachePrices) else None
        self.rows = PieceRows(self.elements) if program.caches and problem.machine.line == 1 else None
        self.lasting = self._lasting_tensors()
        # What arrives anew in every step is read from afar once, whatever prices are raised.
        starts = self.flow.start_value[self.flow.start_value != NONE].tolist() if not program.caches else []
        self.cold = {value for value in starts if int(self.flow.value_tensor[value]) not in self.lasting}
        self.lasting_beside = {
            group: [tensor for tensor, touching in self.lasting.items() if group not in touching]
            for group in self.cutting
        }

    @cached_property
    def touching(self) -> list[set[int]]:
        """Per tensor: the groups of ops that touch what shares its storage."""
        found: dict[int, set[int]] = {}
        for op, group in enumerate(self.elements.group):
            for value in (*self.elements.op_reads[op], *self.elements.op_writes[op]):
                found.setdefault(int(self.flow.storage[self.flow.value_tensor[value]]), set()).add(group)
        return [found.get(int(storage), set()) for storage in self.flow.storage]

    def _shrinks(self, op: int) -> bool:
        """Whether an op overwrites something that it reads by something smaller."""
        flow, storage = self.flow, self.flow.storage[self.flow.value_tensor]
        written = {int(storage[made]): int(flow.value_size[made]) for made in self.elements.op_writes[op]}
        return any(
            written.get(int(storage[read]), int(flow.value_size[read])) < flow.value_size[read]
            for read in self.elements.op_reads[op]
        )

    def _lasting_tensors(self) -> dict[int, set[int]]:
        """Return the tensors of which some version exists at every moment of the step, and the groups of ops that touch them.

        Explicit machines only: on caches nothing chooses what stays.
        """
        problem, flow, elements = self.problem, self.flow, self.elements
        found: dict[int, set[int]] = {}
        if problem.machine.management != "explicit" or not problem.steady:
            return found
        for tensor, one in enumerate(problem.graph.tensors):
            first, last = int(flow.start_value[tensor]), int(flow.final_value[tensor])
            if one.kind != "param" or first == NONE or int((flow.storage == flow.storage[tensor]).sum()) > 1:
                continue
            update = int(flow.value_destroyer[first])
            touching = {*elements.readers[first], *elements.readers[last]}
            if update != NONE:
                # It reads what it overwrites, so one version or the other is there, and neither can be made again.
                in_place = first in elements.op_reads[update] and last in elements.op_writes[update]
                if not in_place or flow.op_can_rerun[update]:
                    continue
                touching.add(update)
            found[tensor] = {elements.group[op] for op in touching}
        return found

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
