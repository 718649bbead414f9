"""Downhill search over the transforms of a graph, each priced by a quick schedule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from pebbler.solver.problem import Search
from pebbler.solver.tiling.candidates import Candidate, ExplicitCandidate, candidate_of
from pebbler.solver.tiling.nest_search import NestSearch
from pebbler.solver.tiling.node_graph import NodeGraph
from pebbler.solver.tiling.transform_space import Transform, TransformSpace

__all__ = ["TransformSearch"]

_ROOM_TRIES, _ROOM_GAIN = 6, 0.03
_OTHERS, _ALIKE = 6, 0.05  # kinds that get a chance; how close to the cheapest of a kind is close
_NEST_TRIES = 5_000  # nests tried, however much time there is
_MOVABLE = 3_000  # runs of an order; moving single ones of more about gains nothing in minutes
_NEST_PIECES = 40_000  # of a nest; so many are built in a few seconds
_QUICK_OPS = 18_000  # ops of all graphs tried together, when the search is to be quick


class TransformSearch:
    """Transforms tried so far, with the quick schedule of each."""

    def __init__(self, search: Search, space: TransformSpace, seconds: float) -> None:
        self.search = search
        self.space = space
        self.deadline = search.elapsed + seconds
        self.candidates: dict[Transform, Candidate | None] = {}
        self.nested: list[tuple[Transform, Candidate]] = []  # in orders of their own, beside the quick schedules
        self.best = Transform()
        self.ops = 0
        self.room_tries = _ROOM_TRIES  # how many more candidates get prices of room if none gains by it

    @property
    def over(self) -> bool:
        """Whether the time for trying transforms is over, or the work when the search is to be quick."""
        if self.search.quick and self.ops >= _QUICK_OPS:
            return True
        if self.search.elapsed >= self.deadline or self.search.remaining == 0:
            self.search.cut_off = True
            return True
        return False

    def ranked(self) -> list[Candidate]:
        """Return the candidates, cheapest first; those with tiles of their own come before variants of the same tiles.

        A quick schedule says little about the last few percent, so what is searched thoroughly should differ.
        """
        seen: set[object] = set()
        own: list[Candidate] = []
        variants: list[Candidate] = []
        found = [(transform, candidate) for transform, candidate in self.candidates.items() if candidate is not None]
        found += self.nested
        for transform, candidate in sorted(found, key=lambda item: (item[1].energy, self.space.rank(item[0]))):
            (variants if transform.sizes in seen else own).append(candidate)
            seen.add(transform.sizes)
        return own + variants

    def others(self, finalists: list[Candidate]) -> list[Candidate]:
        """Return candidates that cut other axes than all of the finalists: a few, one of each kind, the cheapest kinds first.

        Quick schedules compare tiles of the same axes well and different axes badly. Of a kind it is the smallest graph that
        comes close to the cheapest, because a thorough search gets furthest with it.
        """
        kinds: dict[frozenset[str], list[Candidate]] = {}
        for transform, candidate in self.candidates.items():
            if candidate is not None:
                kinds.setdefault(frozenset(axis for axis, _ in transform.sizes), []).append(candidate)
        chosen = []
        for alike in kinds.values():
            if not any(candidate is one for candidate in alike for one in finalists):
                least = min(candidate.energy for candidate in alike)
                close = [candidate for candidate in alike if candidate.energy <= (1 + _ALIKE) * least]
                chosen.append(min(close, key=lambda candidate: (len(candidate.graph.ops), candidate.energy)))
        return sorted(chosen, key=lambda candidate: candidate.energy)[:_OTHERS]

    def energy(self, transform: Transform) -> float:
        """Return the energy of a transform's quick schedule; infinite where it cannot be made or does not fit."""
        transform = self.space.effective(transform)
        if transform not in self.candidates:
            nodes = self.space.nodes(transform) if self.space.fits(transform) else None
            candidate = None if nodes is None else candidate_of(self.search.problem, nodes)
            self.candidates[transform] = candidate
            self.ops += 0 if nodes is None else len(nodes.graph.ops)
            if isinstance(candidate, ExplicitCandidate) and self.room_tries:
                self.room_tries = _ROOM_TRIES if candidate.price_room() > _ROOM_GAIN else self.room_tries - 1
            if candidate is not None:
                self.offer(candidate)
        kept = self.candidates[transform]
        return float("inf") if kept is None else kept.energy

    def try_nests(self, seconds: float) -> None:
        """Try loop nests that ops share, where temps are larger than all caches; the best becomes a candidate."""
        until, problem = self.search.elapsed + seconds, self.search.problem

        def over() -> bool:
            return self.search.elapsed >= until or self.search.remaining == 0 or nests.tried >= _NEST_TRIES

        nests = NestSearch(problem, self.space, over, _NEST_PIECES)
        if not nests.pays:
            return
        found = nests.run(self.fused())
        order, graph = nests.order(found), self.space.transformed(self.space.effective(found.transform))
        if order is None or graph is None:
            return
        candidate = candidate_of(problem, NodeGraph.of_order(graph, order), given=np.arange(len(order)))
        if candidate is not None:
            self.offer(candidate)
            if len(order) <= _MOVABLE:
                self.nested.append((found.transform, candidate))

    def offer(self, candidate: Candidate) -> None:
        """Offer a candidate's schedule to the search if it is the cheapest so far."""
        if candidate.energy < self.search.energy:
            moves, start = candidate.moves()
            self.search.offer(moves, start, candidate.graph)

    def try_all(self, transforms: Iterator[Transform]) -> bool:
        """Try transforms and go to the best of them if it beats the best so far; return whether it does."""
        better = False
        for transform in transforms:
            if self.over:
                break
            if self.energy(transform) < self.energy(self.best):
                self.best, better = self.space.effective(transform), True
        return better

    def explore(self, *, whole: bool = False, recompute: bool = True) -> None:
        """Go downhill from the graph as it is: coarse tilings first, then everything, one change at a time.

        With `whole` nothing is tiled or fused; without `recompute` every op runs once.
        """
        self.energy(self.best)
        if not whole:
            fused = self.fused()
            self.try_all(iter([fused]))
            self.try_all(self._coarse(fused))
        while not self.over:
            better = recompute and self.try_all(self._recomputed())
            if not whole:
                better |= self.try_all(self._sizes())
                better |= self.try_all(self._directions())
                better |= self.try_all(self._unfused())
            if not better:
                return

    def fused(self) -> Transform:
        """Everything fused, as far as it goes together; whether that pays often shows only in tiles."""
        fused: tuple[str, ...] = ()
        for temp in self.space.temps:
            if self.space.transformed(Transform(fused=(*fused, temp))) is not None:
                fused = (*fused, temp)
        return Transform(fused=fused)

    def _coarse(self, fused: Transform) -> Iterator[Transform]:
        """The same tile on every axis of a group: axes of one extent, all axes, one axis.

        Where many axes have one extent, as those of layers do, a single one says little and time may be over after some of them.
        """
        axes = self.space.axes
        groups = [[axis for axis in axes if axes[axis] == extent] for extent in sorted(set(axes.values()))]
        groups.sort(key=lambda group: -len(group))
        groups += [list(axes), *([axis] for axis in axes)]
        for group in dict.fromkeys(tuple(group) for group in groups if group):
            size = max(axes[axis] for axis in group)
            lowest, worse = float("inf"), 0
            # Finer graphs take longer to price, so a group is left once halving its tiles has cost more twice in a row.
            while size > 1 and worse < 2:
                size = -(-size // 2)
                transform = fused.with_sizes(**dict.fromkeys(group, size))
                yield transform
                energy = float("inf") if self.over else self.energy(transform)
                worse = 0 if energy < lowest or energy == float("inf") else worse + 1
                lowest = min(lowest, energy)

    def _sizes(self) -> Iterator[Transform]:
        """Other tiles: of axes of one extent together, then of each axis, twofold first, then nearby."""
        axes, sizes = self.space.axes, dict(self.best.sizes)
        extents = sorted(set(axes.values()))
        groups = [tuple(axis for axis in axes if axes[axis] == extent) for extent in extents]
        groups += [(axis,) for axis in axes]
        base = self.best
        for group in dict.fromkeys(groups):
            extent = axes[group[0]]
            now = min(sizes.get(axis, extent) for axis in group)
            wanted = [
                now // 2,
                now * 2,
                extent,
                now * 4 // 5,
                now * 5 // 4,
                now - 1,
                now + 1,
                -(-now // 3),
                now * 3 // 2,
            ]
            wanted += [-(-extent // (-(-extent // now) + more)) for more in (1, -1) if -(-extent // now) + more > 0]
            for size in dict.fromkeys(min(size, extent) for size in wanted):
                if size >= 1 and size != now:
                    yield base.with_sizes(**{axis: None if size >= axes[axis] else size for axis in group})

    def _recomputed(self) -> Iterator[Transform]:
        """One temp more or one fewer recomputed."""
        base, recomputed = self.best, dict(self.best.recomputed)
        for temp, at in self.space.recomputable(base):
            if recomputed.get(temp) != at:
                yield replace(base, recomputed=tuple({**recomputed, temp: at}.items()))
        for temp in recomputed:
            yield replace(base, recomputed=tuple(item for item in base.recomputed if item[0] != temp))

    def _directions(self) -> Iterator[Transform]:
        """Neighbours with the direction of one sum reversed."""
        cut, base = {axis for axis, _ in self.best.sizes}, self.best
        for op, axes in self.space.sums.items():
            if cut.intersection(axes):
                yield replace(base, reverse=_toggled(base.reverse, op))

    def _unfused(self) -> Iterator[Transform]:
        """One temp more or one fewer fused away."""
        base = self.best
        for temp in self.space.temps:
            yield replace(base, fused=_toggled(base.fused, temp))


def _toggled(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    """Return the names with one added, or removed if present."""
    return tuple(one for one in names if one != name) if name in names else (*names, name)
