"""Placement of elements: on explicit machines every entry into a level is a write or a copy.

An element is in a set of levels at each moment. A *tier* is the levels whose reads cost no more than some price; an element is near
if a level of the tier has it, and far if a level outside of the tier does.

- *Reads.* What is never near in a phase is read from outside of the tier, every time. Near is what was near when the phase began,
  what was written into the tier, and what was copied into it from outside.
- *Moments.* What is near at a moment was near at the one before, or was written or copied into the tier since; what is far,
  likewise, was far, or was written or copied out of it. What must be alive is in some level, and no level holds more than its
  capacity: at the moment T and, in a steady step, between steps. A parameter that is updated is written anew: where it is between
  steps follows from its new version. A value that crosses T and is not there then is made again after T, which reads its operands
  (`made_again`). Whatever may be made again may come into a tier that way, too.
- *Made again.* Let v cross T, and let w be an element of an operand that is never near after T. One read of w serves at most S
  elements of v. Every element of v that is not there at T is made again after T, and needs all elements of the operand that agree
  with it; so many reads of these are from outside of the tier, but for those of operands that are near at some time after T. Of
  such an operand at most as many reads count as its elements of v take.
- *Tiles.* A tile is placed whole, so no element of it is in a level that is smaller than the tile. Where operands must be in the
  fastest level, ops read and write nothing elsewhere.
- *Sums.* The pieces of a sum write it one after the other; the first (`begun`) and the last (`made`) are told apart.
- *What lasts.* Some version of a parameter exists at every moment of a steady step. It is near at every moment (`stays`), or at
  some moment every copy is far. An element that is not updated is then copied into the tier later, or all its reads are far. One
  that is updated is copied into the tier, or read far at least once: if it was near when the step began, by the update, which
  reads it; and it was written or copied out of the tier, because an update destroys all copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import combinations

from pebbler.game.dataflow import NONE
from pebbler.referee.rows.cache_moments import alive
from pebbler.referee.rows.leaf import Leaf, Phase, Start
from pebbler.referee.rows.row import ONE, Counter, Number, Row, at_least, at_most

__all__ = ["lasting", "placements", "places"]

Terms = list[tuple[Counter, Number]]


def placements(leaf: Leaf) -> Iterator[Row]:
    """Reads, moments, room and tiles where a plan places everything."""
    starts = {value for start in leaf.starts for value in (start.first, start.last)}
    between: list[Counter] = []
    then: list[Counter] = []
    for start in leaf.starts:
        yield from _start_rows(leaf, start, between, then)
    for value in leaf.values:
        yield from _write_rows(leaf, value)
        if value not in starts:
            yield from _made_rows(leaf, value, then)
    yield from _again_rows(leaf)
    for value in leaf.kept:
        yield from _kept_rows(leaf, value, then)
    for value in dict.fromkeys(one.total for one in leaf.waiting_sums):
        yield from _sum_rows(leaf, value, then)
    for name, held in (("room at the moment", then), ("room between steps", between)):
        for level, room in enumerate(leaf.family.task.room[:-1]):
            inside = [(one, 1) for one in held if level in one[-1]]
            if inside:
                yield at_most(name, (level,), inside, room)


def _wraps(leaf: Leaf, start: Start) -> bool:
    """Whether a step finds a tensor where the step before has left it."""
    return leaf.family.task.steady and leaf.family.task.graph.tensors[start.tensor].kind == "param"


def _fitting(leaf: Leaf, value: int, part: int) -> list[int]:
    """Return the levels that hold a tile of a part of a value."""
    task, units = leaf.family.task, leaf.parts[value][part].units
    return [level for level in task.levels if task.room[level] >= units]


def places(leaf: Leaf, when: str, value: int, part: int) -> list[Counter]:
    """Return the counters of elements by the cheapest and the most expensive level that holds them at a moment."""
    levels = sorted(_fitting(leaf, value, part), key=leaf.by_price)
    ends = [(level,) for level in levels] + list(combinations(levels, 2))
    return [(when, value, part, some) for some in ends]


def _near(leaf: Leaf, states: list[Counter], tier: int, factor: Number = 1) -> Terms:
    near = set(leaf.tiers[tier])
    return [(one, factor) for one in states if near & set(one[-1])]


def _far(leaf: Leaf, states: list[Counter], tier: int, factor: Number = 1) -> Terms:
    near = set(leaf.tiers[tier])
    return [(one, factor) for one in states if not near >= set(one[-1])]


def _written(name: str, value: int, part: int, levels: Iterable[int]) -> Terms:
    return [((name, value, part, level), 1) for level in levels]


def _made(leaf: Leaf, value: int, part: int, levels: Sequence[int], *phases: Phase) -> Terms:
    """Return the writes of complete elements, by first runs and, in some phases, by later ones."""
    again = [(one, 1) for one in leaf.made_again(value, part, levels, *phases)]
    return [*_written("made", value, part, levels), *again]


def _read_rows(
    leaf: Leaf, value: int, part: int, tier: int, when: Phase, near: Terms, phases: tuple[Phase, ...]
) -> Iterator[Row]:
    """Values that are never near in some phases are read from outside of a tier, by the first runs of one of the phases."""
    number, far = leaf.parts[value][part].number, leaf.outside(tier)
    entering = [(one, 1) for one in leaf.entering(value, part, tier, *phases)]
    for run in leaf.runs[value]:
        if run.phase == when:
            visits = leaf.visits(run)
            reads = [(one, 1) for one in leaf.reads_by(run, value, part, far)]
            terms = [*reads, *((one, visits * factor) for one, factor in [*near, *entering])]
            yield at_least("read far", (run.group, run.phase, value, part, tier), terms, visits * number)


def _start_rows(leaf: Leaf, start: Start, between: list[Counter], then: list[Counter]) -> Iterator[Row]:
    task, first = leaf.family.task, start.first
    wraps, there = _wraps(leaf, start), alive(leaf, start)
    same = [one.number for one in leaf.parts.get(start.last, ())] == [one.number for one in leaf.parts[first]]
    for part, (number, *_) in enumerate(leaf.parts[first]):
        of = (first, part)
        ends = places(leaf, "between", first, part) if wraps else []
        now = places(leaf, "then", first, part) if there else []
        between += ends
        then += now
        for name, states in (("between", ends), ("then", now)):
            if states:
                yield at_least(f"exists {name}", of, [(one, 1) for one in states], number, whole=True)
        begins = task.start_levels.get(start.tensor, [])
        if not wraps and task.steady:
            begins = [task.levels[-1]]  # inputs of a steady step arrive in the slowest level
        for tier in range(len(leaf.tiers) - 1):
            near, far = leaf.tiers[tier], leaf.outside(tier)
            fixed = 0 if wraps else number * any(level in near for level in begins)
            fixed_far = 0 if wraps else number * any(level in far for level in begins)
            known_near: Terms = _near(leaf, ends, tier) if wraps else [(ONE, fixed)]
            known_far: Terms = _far(leaf, ends, tier) if wraps else [(ONE, fixed_far)]
            phases: tuple[Phase, ...] = ("before", "after")
            yield from _read_rows(leaf, first, part, tier, "any", known_near, phases)
            if not there:
                for when in phases:
                    yield from _read_rows(leaf, first, part, tier, when, known_near, phases)
            else:
                yield from _read_rows(leaf, first, part, tier, "before", known_near, ("before",))
                yield from _read_rows(leaf, first, part, tier, "after", _near(leaf, now, tier), ("after",))
                entering = [(one, 1) for one in leaf.entering(first, part, tier, "before")]
                leaving = [(one, 1) for one in leaf.leaving(first, part, tier, "before")]
                yield at_least("near then", (*of, tier), [*known_near, *entering, *_near(leaf, now, tier, -1)], 0)
                yield at_least("far then", (*of, tier), [*known_far, *leaving, *_far(leaf, now, tier, -1)], 0)
            if wraps and start.update == NONE:
                states, since = (now, ("after",)) if there else (ends, phases)
                entering = [(one, 1) for one in leaf.entering(first, part, tier, *since)]
                leaving = [(one, 1) for one in leaf.leaving(first, part, tier, *since)]
                if there:
                    terms = [*_near(leaf, states, tier), *entering, *_near(leaf, ends, tier, -1)]
                    yield at_least("near between", (*of, tier), terms, 0)
                    terms = [*_far(leaf, states, tier), *leaving, *_far(leaf, ends, tier, -1)]
                    yield at_least("far between", (*of, tier), terms, 0)
            elif wraps and same:
                last = start.last
                entering = [(one, 1) for one in leaf.entering(last, part, tier)]
                leaving = [(one, 1) for one in leaf.leaving(last, part, tier)]
                made = _made(leaf, last, part, near)
                yield at_least("near between", (*of, tier), [*made, *entering, *_near(leaf, ends, tier, -1)], 0)
                made = _made(leaf, last, part, far)
                yield at_least("far between", (*of, tier), [*made, *leaving, *_far(leaf, ends, tier, -1)], 0)
    if start.last != first and start.last in leaf.parts:
        yield from _made_reads(leaf, start.last)


def _write_rows(leaf: Leaf, value: int) -> Iterator[Row]:
    """A made element is written by every piece that adds to it, into a level that holds its tile."""
    task, writes = leaf.family.task, leaf.writes(value)
    for part, (number, *_) in enumerate(leaf.parts[value] if writes else ()):
        for name in ("made",) if writes == 1 else ("begun", "made"):
            yield at_least(name, (value, part), _written(name, value, part, task.levels), number, whole=True)
        if writes > 1:
            tiles, factor = leaf.count(leaf.family.summed[value])
            terms = [*_written("added", value, part, task.levels), (tiles, -factor * number)]
            yield at_least("added", (value, part), terms, -2 * number, whole=tiles == ONE)
    for part in range(len(leaf.parts[value])):
        if task.machine.operands == "fastest":
            names = ("begun", "added", "made") if writes else ()
            terms = [term for name in names for term in _written(name, value, part, task.levels[1:])]
            for counters in (leaf.reads, leaf.adds, leaf.later, leaf.made_again):
                terms += [(one, 1) for one in counters(value, part, task.levels[1:])]
            yield at_most("operands are fast", (value, part), terms, 0)
        fitting = _fitting(leaf, value, part)
        small = [level for level in task.levels if level not in fitting]
        if small:
            made = () if not writes else ("made",) if writes == 1 else ("begun", "added", "made")
            terms = [term for name in made for term in _written(name, value, part, small)]
            for counters in (leaf.reads, leaf.adds, leaf.later, leaf.made_again):
                terms += [(one, 1) for one in counters(value, part, small)]
            for phase in leaf.told_apart(value):
                terms += [
                    (("copy", phase, value, part, source, target), 1)
                    for source in task.levels
                    for target in task.levels
                    if source != target and (source in small or target in small)
                ]
            yield at_most("tile fits", (value, part), terms, 0)


def _made_reads(leaf: Leaf, value: int) -> Iterator[Row]:
    """Reads of a made value that is not known to be there at the moment."""
    for part in range(len(leaf.parts[value])):
        for tier in range(len(leaf.tiers) - 1):
            near = _made(leaf, value, part, leaf.tiers[tier])
            for when in ("before", "after", "any"):
                yield from _read_rows(leaf, value, part, tier, when, near, ("before", "after"))


def _made_rows(leaf: Leaf, value: int, then: list[Counter]) -> Iterator[Row]:
    if leaf.family.flow.value_maker[value] == NONE:
        return
    if not leaf.crossing(value):
        yield from _made_reads(leaf, value)
        return
    phases: tuple[Phase, ...] = ("before", "after")
    for part, (number, *_) in enumerate(leaf.parts[value]):
        now, of = places(leaf, "then", value, part), (value, part)
        then += now
        again = list(leaf.made_again(value, part, leaf.family.task.levels, "after"))
        yield at_least("alive", of, [(one, 1) for one in [*now, *again]], number, whole=True)
        for phase in phases if again else ():
            writes = leaf.made_again(value, part, leaf.family.task.levels, phase)
            yield at_least(
                "remade", (*of, phase), [(("remade", phase, value, part), 1), *((one, -1) for one in writes)], 0
            )
        for tier in range(len(leaf.tiers) - 1):
            near, far = leaf.tiers[tier], leaf.outside(tier)
            made_near, made_far = (_made(leaf, value, part, levels, "before") for levels in (near, far))
            remade_near = [(one, 1) for one in leaf.made_again(value, part, near, "after")]
            entering = [(one, 1) for one in leaf.entering(value, part, tier, "before")]
            leaving = [(one, 1) for one in leaf.leaving(value, part, tier, "before")]
            yield at_least("near then", (*of, tier), [*made_near, *entering, *_near(leaf, now, tier, -1)], 0)
            yield at_least("far then", (*of, tier), [*made_far, *leaving, *_far(leaf, now, tier, -1)], 0)
            yield from _read_rows(leaf, value, part, tier, "before", made_near, ("before",))
            later = [*_near(leaf, now, tier), *remade_near]
            yield from _read_rows(leaf, value, part, tier, "after", later, ("after",))
            yield from _read_rows(leaf, value, part, tier, "any", [*made_near, *remade_near], phases)


def _again_rows(leaf: Leaf) -> Iterator[Row]:
    """Values that are not near after the moment are read from outside of a tier by runs that recompute a value."""
    elements = leaf.family.elements
    there = {start.first for start in leaf.starts if alive(leaf, start)}
    for value, operands in leaf.remade.items():
        maker, size = int(leaf.family.flow.value_maker[value]), int(leaf.family.flow.value_size[value])
        parts = range(len(leaf.parts[value]))
        for read, ratio, own in operands:
            if read not in there and not leaf.crossing(read):
                continue
            share = leaf.tiles.share(own)
            each = Fraction(1, elements.sharing(maker, read)) / share
            # Those that are not there at the moment are made again; of others the renewed ones are.
            known: Terms = [(("renewed", value, part), -ratio / share) for part in parts]
            least: Number = 0
            if leaf.crossing(value):
                known = [(one, ratio / share) for part in parts for one in places(leaf, "then", value, part)]
                least = ratio / share * size
            for tier in range(len(leaf.tiers) - 1):
                far, near, terms = leaf.outside(tier), leaf.tiers[tier], list(known)
                for other in range(len(leaf.parts[read])):
                    terms += _near(leaf, places(leaf, "then", read, other), tier, each)
                    terms += [(one, each) for one in leaf.entering(read, other, tier, "after")]
                    terms += [(one, each) for one in leaf.made_again(read, other, near, "after")]
                    terms += [
                        (("again", "after", value, part, read, other, level), 1) for part in parts for level in far
                    ]
                yield at_least("made again far", (value, read, tier), terms, least)


def _kept_rows(leaf: Leaf, value: int, then: list[Counter]) -> Iterator[Row]:
    """Operands kept for waiting sums (`sums_wait`) are read after the moment from where they were, or are copied nearer."""
    levels = leaf.family.task.levels
    for part in range(len(leaf.parts[value])):
        kept, of = places(leaf, "kept", value, part), (value, part)
        then += kept
        if value in leaf.remade:
            renewed: Counter = ("renewed", value, part)
            again: Terms = [(one, 1) for one in leaf.made_again(value, part, levels)]
            yield at_least("renewed", of, [(("remade", "after", value, part), 1), (renewed, -1)], 0)
            yield at_least("renewed by writes", of, [*again, (renewed, -1)], 0)
        for tier in range(len(leaf.tiers) - 1):
            near, far = leaf.tiers[tier], leaf.outside(tier)
            entering = [(one, 1) for one in leaf.entering(value, part, tier)]
            leaving = [(one, 1) for one in leaf.leaving(value, part, tier)]
            made_near, made_far = (_made(leaf, value, part, some) for some in (near, far))
            yield at_least("near then", (*of, tier), [*made_near, *entering, *_near(leaf, kept, tier, -1)], 0)
            yield at_least("far then", (*of, tier), [*made_far, *leaving, *_far(leaf, kept, tier, -1)], 0)
            reads = [*leaf.reads(value, part, far), *leaf.later(value, part, far)]
            terms = [*((one, 1) for one in reads), *entering, *_only_far(leaf, kept, tier)]
            yield at_least("kept far", (*of, tier), terms, 0)


def _sum_rows(leaf: Leaf, value: int, then: list[Counter]) -> Iterator[Row]:
    """A waiting sum is read by the piece that continues it from where it was, or is copied nearer."""
    for part in range(len(leaf.parts[value])):
        waits = places(leaf, "waits", value, part)
        then += waits
        for tier in range(len(leaf.tiers) - 1):
            adds = [(one, 1) for one in leaf.adds(value, part, leaf.outside(tier))]
            entering = [(one, 1) for one in leaf.entering(value, part, tier)]
            terms = [*adds, *entering, *_only_far(leaf, waits, tier)]
            yield at_least("kept far", (value, part, tier, "sum"), terms, 0)


def _only_far(leaf: Leaf, held: list[Counter], tier: int) -> Terms:
    near = set(leaf.tiers[tier])
    return [(one, -1) for one in held if not near & set(one[-1])]


def lasting(leaf: Leaf) -> Iterator[Row]:
    """Values that last through a steady step are near at every moment, or come and go."""
    flow = leaf.family.flow
    for tensor in leaf.family.lasting:
        first, last = int(flow.start_value[tensor]), int(flow.final_value[tensor])
        for part, (number, *_) in enumerate(leaf.parts[first]):
            reads = sum(leaf.visits(run) for run in leaf.runs[first])
            for tier in range(len(leaf.tiers) - 1):
                of, stays = (tensor, part, tier), ("stays", tensor, part, tier)
                yield at_most("stays", of, [(stays, 1)], number)
                far = leaf.outside(tier)
                entering = [(one, 1) for one in leaf.entering(first, part, tier)]
                away: Terms = [(one, Fraction(1, max(1, reads))) for one in leaf.reads(first, part, far)]
                if last != first:
                    entering += [(one, 1) for one in leaf.entering(last, part, tier)]
                    away = [(one, 1) for one in leaf.reads(first, part, far)]
                    leaving = [(one, 1) for value in (first, last) for one in leaf.leaving(value, part, tier)]
                    made = _written("made", last, part, far)
                    yield at_least("leaves", of, [(stays, 1), *leaving, *made], number)
                if away:  # what nobody touches need never be near
                    yield at_least("returns", of, [(stays, 1), *entering, *away], number)
