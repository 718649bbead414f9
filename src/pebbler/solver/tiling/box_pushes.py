"""On caches: what a large piece pushes out comes between a value and its reader, or has to be read again to make the value late.

`docs/tiling.md` has the proof (what is pushed out between two pieces).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pebbler.arrays import Floats
from pebbler.game.dataflow import NONE
from pebbler.solver.tiling.box_touches import BoxTouches
from pebbler.solver.tiling.case_family import CaseFamily
from pebbler.solver.tiling.liveness import Axes

__all__ = ["PushedPair", "pushed_pairs"]


class PushedPair(NamedTuple):
    """An op, a value that it alone reads, each element in one piece, and an operand of the op that makes the value."""

    op: int
    group: int
    value: int
    beside: int
    across: Axes  # axes along which a piece of the op takes all tiles of the value

    def worth(self, touches: BoxTouches, room: int, step: float, weight: Floats) -> tuple[Floats, Floats]:
        """Return what reads from outside of `room` cost: of the value at no more than `weight` each, of the operand at `step`.

        The second result is that price.
        """
        family, elements = touches.family, touches.elements
        axes, own = (elements.axes[int(family.flow.value_tensor[one])] for one in (self.beside, self.value))
        tile = touches.least_part(self.value, own - self.across)
        other = touches.least_part(self.beside, (axes & own) - self.across) * touches.whole_part(
            self.beside, axes - own
        )
        price = np.minimum(weight, step * other / tile)
        left = np.maximum(
            0.0, room - self._touched(touches)
        )  # what is still there after a piece of the op, besides its own
        indices = float(
            np.prod([extent for axis, extent in elements.tensor(self.value).axes or () if axis in self.across])
        )
        far = np.maximum(0.0, indices - left / np.minimum(tile, other))
        pieces = np.maximum(0.0, touches.full_pieces(elements.op_axes[self.op] - elements.whole[self.op]) - 1)
        made = family.flow.value_maker[self.beside] != NONE
        once = step * float(family.flow.value_size[self.beside]) if made else 0.0  # it may have been made in between
        return np.maximum(0.0, pieces * far * price * tile - once), price

    def _touched(self, touches: BoxTouches) -> Floats:
        """Return how much a piece of full size touches at least."""
        elements, flow = touches.elements, touches.family.flow
        found: dict[int, Floats] = {}
        for value in (*elements.op_reads[self.op], *elements.op_writes[self.op]):
            if elements.added_once(self.op, value):
                continue  # the piece that begins the sum reads it, and no other
            axes = elements.axes[int(flow.value_tensor[value])] - elements.whole[self.op]
            part = touches.least_part(value, axes) * touches.whole_part(value, elements.whole[self.op])
            storage = int(flow.storage[flow.value_tensor[value]])
            found[storage] = np.minimum(part, found.get(storage, part))
        return np.asarray(sum(found.values(), touches.zero))


def pushed_pairs(family: CaseFamily) -> list[PushedPair]:
    """Return pairs of which no value and no operand is in two, those with operands that are read most often first."""
    if not family.program.caches:
        return []
    found: list[PushedPair] = []
    for pair in sorted(_candidates(family), key=lambda one: (-_reads(family, one), one.op, one.beside)):
        if all(pair.value != one.value and pair.beside != one.beside for one in found):
            found.append(pair)
    return found


def _reads(family: CaseFamily, pair: PushedPair) -> int:
    """Return how many elements of the operand are read where every index of the op's axes is a piece of its own."""
    elements, flow = family.elements, family.flow
    extents = dict(elements.tensor(pair.value).axes or ())
    axes = elements.op_axes[pair.op] - elements.axes[int(flow.value_tensor[pair.beside])]
    return int(flow.value_size[pair.beside]) * math.prod(extents.get(axis, 1) for axis in axes)


def _candidates(family: CaseFamily) -> Iterator[PushedPair]:
    elements, flow = family.elements, family.flow
    for value in range(flow.values):
        readers, maker = elements.readers[value], int(flow.value_maker[value])
        if len(readers) != 1 or maker == NONE or not _plain(family, value) or elements.whole[maker]:
            continue
        op = readers[0]
        if not (_alone(family, op) and _alone(family, maker)) or elements.shared(op, value) & elements.cut:
            continue
        touched = {
            int(flow.storage[flow.value_tensor[one]]) for one in (*elements.op_reads[op], *elements.op_writes[op])
        }
        tensors = [elements.tensor(one) for one in (*elements.op_reads[op], *elements.op_writes[op])]
        added = (*elements.graph.ops[maker].meta.get("adds", ()), *elements.graph.ops[op].meta.get("adds", ()))
        across = elements.whole[op] & elements.axes[int(flow.value_tensor[value])] & elements.cut
        for beside in dict.fromkeys(elements.op_reads[maker]):
            tensor, made = int(flow.value_tensor[beside]), int(flow.value_maker[beside])
            if (
                _plain(family, beside)
                and beside != value
                and not {elements.tensor(one).name for one in (beside, value)} & set(added)
                and all(one.axes is not None for one in tensors)
                and int(flow.storage[tensor]) not in touched
                and across <= elements.axes[tensor]
                and (made == NONE or not elements.can_rerun(made))
            ):
                yield PushedPair(op, elements.group[op], value, beside, across)


def _plain(family: CaseFamily, value: int) -> bool:
    """Whether a value has axes and a storage of its own, and is there in every tiling."""
    tensor = family.elements.tensor(value)
    loose = any(axis in family.loose for axis, _ in tensor.axes or ())
    return bool(tensor.axes) and not loose and len(family.mates[value]) == 1 and value not in family.elements.vanishing


def _alone(family: CaseFamily, op: int) -> bool:
    """Whether an op is fused with no other in any tiling."""
    return family.elements.loose_group.count(family.elements.loose_group[op]) == 1
