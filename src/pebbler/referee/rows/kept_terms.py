"""The amount kept for waiting sums, and the number of waiting sums. `sums_wait` has the proof."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from pebbler.referee.rows.leaf import Leaf
from pebbler.referee.rows.placements import places
from pebbler.referee.rows.row import Counter, Number, Row, at_least, at_most

__all__ = ["kept_terms"]


def kept_terms(leaf: Leaf) -> Iterator[Row]:
    """The terms of a sum are kept or renewed, or the sum waits for its last terms."""
    size = leaf.family.flow.value_size
    for kind, values in (("kept", [*leaf.kept]), ("waits", [*dict.fromkeys(one.total for one in leaf.waiting_sums)])):
        for value in values:
            for part, (number, *_) in enumerate(leaf.parts[value]):
                renewed = [("renewed", value, part)] if kind == "kept" and value in leaf.remade else []
                each = [(one, 1) for one in (*_held(leaf, kind, value, part), *renewed)]
                yield at_most("kept once", (value, part), each, number)
    for one in leaf.waiting_sums:
        axis = leaf.tiles.ranges.get(one.axis)
        if axis is None:
            continue
        total, terms = int(size[one.total]), int(size[one.term])
        waits = Fraction(terms, total) * (1 - Fraction(min(axis.least, axis.rest), axis.extent))
        last, found = one.term if one.source is None else one.source, list[tuple[Counter, Number]]()
        for value in dict.fromkeys((one.term, last)):
            for part in range(len(leaf.parts[value])):
                found += [(counter, 1) for counter in _held(leaf, "kept", value, part)]
                found += [(("renewed", value, part), 1)] if value == last and value in leaf.remade else []
        for part in range(len(leaf.parts[one.total])):
            found += [(counter, waits) for counter in _held(leaf, "waits", one.total, part)]
        of = (one.total, one.axis, one.term, -1 if one.source is None else one.source)
        yield at_least("kept terms", of, found, terms)


def _held(leaf: Leaf, kind: str, value: int, part: int) -> list[Counter]:
    """Return the counters of what is there at the moment of a part of a value, by where it is."""
    task = leaf.family.task
    return [(kind, value, part, level) for level in task.levels] if task.caches else places(leaf, kind, value, part)
