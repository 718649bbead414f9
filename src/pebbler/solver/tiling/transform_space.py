"""Transforms of a graph: which axes are cut how finely, which temps are fused away or recomputed, which sums run backwards.

A transform applied to a graph gives the transformed graph, and its ops as nodes that a search can order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import msgspec

from pebbler.collection import no_collection
from pebbler.errors import InputError
from pebbler.game.graph import Graph, Op, Tensor
from pebbler.game.tile_meta import TileMeta, origin, tile_of, without_tiles
from pebbler.game.transform import fusable, fuse_all, tile
from pebbler.solver.tiling.node_graph import NodeGraph, op_ranks

__all__ = ["Transform", "TransformSpace", "form_of", "made_again", "transform_of"]

MOST_OPS = 20_000  # beyond this a graph takes longer to build than a minute's search can spare


@dataclass(frozen=True)
class Transform:
    """A way to transform a graph.

    >>> Transform(sizes=(("hidden", 20),), fused=("dW1",)).describe()
    'tiles hidden=20; fused dW1'
    """

    sizes: tuple[tuple[str, int], ...] = ()  # axis -> tile, sorted; axes not named stay whole
    fused: tuple[str, ...] = ()
    recomputed: tuple[
        tuple[str, int], ...
    ] = ()  # temp -> from which rank of ops on (`op_ranks`) its readers get it recomputed
    reverse: tuple[str, ...] = ()  # ops that add up their tiles backwards

    def describe(self) -> str:
        """Return the transform in words."""
        words = []
        if self.sizes:
            words.append("tiles " + ", ".join(f"{axis}={size}" for axis, size in self.sizes))
        if self.fused:
            words.append("fused " + ", ".join(sorted(self.fused)))
        if self.recomputed:
            words.append("recomputed " + ", ".join(sorted(temp for temp, _ in self.recomputed)))
        if self.reverse:
            words.append("backwards " + ", ".join(sorted(self.reverse)))
        return "; ".join(words) or "as it is"

    def with_sizes(self, /, **sizes: int | None) -> Transform:
        """Return the transform with some tile sizes changed; None leaves an axis whole."""
        merged = {**dict(self.sizes), **sizes}
        return replace(self, sizes=tuple(sorted((axis, size) for axis, size in merged.items() if size is not None)))


class TransformSpace:
    """A graph, the transforms that it allows, and the transformed graphs made so far.

    Where an order of temps or ops matters, it is that of the graph, so that their names do not.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        # Tiles of a graph that is tiled already are tensors like any other here: `tile` in a plan refers to its source.
        self._plain = without_tiles(graph)
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
        """Per op: the axes that it sums over, because it touches them and some result of it does not have them."""
        return _sums(self.graph)

    def fits(self, transform: Transform) -> bool:
        """Whether the transformed graph stays within the size that a search can handle."""
        return self.count_ops(transform) <= MOST_OPS

    def count_ops(self, transform: Transform) -> int:
        """Return the number of ops of the transformed graph, without fusion."""
        tiles = {axis: math.ceil(self.axes[axis] / size) for axis, size in transform.sizes}
        axes = {tensor.name: [axis for axis, _ in tensor.axes or ()] for tensor in self.graph.tensors}
        total = 0
        for op in self.graph.ops:
            touched = {axis for name in (*op.reads, *op.writes) for axis in axes[name]} - set(op.whole)
            total += math.prod(tiles.get(axis, 1) for axis in touched)
        return total

    def effective(self, transform: Transform) -> Transform:
        """Return the transform in program order, without parts of no effect (a tile as long as its axis) or impossible ones."""
        sizes = tuple((axis, size) for axis, size in transform.sizes if size < self.axes[axis])
        cut = {axis for axis, _ in sizes}
        makers = {name: op for op in self.graph.ops for name in op.writes}
        fused = [temp for temp in transform.fused if not cut.intersection(self.sums[makers[temp].name])]
        reverse = [name for name in transform.reverse if cut.intersection(self.sums[name])]
        recomputed = {temp: at for temp, at in transform.recomputed if temp not in fused}
        return Transform(
            tuple(sorted(sizes)),
            _in_order(fused, self.graph.tensor_index),
            tuple((temp, recomputed[temp]) for temp in _in_order(recomputed, self.graph.tensor_index)),
            _in_order(reverse, self.graph.op_index),
        )

    def rank(self, transform: Transform) -> tuple[object, ...]:
        """Return a sort key of transforms: tile sizes, then the places in the graph of fused, recomputed and reversed values."""
        tensor, op = self.graph.tensor_index, self.graph.op_index
        return (
            transform.sizes,
            tuple(map(tensor, transform.fused)),
            tuple((tensor(temp), at) for temp, at in transform.recomputed),
            tuple(map(op, transform.reverse)),
        )

    def transformed(self, transform: Transform) -> Graph | None:
        """Return the graph tiled and fused as the transform says; None where that cannot be done."""
        key = (transform.sizes, transform.fused, transform.reverse)
        if key not in self._tiled:
            graph = self.fused_graph(transform.fused)
            with no_collection():  # a large graph is nothing but new objects; going through them is a third of the time
                try:
                    if graph is not None:
                        graph = _cut(graph, transform)
                        _ = graph.dataflow
                except InputError:
                    graph = None
            self._tiled[key] = graph
        return self._tiled[key]

    def nodes(self, transform: Transform) -> NodeGraph | None:
        """Return the transformed graph as nodes; None where it cannot be made."""
        graph = self.transformed(transform)
        found = None if graph is None else NodeGraph.of(graph, dict(transform.recomputed))
        return replace(found, graph=self.graph) if found is not None and graph is self._plain else found

    def recomputable(self, transform: Transform) -> Iterator[tuple[str, int]]:
        """Yield the temps that could be recomputed, and from which rank of ops on: at the widest gap between their readers."""
        graph = self.fused_graph(transform.fused)
        if graph is None:
            return
        flow, recomputed, rank = graph.dataflow, dict(transform.recomputed), op_ranks(graph)
        for value in range(flow.values):
            tensor = graph.tensors[flow.value_tensor[value]]
            maker = int(flow.value_maker[value])
            if tensor.kind != "temp" or not flow.value_can_be_remade[value]:
                continue
            places = {rank[maker]}
            for reader in flow.value_readers.row(value).tolist():
                places.add(rank[reader])
                # Where a result is recomputed its operands are read once more.
                places |= {recomputed[name] for name in graph.ops[reader].writes if name in recomputed}
            gaps = [(after - before, after) for before, after in pairwise(sorted(places))]
            widest, at = max(gaps, default=(0, 0))
            if widest > 1:
                yield tensor.name, at

    def fused_graph(self, temps: tuple[str, ...]) -> Graph | None:
        """Return the graph with some temps fused away; None where that cannot be done."""
        if temps not in self._fused:
            try:
                self._fused[temps] = fuse_all(self._plain, temps)
            except InputError:
                self._fused[temps] = None
        return self._fused[temps]


