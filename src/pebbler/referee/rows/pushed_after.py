"""Evictions between a large piece and the readers of its result, on caches.

Let op P make a value A, each element in one piece of P only; let g read A together with an operand B, or add B up from it. P does
not touch B. Neither op is ever fused, A and B have storages of their own, and an operand B is made once only, if it is made. Along
the axes that P needs whole a piece of P makes all of A, column by column, and g reads a column together with the elements of B that
have its index. Let every piece of P of full size touch no less than a reach R: right after each of its runs, nothing else is within
R.

Take a piece x of P of full size and a column of it. Each piece of g that reads some of it runs for the first time after x has: let
r be the last run of x before that.

- If another full piece of P runs between r and the run of g, it pushes out the column, which nobody makes again before g reads it:
  every element of it is read from beyond R, by g or by somebody before g.
- If that is so for no piece of g, each touches its elements of B after its r and before the next run of a full piece of P. So the
  first touch of an element of B since r is a read from beyond R, unless it is a write. An operand is complete when g reads it, so
  that happens to an element once, when it is made. A sum is written without being read by the piece that begins it, which may run
  again until the next one goes on: of the pieces of g that go on with an element, all after the first run after that, so for two x
  at most the first touch is a write.

Runs of x are followed by no run of another full piece for one x only, so these reads of B are different ones for each x. With a
elements of A and b of B per column, reads of A from beyond R count 1/a each and those of B 1/b: together at least the number of
columns, for every full piece of P; less size(B) / b if B is made, and twice that if it is added up. Indices of axes that A and B
share are counted as in `pushed_out`.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from pebbler.game.dataflow import NONE
from pebbler.referee.rows.elements import Axes
from pebbler.referee.rows.leaf import Leaf
from pebbler.referee.rows.pushed_out import PushedColumns, alone, plain, touched_by
from pebbler.referee.rows.row import Counter, Number, Row, at_least

__all__ = ["pushed_after"]


def pushed_after(leaf: Leaf) -> Iterator[Row]:
    """A piece of P that fills a level evicts everything else, so what g reads or adds up with P's result is read from below it.

    Or the result is, because P's next piece has run before g.
    """
    family, task = leaf.family, leaf.family.task
    for op, value, reader, other, across in _after(leaf):
        columns = PushedColumns.of(leaf, value, other, across)
        times = 2 if other in family.elements.op_writes[reader] else int(family.flow.value_maker[other] != NONE)
        written = Fraction(times * int(family.flow.value_size[other]), columns.other_each)
        for level in task.levels[:-1]:
            if touched_by(leaf, op) < task.reach[level]:
                break
            deeper = task.levels[level + 1 :]
            terms: list[tuple[Counter, Number]] = []
            for one, share in ((value, Fraction(1, columns.own_each)), (other, Fraction(1, columns.other_each))):
                for part in range(len(leaf.parts[one])):
                    reads = [
                        *leaf.reads(one, part, deeper),
                        *leaf.adds(one, part, deeper),
                        *leaf.later(one, part, deeper),
                    ]
                    terms += [(counter, share) for counter in reads]
            for axis, tiles, indices, fewer in columns.indices(leaf, op):
                charged = [*terms, (tiles, -indices * columns.number)]
                least = -fewer * columns.number - written
                yield at_least("pushed after", (op, value, reader, other, level, axis), charged, least)


def _after(leaf: Leaf) -> Iterator[tuple[int, int, int, int, Axes]]:
    """Yield ops with a value that each makes, a reader of it, what this reads or adds up besides, and the axes of the columns."""
    family, elements, flow = leaf.family, leaf.family.elements, leaf.family.flow
    for value in leaf.values:
        op = int(flow.value_maker[value])
        if op == NONE or not plain(leaf, value) or not alone(leaf, op):
            continue
        own = elements.tensor_axes(value)
        if (elements.op_axes[op] - elements.whole[op]) & elements.may_cut - own:
            continue  # several pieces would make an element
        across = elements.whole[op] & own
        values = (*elements.op_reads[op], *elements.op_writes[op])
        touched = {family.storage[one] for one in values}
        if any(elements.tensor(one).axes is None for one in values):
            continue
        for reader in elements.readers[value]:
            added = elements.graph.ops[reader].meta.get("adds", ())
            if reader == op or not alone(leaf, reader) or elements.tensor(value).name in added:
                continue
            made = [one for one in elements.op_writes[reader] if leaf.writes(one) > 1]
            for other in dict.fromkeys((*elements.op_reads[reader], *made)):
                operand = other not in elements.op_writes[reader]
                if (
                    other in leaf.parts
                    and other != value
                    and plain(leaf, other)
                    and elements.tensor(other).name not in added
                    and family.storage[other] not in touched
                    and across <= elements.tensor_axes(other) - elements.whole[reader]
                    and not (operand and elements.can_remake(other))
                ):
                    yield op, value, reader, other, across
