"""A limit on the parameters that are near both before and after a moment, on caches.

LRU cannot choose what stays. Let P be the N elements of parameters that are read before the moment T and updated after it in
every step, C the reach of a level, and H those that are found within C both by their first touch of the step and by their first
touch after T. A step has two phases, before and after T. In one phase let X be the elements of P before whose first touch at
least C other units have been touched in the phase, and Y those after whose last touch at least C other units are touched before
it ends. What is in X is found beyond C; what is in Y is found beyond C by its first touch of the next phase. So H lies outside of
X and Y.

- *Outside.* Outside of X there are at most C elements: take the one touched last for the first time, all others were touched
  before. Likewise outside of Y, from the other end. (`outside` counts them; `pair_company` says what takes room beside them.)
- *Others.* What does not pair and is found within C by its first touch after T was within C at T, as is what is outside of the
  first phase's Y: together at most C. And its first touch comes before C others have been touched after T, as that of what is
  outside of the second phase's X: together at most C.
- *Few.* If X and Y have nothing in common, every element is outside of X or of Y, so as many are outside of both as these overlap.
- *Touched again.* Otherwise let e be in both. All of H is touched before the first touch of e and after its last. At most the reach
  of the fastest level is found there by the first of these touches after e's first; every other element of H has one more read
  from below the fastest level, besides its first of the phase.
- *Often.* Let m elements be in X and Y, touched from s to t. At most C - m elements of H are not touched from s to t and still
  within C at t: F of them. Each other element of H is found beyond C by a read that is not its first of the phase, or has two
  more reads from below the fastest level. As m >= |H| - (2C - N), |H| + F is at most 3C - N if 2C >= N; otherwise 2F is at most
  3C - N.
- *By whom.* An element of H that is found beyond C by a read of the phase that is not its first counts as touched far, once;
  others as touched near, at most twice, by reads from below the fastest level that are not their first. So all elements of a part
  of a value in H are touched no more than twice, a touch from afar counting as two. All these are reads. The elements that are
  not in H have all their own reads besides, and each one in H has its first.

The updates of P read what they overwrite and write nothing else, however fused, so that each of these touches is a read.
The three assumptions leave nothing out: few in the first phase; else few in the second; else in neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from pebbler.game.dataflow import NONE
from pebbler.referee.rows.cache_moments import alive, found
from pebbler.referee.rows.leaf import Leaf, Near, Phase, Start, Time
from pebbler.referee.rows.pair_company import Company, in_company, most_near, touched_beside
from pebbler.referee.rows.row import Counter, Number, Row, at_least, at_most

__all__ = ["near_twice", "paired"]

Terms = list[tuple[Counter, Number]]
_PHASES: tuple[Phase, Phase] = ("before", "after")
_UNKNOWN: tuple[Time, Time] = ("early", "late")


def paired(leaf: Leaf) -> list[Start]:
    """Return the tensors every element of which is read before the moment and updated after it, by ops that do nothing else to
    it.
    """
    elements, moment = leaf.family.elements, leaf.moment
    if moment is None or not leaf.family.task.steady:
        return []
    return [
        start
        for start in leaf.starts
        if start.update != NONE
        and alive(leaf, start)
        and not leaf.family.reads[start.last]
        and moment.readers[start.first][0]
        and moment.readers[start.first][1]
        and start.first in elements.op_reads[start.update]
        and elements.writes_alone(start.update)
    ]


def near_twice(leaf: Leaf) -> Iterator[Row]:
    """A limit on the parameters that are near both times; others are touched again."""
    pairs = paired(leaf) if leaf.near else []
    for near in leaf.near if pairs else ():
        yield from _near_rows(leaf, near, pairs)


def _near_rows(leaf: Leaf, near: Near, pairs: list[Start]) -> Iterator[Row]:
    level, few = near
    classes = [
        (start, part, number, found(leaf, start, part))
        for start in pairs
        for part, (number, *_) in enumerate(leaf.parts[start.first])
    ]
    for start, part, number, at in classes:
        both = [(counter, -1) for (i, j), counter in at.items() if i <= level and j <= level]
        for phase in (0, 1):
            outside = {side: ("outside", level, side, phase, start.tensor, part) for side in "XY"}
            first = {"X": phase, "Y": 1 - phase}  # which of the two touches tells that an element is outside
            for side, counter in outside.items():
                yield at_most("elements", counter[1:], [(counter, 1)], number)
                found_near = [(one, -1) for touch, one in at.items() if touch[first[side]] <= level]
                yield at_least("outside", counter[1:], [(counter, 1), *found_near], 0)
            if few == ("first", "second")[phase]:
                terms = [(outside["X"], 1), (outside["Y"], 1), *both]
                yield at_least("few", (level, phase, start.tensor, part), terms, number)
    yield from _room(leaf, level, pairs)
    if few != "first":
        yield from _touched_again(leaf, level, 0, classes)
    if few == "neither":
        yield from _touched_again(leaf, level, 1, classes)


def _outside(leaf: Leaf, level: int, side: str, phase: int, pairs: list[Start]) -> Terms:
    return [
        (("outside", level, side, phase, start.tensor, part), 1)
        for start in pairs
        for part in range(len(leaf.parts[start.first]))
    ]


def _room(leaf: Leaf, level: int, pairs: list[Start]) -> Iterator[Row]:
    """Limits on the units outside of X, and outside of Y, in each phase."""
    family, moment = leaf.family, leaf.moment
    assert moment is not None
    elements, flow, reach = family.elements, family.flow, family.task.reach[level]
    firsts = frozenset(start.first for start in pairs)
    crossing = {value for value in leaf.values if leaf.crossing(value)}
    company = in_company(elements, leaf.tiles, moment, firsts, crossing)
    beside = touched_beside(elements, leaf.tiles, moment, firsts, company)
    others = [*_others(leaf, level, pairs)]
    for phase in (0, 1):
        for side in "XY":
            outside = _outside(leaf, level, side, phase, pairs)
            yield at_most("near", (level, side, phase), outside, beside[phase].most_near(reach))
            if (side, phase) in (("Y", 0), ("X", 1)):
                yield at_most("near with others", (level, side, phase), [*outside, *others], reach)
    if company:
        total = sum(int(flow.value_size[first]) for first in firsts)
        pieces = sum(one.piece for one in company.values())
        yield from _made_twice(leaf, level, company)
        remade: Terms = [(one, -1) for made in company for one in _twice(leaf, made, company[made].first)]
        room = max(0, reach - beside[0].apart)
        most = max(beside[0].unsure, most_near(room, total, list(company.values())))
        for side in "XY":
            outside = _outside(leaf, level, side, 0, pairs)
            yield at_most("near in company", (level, side), [*outside, *remade], most)
            made_with: Terms = [
                (("outside", level, side, 0, int(flow.value_tensor[one.first]), part), one.share)
                for one in company.values()
                for part in range(len(leaf.parts[one.first]))
            ]
            yield at_most("company", (level, side), [*outside, *made_with, *remade], reach + pieces)


def _twice(leaf: Leaf, made: int, first: int) -> list[Counter]:
    """Return the counters of what is made twice, by part, of a value in whose company another one is touched."""
    parts = range(len(leaf.parts[made]))
    if made in leaf.begun_again:
        return [("begun twice", made, part, first) for part in parts]
    return [("twice", made, part) for part in parts if made in leaf.remade]


def _made_twice(leaf: Leaf, level: int, company: Mapping[int, Company]) -> Iterator[Row]:
    """However often an element is made again, it is one that is made twice.

    Pieces that begin a sum may run again before it is complete: what they have made first is then kept by nobody, and of the
    elements in whose company it is only those have been touched that such a piece reads.
    """
    for made, one in company.items():
        sharing = leaf.family.elements.sharing(int(leaf.family.flow.value_maker[made]), one.first)
        for part, twice in enumerate(_twice(leaf, made, one.first)):
            again: Terms = [(("remade", phase, made, part), 1) for phase in ("before", "after")]
            if made in leaf.begun_again:
                again = [
                    (("again", "before", made, part, one.first, other, at), one.share * sharing)
                    for other in range(len(leaf.parts[one.first]))
                    for at in leaf.family.task.levels
                ]
            yield at_most("twice of all", (level, *twice[1:]), [(twice, 1)], leaf.parts[made][part].number)
            yield at_least("twice", (level, *twice[1:]), [*again, (twice, -1)], 0)


def _others(leaf: Leaf, level: int, pairs: list[Start]) -> Iterator[tuple[Counter, Number]]:
    """Yield what does not pair, is certainly read after the moment, and is found within a level then."""
    assert leaf.moment is not None
    tensors = {start.tensor for start in pairs}
    for start in leaf.starts:
        if start.tensor not in tensors and alive(leaf, start) and leaf.moment.readers[start.first][1]:
            for part in range(len(leaf.parts[start.first])):
                yield from ((one, 1) for (_, j), one in found(leaf, start, part).items() if j <= level)
    for value in leaf.values:
        if leaf.crossing(value):
            for part in range(len(leaf.parts[value])):
                yield from ((("alive", value, part, at), 1) for at in range(level + 1))
    sums = dict.fromkeys(one.total for one in leaf.waiting_sums)
    for kind, values in (("kept", leaf.kept), ("waits", sums)):
        for value in values:
            for part in range(len(leaf.parts[value])):
                yield from (((kind, value, part, at), 1) for at in range(level + 1))


def _touched_again(
    leaf: Leaf, level: int, phase: int, classes: list[tuple[Start, int, int, dict[tuple[int, int], Counter]]]
) -> Iterator[Row]:
    """Elements common to X and Y need reads of H beyond the first read of the phase."""
    task = leaf.family.task
    # Of what is in the fastest level when the others are touched, nothing is known.
    fastest = task.reach[0] if level else 0
    total, reach = sum(number for _, _, number, _ in classes), task.reach[level]
    every: Terms = []
    twice: Terms = []
    both: list[Counter] = []
    for start, part, number, at in classes:
        of = (level, phase, start.tensor, part)
        near, far = ("touched near", *of), ("touched far", *of)
        held = [one for (i, j), one in at.items() if i <= level and j <= level]
        every += [(near, 1), (far, 1)]
        twice += [(near, 1), (far, 2)]
        both += held
        yield at_most("touched twice", of, [(near, 1), (far, 2), *((one, -2) for one in held)], 0)
        yield from _reads_again(leaf, of, start.first, number, at)
    yield at_least("touched again", (level, phase), [*every, *((one, -1) for one in both)], -fastest)
    each = 3 if 2 * reach >= total else 2
    few: Number = max(0, 3 * reach - total)
    few = few if 2 * reach >= total else Fraction(few, 2)
    yield at_least("touched often", (level, phase), [*twice, *((one, -each) for one in both)], -few - 2 * fastest)


def _reads_again(
    leaf: Leaf, of: tuple[int, int, int, int], first: int, number: int, at: dict[tuple[int, int], Counter]
) -> Iterator[Row]:
    """Repeated touches are reads of the phase beyond the first read of each element, and the reads that the others have."""
    level, phase, _, part = of
    levels, name, unknown = leaf.family.task.levels, _PHASES[phase], _UNKNOWN[phase]
    near, far = ("touched near", *of), ("touched far", *of)
    kinds = (("near", levels[min(level, 1) :], [near, far]), ("far", levels[level + 1 :], [far]))
    for kind, found_in, counters in kinds:
        terms: Terms = [(one, 1) for one in leaf.reads(first, part, found_in, name, unknown)]
        terms += [(one, 1) for one in leaf.later(first, part, found_in, name)]
        terms += [(one, -1) for touch, one in at.items() if touch[phase] in found_in]
        yield at_least("touches are reads", (*of, kind), [*terms, *((one, -1) for one in counters)], 0)
    visits = sum(leaf.visits(run) for run in leaf.runs[first] if run.phase == name)
    reads: Terms = [(one, 1) for one in leaf.reads(first, part, levels, name, unknown)]
    reads += [(one, 1) for one in leaf.later(first, part, levels, name)]
    reads += [(near, -1), (far, -1)]
    reads += [(one, visits - 1) for (i, j), one in at.items() if i <= level and j <= level]
    yield at_least("reads of others", of, reads, visits * number)
