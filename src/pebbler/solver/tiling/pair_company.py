"""What is touched along with elements that are read before a barrier and updated after it, and takes room in the same caches.

`docs/tiling.md` has the proofs (near both times: company, beside).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from fractions import Fraction
from itertools import product

from pebbler.solver.tiling.element_pairs import Beside, Company
from pebbler.solver.tiling.liveness import Elements, Liveness
from pebbler.solver.tiling.tile_cases import TileCase

__all__ = ["in_company", "touched_beside"]


def in_company(
    elements: Elements, case: TileCase, barrier: Liveness, paired: Collection[int], crossing: Collection[int]
) -> dict[int, Company]:
    """Return values that stay until after a barrier, with the elements that are touched before it only when these are made.

    No value is in two companies, and none has two. `crossing` are the values that are made before the barrier and read after it.
    """
    flow = elements.flow
    found: dict[int, Company] = {}
    for first in sorted(paired, key=lambda one: (-int(flow.value_size[one]), one)):
        tensor = int(flow.value_tensor[first])
        makers = {op for op in elements.readers[first] if op not in barrier.after}
        axes = set(elements.tensor(first).axes or ())
        kept = [
            made
            for made in (elements.op_writes[min(makers)] if len(makers) == 1 else ())
            if made in crossing
            and made not in found
            and made not in elements.vanishing
            and flow.value_size[made]
            and flow.value_size[first] <= flow.value_size[int(flow.final_value[tensor])]
            and set(elements.tensor(made).axes or ()) <= axes
        ]
        if kept:
            made = max(kept, key=lambda value: int(flow.value_size[value]))
            share = Fraction(int(flow.value_size[made]), int(flow.value_size[first]))
            piece = case.largest(elements.tensor(made), elements.kept_whole[min(makers)])
            found[made] = Company(int(flow.value_size[first]), share, piece)
    return found


def touched_beside(
    elements: Elements, case: TileCase, barrier: Liveness, paired: Collection[int], company: Collection[int]
) -> tuple[Beside, Beside]:
    """Return what is touched in the phase before a barrier, and in the one after it, whenever many elements that pair are.

    It is what a piece touches that touches a full tile of the largest value that pairs; each phase has its own ops that do.
    """
    flow = elements.flow
    known = [one for one in paired if flow.value_size[one] <= flow.value_size[flow.final_value[flow.value_tensor[one]]]]
    if not known:
        return Beside(), Beside()
    first = max(known, key=lambda one: (int(flow.value_size[one]), -one))
    early = [op for op in elements.readers[first] if op not in barrier.after]
    late = [op for op in elements.readers[first] if op not in barrier.before or elements.can_rerun(op)]
    total = sum(int(flow.value_size[one]) for one in paired)
    storages = {int(flow.storage[flow.value_tensor[one]]) for one in paired}
    found = []
    for ops in (early, late):
        tensor = elements.tensor(first)
        piece = max(case.largest(tensor, elements.kept_whole[op]) for op in ops)
        unsure = total - min(case.full(tensor)[0], int(flow.value_size[first])) + piece
        every, apart = (
            min(_beside(elements, case, op, first, storages, skipped) for op in ops) for skipped in ((), company)
        )
        found.append(Beside(unsure, every, apart))
    return found[0], found[1]


def _beside(
    elements: Elements, case: TileCase, op: int, value: int, paired: Collection[int], skipped: Iterable[int]
) -> int:
    """Return how many elements a piece of an op touches at the least that do not pair, where it touches a full tile of a value.

    An operand that fusion may remove is touched, or what it is made of is.
    """
    flow, full, left_out = elements.flow, elements.axes[int(elements.flow.value_tensor[value])], set(skipped)

    def touched(one: int, values: Iterable[int]) -> dict[int, int]:
        added = set(elements.graph.ops[one].meta.get("adds", ()))
        found: dict[int, int] = {}
        for other in values:
            tensor, storage = elements.tensor(other), int(flow.storage[flow.value_tensor[other]])
            if tensor.name not in added and storage not in paired and other not in left_out:
                units = case.smallest(tensor, full, elements.whole[one])
                found[storage] = min(units, found.get(storage, units))
        return found

    operands = [*elements.op_reads[op], *elements.op_writes[op]]
    certain = touched(op, (one for one in operands if one not in elements.vanishing))
    ways = []
    for one in elements.op_reads[op]:
        if one in elements.vanishing:
            maker = int(flow.value_maker[one])
            inner = (other for other in elements.op_reads[maker] if other not in elements.vanishing)
            ways.append((touched(op, [one]), touched(maker, inner)))
    least = []
    for chosen in product(*ways):
        together = dict(certain)
        for tiles in chosen:
            for storage, units in tiles.items():
                together[storage] = max(units, together.get(storage, 0))
        least.append(sum(together.values()))
    return min(least)
