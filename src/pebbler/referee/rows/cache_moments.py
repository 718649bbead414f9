"""Room at a moment of the step, and between steps, on caches.

At the moment T all of a value has just been made. Two touches of an element that is there at T matter: the first of the step,
found in level i, and the first after T, found in level j (`found`; `alive` for what is made before T and read after it, which has
j only).

- A stack only lets elements sink until they are touched. So what is found within a reach by its first touch after T is within that
  reach at T, and what is found there by its first touch of the step is there between steps: at most as many units as the reach.
- The first touch of a start value is a read, because what overwrites it waits for its readers; so is the first after T of what is
  certainly read after T. The read is by a first run of an op that may run then, or by a later run.
- An element that no op can touch before T is found at T where the step began with it, or deeper.
- A value made before T and read after it is there at T, or made again after T (`made_again`).
- Let such a value be read before T, too, in tiles that do not fit into level t: every read finds an element below t. What was
  written before T is written back to there when it is read before T. If the first touch after T is a write, it is written back
  once more when that is read.
- What an update has written is found by the touches i and j of the next step: it has been written back to the deeper of the two.
  Without a next step it is written back to where it lies at the end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pebbler.game.dataflow import NONE
from pebbler.referee.rows.leaf import Leaf, Start
from pebbler.referee.rows.row import Counter, Row, at_least, at_most

__all__ = ["cache_moments", "found"]


def found(leaf: Leaf, start: Start, part: int) -> dict[tuple[int, int], Counter]:
    """Return the counters of a part of a start value, by the levels of its first touches in the step and after the moment."""
    levels = leaf.family.task.levels
    first = levels if leaf.family.task.steady else levels[-1:]  # nobody has touched it before the first step
    then = levels if alive(leaf, start) else levels[:1]
    return {(i, j): ("found", start.tensor, part, i, j) for i in first for j in then}


def alive(leaf: Leaf, start: Start) -> bool:
    """Whether a start value is certainly there at the moment, and is kept or read after it."""
    moment = leaf.moment
    if moment is None or (start.update != NONE and start.update not in moment.after):
        return False
    kept = start.update == NONE and leaf.family.task.graph.tensors[start.tensor].kind == "param"
    return kept or bool(moment.readers[start.first][1])


def cache_moments(leaf: Leaf) -> Iterator[Row]:
    """Room at the moment and between steps, and the price of touches by the place of their elements."""
    levels = leaf.family.task.levels
    near_then: dict[int, list[Counter]] = defaultdict(list)
    near_first: dict[int, list[Counter]] = defaultdict(list)
    for start in leaf.starts:
        yield from _start_rows(leaf, start, near_first, near_then)
    for value in leaf.values:
        if leaf.crossing(value):
            yield from _crossing_rows(leaf, value, near_then)
    for value in leaf.kept:
        yield from _kept_rows(leaf, value, near_then)
    for value in dict.fromkeys(one.total for one in leaf.waiting_sums):
        yield from _sum_rows(leaf, value, near_then)
    for level in levels[:-1]:
        reach = leaf.family.task.reach[level]
        for name, near in (("room at the moment", near_then), ("room between steps", near_first)):
            if near[level]:
                yield at_most(name, (level,), [(counter, 1) for counter in near[level]], reach)


def _start_rows(
    leaf: Leaf, start: Start, near_first: dict[int, list[Counter]], near_then: dict[int, list[Counter]]
) -> Iterator[Row]:
    task = leaf.family.task
    there = alive(leaf, start)
    phases = {run.phase for run in leaf.runs[start.first]}
    known = leaf.moment is not None and (start.update == NONE or start.update in leaf.moment.after)
    early = known and "before" in phases  # then its first touch comes before the moment
    same_parts = [one.number for one in leaf.parts.get(start.last, ())] == [
        one.number for one in leaf.parts[start.first]
    ]
    for part, (number, *_) in enumerate(leaf.parts[start.first]):
        at, of = found(leaf, start, part), (start.tensor, part)
        yield at_least("exists", of, [(counter, 1) for counter in at.values()], number, whole=True)
        for level in task.levels[:-1]:
            deeper = task.levels[level + 1 :]
            far_first = [(counter, -1) for (i, _), counter in at.items() if i > level]
            if phases:
                firsts = [*leaf.reads(start.first, part, deeper, *(("before", "early") if early else ()))]
                firsts += leaf.later(start.first, part, deeper, *(("before",) if early else ()))
                terms = [*((counter, 1) for counter in firsts), *far_first]
                yield at_least("first touch", (*of, level), terms, 0)
            if there and "after" in phases:
                then = [*leaf.reads(start.first, part, deeper, "after", "late")]
                then += leaf.later(start.first, part, deeper, "after")
                far = [(counter, -1) for (_, j), counter in at.items() if j > level]
                yield at_least("next touch", (*of, level), [*((counter, 1) for counter in then), *far], 0)
            if there and not phases & {"before", "any"}:
                rising = [(counter, 1) for (i, j), counter in at.items() if i > level >= j]
                yield at_most("only sinks", (*of, level), rising, 0)
            if there:
                near_then[level] += [counter for (_, j), counter in at.items() if j <= level]
            if task.steady:
                near_first[level] += [counter for (i, _), counter in at.items() if i <= level]
            if start.update != NONE and same_parts:
                yield from _left_behind(leaf, start, part, level, at, near_first)
    if start.update != NONE and same_parts and not task.steady:
        for part, (number, *_) in enumerate(leaf.parts[start.first]):
            ends = [(("end", start.tensor, part, level), 1) for level in task.levels]
            yield at_least("exists at the end", (start.tensor, part), ends, number, whole=True)


def _left_behind(
    leaf: Leaf,
    start: Start,
    part: int,
    level: int,
    at: dict[tuple[int, int], Counter],
    near_first: dict[int, list[Counter]],
) -> Iterator[Row]:
    """A value that an update has written pays for the levels that it sinks into."""
    task = leaf.family.task
    if task.steady:
        deep = [counter for (i, j), counter in at.items() if max(i, j) > level]
    else:
        ends = [("end", start.tensor, part, at_end) for at_end in task.levels]
        deep = ends[level + 1 :]
        near_first[level] += ends[: level + 1]
    terms = [(("sunk", start.last, part, level), 1), *((counter, -1) for counter in deep)]
    yield at_least("left behind", (start.tensor, part, level), terms, 0)


def _read_early(leaf: Leaf, value: int) -> bool:
    """Whether a value is certainly read before the moment."""
    return leaf.moment is not None and bool(leaf.moment.readers[value][0])


def _crossing_rows(leaf: Leaf, value: int, near_then: dict[int, list[Counter]]) -> Iterator[Row]:
    levels = leaf.family.task.levels
    early = _read_early(leaf, value)
    for part, (number, _, _, deep) in enumerate(leaf.parts[value]):
        at: list[Counter] = [("alive", value, part, level) for level in levels]
        again: list[Counter] = [("remade", "after", value, part)] if value in leaf.remade else []
        yield at_least("alive", (value, part), [(counter, 1) for counter in [*at, *again]], number, whole=True)
        for level in levels[:-1]:
            deeper = levels[level + 1 :]
            far = [(counter, -1) for counter in at[level + 1 :]]
            then = [*leaf.reads(value, part, deeper, "after", "late"), *leaf.later(value, part, deeper, "after")]
            yield at_least("next touch", (value, part, level, "made"), [*((one, 1) for one in then), *far], 0)
            yield at_least("sinks", (value, part, level), [(("sunk", value, part, level), 1), *far], 0)
            near_then[level] += at[: level + 1]
            if early and again and deep > level:
                terms = [(("sunk", value, part, level), 1), *((counter, 1) for counter in at)]
                yield at_least("sinks again", (value, part, level), terms, 2 * number)


def _kept_rows(leaf: Leaf, value: int, near_then: dict[int, list[Counter]]) -> Iterator[Row]:
    """Operands kept for waiting sums (`sums_wait`) are read from where they were, and have been written back to there."""
    levels = leaf.family.task.levels
    early = _read_early(leaf, value)
    for part, (number, _, _, deep) in enumerate(leaf.parts[value]):
        at: list[Counter] = [("kept", value, part, level) for level in levels]
        renewed: Counter = ("renewed", value, part)
        if value in leaf.remade:
            yield at_least("renewed", (value, part), [(("remade", "after", value, part), 1), (renewed, -1)], 0)
        for level in levels[:-1]:
            deeper = levels[level + 1 :]
            far = [(counter, -1) for counter in at[level + 1 :]]
            then = [*leaf.reads(value, part, deeper, "after", "late"), *leaf.later(value, part, deeper, "after")]
            yield at_least("next touch", (value, part, level, "kept"), [*((one, 1) for one in then), *far], 0)
            sunk = (("sunk", value, part, level), 1)
            yield at_least("sinks", (value, part, level), [sunk, *far], 0)
            near_then[level] += at[: level + 1]
            if deep > level and value in leaf.remade:
                least = number if early else 0
                yield at_least("sinks again", (value, part, level), [sunk, (renewed, -1)], least)


def _sum_rows(leaf: Leaf, value: int, near_then: dict[int, list[Counter]]) -> Iterator[Row]:
    """A waiting sum is found where it was by the piece that continues it."""
    levels = leaf.family.task.levels
    for part in range(len(leaf.parts[value])):
        at: list[Counter] = [("waits", value, part, level) for level in levels]
        for level in levels[:-1]:
            far = [(counter, -1) for counter in at[level + 1 :]]
            then = [(one, 1) for one in leaf.adds(value, part, levels[level + 1 :])]
            yield at_least("next touch", (value, part, level, "sum"), [*then, *far], 0)
            near_then[level] += at[: level + 1]
