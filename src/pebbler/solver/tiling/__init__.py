"""Search over tilings, fusions, second makings and directions, each priced by simulation under the machine's own rules.

First recipes are compared by quick schedules, from coarse moves to fine ones; then the best few get a thorough search, in
rounds from which fewer and fewer go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from pebbler.solver.problem import Search
from pebbler.solver.tiling.bounds import tiled_bound
from pebbler.solver.tiling.cache_bounds import order_bound
from pebbler.solver.tiling.cache_order import best_order, op_floors
from pebbler.solver.tiling.recipe import Kitchen, Recipe
from pebbler.solver.tiling.tasting import Dish, dish_of

__all__ = ["Tastings", "solve_tiled"]

_FINALISTS = (8, 4, 2, 1)  # how many dishes get each round of thorough search
_EFFORT = (2_000, 6_000, 20_000, 100_000)
_QUICK_FINALISTS, _QUICK_EFFORT = (2,), (2_000,)
_QUICK_OPS = 18_000  # ops of all graphs tried together, when the search is to be quick
_MOST_EXACT = 40  # ops; above this there are too many orders even for the smallest graphs


def solve_tiled(search: Search, *, tile: Literal["auto", "none"] = "auto") -> None:
    """Offer the best plans over all recipes, and bounds; with `tile="none"` only orders and second makings of the graph as it is.

    Under `recency` nothing is tiled or fused: that rule prices whole tensors. The bounds hold for every graph a plan of the
    search may have, so for all tilings and fusions unless there can be none.

    >>> from pebbler import machine, workloads
    >>> from pebbler.solver.problem import Problem
    >>> search = Search(Problem.of(workloads.mlp(n=2, hidden=8), machine("notes")))
    >>> solve_tiled(search)
    >>> search.energy < 0.7 * 3575  # program order
    True
    """
    problem = search.problem
    kitchen = Kitchen(problem.graph)
    whole = tile == "none" or problem.machine.management == "recency" or not (kitchen.axes or kitchen.temps)
    bound = tiled_bound(problem)
    search.raise_bound(bound.energy, bound.proof)
    if problem.machine.management != "explicit":
        search.offer([("compute", op.name) for op in problem.graph.ops])
        if whole:
            _solve_orders(search)
    if search.done:
        return
    tastings = Tastings(search, kitchen, 0.4 * search.remaining)
    tastings.explore(whole=whole)
    dishes = tastings.ranked()
    rounds = (_QUICK_FINALISTS, _QUICK_EFFORT) if search.quick else (_FINALISTS, _EFFORT)
    for count, effort in zip(*rounds, strict=True):
        for dish in dishes[:count]:
            share = 1.0 if count == 1 else 0.25 / min(count, len(dishes))
            limit = search.elapsed + share * search.remaining
            if search.quick:
                effort = min(effort, 600_000 // len(dish.graph.ops))
            if not dish.improve(lambda limit=limit: min(search.remaining, limit - search.elapsed), effort):  # type: ignore[misc]
                search.cut_off = True
            _offer(search, dish)
            if search.done:
                return
        dishes = sorted(dishes[:count], key=lambda dish: dish.energy)


def _solve_orders(search: Search) -> None:
    """Search all orders of a small graph; a proof needs that running any op twice costs more than could be gained."""
    problem, graph = search.problem, search.problem.graph
    bound = order_bound(problem)
    search.raise_bound(bound, "every order and recomputation: the cheapest last touch before each read")
    if len(graph.ops) > _MOST_EXACT:
        return
    best = best_order(problem, enough=bound, clock=lambda: 0.5 * search.remaining)
    search.offer([("compute", graph.ops[op].name) for op in best.order])
    flow, floors = graph.dataflow, op_floors(graph, problem.machine)
    again = floors[~(flow.op_in_place | flow.op_once)]
    if best.proven and bound + float(again.min(initial=float("inf"))) >= best.energy:
        search.raise_bound(search.energy, "all orders searched; running any op twice costs more than it can gain")
    search.cut_off |= not best.proven and search.remaining == 0


def _offer(search: Search, dish: Dish) -> None:
    if dish.energy < search.energy:
        moves, start = dish.moves()
        search.offer(moves, start, dish.graph)


class Tastings:
    """Recipes tried so far, with the quick schedule of each."""

    def __init__(self, search: Search, kitchen: Kitchen, seconds: float) -> None:
        self.search = search
        self.kitchen = kitchen
        self.deadline = search.elapsed + seconds
        self.dishes: dict[Recipe, Dish | None] = {}
        self.best = Recipe()
        self.ops = 0

    @property
    def over(self) -> bool:
        """Whether the time for trying recipes is over, or the work when the search is to be quick."""
        if self.search.quick and self.ops >= _QUICK_OPS:
            return True
        if self.search.elapsed >= self.deadline:
            self.search.cut_off = True
            return True
        return False

    def ranked(self) -> list[Dish]:
        """Return the dishes, cheapest first; those with tiles of their own come before variants of the same tiles.

        A quick schedule says little about the last few percent, so what is searched thoroughly should differ.
        """
        seen: set[object] = set()
        own: list[Dish] = []
        variants: list[Dish] = []
        found = [(dish.energy, recipe) for recipe, dish in self.dishes.items() if dish is not None]
        for _, recipe in sorted(found):
            dish = self.dishes[recipe]
            assert dish is not None
            (variants if recipe.sizes in seen else own).append(dish)
            seen.add(recipe.sizes)
        return own + variants

    def energy(self, recipe: Recipe) -> float:
        """Return the energy of a recipe's quick schedule; infinite where it cannot be made or does not fit."""
        recipe = self.kitchen.effective(recipe)
        if recipe not in self.dishes:
            program = self.kitchen.program(recipe) if self.kitchen.fits(recipe) else None
            dish = None if program is None else dish_of(self.search.problem, program)
            self.dishes[recipe] = dish
            self.ops += 0 if program is None else len(program.graph.ops)
            if dish is not None:
                _offer(self.search, dish)
        kept = self.dishes[recipe]
        return float("inf") if kept is None else kept.energy

    def try_all(self, recipes: Iterator[Recipe]) -> bool:
        """Try recipes and go to the best of them if it beats the best so far; return whether it does."""
        better = False
        for recipe in recipes:
            if self.over:
                break
            if self.energy(recipe) < self.energy(self.best):
                self.best, better = self.kitchen.effective(recipe), True
        return better

    def explore(self, *, whole: bool = False, second_makings: bool = True) -> None:
        """Go downhill from the graph as it is: coarse tilings first, then everything, one change at a time.

        With `whole` nothing is tiled or fused; without `second_makings` every op runs once.
        """
        self.energy(self.best)
        if not whole:
            fused = self.fused()
            self.try_all(iter([fused]))
            self.try_all(self._coarse(fused))
        while not self.over:
            better = second_makings and self.try_all(self._makings())
            if not whole:
                better |= self.try_all(self._sizes())
                better |= self.try_all(self._directions())
                better |= self.try_all(self._unfused())
            if not better:
                return

    def fused(self) -> Recipe:
        """Everything fused, as far as it goes together; whether that pays often shows only in tiles."""
        fused: tuple[str, ...] = ()
        for temp in self.kitchen.temps:
            if self.kitchen.transformed(Recipe(fused=tuple(sorted((*fused, temp))))) is not None:
                fused = tuple(sorted((*fused, temp)))
        return Recipe(fused=fused)

    def _coarse(self, fused: Recipe) -> Iterator[Recipe]:
        """The same tile on every axis of a group: one axis, axes of one extent, all axes."""
        axes = self.kitchen.axes
        groups = [[axis] for axis in axes]
        groups += [[axis for axis in axes if axes[axis] == extent] for extent in sorted(set(axes.values()))]
        groups.append(list(axes))
        for group in dict.fromkeys(tuple(group) for group in groups if group):
            size = max(axes[axis] for axis in group)
            lowest, worse = float("inf"), 0
            # Finer graphs take longer to price, so a group is left once halving its tiles has cost more twice in a row.
            while size > 1 and worse < 2:
                size = -(-size // 2)
                recipe = fused.with_sizes(**dict.fromkeys(group, size))
                yield recipe
                energy = float("inf") if self.over else self.energy(recipe)
                worse = 0 if energy < lowest or energy == float("inf") else worse + 1
                lowest = min(lowest, energy)

    def _sizes(self) -> Iterator[Recipe]:
        """Other tiles: of axes of one extent together, then of each axis, twofold first, then nearby."""
        axes, sizes = self.kitchen.axes, dict(self.best.sizes)
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

    def _makings(self) -> Iterator[Recipe]:
        """One value more or one fewer made twice."""
        again = dict(self.best.again)
        base = self.best
        for temp, at in self.kitchen.second_makings(base):
            if again.get(temp) != at:
                yield replace(base, again=tuple(sorted({**again, temp: at}.items())))
        for temp in again:
            yield replace(base, again=tuple(item for item in base.again if item[0] != temp))

    def _directions(self) -> Iterator[Recipe]:
        """One sum the other way round."""
        cut, base = {axis for axis, _ in self.best.sizes}, self.best
        for op, axes in self.kitchen.sums.items():
            if cut.intersection(axes):
                yield replace(base, reverse=tuple(sorted(set(base.reverse) ^ {op})))

    def _unfused(self) -> Iterator[Recipe]:
        """One temp more or one fewer fused away."""
        base = self.best
        for temp in self.kitchen.temps:
            yield replace(base, fused=tuple(sorted(set(base.fused) ^ {temp})))
