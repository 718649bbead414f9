"""How much is kept for sums that wait, and how many of them wait: `sums_wait` has the proof."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from pebbler.referee.rows.leaf import Leaf
from pebbler.referee.rows.placements import places
from pebbler.referee.rows.row import Counter, Number, Row, at_least

__all__ = ["kept_terms"]


def kept_terms(leaf: Leaf) -> Iterator[Row]:
    """The terms of a sum are kept or renewed, or the sum waits for its last terms."""
    size = leaf.family.flow.value_size
    for one in leaf.waiting_sums:
        axis = leaf.tiles.ranges.get(one.axis)
        if axis is None:
            continue
        total, terms = int(size[one.total]), int(size[one.term])
        waits = Fraction(terms, total) * (1 - Fraction(min(axis.least, axis.rest), axis.extent))
        found: list[tuple[Counter, Number]] = [(counter, 1) for counter in _held(leaf, "kept", one.term)]
        last = one.term
        if one.source is not None:
            found += [(counter, 1) for counter in _held(leaf, "kept", one.source)]
            last = one.source
        found += [(("renewed", last, part), 1) for part in range(len(leaf.parts[last])) if last in leaf.remade]
        found += [(counter, waits) for counter in _held(leaf, "waits", one.total)]
        of = (one.total, one.axis, one.term, -1 if one.source is None else one.source)
        yield at_least("kept terms", of, found, terms)


def _held(leaf: Leaf, kind: str, value: int) -> list[Counter]:
    """Return the counters of what is there at the moment of a value, by where it is."""
    task = leaf.family.task
    return [
        counter
        for part in range(len(leaf.parts[value]))
        for counter in (
            [(kind, value, part, level) for level in task.levels] if task.caches else places(leaf, kind, value, part)
        )
    ]
