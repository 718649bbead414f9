"""Recipes: which axes are cut how finely, which temps are fused away, which values are made twice, which sums run backwards.

A recipe applied to a graph gives a program: the transformed graph, and its ops as nodes that a search can order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from pebbler.errors import InputError
from pebbler.game.dataflow import NONE
from pebbler.game.graph import Graph
from pebbler.game.transform import fusable, fuse, tile
from pebbler.solver.tiling.locality import Program, family, program_of

__all__ = ["Kitchen", "Recipe"]

MOST_OPS = 20_000  # beyond this a graph takes longer to build than a minute's search can spare


@dataclass(frozen=True, order=True)
class Recipe:
    """A way to transform a graph.

    >>> Recipe(sizes=(("hidden", 20),), fused=("dW1",)).describe()
    'tiles hidden=20; fused dW1'
    """

    sizes: tuple[tuple[str, int], ...] = ()  # axis -> tile, sorted; axes not named stay whole
    fused: tuple[str, ...] = ()
    again: tuple[tuple[str, int], ...] = ()  # temp -> from which op family on its readers get a second making
    reverse: tuple[str, ...] = ()  # ops that add up their tiles backwards

    def describe(self) -> str:
        """Return the recipe in words."""
        words = []
        if self.sizes:
            words.append("tiles " + ", ".join(f"{axis}={size}" for axis, size in self.sizes))
        if self.fused:
            words.append("fused " + ", ".join(self.fused))
        if self.again:
            words.append("made twice " + ", ".join(temp for temp, _ in self.again))
        if self.reverse:
            words.append("backwards " + ", ".join(self.reverse))
        return "; ".join(words) or "as it is"

    def with_sizes(self, **sizes: int | None) -> Recipe:
        """Return the recipe with some tile sizes changed; None leaves an axis whole."""
        merged = {**dict(self.sizes), **sizes}
        return replace(self, sizes=tuple(sorted((axis, size) for axis, size in merged.items() if size is not None)))


class Kitchen:
    """A graph, what may be done to it, and the programs made so far."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._fused: dict[tuple[str, ...], Graph | None] = {}
        self._tiled: dict[tuple[object, ...], Graph | None] = {}

    @cached_property
    def axes(self) -> dict[str, int]:
        """Axes that can be cut: those with one extent wherever they are, larger than 1."""
        extents: dict[str, set[int]] = {}
        for tensor in self.graph.tensors:
            for axis, extent in tensor.axes or ():
                extents.setdefault(axis, set()).add(extent)
        return {axis: found.pop() for axis, found in sorted(extents.items()) if len(found) == 1 and max(found) > 1}

    @cached_property
    def temps(self) -> tuple[str, ...]:
        """Temps that can be fused away, by themselves."""
        return tuple(fusable(self.graph))

    @cached_property
    def sums(self) -> dict[str, tuple[str, ...]]:
        """Per op: the axes that it sums over."""
        axes = {tensor.name: {axis for axis, _ in tensor.axes or ()} for tensor in self.graph.tensors}
        found = {}
        for op in self.graph.ops:
            read = {axis for name in op.reads for axis in axes[name]}
            written = {axis for name in op.writes for axis in axes[name]}
            found[op.name] = tuple(sorted(axis for axis in read - written if axis not in op.whole))
        return found

    def fits(self, recipe: Recipe) -> bool:
        """Whether the transformed graph stays within the size that a search can handle."""
        return self.count_ops(recipe) <= MOST_OPS

    def count_ops(self, recipe: Recipe) -> int:
        """Return how many ops the transformed graph would have, fusion aside."""
        tiles = {axis: math.ceil(self.axes[axis] / size) for axis, size in recipe.sizes}
        axes = {tensor.name: [axis for axis, _ in tensor.axes or ()] for tensor in self.graph.tensors}
        total = 0
        for op in self.graph.ops:
            touched = {axis for name in (*op.reads, *op.writes) for axis in axes[name]} - set(op.whole)
            total += math.prod(tiles.get(axis, 1) for axis in touched)
        return total

    def effective(self, recipe: Recipe) -> Recipe:
        """Return the recipe without what has no effect or cannot be: fusion of sums over cut axes, tiles as large as the axis."""
        sizes = tuple((axis, size) for axis, size in recipe.sizes if size < self.axes[axis])
        cut = {axis for axis, _ in sizes}
        makers = {name: op for op in self.graph.ops for name in op.writes}
        fused = tuple(temp for temp in sorted(recipe.fused) if not cut.intersection(self.sums[makers[temp].name]))
        reverse = tuple(name for name in sorted(recipe.reverse) if cut.intersection(self.sums[name]))
        known = {temp for temp, _ in recipe.again} - set(fused)
        again = tuple(sorted((temp, at) for temp, at in recipe.again if temp in known))
        return Recipe(tuple(sorted(sizes)), fused, again, reverse)

    def transformed(self, recipe: Recipe) -> Graph | None:
        """Return the graph tiled and fused as the recipe says; None where that cannot be done."""
        key = (recipe.sizes, recipe.fused, recipe.reverse)
        if key not in self._tiled:
            graph = self._fuse(recipe.fused)
            try:
                for axis, size in recipe.sizes:
                    if graph is not None:
                        backwards = [op.name for op in graph.ops if family(op.name) in recipe.reverse]
                        graph = tile(graph, axis, size, reverse=backwards)
                if graph is not None:
                    _ = graph.dataflow
            except InputError:
                graph = None
            self._tiled[key] = graph
        return self._tiled[key]

    def program(self, recipe: Recipe) -> Program | None:
        """Return the program of a recipe; None where it cannot be made."""
        graph = self.transformed(recipe)
        return None if graph is None else program_of(graph, dict(recipe.again))

    def second_makings(self, recipe: Recipe) -> Iterator[tuple[str, int]]:
        """Yield the temps that could be made twice, and from which op family on: at the widest gap between their readers."""
        graph = self._fuse(recipe.fused)
        if graph is None:
            return
        flow, again = graph.dataflow, dict(recipe.again)
        families: dict[str, int] = {}
        rank = [families.setdefault(family(op.name), len(families)) for op in graph.ops]
        for value in range(flow.values):
            tensor = graph.tensors[flow.value_tensor[value]]
            maker = int(flow.value_maker[value])
            if tensor.kind != "temp" or maker == NONE or flow.op_in_place[maker] or flow.op_once[maker]:
                continue
            places = {rank[maker]}
            for reader in flow.value_readers.row(value).tolist():
                places.add(rank[reader])
                # A result that is made twice has its operands read again where that happens.
                places |= {again[name] for name in graph.ops[reader].writes if name in again}
            ordered = sorted(places)
            gaps = [(after - before, after) for before, after in pairwise(ordered)]
            widest, at = max(gaps, default=(0, 0))
            if widest > 1:
                yield tensor.name, at

    def _fuse(self, temps: tuple[str, ...]) -> Graph | None:
        if temps not in self._fused:
            graph: Graph | None = self.graph
            try:
                for temp in temps:
                    if graph is not None:
                        graph = fuse(graph, temp)
            except InputError:
                graph = None
            self._fused[temps] = graph
        return self._fused[temps]
