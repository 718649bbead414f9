"""Every form of a very small graph on an explicit machine, solved one by one: the cheapest plan, and a bound for all of them.

Quick schedules compare tilings badly where a few moves decide. Where the forms are few, each gets a search of all its game states;
one that is too large for that is bounded. The least over all forms is a bound for every tiling and fusion.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, combinations, product

from pebbler.errors import InputError
from pebbler.game.graph import Graph
from pebbler.game.transform import fusable, fuse
from pebbler.solver.bounds import bounds
from pebbler.solver.exact import solve_exact
from pebbler.solver.problem import Impossible, Search
from pebbler.solver.tiling.tiling_bound import RangeSearch
from pebbler.solver.tiling.transform_space import Transform, TransformSpace

__all__ = ["SmallForm", "every_form", "fusions", "solve_small_forms"]

_MOST_FORMS, _MOST_PIECES = 200, 400  # forms, and ops of the one in the smallest tiles
_STATES = 100_000  # of one form, about half a second
_EVERY_STATE = "every tiling: searched every game state of every form that may cost less"
_EACH = "every tiling: each form by itself, the smaller ones by a search of every game state"


@dataclass(frozen=True)
class SmallForm:
    """A way to transform a graph, and the graph with the temps fused away, not yet cut."""

    transform: Transform
    fused: TransformSpace
    sums_one_way: bool  # no op sums over two axes that are cut: terms have no orders but forwards and backwards


def solve_small_forms(search: Search, seconds: float) -> None:
    """Offer the cheapest plan of any form of the graph, and raise the bound for all forms, where these are few and small.

    >>> from pebbler import Graph, Level, Machine
    >>> from pebbler.solver.problem import Problem
    >>> graph = Graph("two", "pebble")
    >>> for name, kind in (("x", "input"), ("t", "temp"), ("y", "output")):
    ...     _ = graph.tensor(name, 4, kind, axes=[("i", 4)])
    >>> _ = graph.op("first", ["x"], ["t"]).op("second", ["t"], ["y"])
    >>> machine = Machine("m", "pebble", (Level("fast", 0, 0, capacity=3), Level("slow", 1, 1)))
    >>> search = Search(Problem.of(graph, machine))  # as it is, an op takes 8 pebbles
    >>> solve_small_forms(search, 5.0)
    >>> search.energy, search.bound, search.best.graph.name
    (6, 6, 'two tiled i=1')
    """
    forms = every_form(search.problem.graph)
    if forms is None:
        return
    ends, least, space = search.elapsed + seconds, math.inf, search.problem.space
    cases: dict[tuple[tuple[str, int], ...], float] = {}
    for form in forms:
        if search.elapsed >= ends:
            search.cut_off = True
            return
        sizes = form.transform.sizes
        if form.sums_one_way and form.fused.transformed(replace(form.transform, fused=())) is None:
            continue  # a sum that is fused cannot be cut, for example
        if sizes not in cases:
            cases[sizes] = RangeSearch(search.problem, dict(sizes)).run(0, lambda: ends - search.elapsed).energy
        bound = cases[sizes]
        if bound < search.energy:
            same = form.transform == Transform()
            found = _solve_form(search, search.problem.graph if same else space.transformed(form.transform), ends)
            bound = max(bound, found) if form.sums_one_way else bound
        least = min(least, bound)
    if least == math.inf:
        search.give_up(
            Impossible("no legal plan exists: every order, copy and recomputation of every tiling was tried")
        )
    search.raise_bound(min(least, search.energy), _EACH if least < search.energy else _EVERY_STATE)


def _solve_form(search: Search, graph: Graph | None, ends: float) -> float:
    """Offer the best plan of a form; return a lower bound on all its plans, infinite if it has none."""
    if graph is None:
        return 0.0
    problem = search.problem.transformed(graph)
    inner = search.part(max(0.0, ends - search.elapsed), problem=problem)
    inner.as_it_is = True
    for bound in bounds(problem):
        inner.raise_bound(bound.value, bound.proof)
    if inner.bound < search.energy:
        try:
            solve_exact(inner, _STATES)
        except Impossible:
            return math.inf
    if inner.best is not None:
        search.offer(inner.best.moves, inner.best.start, graph)
    return inner.bound


def every_form(graph: Graph) -> list[SmallForm] | None:
    """Return all forms of a graph, itself among them, those of fewest ops first; None where they are many or large.

    >>> from pebbler.workloads import chain, mlp
    >>> len(every_form(chain(3))), every_form(mlp(n=20, hidden=1000))
    (1, None)
    """
    space = TransformSpace(graph)
    axes = space.axes
    finest = Transform().with_sizes(**dict.fromkeys(axes, 1))
    forms = math.prod(axes.values()) * 2 ** len(space.temps)
    if forms > _MOST_FORMS or space.count_ops(finest) > _MOST_PIECES:
        return None
    found: list[SmallForm] = []
    for temps, fused in fusions(graph):
        for sizes in product(*(range(extent, 0, -1) for extent in axes.values())):
            cut = {axis: size for axis, size in zip(axes, sizes, strict=True) if size < axes[axis]}
            summed = {name: len(cut.keys() & own) for name, own in fused.sums.items() if cut.keys() & own}
            if len(found) + 2 ** len(summed) > _MOST_FORMS:
                return None
            for backwards in chain.from_iterable(combinations(summed, count) for count in range(len(summed) + 1)):
                transform = Transform(tuple(sorted(cut.items())), temps, reverse=backwards)
                found.append(SmallForm(transform, fused, max(summed.values(), default=0) < 2))
    return sorted(found, key=lambda form: form.fused.count_ops(form.transform))


def fusions(graph: Graph) -> Iterator[tuple[tuple[str, ...], TransformSpace]]:
    """Yield the graph, and it with temps fused away: every set of temps that can be, none twice.

    >>> from pebbler.workloads import mlp
    >>> sum(1 for _ in fusions(mlp()))
    96
    """
    seen: set[frozenset[str]] = set()
    waiting: list[tuple[frozenset[str], Graph]] = [(frozenset(), graph)]
    while waiting:
        temps, made = waiting.pop()
        if temps in seen:
            continue
        seen.add(temps)
        yield tuple(sorted(temps, key=graph.tensor_index)), TransformSpace(made)
        for temp in fusable(made):
            try:
                waiting.append((temps | {temp}, fuse(made, temp)))
            except InputError:
                continue