def _sums(graph: Graph) -> dict[str, tuple[str, ...]]:
    axes = {tensor.name: {axis for axis, _ in tensor.axes or ()} for tensor in graph.tensors}
    found = {}
    for op in graph.ops:
        touched = {axis for name in (*op.reads, *op.writes) for axis in axes[name]} - set(op.whole)
        found[op.name] = tuple(sorted({axis for axis in touched for name in op.writes if axis not in axes[name]}))
    return found


def _cut(graph: Graph, transform: Transform) -> Graph:
    sizes = dict(transform.sizes)
    for axis in _cutting_order(graph, list(sizes)):
        backwards = [op.name for op in graph.ops if origin(op) in transform.reverse]
        graph = tile(graph, axis, sizes[axis], reverse=backwards)
    return graph


def _cutting_order(graph: Graph, axes: list[str]) -> list[str]:
    """Return axes in the order in which they are cut: as they are named, unless that cannot be.

    An op that works on all tiles of an axis, which it needs whole, cannot be cut along one that it sums over: so the latter comes
    first. Axes that one op sums over are cut in the order of their names always, because its terms are added in that order.
    """
    first: dict[str, set[str]] = {axis: set() for axis in axes}
    for op, summed in zip(graph.ops, _sums(graph).values(), strict=True):
        terms = [axis for axis in axes if axis in summed]
        for axis in set(op.whole) & first.keys():
            first[axis] |= set(terms)
        for earlier, later in pairwise(terms):
            first[later].add(earlier)
    order: list[str] = []
    while len(order) < len(axes):
        free = [axis for axis in axes if axis not in order and first[axis] <= set(order)]
        if not free:
            return axes  # which `tile` refuses
        order.append(free[0])
    return order


