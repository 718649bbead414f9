"""The number of reads per element.

A piece of an op reads, of each operand, the elements whose indices along the cut axes are its own. So every element of an operand
is read once by each combination of tiles of those axes that cut the op and that the operand lacks. In a range of tile sizes up to
`most` an axis of extent E has at least ceil(E / most) tiles. Axes that the op, or an op that fusion may join with it, needs whole
are not counted; what an op updates in place or adds once to a sum is counted once. Readers that fusion may make one op count as
the one that reads most. Of an element in full tiles at least floor(E / most) reads per axis are by pieces of full size; a value
that is added once to a sum is read by the piece that begins the sum, which may be a smaller one. Nor do first runs read an element
more often than once for each reader and each combination of tiles of axes that may cut it, whatever it is fused with.

Pieces that add up a result read it again, all but the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from pebbler.referee.rows.leaf import Leaf
from pebbler.referee.rows.row import ONE, Row, at_least, at_most

__all__ = ["runs", "visits"]

_OFTEN = 8  # an element that may be read more often may as well be read any number of times


def runs(leaf: Leaf) -> Iterator[Row]:
    """Every op runs at least once, in however many pieces: together they cost what the op costs."""
    costs = sum((Fraction(cost) for cost in leaf.family.flow.op_cost.tolist()), Fraction())
    if costs:
        yield at_least("runs", (), [(("run",), 1)], costs, whole=True)


def visits(leaf: Leaf) -> Iterator[Row]:
    """Every element is read so many times by first runs, and so many of these by pieces of full size."""
    levels, firsts = leaf.family.task.levels, {start.first for start in leaf.starts}
    for value in leaf.values:
        for run in leaf.runs[value]:
            of_full = leaf.full_visits(value, run)
            # By each reader of the group; of those whose number is known the most.
            counts = sorted({leaf.count(axes) for axes in run.axes}, key=lambda count: (len(count[0]), -count[1]))
            counts = [one for one in counts if one[0] != ONE or one == counts[0]] if run.certain else []
            for part, (elements, *_) in enumerate(leaf.parts[value]):
                of = (run.group, run.phase, value, part)
                every = [(counter, 1) for counter in leaf.reads_by(run, value, part, levels)]
                for way, (tiles, factor) in enumerate(counts):
                    terms = [*every, (tiles, -factor * elements)]
                    yield at_least("visits", (*of, way) if way else of, terms, 0, whole=not way)
                if part == 0 and of_full:
                    large = [term for term in every if term[0][-2]]
                    yield at_least("full visits", of, large, of_full * elements)
        if leaf.near and value in firsts:
            yield from _most_visits(leaf, value)
        number = leaf.writes(value) - 1
        tiles, factor = leaf.count(leaf.family.summed[value])
        for part, (elements, *_) in enumerate(leaf.parts[value] if number > 0 else ()):
            every = [(counter, 1) for counter in leaf.adds(value, part, levels)]
            terms = [*every, (tiles, -factor * elements)]
            yield at_least("adds", (value, part), terms, -elements, whole=tiles == ONE)
            of_full = min(number, leaf.tiles.full_tiles(leaf.family.summed[value]) - 1)
            if part == 0 and of_full > 0:
                large = [(("add", value, 0, True, level), 1) for level in levels]
                yield at_least("full adds", (value,), large, of_full * elements)


def _most_visits(leaf: Leaf, value: int) -> Iterator[Row]:
    """Yield how often first runs of a group read an element at most."""
    elements = leaf.family.elements
    for group in dict.fromkeys(run.group for run in leaf.runs[value]):
        readers = [op for op in elements.readers[value] if elements.group[op] == group]
        most = sum(leaf.tiles.most_tiles(elements.may_share(op, value)) for op in readers)
        for part, (number, *_) in enumerate(leaf.parts[value] if most <= _OFTEN else ()):
            runs = [run for run in leaf.runs[value] if run.group == group]
            reads = [one for run in runs for one in leaf.reads_by(run, value, part, leaf.family.task.levels)]
            yield at_most("visits at most", (group, value, part), [(one, 1) for one in reads], most * number)
