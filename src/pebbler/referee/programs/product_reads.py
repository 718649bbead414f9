"""The least number of reads of a matrix product from outside a given room, and their cost on a machine of many levels.

A read that costs `p` costs one `q[1] - q[0]` for every step of prices below `p`: the price of all reads is the sum, over the prices
`q` of the machine, of the reads from levels that cost more than `q`. Each of these numbers has a bound of its own, by how much fits
into the other levels. `docs/products.md` has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from pebbler.arrays import Ints
from pebbler.game.dataflow import Dataflow
from pebbler.game.starts import PlayedGraph, start_choices
from pebbler.referee import pricing
from pebbler.referee.kernels.near_states import MOST_CELLS
from pebbler.referee.programs.compulsory_traffic import run_cost
from pebbler.referee.programs.near_game import near_cost_by_copies
from pebbler.referee.programs.product_midway import Box, least_midway_reads
from pebbler.referee.programs.product_points import ProductPoints
from pebbler.referee.programs.room_game import MOST_PLACES, least_room_entries, room_entries_by_copies

__all__ = [
    "ProductForm",
    "least_entries",
    "least_outside_reads",
    "most_points",
    "product_bound",
    "product_traffic",
    "prove_products",
]

_LENGTHS = 48  # of a segment, that are tried where there are many
_ALL_LENGTHS = 400
_MOST_OPS = 200_000
_LAYERED = 600  # elements up to which points are counted layer by layer


def product_bound(task: PlayedGraph) -> float:
    """Return a bound for every plan of a graph of single elements with products in it as it is; 0 where there are none.

    >>> from pebbler import machine, workloads
    >>> from pebbler.referee.rows.task import Task
    >>> product_bound(Task(workloads.chain(6), machine("red-blue"), steady=False))
    0.0
    """
    total = product_traffic(task)
    found = float(total)
    return found if Fraction(found) <= total else math.nextafter(found, 0.0)


def prove_products(task: PlayedGraph, certificate: Mapping[str, Any], ends: float) -> Fraction:
    """Return the bound that the formula `products` proves; its certificate holds nothing but its name."""
    return product_traffic(task)


def product_traffic(task: PlayedGraph) -> Fraction:
    """Return that bound exactly."""
    flow, machine = task.graph.dataflow, task.machine
    if machine.management == "recency" or machine.line > 1 or not 0 < flow.ops <= _MOST_OPS:
        return Fraction()
    points = ProductPoints.of(flow)
    if points is None:
        return Fraction()
    caches, fastest = machine.management != "explicit", machine.operands == "fastest"
    write = pricing.prices(machine, "write")
    written = int(flow.value_size[flow.op_writes.items].sum())
    total = Fraction(run_cost(task))
    if caches:
        total += Fraction(float(write[0])) * written
    elif not fastest:
        total += Fraction(float(write.min())) * written
    elif len(machine.level) > 1:  # what is there at the end and does not fit has been copied out
        out = Fraction(float(pricing.prices(machine, "read")[0])) + Fraction(float(write[1:].min()))
        total += out * _copied_out(task, points)
    return total + _reads(task, points, _steps(task))


@dataclass(frozen=True)
class ProductForm:
    """A product as the bound sees it: `points` multiplications of elements of two matrices, summed up to elements of a third."""

    points: int
    left: int  # how many elements the matrices have
    right: int
    sums: int
    spread: int = 2  # entries of one move beyond its first: 2 where operands need not be inside, 0 where they must
    apart: bool = True  # whether products are made by one op and added by another
    placed: bool = False  # whether moves say where values are, not a cache

    @property
    def extents(self) -> tuple[int, int, int]:
        """The numbers of elements."""
        return self.left, self.right, self.sums


def least_outside_reads(form: ProductForm, room: int, at_start: int) -> int:
    """Return the number of reads of matrix elements and of partial sums that are from outside of `room` at least.

    `at_start` elements of the matrices may be inside when it begins.

    >>> least_outside_reads(ProductForm(16**3, 16**2, 16**2, 16**2), 16, 16)
    1979
    """
    entries = least_entries(form, room, at_start)
    if form.apart and form.placed:
        entries = max(entries, least_room_entries(room, form.points, at_start))
    return max(0, form.left + form.right - at_start, entries - form.sums)


def most_points(extents: tuple[int, int, int], elements: Ints) -> Ints:
    """Return the number of points of a product that can be made from so many elements of the three kinds, at most.

    The lesser of what Loomis and Whitney allow and, for small numbers of elements, of what layers allow.

    >>> most_points((4, 4, 4), np.array([3, 5, 6, 12, 99])).tolist()
    [1, 2, 2, 8, 8]
    >>> most_points((99, 99, 99), np.array([8, 17, 24])).tolist()  # 4, 13 and 22 by Loomis and Whitney alone
    [4, 12, 20]
    """
    low, middle, high = sorted(extents)
    first = np.minimum(low, elements // 3)
    second = np.minimum(middle, (elements - first) // 2)
    third = np.minimum(high, elements - first - second)
    found = np.array(
        [math.isqrt(a * b * c) for a, b, c in zip(first.tolist(), second.tolist(), third.tolist(), strict=True)]
    )
    small = elements <= _LAYERED
    layered = np.array(_layered_points(min(low, _LAYERED), min(int(elements.max()), _LAYERED)), np.int64)
    found[small] = np.minimum(found[small], layered[elements[small]])
    return found


@lru_cache(maxsize=64)
def _layered_points(widest: int, most: int) -> tuple[int, ...]:
    """Return the points of layers over a base of at most `widest` elements, by how many elements there are, up to `most`.

    A layer of x + y elements has x y points at most, and no more than the base has elements.
    """
    base = np.arange(widest + 1)
    sides = np.arange(math.isqrt(4 * widest) + 2)
    worth = np.minimum(base[:, None], sides * sides // 4)  # of a layer, by base and elements
    best = np.zeros((widest + 1, most + 1), np.int64)
    for elements in range(2, most + 1):
        last = sides[2 : elements + 1]
        best[:, elements] = (best[:, elements - last] + worth[:, last]).max(axis=1)
    found = np.zeros(most + 1, np.int64)
    for size in range(1, min(widest, most) + 1):
        found[size:] = np.maximum(found[size:], best[size, : most + 1 - size])
    return tuple(found.tolist())


def least_entries(form: ProductForm, room: int, at_start: int) -> int:
    """Return the least number of entries of elements: of matrix elements by a read, of sums by a read or by being begun."""
    every = sum(form.extents)
    most = most_points(form.extents, np.arange(2 * every + 4))
    inside, begun = min(room, every), min(at_start, room, every)
    alone = np.flatnonzero(most[begun:] >= form.points)
    single = int(alone[0]) if len(alone) else None  # in one segment that never ends
    some = np.arange(1, every + 1) if every <= _ALL_LENGTHS else np.geomspace(1, every, _LENGTHS)
    lengths = np.concatenate([some, 2 * min(room, every) + np.arange(-3, 4)]).astype(np.int64)
    best = 0
    for length in np.unique(lengths[(lengths > 0) & (lengths <= every)]).tolist():
        whole = np.arange(length, min(length + form.spread, every) + 1)
        rest = np.arange(length)
        found = _fewest(form.points, whole, most[inside + whole], most[begun + whole], most[inside + rest])
        if single is not None and single < length:
            found = min(found, single)
        best = max(best, found)
        if form.apart and inside:
            ends, rest = np.array([length]), np.arange(length + 1)
            made, first = most[inside - 1 + ends] + 1, most[begun + ends] + 1
            found = _fewest(form.points, ends, made, first, most[inside - 1 + rest])
            if single is not None and single <= length:
                found = min(found, single)
            best = max(best, found)
    return best


def _fewest(points: int, entries: Ints, made: Ints, first: Ints, last: Ints) -> int:
    """Return the fewest entries of a first segment, of some that follow, and of a last one that together make all points.

    Segments have one of `entries` each and make `made` points at most, the first `first`; the last makes `last[y]` with y entries.
    """
    pairs = [(y, w) for y, w in zip(entries.tolist(), made.tolist(), strict=True) if w]
    if not pairs:
        return 0
    dearest, of = min(pairs, key=lambda pair: Fraction(*pair))  # entries per point: a fraction of two whole numbers
    left = np.maximum(0, points - first[:, None] - last)
    return int((entries[:, None] + np.arange(len(last)) - (-dearest * left // of)).min())


@dataclass(frozen=True)
class _Inside:
    """The levels that cost no more than some price to read, and how much fits into them."""

    room: int
    levels: frozenset[int]


def _steps(task: PlayedGraph) -> list[tuple[Fraction, _Inside]]:
    """Return by how much the price of a read rises outside of each set of levels."""
    machine = task.machine
    read, room = pricing.prices(machine, "read"), pricing.capacities(machine)
    found: list[tuple[Fraction, _Inside]] = []
    if machine.management != "explicit":
        below = np.minimum.accumulate(read[::-1])[::-1].tolist()
        reach = [0, *np.cumsum(room[:-1]).tolist()]
        for level, (lower, price) in enumerate(pairwise([0.0, *below])):
            found.append(
                (
                    Fraction(price) - Fraction(lower),
                    _Inside(min(reach[level], pricing.UNBOUNDED), frozenset(range(level))),
                )
            )
    else:
        fast = {0} if machine.operands == "fastest" else set()
        for lower, price in pairwise(sorted({0.0, *read.tolist()})):
            levels = frozenset(np.flatnonzero(read <= lower).tolist()) | fast
            found.append(
                (Fraction(price) - Fraction(lower), _Inside(sum(int(room[level]) for level in levels), levels))
            )
    return [(step, inside) for step, inside in found if step > 0 and inside.room < pricing.UNBOUNDED]


def _reads(task: PlayedGraph, points: ProductPoints, steps: list[tuple[Fraction, _Inside]]) -> Fraction:
    """Return the least cost of all reads, over the numbers of copies of matrix elements that there may be.

    A copy is a read that no op makes. Without copies most operands of products are outside.
    """
    flow, machine, unit = task.graph.dataflow, task.machine, points.unit
    least = [_outside(task, points, inside) for _, inside in steps]
    if machine.management != "explicit" or machine.operands == "fastest" or not steps or steps[0][1].room:
        return sum((step * reads for (step, _), reads in zip(steps, least, strict=True)), Fraction())
    op = _readers(flow)
    makes, element = (
        np.isin(op, points.makers),
        np.isin(flow.op_reads.items, np.concatenate([points.left, points.right])),
    )
    others = _units_read(flow, op[~makes], flow.op_reads.items[~makes])
    uses = np.sort(np.unique(flow.op_reads.items[makes & element], return_counts=True)[1])[::-1]
    served = np.concatenate(
        [[0], np.cumsum(uses)]
    )  # operands of products, by the number of elements that are ever inside
    # More copies than there are elements change no term but the first and those that count entries by copies, whose last number
    # is for any that are more.
    copies = np.arange(max(len(served), points.count // 2 + 2))
    by_ops = int(_units_read(flow, op, flow.op_reads.items).sum())
    outside = [np.maximum(least[0], by_ops + unit * copies)]
    for (_, inside), reads in zip(steps[1:], least[1:], strict=True):
        room = inside.room // unit
        elements = np.minimum(min(room, _at_start(task, points, inside)) + copies, len(uses))
        operands = 2 * points.count - np.minimum(min(room, 2) * points.count, served[elements])
        beside = int(np.maximum(0, others - inside.room).sum())
        found = np.maximum(reads, unit * np.minimum.accumulate(operands + copies) + beside)
        if points.apart and 2 <= room <= MOST_PLACES:
            entries = room_entries_by_copies(room, points.count, min(room, _at_start(task, points, inside)), copies)
            found = np.maximum(found, unit * (entries - len(points.sums)) + int(_beside(flow, points, inside).sum()))
        outside.append(found)
    scale = math.lcm(*(step.denominator for step, _ in steps))
    total = sum(int(step * scale) * reads.astype(object) for (step, _), reads in zip(steps, outside, strict=True))
    return Fraction(min(total + _near(task, points, steps, outside, scale)), scale)


def _near(
    task: PlayedGraph, points: ProductPoints, steps: list[tuple[Fraction, _Inside]], outside: list[Ints], scale: int
) -> Any:
    """Return the cost of reads from the nearest levels beyond that of the three steps, by the number of copies.

    For three steps, with room for no value, for one and for up to four, all reads from outside together have a bound of their own.
    """
    flow, unit = task.graph.dataflow, points.unit
    rooms = [inside.room // unit for _, inside in steps]
    none, one, few = (
        [at for at, room in enumerate(rooms) if low <= room <= high] for low, high in ((0, 0), (1, 1), (2, MOST_CELLS))
    )
    if not (none and one and few and _binary(flow, points)):
        return 0
    three = none[0], one[0], few[-1]
    beside = sum(int(_beside(flow, points, steps[at][1]).sum()) for at in three)
    uses = int(np.unique(flow.op_reads.items[np.isin(_readers(flow), points.makers)], return_counts=True)[1].max())
    copies, additions = np.arange(len(outside[0])), len(points.ops) - points.count
    cost = unit * near_cost_by_copies(rooms[three[2]], points.count, additions, uses, copies) + beside
    step = min(steps[at][0] for at in three)
    return int(step * scale) * np.maximum(0, cost.astype(object) - sum(outside[at].astype(object) for at in three))


def _binary(flow: Dataflow, points: ProductPoints) -> bool:
    """Return whether values of one size are multiplied and added two at a time, and what is added comes from these ops alone."""
    adders = np.setdiff1d(points.ops, points.makers)
    added = flow.op_reads.items[np.isin(_readers(flow), adders)]
    sizes = flow.value_size[
        np.concatenate([points.left, points.right, flow.op_writes.items[np.isin(_writers(flow), points.ops)]])
    ]
    return bool(
        points.apart
        and (np.diff(flow.op_reads.start)[adders] == 2).all()
        and np.isin(flow.value_maker[added], points.ops).all()
        and (np.diff(flow.value_readers.start)[added] == 1).all()
        and len(np.unique(added)) == len(added)
        and (sizes == points.unit).all()
    )


def _at_start(task: PlayedGraph, points: ProductPoints, inside: _Inside) -> int:
    """Return the number of matrix elements that may be in some levels of an explicit machine when it begins."""
    start = {int(task.graph.dataflow.start_value[tensor]): where for tensor, where in start_choices(task).items()}
    given = [start.get(value) for value in (*points.left.tolist(), *points.right.tolist())]
    return sum(where is None or not inside.levels.isdisjoint(where) for where in given)


def _outside(task: PlayedGraph, points: ProductPoints, inside: _Inside) -> int:
    """Return the number of units that are read from outside of some levels at least, by ops and copies together."""
    flow, machine = task.graph.dataflow, task.machine
    explicit = machine.management == "explicit"
    # On a cache part of a value may be inside: there one unit of each stands for it.
    unit = points.unit if explicit else 1
    room = inside.room // unit
    at_start = _at_start(task, points, inside) if explicit else room if task.steady else 0
    by_copies = explicit and machine.operands == "fastest"
    sizes = len(points.left), len(points.right), len(points.sums)
    form = ProductForm(points.count, *sizes, spread=0 if by_copies else 2, apart=points.apart, placed=explicit)
    found = unit * least_outside_reads(form, room, min(room, at_start))
    if by_copies:
        return found
    # Of what one op reads, no more than the room is inside. Of ops that have no part in the products, what is no matrix
    # element comes on top.
    every = _units_read(flow, _readers(flow), flow.op_reads.items)
    found = max(found + int(_beside(flow, points, inside).sum()), int(np.maximum(0, every - inside.room).sum()))
    box = _gathered_box(flow, points) if explicit else None
    return found if box is None else max(found, unit * least_midway_reads(box, room, min(room, at_start)))


def _gathered_box(flow: Dataflow, points: ProductPoints) -> Box | None:
    """Return the extents of a product that has every point of its box and whose results are all read by one other op."""
    m, n, k = (points.index.max(axis=0) + 1).tolist()
    sizes = len(points.left), len(points.right), len(points.sums)
    if points.count != m * n * k or sizes != (m * k, k * n, m * n):
        return None
    results = np.isin(flow.op_reads.items, points.sums) & ~np.isin(_readers(flow), points.ops)
    pairs = np.unique(_readers(flow)[results] * flow.values + flow.op_reads.items[results])
    return (m, n, k) if (np.bincount(pairs // flow.values, minlength=1) == len(points.sums)).any() else None


def _beside(flow: Dataflow, points: ProductPoints, inside: _Inside) -> Ints:
    """Return per op that has no part in the products how much it reads from outside, apart from matrix elements."""
    op, elements = _readers(flow), np.concatenate([points.left, points.right])
    apart = ~np.isin(op, points.ops) & ~np.isin(flow.op_reads.items, elements)
    return np.maximum(0, _units_read(flow, op[apart], flow.op_reads.items[apart]) - inside.room)


def _readers(flow: Dataflow) -> Ints:
    """Return the op of each read."""
    return np.repeat(np.arange(flow.ops), np.diff(flow.op_reads.start))


def _writers(flow: Dataflow) -> Ints:
    """Return the op of each write."""
    return np.repeat(np.arange(flow.ops), np.diff(flow.op_writes.start))


def _units_read(flow: Dataflow, op: Ints, value: Ints) -> Ints:
    """Return the number of units that each op reads of these values, each value once."""
    pairs = np.unique(op * flow.values + value)
    units = np.bincount(pairs // flow.values, flow.value_size[pairs % flow.values].astype(np.float64), flow.ops)
    return units.astype(np.int64)


def _copied_out(task: PlayedGraph, points: ProductPoints) -> int:
    """Return the number of units of sums that are copied out of the fastest level at least, where ops read and write there."""
    flow = task.graph.dataflow
    lasting = {value for value in points.sums.tolist() if flow.value_must_survive[value]}
    if not lasting:
        return 0
    # Right after the last run of an op that makes one of them, what it has read takes room as well.
    makers = {int(flow.value_maker[value]) for value in lasting}
    read = [set(flow.op_reads.row(op).tolist()) - set(flow.op_destroys.row(op).tolist()) for op in makers]
    beside = min(sum(int(flow.value_size[value]) for value in values - lasting) for values in read)
    kept = sum(int(flow.value_size[value]) for value in lasting)
    return max(0, kept - max(0, int(pricing.capacities(task.machine)[0]) - beside))
