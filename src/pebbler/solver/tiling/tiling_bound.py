"""Lower bounds that hold for every order, tiling, fusion and recomputation of a graph.

At a barrier (`liveness`) some elements must be alive: each is in some level, and levels have room for so many. What an element
costs between barriers depends on where it is at each of them, on how often it is read and on the tile that it is part of. The
least total over all ways of sharing the room out is a small linear program; its dual prices are turned into a bound by exact
arithmetic, so no solver's tolerance is trusted. Tilings are told apart by cases (`tile_cases`): the weakest case is split again
and again.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pebbler.solver.problem import Problem
from pebbler.solver.tiling.box_search import BOX_PROOF, BoxSearch
from pebbler.solver.tiling.capacity_lp import CapacityLP
from pebbler.solver.tiling.case_bound import CaseBound, Raising
from pebbler.solver.tiling.case_family import CaseFamily
from pebbler.solver.tiling.element_prices import CachePrices, ElementPrices, ExplicitPrices
from pebbler.solver.tiling.liveness import Axes, Liveness
from pebbler.solver.tiling.tile_cases import TileCase

__all__ = ["CaseSearch", "TiledBound", "tiled_bound"]

_MOST_LEVELS = 5  # an explicit machine has a state for every set of levels
WORK = 100_000  # values of all cases looked at
_TRIED = 3  # barriers that are tried again in every case
_RAISINGS = (
    Raising(),
    Raising(products=False),
    Raising(products=False, groups=False),
    Raising(lasting=True),
    Raising(products=False, rows=True),
)
_PATIENCE = 6  # cases in a row where a kind of raised prices may bring nothing before it is left out


@dataclass(frozen=True)
class TiledBound:
    """A bound, and where it comes from."""

    energy: float
    proof: str


def tiled_bound(
    problem: Problem,
    work: int = WORK,
    seconds_left: Callable[[], float] = lambda: 1.0,
    sizes: Mapping[str, int] | None = None,
) -> TiledBound:
    """Return the best bound over all barriers; it holds for the graph and for every tiled or fused form of it.

    The search over cases ends when its work is done or no seconds are left; without work there is one case, that of all tilings.
    With `sizes` it is one for tiles of these sizes only, of axes not named whole.

    >>> from pebbler import machine, workloads
    >>> bound = tiled_bound(Problem.of(workloads.mlp(), machine("notes")))
    >>> bound.energy > 3e6
    True
    """
    cases = CaseSearch(problem, sizes)
    bound = cases.run(work, seconds_left)
    return max(bound, cases.run_boxes(work, seconds_left), key=lambda one: one.energy)


@dataclass(frozen=True)
class _OpenCase:
    """A case with the best bound so far; `solved` once linear programs of its own have been solved for it."""

    bound: TiledBound
    number: int
    case: TileCase
    solved: bool
    raising: Raising  # which raised prices gave it

    def __lt__(self, other: _OpenCase) -> bool:
        return (self.bound.energy, self.number) < (other.bound.energy, other.number)


class CaseSearch:
    """Splits the weakest case until the work is done, and goes on from there when it is asked again."""

    def __init__(self, problem: Problem, sizes: Mapping[str, int] | None = None) -> None:
        machine = problem.machine
        self.problem, self.work, self.number = problem, 0, 0
        self.impossible = machine.management == "recency" or not problem.graph.ops or len(machine.level) > _MOST_LEVELS
        if self.impossible:
            return
        self.prices: ElementPrices = (ExplicitPrices if machine.management == "explicit" else CachePrices)(machine)
        self.program = CapacityLP(machine, steady=problem.steady)
        self.families: dict[tuple[Axes, Axes], CaseFamily] = {}
        self.open: list[_OpenCase] = []
        self.boxes: BoxSearch | None = None
        self.sizes = sizes
        self.useful: dict[int, float] = {}  # barriers by the best bound they have given
        self.patience = dict.fromkeys(_RAISINGS, _PATIENCE)
        self.seconds_left: Callable[[], float] = lambda: math.inf

    def run(self, work: int, seconds_left: Callable[[], float] = lambda: 1.0) -> TiledBound:
        """Return the bound of the weakest case once so much work has been done, or no seconds are left."""
        graph, self.seconds_left = self.problem.graph, seconds_left
        if self.impossible:
            return TiledBound(0.0, "no energy is negative")
        if not self.open:
            case = TileCase.all_of(graph) if self.sizes is None else TileCase.of_sizes(graph, self.sizes)
            self.open = [self._solve(self._look_at(case, None), barriers=None)]
        while self.work < work and seconds_left() > 0:
            weakest = self.open[0]
            if not weakest.solved:
                heapq.heapreplace(self.open, self._solve(weakest, barriers=_TRIED))
                continue
            halves = self._split(weakest)
            if not halves:
                break
            heapq.heappop(self.open)
            for half in halves:
                heapq.heappush(self.open, half)
        return self.open[0].bound

    def run_boxes(self, work: int, seconds_left: Callable[[], float] = lambda: 1.0) -> TiledBound:
        """Return the bound of the weakest of very many cases, each looked at more briefly."""
        if self.impossible:
            return TiledBound(0.0, "no energy is negative")
        if self.boxes is None:
            self.boxes = BoxSearch(self.problem, self.prices, self.program, self.sizes)
        return TiledBound(self.boxes.run(work, seconds_left), BOX_PROOF)

    def _split(self, weakest: _OpenCase) -> list[_OpenCase]:
        """Return the two halves of a case along the axis where that helps most, none if it cannot be split."""
        best: list[_OpenCase] = []
        merit = (-1.0, -1.0)
        for halves in weakest.case.splits():
            found = [self._look_at(half, weakest) for half in halves]
            energies = sorted(one.bound.energy for one in found)
            if (energies[0], energies[1]) > merit:
                best, merit = found, (energies[0], energies[1])
        return best

    def _family(self, case: TileCase) -> CaseFamily:
        key = (case.open, case.cut)
        if key not in self.families:
            family = CaseFamily(self.problem, self.prices, self.program, *key)
            family.seconds_left = lambda: self.seconds_left()
            if self.useful:
                family.tried = sorted(self.useful, key=lambda value: -self.useful[value])[: 2 * _TRIED]
            self.families[key] = family
        return self.families[key]

    def _barriers(self, family: CaseFamily, count: int | None) -> list[Liveness]:
        """Return the barriers that have been most useful, or all."""
        found = sorted(family.barriers, key=lambda one: -self.useful.get(one.value, 0.0))
        return found[:count]

    def _look_at(self, case: TileCase, parent: _OpenCase | None) -> _OpenCase:
        """Return a case with a bound that is quickly found; what holds for a case that it is part of holds for it."""
        family = self._family(case)
        bounded = CaseBound(family, case, parent.raising if parent is not None else Raising())
        self.number += 1
        self.work += len(bounded.values)
        best = _floor(bounded)
        if parent is not None:
            for barrier in self._barriers(family, 1):
                best = self._better(best, bounded.at(barrier, solve=False), barrier)
            best = max(best, parent.bound, key=lambda one: one.energy)
        return _OpenCase(best, self.number, case, solved=False, raising=bounded.raising)

    def _solve(self, one: _OpenCase, barriers: int | None) -> _OpenCase:
        """Return a case with the bounds of its own linear programs.

        Whether raised prices pay is estimated before room is shared out. So those of products are tried with and without, as are
        those of groups of ops, and then of each group: which is more depends on the case.
        """
        family = self._family(one.case)
        best, raising, at = one.bound, one.raising, None
        seen: set[object] = set()
        last = not any(True for _ in one.case.splits())
        kinds = [kind for kind in _RAISINGS if (last or self.patience[kind] > 0) and kind.concerns(family)]
        kinds += [] if one.raising in kinds else [one.raising]
        tried: list[Raising] = []
        for kind in kinds:
            bounded = CaseBound(family, one.case, kind)
            if bounded.raised in seen:
                continue
            seen.add(bounded.raised)
            tried.append(kind)
            if not family.barriers:
                best = max(best, _floor(bounded), key=lambda one: one.energy)
            for number, barrier in enumerate(self._barriers(family, None if last else barriers)):
                if number and self.seconds_left() <= 0:
                    break
                self.work += 4 * len(bounded.values)
                energy = bounded.at(barrier, solve=True)
                self.useful[barrier.value] = max(energy, self.useful.get(barrier.value, 0.0))
                better = self._better(best, energy, barrier)
                if better is not best:
                    best, raising, at = better, kind, barrier
        if len(seen) > 1:
            best_kind = replace(raising, dropped=frozenset())
            for kind in tried:
                if kind in self.patience:
                    self.patience[kind] = _PATIENCE if kind == best_kind else self.patience[kind] - 1
        if at is not None:
            best, raising = self._drop_groups(one.case, best, raising, at)
        return _OpenCase(best, one.number, one.case, solved=True, raising=raising)

    def _drop_groups(
        self, case: TileCase, best: TiledBound, raising: Raising, barrier: Liveness
    ) -> tuple[TiledBound, Raising]:
        """Return the bound without the raised prices of those groups of ops where they cost more than they bring."""
        family = self._family(case)
        for group in sorted(CaseBound(family, case, raising).least_price):
            if self.seconds_left() <= 0:
                break
            fewer = replace(raising, dropped=raising.dropped | {group})
            bounded = CaseBound(family, case, fewer)
            self.work += 4 * len(bounded.values)
            better = self._better(best, bounded.at(barrier, solve=True), barrier)
            if better is not best:
                best, raising = better, fewer
        return best, raising

    def _better(self, best: TiledBound, energy: float, barrier: Liveness) -> TiledBound:
        if energy <= best.energy:
            return best
        names = list(dict.fromkeys(barrier.elements.tensor(value).name for value in barrier.last))
        name = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
        proof = f"every tiling: room for what must be alive when all of {name} has been made"
        return TiledBound(energy, proof + (", and between steps" if self.problem.steady else ""))


def _floor(bounded: CaseBound) -> TiledBound:
    return TiledBound(bounded.floor(), "every tiling: the touches that no element can avoid, at the best price")