def _in_order(names: Iterable[str], place: Callable[[str], int]) -> tuple[str, ...]:
    return tuple(sorted(names, key=place))


def form_of(graph: Graph, source: Graph) -> bool:
    """Return whether a graph is the source tiled and fused: whether doing so again gives the very same graph.

    >>> from pebbler.workloads import mlp
    >>> step = mlp(n=20, hidden=1000)
    >>> tiled = tile(fuse_all(step, ["dW1"]), "hidden", 10)
    >>> form_of(tiled, step), form_of(tiled, mlp(n=20, hidden=100))
    (True, False)
    """
    return made_again(graph, source) is not None


def made_again(graph: Graph, source: Graph) -> Graph | None:
    """Return the source tiled and fused as a graph seems to be, if that gives the very same graph; None otherwise.

    Unlike what `meta` in the graph says, which may be anything, `meta` in the answer is right.
    """
    try:
        space, transform = TransformSpace(source), transform_of(graph, source)
    except InputError:  # what `meta` says is not even in form
        return None
    if any(axis not in space.axes or size < 1 for axis, size in transform.sizes):
        return None
    if space.count_ops(transform) > len(graph.ops) * (
        1 + len(transform.fused)
    ):  # a fused op stands for so many at the most
        return None
    again = space.transformed(transform)
    return again if again is not None and _rules(again) == _rules(graph) else None


def transform_of(graph: Graph, source: Graph) -> Transform:
    """Return the transform that made a graph from its source, as its tiles and missing temps tell (`form_of` makes sure).

    >>> from pebbler.workloads import mlp
    >>> step = mlp(n=20, hidden=1000)
    >>> transform_of(tile(fuse_all(step, ["dW1"]), "hidden", 10), step)
    Transform(sizes=(('hidden', 10),), fused=('dW1',), recomputed=(), reverse=())
    """
    sizes: dict[str, int] = {}
    pieces: list[Tensor | Op] = [*graph.tensors, *graph.ops]
    for piece in pieces:
        found = tile_of(piece)
        for axis, (start, stop) in found.at.items() if found is not None else ():
            sizes[axis] = max(sizes.get(axis, 0), stop - start)
    left = {origin(tensor) for tensor in graph.tensors}
    fused = tuple(name for name in source.tensor_names if name not in left)
    first: dict[str, TileMeta] = {}
    last: dict[str, TileMeta] = {}
    for op in graph.ops:
        if (found := tile_of(op)) is not None:
            first.setdefault(found.of, found)
            last[found.of] = found
    backwards = tuple(name for name in first if list(first[name].at.values()) > list(last[name].at.values()))
    return Transform(tuple(sorted(sizes.items())), fused, reverse=backwards)


def _rules(graph: Graph) -> list[Tensor | Op]:
    """Return a graph's tensors and ops without `meta`, which affects neither prices nor rules."""
    pieces: list[Tensor | Op] = [*graph.tensors, *graph.ops]
    return [msgspec.structs.replace(piece, meta={}) for piece in pieces]
