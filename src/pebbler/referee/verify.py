"""The verifier of certificates: exact, small, and it knows no solver.

A certificate is a tree. Inner nodes split the tile sizes of an axis, or an either-or of plans; leaves have weights for rows. The
rows of a leaf are rebuilt here from the graph and the machine (`pebbler.referee.rows`). A leaf proves the sum of its rows'
constants times their weights, if no counter is charged above what the referee charges for it; the tree proves the least of its
leaves. It `covers` every form of the graph, or the graph as it is, where nothing is cut. Certificates that name a `formula` are of
the graph as it is, and have facts of their own (`pebbler.referee.programs`).
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from pebbler.game.dataflow import NONE
from pebbler.referee.certificates import NotProven, common_denominator, read_weights, short
from pebbler.referee.programs.formulas import prove
from pebbler.referee.rows.family import Family
from pebbler.referee.rows.leaf import FEW, Leaf, Near
from pebbler.referee.rows.row import Counter, Number, Row
from pebbler.referee.rows.table import rows_of
from pebbler.referee.rows.task import Task
from pebbler.referee.rows.tile_range import AxisRange, TileRange

__all__ = ["LeafRows", "LeafSetting", "NotProven", "TaskVerifier", "charges", "leaves", "stated", "verify"]

Weights = Mapping[tuple[Any, ...], Fraction]
MOST_LEAVES = 100_000
MOST_KEPT = 64  # families of ranges that are kept; trees go through ranges of one family in a row


def verify(task: Task, certificate: object, seconds: float = math.inf) -> float:
    """Return the bound that a certificate proves; raise if it proves nothing, or takes longer than `seconds`.

    >>> from pebbler.game.machine import machine
    >>> from pebbler.workloads import mlp
    >>> task = Task(mlp(), machine("notes"), steady=True)
    >>> verify(task, {"covers": "graph", "tree": {"moment": None, "weights": []}})  # every element is read and written
    380240.0
    """
    return TaskVerifier(task).verify(certificate, seconds)


class TaskVerifier:
    """A verifier of certificates of one task; it keeps the rows of a number of leaves for further certificates, by default none."""

    def __init__(self, task: Task, kept: int = 0) -> None:
        self.task, self.kept = task, kept
        self._families: dict[object, Family] = {}
        self._rows: dict[object, LeafRows] = {}

    def verify(self, certificate: object, seconds: float = math.inf) -> float:
        """Return the bound that a certificate proves; raise if it proves nothing, or takes longer than `seconds`."""
        task = self.task
        if not isinstance(certificate, Mapping):
            raise NotProven(f"expected a certificate, got {short(certificate)}")
        if certificate.get("formula") is not None:
            return prove(task, certificate, time.monotonic() + seconds)
        if task.excluded:
            raise NotProven(f"no facts are known where {task.excluded}")
        ranges = {"forms": lambda: TileRange.all_of(task.graph), "graph": lambda: TileRange.of_sizes(task.graph, {})}
        covers = certificate.get("covers")
        if not isinstance(covers, str) or covers not in ranges:
            raise NotProven(f"it covers {short(covers)}; expected forms or graph")
        root, ends = LeafSetting(ranges[covers]()), time.monotonic() + seconds
        return stated(task, self._least(certificate.get("tree"), root, ends))

    def _least(self, tree: object, root: LeafSetting, ends: float) -> Fraction:
        """Return the bound of the weakest leaf of a tree."""
        least: Fraction | None = None
        for number, (node, setting) in enumerate(leaves(tree, root)):
            if number > MOST_LEAVES or time.monotonic() > ends:
                raise NotProven(f"it was not verified to its end: {number:,} leaves took all the time there was")
            family, weights = self._family(setting.tiles), read_weights(node.get("weights"))
            bound = _leaf_bound(self._rows_of(setting.leaf(family, node.get("moment")), weights), weights)
            least = bound if least is None else min(least, bound)
        return least if least is not None else Fraction()

    def _family(self, tiles: TileRange) -> Family:
        key = (tiles.open, tiles.cut)
        if key not in self._families:
            _make_room(self._families, MOST_KEPT)
            self._families[key] = Family(self.task, *key)
        return self._families[key]

    def _rows_of(self, leaf: Leaf, weights: Weights) -> LeafRows:
        """Return the rows of a leaf, all of them where they are kept."""
        if not self.kept:
            return LeafRows(leaf, rows_of(leaf, {key[0] for key in weights if key}))
        key = (tuple(leaf.tiles.ranges.items()), leaf.moment and leaf.moment.value, leaf.near)
        if key not in self._rows:
            _make_room(self._rows, self.kept)
            self._rows[key] = LeafRows(leaf, rows_of(leaf))
        return self._rows[key]


def _make_room(known: dict[object, Any], most: int) -> None:
    """Drop the oldest kept rows beyond the limit."""
    if len(known) >= most:
        del known[next(iter(known))]


def stated(task: Task, least: Fraction) -> float:
    """Return a bound as a number no larger than it; the next whole number where every plan costs one."""
    least = max(least, Fraction())
    whole = all(price.is_integer() for price in (*task.read, *task.write))
    if whole and not any(op.cost for op in task.graph.ops):  # pieces of an op cost fractions of it
        return float(math.ceil(least))
    return math.nextafter(float(least), 0.0) if least else 0.0


@dataclass(frozen=True)
class LeafSetting:
    """Facts about a leaf that the splits above it state."""

    tiles: TileRange
    moment: int | None = None  # that the assumptions are about
    near: tuple[Near, ...] = ()

    def leaf(self, family: Family, value: object) -> Leaf:
        """Return the leaf with the moment that it names."""
        if self.near and value != self.moment:
            raise NotProven(
                f"a leaf is about the moment of value {short(value)}, what is assumed about that of {self.moment}"
            )
        if value is None:
            return Leaf(family, self.tiles)
        if type(value) is not int or not 0 <= value < family.flow.values:
            raise NotProven(f"{short(value)} is not the number of a value")
        if family.flow.value_maker[value] == NONE or not family.moment(value).after:
            raise NotProven(f"value {value} has no moment: no op waits for all of it")
        if any(near.level >= len(family.task.reach) for near in self.near):
            raise NotProven("something is assumed about a level that has no end")
        return Leaf(family, self.tiles, family.moment(value), self.near)

    def cut(self, axis: object, most: object) -> tuple[LeafSetting, LeafSetting]:
        """Return the settings of tiles up to a size and of larger ones."""
        one = self.tiles.ranges.get(axis) if isinstance(axis, str) else None
        if one is None or not isinstance(axis, str) or type(most) is not int or not one.least <= most < one.most:
            raise NotProven(f"axis {short(axis)} cannot be split at {short(most)}")
        low, high = AxisRange(one.extent, one.least, most), AxisRange(one.extent, most + 1, one.most)
        first, second = (replace(self.tiles, ranges={**self.tiles.ranges, axis: half}) for half in (low, high))
        return replace(self, tiles=first), replace(self, tiles=second)

    def assuming(self, moment: object, level: object) -> dict[str, LeafSetting]:
        """Return the settings of the three ways in which elements can be near both times, which leave nothing out."""
        place = f"level {short(level)} at the moment of value {short(moment)}"
        if (
            not isinstance(moment, int)
            or not isinstance(level, int)
            or bool in (type(moment), type(level))
            or level < 0
        ):
            raise NotProven(f"nothing can be assumed about {place}")
        if self.near and (moment != self.moment or level in [near.level for near in self.near]):
            raise NotProven(f"nothing can be assumed about {place} besides what is")
        return {few: replace(self, moment=moment, near=(*self.near, Near(level, few))) for few in FEW}


def leaves(tree: object, setting: LeafSetting) -> Iterator[tuple[Mapping[str, Any], LeafSetting]]:
    """Yield the leaves of a tree with what the splits above each say; no split leaves anything out."""
    pending: list[tuple[object, LeafSetting]] = [(tree, setting)]
    while pending:
        node, setting = pending.pop()
        if not isinstance(node, Mapping):
            raise NotProven(f"expected a split or a leaf, got {short(node)}")
        if "axis" in node:
            low, high = setting.cut(node["axis"], node.get("most"))
            pending += [(node.get("low"), low), (node.get("high"), high)]
        elif "near" in node:
            ways = setting.assuming(node.get("moment"), node["near"])
            pending += [(node.get(few), way) for few, way in ways.items()]
        else:
            yield node, setting


class LeafRows:
    """The rows of a leaf by their keys, those that say how many elements there are (`Row.whole`) apart; what counters cost."""

    def __init__(self, leaf: Leaf, rows: Sequence[Row]) -> None:
        self.leaf = leaf
        self.weighted = {row.key: row for row in rows if not row.whole}
        self.whole = [row for row in rows if row.whole]
        self._prices: dict[Counter, Number] = {}

    def price(self, counter: Counter) -> Number:
        """Return the least exact price that the referee charges for one unit of a counter."""
        if counter not in self._prices:
            price = self.leaf.price(counter)
            self._prices[counter] = int(price) if price.is_integer() else Fraction(price)
        return self._prices[counter]


def _leaf_bound(rows: LeafRows, weights: Weights) -> Fraction:
    """Return the bound that rows with weights prove for a leaf; raise if a counter is charged above its price."""
    total, excess = charges(rows, weights)
    for counter, over in excess.items():
        price = rows.leaf.price(counter)
        raise NotProven(f"{counter} is charged {float(price + over)}, and costs {price}")
    return total


def charges(rows: LeafRows, weights: Weights) -> tuple[Fraction, dict[Counter, Fraction]]:
    """Return the sum of the rows' constants times their weights, and by how much counters are charged above their price.

    Rows that say how many elements there are have no weights of their own: each gets what the cheapest way that its elements
    have is worth, once everything else is charged.
    """
    for key, weight in weights.items():
        if key not in rows.weighted:
            raise NotProven(f"there is no row {short(key)}")
        if weight < 0:
            raise NotProven(f"{key}: the weight {weight} is negative")
    over = common_denominator(weights)
    charged: dict[Counter, Number] = defaultdict(int)
    total: Number = 0
    for key, weight in weights.items():
        row, times = rows.weighted[key], weight.numerator * (over // weight.denominator)
        total += times * row.least
        for counter, factor in row.terms.items():
            charged[counter] += times * factor
    for row in rows.whole:
        worth = min(rows.price(one) * over - charged.get(one, 0) for one, factor in row.terms.items() if factor > 0)
        if worth > 0:
            total += worth * row.least
            for counter, factor in row.terms.items():
                charged[counter] += worth * factor
    excess = {
        counter: Fraction(amount - price) / over
        for counter, amount in charged.items()
        if amount > (price := rows.price(counter) * over)
    }
    return Fraction(total) / over, excess
