"""The reads of recomputation.

An element that is made again needs a later run of a piece of its op, which reads at least size(operand) / size(result) elements
of each operand per element. Indices of an axis that the operand lacks share a read only within a tile, so at most `most` of them
do. One run may make several values again and read an operand once for all of them: each of these values is given an equal share
of the read. Where the result is in a tile of full size, so are its operands along the axes that both have, unless the op needs
these whole. Of what such a piece reads, at most the room is near, which the elements of its result share. Of an operand
that has all axes of the result it reads no more than those size(operand) / size(result) elements for each. An op that is never
fused and makes one value reads its operands for that value only.

A sum that is complete is not made again. Until then the pieces that begin it may run again; each reads its own tile of what is
summed.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from pebbler.referee.rows.elements import Axes, Elements
from pebbler.referee.rows.leaf import Leaf
from pebbler.referee.rows.row import Counter, Number, Row, at_least, at_most

__all__ = ["made_again"]

Operands = list[tuple[int, Fraction, Axes]]


def made_again(leaf: Leaf) -> Iterator[Row]:
    """Recomputing an element reads so many elements of its operands, of which at most so many are near."""
    for value, operands in leaf.remade.items():
        for part in range(len(leaf.parts[value])):
            yield from _rows(leaf, value, part, "after", operands)
            if leaf.near or not leaf.family.task.caches:
                yield from _rows(leaf, value, part, "before", leaf.begun(value, operands))
    if leaf.near:
        yield from _read_only_to_make(leaf)
    for value, operands in leaf.begun_again.items() if leaf.near else ():
        for part in range(len(leaf.parts[value])):
            yield from _rows(leaf, value, part, "before", leaf.begun(value, operands))


def _read_only_to_make(leaf: Leaf) -> Iterator[Row]:
    """Yield that later runs do not read a parameter for anything but the values whose making again is counted."""
    elements = leaf.family.elements
    counted = {(made, one) for made, reads in (*leaf.remade.items(), *leaf.begun_again.items()) for one, _, _ in reads}
    for first in (start.first for start in leaf.starts):
        again = [op for op in elements.readers[first] if leaf.family.flow.op_can_rerun[op]]
        if all(_makes_one(elements, op) and (elements.op_writes[op][0], first) in counted for op in again):
            for part in range(len(leaf.parts[first])):
                more = [one for one in leaf.later(first, part, leaf.family.task.levels) if one[0] == "more"]
                yield at_most("read to make", (first, part), [(one, 1) for one in more], 0)


def _makes_one(elements: Elements, op: int) -> bool:
    """Whether an op makes one value and is fused with no other."""
    return len(elements.op_writes[op]) == 1 and elements.group.count(elements.group[op]) == 1


def _rows(leaf: Leaf, value: int, part: int, phase: str, operands: Operands) -> Iterator[Row]:
    elements, task = leaf.family.elements, leaf.family.task
    maker = int(leaf.family.flow.value_maker[value])
    full = leaf.parts[value][part].full - elements.kept_whole[maker]
    remade = ("remade", phase, value, part)
    size, firsts = leaf.family.flow.value_size, {start.first for start in leaf.starts}
    every: list[Counter] = []
    for read, ratio, own in operands:
        reads = [
            ("again", phase, value, part, read, other, level)
            for other in range(len(leaf.parts[read]))
            for level in task.levels
        ]
        every += reads
        terms: list[tuple[Counter, Number]] = [(one, 1) for one in reads]
        terms.append((remade, -ratio / leaf.tiles.share(own)))
        yield at_least("made again", (phase, value, part, read), terms, 0)
        if leaf.near and read in firsts and elements.tensor_axes(value) <= elements.tensor_axes(read):
            most = Fraction(int(size[read]), int(size[value]) * elements.sharing(maker, read))
            yield at_most("read to make", (phase, value, part, read), [*terms[:-1], (remade, -most)], 0)
        axes = elements.tensor(read).axes
        mates = leaf.family.mates[read]
        units = min(leaf.tiles.smallest(mate, full if mate.axes == axes else ()) for mate in mates)
        near = [(one, 1) for one in reads if one[-1] < leaf.deep(units)]
        if near:
            yield at_most("tile made again from", (phase, value, part, read), near, 0)
    if operands and not (not task.caches and task.machine.operands == "fastest"):
        sharing = min(elements.sharing(maker, read) for read, _, _ in operands)
        results = leaf.tiles.smallest(elements.tensor(value), full) * sharing
        for tier in leaf.tight_tiers:
            terms = [(one, 1) for one in every if one[-1] in leaf.tiers[tier]]
            terms.append((remade, -Fraction(leaf.tier_room(tier), results)))
            yield at_most("room made again", (phase, value, part, tier), terms, 0)
