"""Loop nests where operands must be in the fastest level: what each op moves, tile sizes with which all fits, and the order.

An op that runs alone visits its tiles in some order of its loops. What it loads and stores then follows from which part of the nest
fits into the fastest level: a tile is found again across a loop that it does not depend on if one turn of that loop fits. That is
an estimate (of LRU eviction, and of tiles that divide), made without building the tiled graph; the referee prices what is built.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

import numpy as np

from pebbler.arrays import Ints
from pebbler.game.dataflow import Rows
from pebbler.game.ready_list import ReadyList, schedule_by_key
from pebbler.game.tile_meta import origin, tile_numbers
from pebbler.solver.problem import Problem
from pebbler.solver.tiling.node_graph import NodeGraph
from pebbler.solver.tiling.transform_space import Transform, TransformSpace

__all__ = ["LoopNests", "NestedOp"]

Sizes = Mapping[str, int]
Excess = Callable[[float], float]
_MOST_LOOPS = 5  # of an op, all orders of which are compared
_GAIN = 1e-9


@dataclass(frozen=True)
class NestedOp:
    """An op's loops, outermost first, how large its pieces are, as a multiple of the fastest level, and what it moves."""

    share: float
    energy: float
    loops: tuple[str, ...]


class LoopNests:
    """The ops of a graph as loop nests on an explicit machine with operands in the fastest level."""

    def __init__(self, problem: Problem, space: TransformSpace) -> None:
        self.graph, self.space = problem.graph, space
        fast, slow = problem.machine.level[0], problem.machine.level[-1]
        self.room = math.inf if fast.capacity is None else fast.capacity
        self.load, self.store = slow.read + fast.write, fast.read + slow.write
        self._known: dict[tuple[int, tuple[int, ...]], NestedOp] = {}

    @cached_property
    def _operands(self) -> list[dict[str, frozenset[str]]]:
        """Per op: the axes of everything that it touches, what shares a storage once."""
        flow, found = self.graph.dataflow, []
        for op in self.graph.ops:
            storages: dict[int, str] = {}
            for name in (*op.writes, *op.reads):
                storages.setdefault(int(flow.storage[self.graph.tensor_index(name)]), name)
            tensors = [self.graph.tensor_named(name) for name in storages.values()]
            found.append({one.name: frozenset(axis for axis, _ in one.axes or ()) for one in tensors})
        return found

    def nested(self, op: int, sizes: Sizes) -> NestedOp:
        """Return an op's best order of loops in tiles of these sizes; axes that are not named stay whole.

        >>> from pebbler import machine, workloads
        >>> problem = Problem.of(workloads.mlp(n=300, hidden=400, batch=500), machine("cortex-m").in_unit("float32"))
        >>> nests = LoopNests(problem, TransformSpace(problem.graph))
        >>> nests.nested(0, {"hidden": 100, "batch": 100}).loops  # a tile of x stays while W1 passes
        ('batch', 'hidden')
        """
        axes = sorted(frozenset().union(*self._operands[op].values()) - set(self.graph.ops[op].whole))
        extents = self.space.axes
        own = {axis: sizes[axis] for axis in axes if axis in sizes and sizes[axis] < extents[axis]}
        key = op, tuple(own.get(axis, 0) for axis in axes)
        if key not in self._known:
            orders = permutations(own) if len(own) <= _MOST_LOOPS else iter([tuple(own)])
            found = [self._nest(op, own, loops) for loops in orders]
            self._known[key] = min(found, key=lambda one: one.energy)
        return self._known[key]

    def _nest(self, op: int, sizes: Sizes, loops: tuple[str, ...]) -> NestedOp:
        """Return what an op costs with its loops in one order."""
        one, operands = self.graph.ops[op], self._operands[op]
        tiles = {axis: -(-self.space.axes[axis] // size) for axis, size in sizes.items()}
        whole = {name: self.graph.tensor_named(name).size for name in operands}

        def held(inner: tuple[str, ...]) -> float:
            """What one turn of the loops outside of `inner` touches."""
            fixed = {axis: size / self.space.axes[axis] for axis, size in sizes.items() if axis not in inner}
            return sum(
                whole[name] * math.prod(part for axis, part in fixed.items() if axis in axes)
                for name, axes in operands.items()
            )

        lost = [loop for place, loop in enumerate(loops) if held(loops[place + 1 :]) > self.room]
        energy = 0.0
        for name, axes in operands.items():
            passes = whole[name] * math.prod(tiles[loop] for loop in lost if loop not in axes)
            made = name in one.writes
            energy += self.load * (passes - whole[name] * (name not in one.reads))
            energy += self.store * passes if made else 0.0
        return NestedOp(held(()) / self.room, energy, loops)

    def cost(self, sizes: Sizes, excess: Excess = math.log2) -> tuple[float, float]:
        """Return by how much the pieces of all ops are too large together, and the energy of all ops one after the other."""
        found = [self.nested(op, sizes) for op in range(len(self.graph.ops))]
        too_large = math.fsum(excess(one.share) for one in found if one.share > 1)
        return too_large, math.fsum(one.energy for one in found)

    def fitting_sizes(self, most_ops: int) -> dict[str, int] | None:
        """Return tile sizes with which every piece fits, the best that steps downhill lead to; None where they lead to none.

        >>> from pebbler import machine, workloads
        >>> problem = Problem.of(workloads.mlp(n=300, hidden=400), machine("cortex-m").in_unit("float32"))
        >>> LoopNests(problem, TransformSpace(problem.graph)).fitting_sizes(1000)
        {'hidden': 50}
        """
        ends = [self._downhill(most_ops, excess) for excess in (math.log2, float)]
        fitting = [(cost[1], sizes) for cost, sizes in ends if cost[0] == 0]
        return dict(sorted(min(fitting, key=lambda one: one[0])[1].items())) if fitting else None

    def _downhill(self, most_ops: int, excess: Excess) -> tuple[tuple[float, float], dict[str, int]]:
        """Return where the best steps from the uncut graph lead: first to where everything fits, then to what moves least."""
        sizes: dict[str, int] = {}
        now = self.cost(sizes, excess)
        while True:
            steps = [
                (self.cost(step, excess), number, step) for number, step in enumerate(self._steps(sizes, most_ops))
            ]
            cost, _, step = min(steps, default=(now, 0, sizes))
            if cost[0] > now[0] or (cost[0] == now[0] and cost[1] >= now[1] * (1 - _GAIN)):
                return now, sizes
            now, sizes = cost, step

    def _steps(self, sizes: Sizes, most_ops: int) -> Iterator[dict[str, int]]:
        """Yield other sizes: one axis cut finer or coarser, or one finer and another coarser, within so many ops."""
        extents = self.space.axes
        for axis, extent in extents.items():
            size = sizes.get(axis, extent)
            for other in dict.fromkeys((size // 2, size // 4, -(-size * 2 // 3), size * 3 // 2, size * 2, extent)):
                yield from self._within(sizes, {axis: other}, most_ops)
            for coarser in extents:
                if coarser != axis and coarser in sizes:
                    yield from self._within(sizes, {axis: size // 2, coarser: sizes[coarser] * 2}, most_ops)

    def _within(self, sizes: Sizes, changes: Sizes, most_ops: int) -> Iterator[dict[str, int]]:
        extents = self.space.axes
        changed = {axis: min(max(1, size), extents[axis]) for axis, size in {**sizes, **changes}.items()}
        changed = {axis: size for axis, size in changed.items() if size < extents[axis]}
        if changed != sizes and self.space.count_ops(Transform().with_sizes(**changed)) <= most_ops:
            yield changed

    def sequence(self, nodes: NodeGraph, sizes: Sizes) -> Ints:
        """Return the nodes of the tiled graph op by op, each in its own order of loops."""
        graph, numbers = nodes.graph, tile_numbers(nodes.graph)
        place = {op.name: number for number, op in enumerate(self.graph.ops)}
        last = nodes.arrays.ops[nodes.arrays.start[1:] - 1].tolist()
        keys = []
        for op in last:
            at, number = numbers[op], place[origin(graph.ops[op])]
            loops = self.nested(number, sizes).loops
            keys.append((number, *(at[loop] for loop in loops)))
        ready = ReadyList(
            np.diff(nodes.arrays.before_start).tolist(), Rows(nodes.arrays.after_start, nodes.arrays.after).lists()
        )
        return np.array(schedule_by_key(ready, key=lambda node: keys[node]), np.int64)
