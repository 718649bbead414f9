"""The common properties of tiling ranges with the same cut axes: dependences, readers, products and moments."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

import numpy as np

from pebbler.game.dataflow import NONE
from pebbler.referee.rows.elements import Axes, Elements, Liveness
from pebbler.referee.rows.last_touches import LastTouches
from pebbler.referee.rows.piece_rows import PieceRows
from pebbler.referee.rows.sums_wait import WaitingSum, waiting_sums
from pebbler.referee.rows.task import Task
from pebbler.referee.rows.tile_products import ProductFamily, product_families

__all__ = ["Family"]

_MOST_MOMENTS = 24
_MOST_OPS = 20_000
_FEW_VALUES = 48


class Family:
    """Facts shared by all ranges that agree on the axes that are cut, may be cut, or are whole."""

    def __init__(self, task: Task, may_cut: Axes, cut: Axes) -> None:
        self.task = task
        self.elements = Elements(task.graph, may_cut, cut)
        self.flow = self.elements.flow
        self.seconds_left: Callable[[], float] = lambda: math.inf
        self._moments: dict[int, Liveness] = {}
        self._sums: dict[int, list[WaitingSum]] = {}
        values = range(self.flow.values)
        self.reads = [self.elements.reads(value) for value in values]
        self.reads_apart = [
            [self.elements.may_share(op, value) for op in self.elements.readers[value]] for value in values
        ]
        self.summed = [self.elements.summed(value) for value in values]
        self.added = {  # values and groups of ops of which only the first piece of a sum reads them
            (value, self.elements.group[op])
            for value in values
            for op in self.elements.readers[value]
            if self.elements.added_once(op, value)
        }
        self.cutting = {group: self.elements.cutting(group) for group in dict.fromkeys(self.elements.group)}
        # What shares a storage is found where that was touched before.
        self.storage = [int(self.flow.storage[tensor]) for tensor in self.flow.value_tensor]
        self.mates = [
            [task.graph.tensors[k] for k in np.flatnonzero(self.flow.storage == self.storage[value])]
            for value in values
        ]

    @cached_property
    def last_touches(self) -> LastTouches:
        """Possible last touches of every value before each reader, on caches."""
        return LastTouches(self.task, self.elements, self.task.reach)

    @cached_property
    def piece_rows(self) -> PieceRows | None:
        """Reuse between consecutive pieces, on caches with lines of one unit."""
        return PieceRows(self.elements) if self.task.caches and self.task.machine.line == 1 else None

    @cached_property
    def products(self) -> list[ProductFamily]:
        """The products among the ops, those that are bounded together in one family."""
        return product_families(self.elements)

    @cached_property
    def touched_together(self) -> list[list[list[tuple[int, int]]]]:
        """Per family of products: the values that one piece may touch together."""
        return [products.touched_together(self.elements) for products in self.products]

    @cached_property
    def touching(self) -> list[set[int]]:
        """Per tensor: the groups of ops that touch its storage."""
        found: dict[int, set[int]] = {}
        for op, group in enumerate(self.elements.group):
            for value in (*self.elements.op_reads[op], *self.elements.op_writes[op]):
                found.setdefault(self.storage[value], set()).add(group)
        return [found.get(int(storage), set()) for storage in self.flow.storage]

    @cached_property
    def written_apart(self) -> set[int]:
        """On explicit machines: made values that are there beside all that their op reads, in a storage of their own."""
        machine = self.task.machine
        if self.task.caches or machine.operands != "any" or machine.results != "apart":
            return set()
        # What an op reads is there beside what it writes, unless it overwrites that by something smaller.
        shrinking = {self.elements.group[op] for op in range(self.flow.ops) if self._shrinks(op)}
        return {
            value
            for value in range(self.flow.values)
            if (maker := int(self.flow.value_maker[value])) != NONE
            and self.storage.count(self.storage[value]) == 1
            and self.elements.group[maker] not in shrinking
        }

    def _shrinks(self, op: int) -> bool:
        """Whether an op overwrites something that it reads by something smaller."""
        size = self.flow.value_size
        written = {self.storage[made]: int(size[made]) for made in self.elements.op_writes[op]}
        return any(written.get(self.storage[read], int(size[read])) < size[read] for read in self.elements.op_reads[op])

    @cached_property
    def lasting(self) -> dict[int, set[int]]:
        """On explicit machines: tensors of which some version exists at every moment of a steady step, with the groups that
        touch them.
        """
        flow, elements, found = self.flow, self.elements, {}
        if self.task.caches or not self.task.steady:
            return {}
        for tensor, one in enumerate(self.task.graph.tensors):
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

    def moment(self, value: int) -> Liveness:
        """Return the moment when all of a value has been made."""
        if value not in self._moments:
            self._moments[value] = Liveness(self.elements, value)
        return self._moments[value]

    def waiting_sums(self, moment: Liveness) -> list[WaitingSum]:
        """Return the sums that wait for their last terms at a moment."""
        if moment.value not in self._sums:
            alone = {value for value in range(self.flow.values) if self.storage.count(self.storage[value]) == 1}
            self._sums[moment.value] = list(waiting_sums(moment, alone))
        return self._sums[moment.value]

    def moments(self, tried: list[int] | None = None) -> list[Liveness]:
        """Return the moments across which most must live, by size; in large graphs only those of values that may be named."""
        flow = self.flow
        made = [value for value in range(flow.values) if flow.value_maker[value] != NONE]
        if flow.ops > _MOST_OPS:
            return []
        if tried is not None and flow.values > _FEW_VALUES:
            made = tried
        step = max(1, len(made) * flow.ops // 2_000_000)
        found: list[tuple[int, Liveness]] = []
        for number, value in enumerate(made[::step]):
            if number and self.seconds_left() <= 0:  # with fewer moments less is proven, and nothing wrong
                break
            one = self.moment(value)
            found += [(one.alive, one)] if one.after else []
        found.sort(key=lambda pair: (-pair[0], pair[1].value))
        # Of several with the same ops on each side the last: where more is known of what is cut, more comes before it.
        apart = {
            (frozenset(one.before), frozenset(one.after)): one for _, one in sorted(found, key=lambda p: p[1].value)
        }
        return sorted(apart.values(), key=lambda one: (-one.alive, one.value))[:_MOST_MOMENTS]
