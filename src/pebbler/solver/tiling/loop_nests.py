"""Loop nests where operands must be in the fastest level: what each op moves, tile sizes with which all fits, and the order.

An op that runs alone visits its tiles block by block: a block of one of its operands stays in the fastest level while the loops
that this operand does not depend on pass by (`kernels.blocked_nest`). What is loaded and stored then follows from how
often each of the others passes. That is an estimate (of tiles that divide), made without building the tiled graph; the referee
prices what is built.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pebbler.arrays import Ints
from pebbler.game.graph import Graph
from pebbler.game.tile_meta import origin, tile_numbers
from pebbler.solver.problem import Problem
from pebbler.solver.tiling.blocked_loops import best_loops
from pebbler.solver.tiling.transform_space import Transform, TransformSpace

__all__ = ["LoopNests", "NestedOp"]

Sizes = Mapping[str, int]
Excess = Callable[[float], float]
_WORTH = 2e-3  # part of the energy that a step must save: finer tiles are more pieces to build
_MOST_OPS = 400_000  # pieces; more take minutes to build


@dataclass(frozen=True)
class NestedOp:
    """An op's loops, outermost first, each with how many tiles it goes on at a time; how large a piece is, as a multiple of the
    fastest level; and what the op moves.
    """

    share: float
    energy: float
    loops: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class _NestOperands:
    """The operands of an op, each storage once: axes, size, the price of moving a unit, and the operands that need no load."""

    axes: list[frozenset[str]]
    varying: list[frozenset[str]]  # the axes along which each piece touches another part
    whole: list[int]
    price: list[float]
    credit: float  # results are not loaded the first time
    loops: tuple[str, ...]  # all axes along which pieces may be cut, in the order in which they are
    summed: frozenset[str]


class LoopNests:
    """The ops of a graph as loop nests on an explicit machine with operands in the fastest level."""

    def __init__(self, problem: Problem, space: TransformSpace | None = None) -> None:
        self.graph, self.space = problem.graph, space or problem.space
        fast, slow = problem.machine.level[0], problem.machine.level[-1]
        self.room = math.inf if fast.capacity is None else fast.capacity
        self.load, self.store = slow.read + fast.write, fast.read + slow.write
        self._known: dict[tuple[int, tuple[int, ...]], NestedOp] = {}

    @cached_property
    def _operands(self) -> list[_NestOperands]:
        return [self._operands_of(op) for op in range(len(self.graph.ops))]

    def _operands_of(self, op: int) -> _NestOperands:
        one, flow = self.graph.ops[op], self.graph.dataflow
        storages: dict[int, str] = {}
        for name in (*one.writes, *one.reads):
            storages.setdefault(int(flow.storage[self.graph.tensor_index(name)]), name)
        tensors = [self.graph.tensor_named(name) for name in storages.values()]
        axes = [frozenset(axis for axis, _ in tensor.axes or ()) for tensor in tensors]
        summed, added = frozenset(self.space.sums[one.name]), one.meta.get("adds", ())
        made = [tensor.name in one.writes for tensor in tensors]
        return _NestOperands(
            axes,
            # What is added once to a sum passes by with one of its terms only.
            [own | summed if tensor.name in added else own for tensor, own in zip(tensors, axes, strict=True)],
            [tensor.size for tensor in tensors],
            [self.load + self.store if writes else self.load for writes in made],
            sum(self.load * tensor.size for tensor in tensors if tensor.name not in one.reads),
            tuple(sorted((frozenset().union(*axes) & self.space.axes.keys()) - set(one.whole))),
            summed,
        )

    def nested(self, op: int, sizes: Sizes) -> NestedOp:
        """Return an op's best loops in tiles of these sizes; axes that are not named stay whole.

        >>> from pebbler import machine, workloads
        >>> problem = Problem.of(workloads.mlp(n=300, hidden=400, batch=500), machine("cortex-m").in_unit("float32"))
        >>> nests = LoopNests(problem, TransformSpace(problem.graph))
        >>> nests.nested(0, {"hidden": 100, "batch": 100}).loops  # a tile of W1 stays while x passes
        (('hidden', 1), ('batch', 1), ('hidden', 1))
        """
        extents, known = self.space.axes, self._operands[op]
        own = {axis: sizes[axis] for axis in known.loops if axis in sizes and sizes[axis] < extents[axis]}
        key = op, tuple(own.get(axis, 0) for axis in known.loops)
        if key not in self._known:
            self._known[key] = self._nest(known, own)
        return self._known[key]

    def _nest(self, known: _NestOperands, own: Sizes) -> NestedOp:
        """Return an op's best loops in tiles of these sizes, all of which are cut."""
        extents = self.space.axes
        tiles = {axis: -(-extents[axis] // size) for axis, size in own.items()}
        uses = np.array([[axis in used for axis in own] for used in known.varying], np.bool_)
        part = [math.prod(own[axis] / extents[axis] for axis in own if axis in used) for used in known.axes]
        units = [size * share for size, share in zip(known.whole, part, strict=True)]
        best = best_loops(tiles, uses, units, known.whole, known.price, known.summed, self.room)
        return NestedOp(math.fsum(units) / self.room, best.moved - known.credit, best.loops)

    def cost(self, sizes: Sizes, excess: Excess = math.log2) -> tuple[float, float]:
        """Return by how much the pieces of all ops are too large together, and the energy of all ops one after the other."""
        found = [self.nested(op, sizes) for op in range(len(self.graph.ops))]
        too_large = math.fsum(excess(one.share) for one in found if one.share > 1)
        return too_large, math.fsum(one.energy for one in found)

    def fitting_sizes(self, most_ops: int) -> dict[str, int] | None:
        """Return tile sizes with which every piece fits, the best that steps downhill lead to; None where they lead to none.

        More than `most_ops` pieces are taken only where fewer were not found to do.

        >>> from pebbler import machine, workloads
        >>> problem = Problem.of(workloads.mlp(n=300, hidden=400), machine("cortex-m").in_unit("float32"))
        >>> LoopNests(problem, TransformSpace(problem.graph)).fitting_sizes(1000)
        {'hidden': 50}
        """
        ends = [self._downhill(most_ops, excess) for excess in (math.log2, float)]
        if min(cost for cost, _ in ends)[:2] > (
            0,
            1,
        ):  # too many pieces: perhaps one of the axes should not have been cut
            ends += [self._downhill(most_ops, math.log2, axis) for axis in self.space.axes]
        fitting = [(cost, sizes) for cost, sizes in ends if cost[0] == 0]
        return dict(sorted(min(fitting, key=lambda one: one[0])[1].items())) if fitting else None

    def _downhill(
        self, most_ops: int, excess: Excess, uncut: str = ""
    ) -> tuple[tuple[float, float, float], dict[str, int]]:
        """Return the end of the best steps from the uncut graph: to where everything fits, to fewer pieces, to the least movement.

        The axis `uncut` stays whole.
        """

        def cost(sizes: Sizes) -> tuple[float, float, float]:
            too_large, energy = self.cost(sizes, excess)
            return too_large, max(1.0, self._count(sizes) / most_ops), energy

        sizes: dict[str, int] = {}
        now = cost(sizes)
        while True:
            steps = [(cost(step), number, step) for number, step in enumerate(self._steps(sizes)) if uncut not in step]
            least, _, step = min(steps, default=(now, 0, sizes))
            if least[:2] > now[:2] or (least[:2] == now[:2] and least[2] >= now[2] * (1 - _WORTH)):
                return now, sizes
            now, sizes = least, step

    def _count(self, sizes: Sizes) -> int:
        return self.space.count_ops(Transform().with_sizes(**sizes))

    def _steps(self, sizes: Sizes) -> Iterator[dict[str, int]]:
        """Yield other sizes: one axis cut finer or coarser, or one finer and another coarser."""
        extents = self.space.axes
        for axis, extent in extents.items():
            size = sizes.get(axis, extent)
            for other in dict.fromkeys((size // 2, size // 4, -(-size * 2 // 3), size * 3 // 2, size * 2, extent)):
                yield from self._within(sizes, {axis: other})
            for coarser in extents:
                if coarser != axis and coarser in sizes:
                    for other in dict.fromkeys((sizes[coarser] * 2, extents[coarser])):
                        yield from self._within(sizes, {axis: size // 2, coarser: other})

    def _within(self, sizes: Sizes, changes: Sizes) -> Iterator[dict[str, int]]:
        extents = self.space.axes
        changed = {axis: min(max(1, size), extents[axis]) for axis, size in {**sizes, **changes}.items()}
        changed = {axis: size for axis, size in changed.items() if size < extents[axis]}
        if changed != sizes and self._count(changed) <= _MOST_OPS:
            yield changed

    def order(self, tiled: Graph, sizes: Sizes) -> Ints:
        """Return the ops of the tiled graph: source ops in program order, the tiles of each in its own order of loops."""
        numbers, place = tile_numbers(tiled), {op.name: number for number, op in enumerate(self.graph.ops)}
        pieces: dict[int, list[int]] = {}
        for piece, op in enumerate(tiled.ops):
            pieces.setdefault(place[origin(op)], []).append(piece)
        order = []
        for number in sorted(pieces):
            loops, own = self.nested(number, sizes).loops, pieces[number]
            keys = np.array([[numbers[piece][axis] // step for axis, step in loops] for piece in own], np.int64)
            order.append(np.array(own, np.int64)[np.lexsort(keys.T[::-1])] if loops else np.array(own, np.int64))
        return np.concatenate(order)
