"""Lower bounds that hold for every order, tiling, fusion and recomputation of a graph, with certificates.

Tilings are told apart by ranges of tile sizes. For a range the rows that hold in it (`pebbler.referee.rows`) make a linear program,
whose duals are weights: rows times weights prove a bound for every plan of every tiling in the range. The weakest range is split in
two, again and again. The tree of splits, with the weights of its leaves, is the certificate.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from pebbler.collection import no_collection
from pebbler.files import int_if_whole
from pebbler.game.plan import Covers
from pebbler.referee.certificates import VERSION
from pebbler.referee.rows.elements import Axes
from pebbler.referee.rows.family import Family
from pebbler.referee.rows.leaf import Leaf
from pebbler.referee.rows.near_twice import paired
from pebbler.referee.rows.table import Facts, facts_of
from pebbler.referee.rows.tile_range import TileRange
from pebbler.referee.verify import LeafSetting, stated
from pebbler.solver.bounds.row_program import RowProgram
from pebbler.solver.problem import Problem

__all__ = ["RangeSearch", "TiledBound", "tiled_bound"]

WORK = 20_000  # values of all linear programs together
_SAMPLES, _LOOK_AGAIN = 2, 6  # splits by which an axis is judged, and after how many all are tried again
_OLD = 8  # with many axes: splits after which what each of them gains is measured again
_LESS, _DISAPPOINTING = 0.4, 0.5  # of what an axis has gained: expected the next time; and too little, so measure again
_MANY = 4  # axes that a range can be split along, from where on it is judged by itself and split along two at once
_SILENT, _ALL_ROWS = 24, 6
_TRIED = 2  # moments that assumptions are tried for
_WORTH = 1e-6  # by which part an assumption must raise a bound
_LITTLE = 1e-3  # what a part that a split did not raise counts as raised by
_POWERS = (0.25, 0.5, 0.75)  # of the largest extent: sizes of tiles that are looked at
_ROUNDING = Fraction(1, 10**6)
_SECONDS_EACH, _GUESSED = 0.01, 20  # for the exact weights of a leaf: a guess that counts as much as so many leaves
_ENOUGH = 8.0  # times what is proven without any assumption: above this nothing more is asked for


@dataclass(frozen=True)
class TiledBound:
    """A bound, its origin, and the certificate from which `pebbler.referee.verify` proves it."""

    energy: float
    proof: str
    certificate: Mapping[str, Any] | None = None


def tiled_bound(
    problem: Problem,
    work: int = WORK,
    seconds_left: Callable[[], float] = lambda: math.inf,
    sizes: Mapping[str, int] | None = None,
) -> TiledBound:
    """Return the best bound found; it holds for the graph and for every tiled or fused form of it.

    The search over ranges ends when its work is done or no seconds are left. With `sizes` the bound is for tiles of these
    sizes only, of axes not named whole.

    >>> from pebbler import machine, workloads
    >>> bound = tiled_bound(Problem.of(workloads.mlp(), machine("notes")), 1_000)
    >>> bound.energy > 3e6
    True
    """
    return RangeSearch(problem, sizes).run(work, seconds_left)


@dataclass(eq=False)
class _Node:
    """A range of tilings with what is assumed of it: the best bound found, by which program, and the nodes that it is split
    into.
    """

    setting: LeafSetting
    number: int
    bound: float  # of the node or of one that it is part of
    own: float = 0.0
    program: RowProgram | None = None
    complete: bool = False  # whether all rows have been tried
    split: dict[str, Any] = field(default_factory=dict)  # how, as certificates say it
    parts: dict[str, _Node] = field(default_factory=dict)
    gains: dict[str, float] = field(default_factory=dict)  # per axis: what splitting an earlier whole along it gained
    age: int = 0  # splits since these were measured

    def inherit(self, whole: _Node, *axes: str) -> None:
        """Take over what splits of the whole have gained, less along axes that it has been split along."""
        self.gains = {axis: gain * (_LESS if axis in axes else 1.0) for axis, gain in whole.gains.items()}
        self.age = whole.age + len(axes)

    def bounded_parts(self) -> Iterator[_Node]:
        """Yield the parts that have been bounded, or, of one that was split at once, its own parts."""
        for part in self.parts.values():
            yield from (part,) if part.program is not None else part.bounded_parts()

    def __lt__(self, other: _Node) -> bool:
        return (self.bound, self.number) < (other.bound, other.number)


class RangeSearch:
    """Splits the weakest node until the work is done, and goes on from there when it is asked again."""

    def __init__(self, problem: Problem, sizes: Mapping[str, int] | None = None) -> None:
        graph = problem.graph
        self.task = problem.task
        self.impossible = bool(self.task.excluded) or not graph.ops
        self.tiles = TileRange.all_of(graph) if sizes is None else TileRange.of_sizes(graph, sizes)
        # Nobody asks for a proof about tiles of certain sizes.
        self.covers: Covers | None = "forms" if sizes is None else None if sizes else "graph"
        self.work, self.number = 0, 0
        self.families: dict[tuple[Axes, Axes], Family] = {}
        self.useful: dict[int, float] = {}  # moments, by the best bound that each has given
        self.silent: dict[Facts, int] = dict.fromkeys(
            facts_of(self.task), 0
        )  # for how many programs each has not helped
        self.used: dict[tuple[Any, ...], int] = {}  # per row: the last program that gave it a weight
        self.programs = 0
        self.gains: dict[str, list[float]] = {}  # per axis: what splits have gained, the product over both parts
        self.cuts = 0
        self.open: list[_Node] = []
        self.root: _Node | None = None
        self.seconds_left: Callable[[], float] = lambda: math.inf
        self.stating = _GUESSED * _SECONDS_EACH, _GUESSED  # seconds for the exact weights of so many leaves

    def run(self, work: int, seconds_left: Callable[[], float] = lambda: math.inf) -> TiledBound:
        """Return the bound of the weakest node after a limit of work, or when no seconds are left."""
        if self.impossible:
            return TiledBound(0.0, "no energy is negative")
        with no_collection():  # kept rows are millions of objects: going through them is a quarter of the time
            return self._run(work, seconds_left)

    def _run(self, work: int, seconds_left: Callable[[], float]) -> TiledBound:
        self.seconds_left = seconds_left
        if self.root is None:
            self.root = _Node(LeafSetting(self.tiles), 0, 0.0)
            self._try_moments(self.root)
            self.open = [self.root]
        while self.work < work and seconds_left() > self._seconds_to_state():
            weakest = heapq.heappop(self.open)
            before = weakest.bound
            if not (self._assume(weakest) or self._cut(weakest)):
                heapq.heappush(self.open, weakest)
                if weakest.bound > before:  # by the rows of another moment
                    continue
                if weakest.complete:
                    break
                self._try(weakest, self._moment(weakest), every=True)
                heapq.heapify(self.open)
                continue
            for part in weakest.bounded_parts():
                heapq.heappush(self.open, part)
        return self._stated()

    def _family(self, tiles: TileRange) -> Family:
        key = (tiles.open, tiles.cut)
        if key not in self.families:
            self.families[key] = Family(self.task, *key)
            self.families[key].seconds_left = lambda: self.seconds_left()
        return self.families[key]

    def _new(self, node: _Node, setting: LeafSetting, *, every: bool = False) -> _Node:
        """Return a part of a node, bounded by the rows that bound the node; by every row where something new is assumed."""
        self.number += 1
        part = _Node(setting, self.number, node.bound)
        moment = setting.moment if setting.near else self._moment(node)
        if moment is not None and not self._family(setting.tiles).moment(moment).after:
            moment = None
        self._try(part, moment, every=every)
        return part

    def _moment(self, node: _Node) -> int | None:
        """Return the moment whose rows bound a node."""
        leaf = node.program.leaf if node.program is not None else None
        return leaf.moment.value if leaf is not None and leaf.moment is not None else None

    def _try(self, node: _Node, moment: int | None, *, every: bool = False) -> float:
        """Bound a node by the rows of a moment, by default of those that help elsewhere; keep them if they are the best."""
        setting, known = node.setting, max(node.bound, node.own)
        family, enough = self._family(setting.tiles), _ENOUGH * known if known else math.inf
        leaf = Leaf(family, setting.tiles)
        if moment is not None:
            leaf = Leaf(family, setting.tiles, family.moment(moment), setting.near)
        self.programs += 1
        every |= self.programs <= _SILENT or self.programs % _ALL_ROWS == 0
        if not every:
            facts = [one for one, silent in self.silent.items() if silent < _SILENT]
            since = self.programs - _SILENT
            program = RowProgram(leaf, enough, facts, lambda row: self.used.get(row.key, 0) >= since)
        else:
            program = RowProgram(leaf, enough)
        for one in self.silent:
            self.silent[one] = 0 if one in program.helpful else self.silent[one] + 1
        self.used.update(dict.fromkeys(program.used(), self.programs))
        self.work += family.flow.values
        if program.bound > node.own or node.program is None:
            node.own, node.program = program.bound, program
            node.bound = max(node.bound, program.bound)
        node.complete |= every
        return program.bound

    def _seconds_to_state(self) -> float:
        """Return the seconds needed to compute the exact bounds of the present leaves."""
        seconds, count = self.stating
        return self._missing() * seconds / count

    def _missing(self) -> int:
        return sum(node.program is not None and not node.program.stated for node in self.open)

    def _try_moments(self, node: _Node) -> None:
        """Bound a node by the rows of every moment, as long as there is time: of one in any case."""
        self._try(node, None)
        for number, moment in enumerate(self._family(node.setting.tiles).moments()):
            if number and self.seconds_left() <= 0:
                break
            bound = self._try(node, moment.value)
            self.useful[moment.value] = max(bound, self.useful.get(moment.value, 0.0))

    def _assume(self, node: _Node) -> bool:
        """Split a node by where parameters are near both times, in the level where that helps most; return whether it does."""
        setting = node.setting
        whole = setting.tiles.one_size
        if not (self.task.caches and self.task.steady) or (node is not self.root and not whole):
            return False
        if whole and not setting.near and node is not self.root:
            self._try_moments(node)
        ranked = sorted(self.useful, key=lambda one: -self.useful[one])
        moments = ranked[:_TRIED] if setting.moment is None else [setting.moment]
        best: tuple[float, dict[str, _Node], dict[str, Any]] = 0.0, {}, {}
        for moment in moments:
            for level in self._pair_levels(node, moment):
                parts = {few: self._new(node, one, every=True) for few, one in setting.assuming(moment, level).items()}
                least = min(part.own for part in parts.values())
                if least > node.own * (1 + _WORTH):
                    probes = [] if whole else self._probes()
                    least += sum(self._probe(node, sizes, moment, level) for sizes in probes)
                    if least > best[0]:
                        best = least, parts, {"moment": moment, "near": level}
        _, node.parts, node.split = best
        return bool(node.parts)

    def _probes(self) -> list[TileRange]:
        """Return single tilings that tell assumptions apart which do not differ for all tilings together."""
        ranges = self.tiles.ranges
        axis = max(ranges, key=lambda one: ranges[one].extent, default=None)
        if axis is None:
            return []
        sizes = sorted({max(1, round(ranges[axis].extent ** power)) for power in _POWERS})
        return [TileRange.of_sizes(self.task.graph, {axis: size}) for size in sizes]

    def _probe(self, node: _Node, tiles: TileRange, moment: int, level: int) -> float:
        """Return the bound of a tiling under an assumption."""
        node = _Node(LeafSetting(tiles), 0, node.bound)
        if not self._family(tiles).moment(moment).after:
            return 0.0
        return min(self._new(node, one, every=True).own for one in node.setting.assuming(moment, level).values())

    def _pair_levels(self, node: _Node, moment: int) -> list[int]:
        """Return levels in which not all parameters that are read before a moment and updated after it have room."""
        tiles = node.setting.tiles
        family = self._family(tiles)
        if not family.moment(moment).after:
            return []
        total = sum(
            int(family.flow.value_size[one.first]) for one in paired(Leaf(family, tiles, family.moment(moment)))
        )
        known = {near.level for near in node.setting.near}
        return [level for level, reach in enumerate(self.task.reach) if reach < total and level not in known]

    def _cut(self, node: _Node) -> bool:
        """Split the tile sizes of a node along the axis where that helps most; return whether they can be split."""
        ways, merit = _ways(node.setting), -1.0
        known = self._known_gains(node, ways)
        if known:
            ranked = sorted(ways, key=lambda axis: -known[axis])
            if len(ranked) >= _MANY:
                self._cut_twice(node, ranked[0], ranked[1])
                return True
            ways = {axis: ways[axis] for axis in ranked[:1]}
        else:
            node.age = 0
        for axis, most in ways.items():
            found = {side: self._new(node, half) for side, half in _halves(node.setting, axis, most).items()}
            gain = _gain(node.bound, [part.own for part in found.values()])
            node.gains[axis] = gain
            self.gains.setdefault(axis, []).append(gain)
            if gain > merit:
                merit, node.parts, node.split = gain, found, {"axis": axis, "most": most}
        for part in node.parts.values():
            part.inherit(node, node.split["axis"])
        return bool(node.parts)

    def _known_gains(self, node: _Node, ways: Mapping[str, int]) -> Mapping[str, float]:
        """Return gains of splits by axis: with few axes of the latest splits anywhere, with many of splits around the node; none
        if all axes are to be tried.
        """
        self.cuts += 1
        if len(ways) >= _MANY:
            return node.gains if node.age < _OLD and ways.keys() <= node.gains.keys() else {}
        if self.cuts % _LOOK_AGAIN == 0 or any(len(self.gains.get(axis, ())) < _SAMPLES for axis in ways):
            return {}
        return {axis: sum(self.gains[axis][-_SAMPLES:]) for axis in ways}

    def _cut_twice(self, node: _Node, first: str, second: str) -> None:
        """Split a node along an axis, and its parts along another one: parts as wide as these would soon be split as well."""
        most = _ways(node.setting)[first]
        node.split = {"axis": first, "most": most}
        for side, half in _halves(node.setting, first, most).items():
            if second not in (ways := _ways(half)):
                node.parts[side] = self._new(node, half)
                node.parts[side].inherit(node, first)
                continue
            part = node.parts[side] = _Node(half, self.number, node.bound, split={"axis": second, "most": ways[second]})
            for own, quarter in _halves(half, second, ways[second]).items():
                part.parts[own] = self._new(node, quarter)
                part.parts[own].inherit(node, first, second)
        found = [part.own for part in node.bounded_parts()]
        if _gain(node.bound, found) < _DISAPPOINTING * max(node.gains[first], node.gains[second]):
            for one in node.bounded_parts():
                one.age = _OLD

    def _stated(self) -> TiledBound:
        """Return the exactly proven bound, with the certificate."""
        assert self.root is not None
        began, missing = time.perf_counter(), self._missing()
        tree, least = _tree(self.root, self.open[0].bound)
        seconds, count = self.stating
        self.stating = seconds + time.perf_counter() - began, count + missing
        bound = stated(self.task, least)
        if self.covers is None:
            return TiledBound(bound, self._text())
        certificate = {"bound": int_if_whole(bound), "version": VERSION, "covers": self.covers, "tree": tree}
        return TiledBound(bound, self._text(), certificate)

    def _text(self) -> str:
        """Return in words where the bound comes from."""
        moment = self._moment(self.open[0])
        room = ""
        if moment is not None:
            elements = self._family(self.open[0].setting.tiles).elements
            room = f", and room when all of {elements.tensor(moment).name} has been made"
        between = ", and between steps" if self.task.steady else ""
        return f"every tiling: what pieces of each size read and write{room}{between}"


def _ways(setting: LeafSetting) -> dict[str, int]:
    """Return the axes to try, each with the largest size of the smaller tiles."""
    return {axis: low.ranges[axis].most for axis, (low, _) in setting.tiles.splits()}


def _halves(setting: LeafSetting, axis: str, most: int) -> dict[str, LeafSetting]:
    """Return the settings of smaller and of larger tiles along an axis, by their names in certificates."""
    return dict(zip(("low", "high"), setting.cut(axis, most), strict=True))


def _gain(before: float, after: Sequence[float]) -> float:
    """Return by how much bounds of parts have grown: the geometric mean of their logarithms, each at most one, as a bound far
    above the weakest need not grow further.
    """
    if before <= 0:
        return 1.0
    grown = [min(1.0, math.log(max(one / before, 1.0))) + _LITTLE for one in after]
    return float(math.prod(grown) ** (1 / len(grown)))


def _leaf(node: _Node, target: float) -> tuple[dict[str, Any], Fraction]:
    """Return a node as a leaf of a tree, and the bound that it proves: no finer weights are looked for beyond what is needed."""
    assert node.program is not None
    bound, weights = node.program.proven(target)
    moment = node.program.leaf.moment
    written = [[*key, str(weight)] for key, weight in weights.items() if weight]
    return {"moment": moment.value if moment is not None else None, "weights": written}, bound


def _tree(node: _Node, target: float) -> tuple[dict[str, Any], Fraction]:
    """Return the tree of a node, no deeper than a bound needs, and the bound that it proves."""
    if not node.parts or node.own >= target:
        return _leaf(node, target)
    trees = {name: _tree(part, target) for name, part in node.parts.items()}
    least = min(bound for _, bound in trees.values())
    if least < Fraction(node.own) * (1 - _ROUNDING) and (own := _leaf(node, target))[1] > least:
        return own  # weights of some part were lost in rounding
    return {**node.split, **{name: tree for name, (tree, _) in trees.items()}}, least
