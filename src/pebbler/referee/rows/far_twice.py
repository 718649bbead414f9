"""Parameters that values are recomputed from are read twice from far away on caches.

Let op a read a start value v and make q, each element of q from the elements of v that agree with it, and let nobody else read v
but its update u. Let q cross the moment T, and let op b, after T, read q and go into what u writes. Take an element e of v and the
element q(e) that agrees with it, and suppose that the first touch of q(e) after T is a write: q(e) is made again. Then

- b needs q(e) before u updates e, so a piece of a runs again after T and before that run of b. Let R be the last such run: it
  reads e and writes q(e).
- The next touch of e is by u, or by one more run of that piece of a; either comes after that run of b. It finds e below the rest of
  its tile, what R has touched after it and what b has touched. If these are more than a reach together, e is found beyond it.
- The first touch of e after T is by R or by a run before R, so it is another one. It is found beyond the reach, too, unless e was
  within it at T (`cache_moments`).

If q(e) is alive, the first touch of e after T remains. With r elements of v for each of q, of the N in a part of v: reads of v
found beyond the reach after T, those found within it by their first touch after T, and r for each element of q that is alive, are
at least 2 N together. No fusion joins a with other ops, nor b with u; an operand of b that fusion may remove is touched, or what it
is made of is. No op on the way from b to u adds a made value once to a sum. (`last_touches` has which tiles may share a place.)
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from pebbler.game.dataflow import NONE
from pebbler.referee.rows.cache_moments import alive, found
from pebbler.referee.rows.leaf import Leaf, Start
from pebbler.referee.rows.row import Counter, Number, Row, at_least

__all__ = ["far_twice"]


def far_twice(leaf: Leaf) -> Iterator[Row]:
    """A parameter that values are recomputed from is read from beyond a reach twice after the moment."""
    size, levels = leaf.family.flow.value_size, leaf.family.task.levels
    for start, made, reader in _between(leaf):
        ratio = Fraction(int(size[start.first]), int(size[made]))
        there: list[tuple[Counter, Number]] = [
            (("alive", made, part, level), ratio) for part in range(len(leaf.parts[made])) for level in levels
        ]
        for part, (number, full, _, deep) in enumerate(leaf.parts[start.first]):
            near = leaf.family.last_touches.made_between(leaf.tiles, start.first, made, reader, full)
            for level in range(deep, near):
                deeper = levels[level + 1 :]
                far = [*leaf.reads(start.first, part, deeper, "after", "late")]
                far += leaf.later(start.first, part, deeper, "after")
                at_once = [one for (_, j), one in found(leaf, start, part).items() if j <= level]
                terms = [*((one, 1) for one in (*far, *at_once)), *there]
                yield at_least("far twice", (start.tensor, part, made, reader, level), terms, 2 * number)


def _between(leaf: Leaf) -> Iterator[tuple[Start, int, int]]:
    """Yield parameters with a value that may be made again from them, and an op that reads that before the update."""
    elements, flow, moment = leaf.family.elements, leaf.family.flow, leaf.moment
    if moment is None or not leaf.family.last_touches.known:
        return
    for start in leaf.starts:
        others = [op for op in elements.readers[start.first] if op != start.update]
        if start.update == NONE or start.first not in elements.op_reads[start.update] or not alive(leaf, start):
            continue
        axes = elements.tensor_axes(start.first)
        if len(others) != 1 or others[0] not in moment.before or axes & leaf.tiles.loose.keys():
            continue
        maker = others[0]
        alone = elements.group.count(elements.group[maker]) == 1
        added = elements.tensor(start.first).name in elements.graph.ops[maker].meta.get("adds", ())
        needed = {op for op in elements.ancestors(start.last) if op in moment.after}
        added |= any(_adds_made(leaf, op) for op in needed)
        for made in elements.op_writes[maker] if alone and not added else ():
            if not (leaf.crossing(made) and made in leaf.remade and elements.tensor_axes(made) <= axes):
                continue
            for reader in elements.readers[made]:
                apart = elements.group[reader] != elements.group[start.update]
                if reader in needed and apart and flow.value_size[made]:
                    yield start, made, reader


def _adds_made(leaf: Leaf, op: int) -> bool:
    """Whether only the first piece of a sum reads some made value."""
    elements, flow = leaf.family.elements, leaf.family.flow
    names = elements.graph.ops[op].meta.get("adds", ())
    return any(elements.tensor(one).name in names and flow.value_maker[one] != NONE for one in elements.op_reads[op])
