"""Evictions by large pieces on caches.

*In the step.* A piece leaves all that it has touched on top of the stack. Some piece of an op is of full size; if it touches no
less than the reach of a level, then right after it nothing else is found in that level or above. In a steady step that goes for
every tensor that is there all the time, that neither the op nor what may be fused with it touches, and whose next touch is a
read. So each of its elements is read from below that level at least once in every step and, if it is updated, written back to
there.

*Between two pieces.* Let op P be the only reader of a value A, each element in one piece of P only; let f make A, with an operand
B that P does not touch. Neither is ever fused, A and B have storages of their own, and B is made once only, if it is made. Along
the axes that P needs whole a piece of P reads all of A, column by column: f makes a column from the elements of B that have its
index. Take the first runs of pieces of P of full size in their order, p' and then p. After p' at most C = max(0, R - T) units of
what p' has not touched are within reach R, where T is what such a piece touches at least. Take a column of p. If A's tile was begun
before p', its next touch is a read of what p' has pushed down: by a piece of f that goes on with it, or by p, as nobody else reads
it and p runs for the first time. Otherwise f ran after p', and the first touch of B's tiles since then is a read of what p' has
pushed down, unless B was completed meanwhile, which is so for one p only. So, with a elements of A and b of B per column, reads of
A from below count 1/a each and those of B 1/b: together at least the number of columns, less C / min(a, b), for every full piece of
P but the first; less size(B) / b if B is made.

A piece has c indices of the axes that A and B share and that are not whole, and a = c a', b = c b'. Times c, reads count 1/a' and
1/b', and all full pieces together have as many of these indices as lie in full tiles, times the numbers of full tiles along the
other axes: floor(E / most), or the number of tiles less one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from pebbler.game.dataflow import NONE
from pebbler.referee.rows.elements import Axes
from pebbler.referee.rows.leaf import Leaf
from pebbler.referee.rows.row import ONE, Counter, Row, at_least

__all__ = ["PushedColumns", "alone", "plain", "pushed_between", "pushed_out", "touched_by"]


def pushed_out(leaf: Leaf) -> Iterator[Row]:
    """Parameters that a large piece pushes out of a level are read from below it, and written back."""
    family, task = leaf.family, leaf.family.task
    if not task.steady or task.machine.line > 1:
        return
    touched = _full_touches(leaf)
    for start in leaf.starts:
        reads_first = start.update == NONE or start.first in family.elements.op_reads[start.update]
        if not leaf.runs[start.first] or not reads_first:
            continue  # what comes next could be a write
        groups = family.touching[start.tensor]
        most = max((units for group, units in touched.items() if group not in groups), default=0)
        for level in task.levels[:-1]:
            if most < task.reach[level]:
                break
            for part, (number, *_) in enumerate(leaf.parts[start.first]):
                deeper = task.levels[level + 1 :]
                # The next touch may be one of the new version.
                reads = [
                    one
                    for value in dict.fromkeys((start.first, start.last))
                    for piece in ([part] if value == start.first else range(len(leaf.parts.get(value, ()))))
                    for one in (*leaf.reads(value, piece, deeper), *leaf.later(value, piece, deeper))
                ]
                yield at_least("pushed out", (start.tensor, part, level), [(one, 1) for one in reads], number)
            if start.update != NONE:
                for part, (number, *_) in enumerate(leaf.parts.get(start.last, ())):
                    sunk = [(("sunk", start.last, part, level), 1)]
                    yield at_least("pushed back", (start.tensor, part, level), sunk, number)


def _full_touches(leaf: Leaf) -> dict[int, int]:
    """Return, per group of ops, how many elements some piece of full size touches at least, whatever it is fused with."""
    elements, found = leaf.family.elements, dict.fromkeys(leaf.family.elements.group, 0)
    for op, group in enumerate(elements.group):
        found[group] = max(found[group], touched_by(leaf, op))
    return found


def touched_by(leaf: Leaf, op: int) -> int:
    """Return the least units that a piece of full size touches; only the piece that begins a sum reads the operands added once."""
    elements, units = leaf.family.elements, dict[int, int]()
    for value in (*elements.op_reads[op], *elements.op_writes[op]):
        if value not in elements.vanishing and not elements.added_once(op, value):
            part = leaf.tiles.full_part(elements.tensor(value), elements.whole[op])
            storage = leaf.family.storage[value]
            units[storage] = min(part, units.get(storage, part))
    return sum(units.values())


@dataclass(frozen=True)
class PushedColumns:
    """Sizes of columns of a value A, and of what belongs to them in an operand B of its maker or of its reader."""

    number: int
    own_each: int  # a' and b': elements of A and of B per column and index of the axes that both have
    other_each: int
    own_units: int  # a and b
    other_units: int
    most: int  # c, at most
    common: Axes

    @classmethod
    def of(cls, leaf: Leaf, value: int, other: int, across: Axes) -> PushedColumns:
        """Return the columns of two values along some axes."""
        one, two = (leaf.family.elements.tensor_axes(which) for which in (value, other))
        common, ranges = (one & two) - across, leaf.tiles.ranges
        each, beside = _least_part(leaf, value, one - across - common), _whole_part(leaf, other, two - one)
        shared = _least_part(leaf, value, common)
        extents = dict(leaf.family.elements.tensor(value).axes or ())
        most = math.prod(ranges[axis].most if axis in ranges else extents[axis] for axis in common)
        number = _whole_part(leaf, value, across)
        return cls(number, each, beside, shared * each, shared * beside, most, common)

    def indices(self, leaf: Leaf, op: int) -> Iterator[tuple[str, Counter, int, int]]:
        """Yield how many of the indices in `common` all full pieces of an op have together at least: a factor for a number of
        tiles, along an axis or of none, and what is to be subtracted.
        """
        tiles, elements = leaf.tiles, leaf.family.elements
        touched = {*elements.op_reads[op], *elements.op_writes[op]}
        extents = dict(axis for value in touched for axis in elements.tensor(value).axes or ())
        own = math.prod(tiles.ranges[axis].full if axis in tiles.ranges else extents[axis] for axis in self.common)
        others = sorted(elements.op_axes[op] - elements.whole[op] - self.common)
        yield "", ONE, own * tiles.full_tiles(others), 0
        for axis in others:
            counter, _ = leaf.count((axis,))
            if counter != ONE:
                factor = own * tiles.full_tiles(set(others) - {axis})
                yield axis, counter, factor, factor


def pushed_between(leaf: Leaf) -> Iterator[Row]:
    """A piece of P that fills a level evicts everything else, so A or B is read from below it before P's next piece.

    Either A was made earlier and is read from below that level, or A is made now and its maker reads B from below. The row counts
    those reads.
    """
    family, task = leaf.family, leaf.family.task
    for op, value, operand, across in _between(leaf):
        columns = PushedColumns.of(leaf, value, operand, across)
        for level in task.levels[:-1]:
            left = max(0, task.reach[level] - touched_by(leaf, op))
            far = columns.number - Fraction(left, min(columns.own_units, columns.other_units))
            if far <= 0:
                continue
            once = (
                0
                if family.flow.value_maker[operand] == NONE
                else Fraction(int(family.flow.value_size[operand]), columns.other_each)
            )
            deeper, terms = task.levels[level + 1 :], []
            for one, share in ((value, Fraction(1, columns.own_each)), (operand, Fraction(1, columns.other_each))):
                for part in range(len(leaf.parts[one])):
                    reads = [*leaf.reads(one, part, deeper), *leaf.adds(one, part, deeper)]
                    reads += leaf.later(one, part, deeper) if one == operand else ()
                    terms += [(counter, share) for counter in reads]
            for axis, tiles, indices, fewer in columns.indices(leaf, op):
                # The first full piece has none before it.
                charged = [*terms, (tiles, -indices * far)]
                yield at_least(
                    "pushed between", (op, value, operand, level, axis), charged, -(fewer + columns.most) * far - once
                )


def _between(leaf: Leaf) -> Iterator[tuple[int, int, int, Axes]]:
    """Yield ops with a value that each alone reads, an operand of the op that makes it, and the axes of the columns."""
    family, elements, flow = leaf.family, leaf.family.elements, leaf.family.flow
    for value in leaf.values:
        readers, maker = elements.readers[value], int(flow.value_maker[value])
        if len(readers) != 1 or maker == NONE or not plain(leaf, value) or elements.whole[maker]:
            continue
        op = readers[0]
        if not (alone(leaf, op) and alone(leaf, maker)) or elements.may_share(op, value) & elements.may_cut:
            continue
        values = (*elements.op_reads[op], *elements.op_writes[op])
        touched = {family.storage[one] for one in values}
        added = {*elements.graph.ops[maker].meta.get("adds", ()), *elements.graph.ops[op].meta.get("adds", ())}
        across = elements.whole[op] & elements.tensor_axes(value)
        for operand in dict.fromkeys(elements.op_reads[maker]):
            if (
                operand in leaf.parts
                and plain(leaf, operand)
                and operand != value
                and not {elements.tensor(one).name for one in (operand, value)} & added
                and all(elements.tensor(one).axes is not None for one in values)
                and family.storage[operand] not in touched
                and across <= elements.axes[int(flow.value_tensor[operand])]
                and not elements.can_remake(operand)
            ):
                yield op, value, operand, across


def plain(leaf: Leaf, value: int) -> bool:
    """Whether a value has axes, of one extent each, and a storage of its own."""
    tensor = leaf.family.elements.tensor(value)
    loose = any(axis in leaf.tiles.loose for axis, _ in tensor.axes or ())
    return bool(tensor.axes) and not loose and len(leaf.family.mates[value]) == 1


def alone(leaf: Leaf, op: int) -> bool:
    """Whether an op is fused with no other in any form."""
    groups = leaf.family.elements.loose_group
    return groups.count(groups[op]) == 1


def _least_part(leaf: Leaf, value: int, axes: Axes) -> int:
    """Return the least number of indices of some axes in a full-size tile of a value."""
    ranges = leaf.tiles.ranges
    return math.prod(
        ranges[axis].least if axis in ranges else extent
        for axis, extent in leaf.family.elements.tensor(value).axes or ()
        if axis in axes
    )


def _whole_part(leaf: Leaf, value: int, axes: Axes) -> int:
    """Return the number of indices of some axes that a value has."""
    return math.prod(extent for axis, extent in leaf.family.elements.tensor(value).axes or () if axis in axes)
