"""Downhill search over tile sizes and loop nests together, each priced on the pieces' flat arrays before anything is built."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product

import numpy as np

from pebbler.arrays import Ints
from pebbler.game.dataflow import NONE
from pebbler.game.graph import Graph, Tensor
from pebbler.solver.problem import Problem
from pebbler.solver.tiling.traced_tiles import PricedTiles, TracedTiles
from pebbler.solver.tiling.transform_space import Transform, TransformSpace

__all__ = ["NestSearch", "NestedPlan"]

_GAIN = 1e-6
_KEPT = 12  # tiled graphs whose arrays are kept
_FILLED = 0.6  # of the caches together, by blocks: LRU keeps what passes by as well
_SEEDS = 4  # that are improved
_TRIES = 150  # of each at first, before the best goes on
_LEAST_SHARED = 3  # ops that must share loops around a large temp: two read or write it once each
_LARGEST = 1  # kinds of temps that seeds are made for
_LEAST_TILE = 32  # of axes that are cut only so that blocks of them fit
_COARSE = (4, 16, 32)  # tiles of a loop in a seed
_DEPTH = 3  # values made again for one another


@dataclass(frozen=True)
class NestedPlan:
    """A transform, and the groups of ops that share loops, in turn; ops are those of the graph as it is, and may run twice."""

    transform: Transform
    groups: tuple[Group, ...]

    def with_groups(self, first: int, last: int, *groups: Group) -> NestedPlan:
        """Return the plan with other groups in place of those from `first` to `last` - 1."""
        kept = (group for group in groups if group.ops)
        return replace(self, groups=(*self.groups[:first], *kept, *self.groups[last:]))


class NestSearch:
    """Loop nests tried so far."""

    def __init__(self, problem: Problem, space: TransformSpace, over: Callable[[], bool], most: int) -> None:
        self.problem, self.space, self.over, self.most = problem, space, over, most
        self.axes = OpAxes(problem.graph, space.axes)
        caches = sum(level.capacity for level in problem.machine.level if level.capacity is not None)
        self.room = _FILLED * caches
        # Where every temp finds room, quick schedules of single ops do as well, and nests only take their time.
        self.pays = any(tensor.size > caches for tensor in self._stored())
        self._priced: dict[tuple[object, ...], tuple[PricedTiles, NestOrders] | None] = {}
        self._energy: dict[NestedPlan, float] = {}
        self.tried = 0
        self._steps = (
            self._sizes, self._cut, self._loops, self._merged, self._split, self._moved, self._again, self._turned,
        )  # fmt: skip

    def tiles(self, transform: Transform) -> tuple[PricedTiles, NestOrders] | None:
        """Return the pieces of a transformed graph and their orders; None where it cannot be made or has too many."""
        transform = self.space.effective(transform)
        key = transform.sizes, transform.fused
        if key not in self._priced:
            graph = self.space.fused_graph(transform.fused)
            found = None
            if graph is not None and self.space.count_ops(transform) <= self.most:
                traced = TracedTiles(graph, self.space.axes, dict(transform.sizes))
                if traced.can_be_cut:
                    priced = PricedTiles(traced, self.problem.machine, steady=self.problem.steady)
                    found = priced, NestOrders(traced, self.axes, self._places(graph), self.room)
            while len(self._priced) >= _KEPT:
                del self._priced[next(iter(self._priced))]
            self._priced[key] = found
        return self._priced[key]

    def _places(self, fused: Graph) -> list[int]:
        """Return the op that each op of the graph has become, NONE where it is part of a later one's."""
        parts: dict[str, int] = {}
        for number, op in enumerate(fused.ops):
            names = [part["name"] for part in op.meta.get("parts", ())] or [op.name]
            parts.update(dict.fromkeys(names[:-1], NONE) | {names[-1]: number})
        return [parts[op.name] for op in self.problem.graph.ops]

    def order(self, plan: NestedPlan) -> Ints | None:
        """Return the order of pieces of a plan; None where there is none."""
        priced = self.tiles(plan.transform)
        if priced is None:
            return None
        return priced[1].order(plan.groups)

    def energy(self, plan: NestedPlan) -> float:
        """Return the energy of a plan under LRU; infinite if there is no plan."""
        if plan not in self._energy:
            order, priced = self.order(plan), self.tiles(plan.transform)
            self._energy[plan] = float("inf") if order is None or priced is None else priced[0].price(order)
            self.tried += 1
        return self._energy[plan]

    def run(self, fused: Transform) -> NestedPlan:
        """Return the best plan found: the best seed of each kind, improved step by step, the most promising kinds first."""
        kinds: dict[tuple[Group, ...], NestedPlan] = {}
        for plan in self._seeds(fused):
            if kinds and self.over():
                break
            known = kinds.setdefault(plan.groups, plan)
            kinds[plan.groups] = min(known, plan, key=self.energy)
        ranked = sorted(kinds.values(), key=self.energy)[:_SEEDS]
        begun = sorted((self.improve(plan, _TRIES) for plan in ranked), key=self.energy)
        return min((self.improve(plan) for plan in begun), key=self.energy)

    def improve(self, plan: NestedPlan, tries: float = float("inf")) -> NestedPlan:
        """Return the end of a descent from a plan, after a number of tries."""
        better, until = True, self.tried + tries
        while better:
            better = False
            for steps in self._steps:
                for step in steps(plan):
                    if self.over() or self.tried >= until:
                        return plan
                    if self.energy(step) < self.energy(plan) * (1 - _GAIN):
                        plan, better = step, True
                        break
        return plan

    @classmethod
    def compile(cls, problem: Problem) -> None:
        """Call every kernel once, on a small problem."""
        space = problem.space
        ops = tuple(Group((op,)) for op in range(len(problem.graph.ops)))
        sizes = tuple((axis, 1) for axis in space.axes)
        cls(problem, space, lambda: False, 1_000).energy(NestedPlan(Transform(sizes), ops))

    # Where to begin ---------------------------------------------------------------------------------------------------

    def _seeds(self, fused: Transform) -> list[NestedPlan]:
        """Return plans to begin with, in tiles of some sizes: ops one by one, those around the largest temps together, or all."""
        single = NestedPlan(fused, tuple(Group((op,)) for op in range(len(self.problem.graph.ops))))
        found: list[NestedPlan] = []
        for count in (1, 2):
            for touched in self._largest():
                for loops in permutations(sorted(touched), count):
                    together = [[group] for group in self._around(touched, loops)]
                    if max(len(group.ops) for [group] in together) < _LEAST_SHARED:
                        continue
                    apart = [self._apart(group) for [group] in together]
                    for runs in (together, apart):
                        for groups in (tuple(group for run in runs for group in run), self._with_chains(runs)):
                            found += self._in_tiles(NestedPlan(fused, groups), loops, _COARSE)
            for loops in permutations(self.space.axes, count):
                found += self._in_tiles(NestedPlan(fused, self._longest(loops)), loops, (4, 16) if count == 1 else (8,))
        fitting = [plan for plan in dict.fromkeys(found) if self.space.count_ops(plan.transform) <= self.most]
        return [single, *sorted(fitting, key=lambda plan: self.space.count_ops(plan.transform))]

    def _in_tiles(self, plan: NestedPlan, loops: tuple[str, ...], counts: tuple[int, ...]) -> Iterator[NestedPlan]:
        """Yield a plan with its loops cut into some numbers of tiles, all other axes whole or in four."""
        axes = self.space.axes
        for tiles in product(counts, repeat=len(loops)):
            sizes = {axis: -(-axes[axis] // count) for axis, count in zip(loops, tiles, strict=True)}
            for others in (1, 4):
                long = [axis for axis, extent in axes.items() if axis not in loops and extent >= _LEAST_TILE * others]
                rest = {axis: -(-axes[axis] // others) for axis in long}
                cut = self.space.effective(plan.transform.with_sizes(**sizes, **rest))
                yield NestedPlan(replace(cut, fused=plan.transform.fused), plan.groups)

    def _stored(self) -> list[Tensor]:
        """Return the temps that fusion cannot remove."""
        fused = set(self.space.temps)
        return [one for one in self.problem.graph.tensors if one.kind == "temp" and one.name not in fused]

    def _largest(self) -> list[frozenset[str]]:
        """Return the axes of the temps that are largest together, a few kinds."""
        total: dict[frozenset[str], int] = {}
        for tensor in self._stored():
            own = frozenset(axis for axis, _ in tensor.axes or () if axis in self.space.axes)
            if own:
                total[own] = total.get(own, 0) + tensor.size
        return sorted(total, key=lambda own: (-total[own], sorted(own)))[:_LARGEST]

    def _around(self, touched: frozenset[str], loops: tuple[str, ...]) -> tuple[Group, ...]:
        """Return groups in program order: ops that touch temps of these axes together where they can share the loops."""
        graph = self.problem.graph
        groups: list[Group] = []
        for number, op in enumerate(graph.ops):
            tensors = [graph.tensor_named(name) for name in (*op.reads, *op.writes)]
            joins = any(touched == {axis for axis, _ in one.axes or ()} for one in tensors if one.kind == "temp")
            last = groups[-1] if groups else Group(())
            if joins and last.loops and self.axes.sides((*last.ops, number), loops) is not None:
                groups[-1] = Group((*last.ops, number), loops)
            else:
                groups.append(Group((number,), loops if joins and self.axes.loops[number] & set(loops) else ()))
        return tuple(groups)

    def _apart(self, group: Group) -> list[Group]:
        """Return a group without the ops that add up over its loops, and each of those by itself: their sums need not all stay."""
        axes = self.axes
        adds = [op for op in group.ops if any(set(group.loops) - axes.axes_of[one] for one in axes.writes[op])]
        kept = tuple(op for op in group.ops if op not in adds)
        parts = [Group(kept, group.loops), *(Group((op,), group.loops) for op in adds)]
        whole = [part for part in parts if part.ops]
        return whole if all(axes.sides(part.ops, part.loops) is not None for part in whole) else [group]

    def _with_chains(self, runs: list[list[Group]]) -> tuple[Group, ...]:
        """Return the groups of all runs, with all that they read from groups of earlier runs made again, with what that takes."""
        found: list[Group] = []
        makers: list[int] = []
        for run in runs:
            for group in run:
                ops = group.ops
                for op in reversed(makers if group.loops else []):
                    needed = op not in ops and any(self.axes.writes[op] & self.axes.reads[one] for one in ops)
                    if needed and self.axes.sides((op, *ops), group.loops) is not None:
                        ops = (op, *ops)
                found.append(replace(group, ops=ops))
            makers += [op for group in run if group.loops for op in group.ops if op not in makers]
        return tuple(found)

    def _longest(self, loops: tuple[str, ...]) -> tuple[Group, ...]:
        """Return groups in program order, each as long as its ops can share the loops."""
        groups: list[Group] = []
        for op in range(len(self.problem.graph.ops)):
            last = groups[-1].ops if groups else ()
            if last and self.axes.sides((*last, op), loops) is not None:
                groups[-1] = Group((*last, op), loops)
            else:
                groups.append(Group((op,), loops))
        return tuple(groups)

    # Steps ------------------------------------------------------------------------------------------------------------

    def _sizes(self, plan: NestedPlan) -> Iterator[NestedPlan]:
        """Other tiles: of one axis, or of one finer and of another coarser."""
        axes, sizes = self.space.axes, dict(plan.transform.sizes)

        def changed(**wanted: int) -> NestedPlan:
            limited = {axis: max(1, size) for axis, size in wanted.items()}
            found = {axis: None if size >= axes[axis] else size for axis, size in limited.items()}
            return replace(plan, transform=plan.transform.with_sizes(**found))

        for axis, extent in axes.items():
            now = sizes.get(axis, extent)
            for size in dict.fromkeys((now // 2, now * 2, now // 4, extent, now * 2 // 3, now * 3 // 2)):
                if size != now and 0 < size < 2 * extent:
                    yield changed(**{axis: size})
            for other in sizes:
                if other != axis:
                    yield changed(**{axis: now // 2, other: sizes[other] * 2})

    def _cut(self, plan: NestedPlan) -> Iterator[NestedPlan]:
        """One more axis cut, and the innermost or outermost loop of all groups that can share it, or of one."""
        sizes = dict(plan.transform.sizes)
        for axis, extent in self.space.axes.items():
            if axis in sizes:
                continue
            for size in (-(-extent // 2), -(-extent // 4), -(-extent // 16)):
                if size < extent:
                    cut = replace(plan, transform=plan.transform.with_sizes(**{axis: size}))
                    yield from self._looped(cut, axis)

    def _looped(self, plan: NestedPlan, axis: str) -> Iterator[NestedPlan]:
        """An axis as the innermost or outermost loop of all groups that can share it, and of one."""
        for outer in (False, True):
            groups = []
            for group in plan.groups:
                loops = (axis, *group.loops) if outer else (*group.loops, axis)
                fits = axis not in group.loops and self.axes.sides(group.ops, loops) is not None
                groups.append(replace(group, loops=loops) if fits else group)
            yield replace(plan, groups=tuple(groups))
            for at, group in enumerate(groups):
                yield plan.with_groups(at, at + 1, group)

    def _options(self, ops: tuple[int, ...]) -> Iterator[tuple[str, ...]]:
        """Yield loops that some ops can share."""
        axes = sorted(frozenset().union(*(self.axes.loops[op] for op in ops)))
        for count in range(min(3, len(axes)) + 1):
            for loops in permutations(axes, count):
                if self.axes.sides(ops, loops) is not None:
                    yield loops

    def _loops(self, plan: NestedPlan) -> Iterator[NestedPlan]:
        """Other loops of one group."""
        for at, group in enumerate(plan.groups):
            cut = {axis for axis, _ in plan.transform.sizes}
            for loops in self._options(group.ops):
                if loops != group.loops and cut.issuperset(loops):
                    yield plan.with_groups(at, at + 1, Group(group.ops, loops))

    def _merged(self, plan: NestedPlan) -> Iterator[NestedPlan]:
        """Two groups made one."""
        cut = {axis for axis, _ in plan.transform.sizes}
        for at in range(len(plan.groups) - 1):
            ops = plan.groups[at].ops + plan.groups[at + 1].ops
            for loops in self._options(ops):
                if loops and cut.issuperset(loops):
                    yield plan.with_groups(at, at + 2, Group(ops, loops))

    def _split(self, plan: NestedPlan) -> Iterator[NestedPlan]:
        """One group made two."""
        for at, group in enumerate(plan.groups):
            for cut in range(1, len(group.ops)):
                yield plan.with_groups(
                    at, at + 1, replace(group, ops=group.ops[:cut]), replace(group, ops=group.ops[cut:])
                )

    def _moved(self, plan: NestedPlan) -> Iterator[NestedPlan]:
        """Neighbours with one op moved: into an earlier or later group, or into a new group there."""
        for at, group in enumerate(plan.groups):
            for i, op in enumerate(group.ops):
                rest = replace(group, ops=group.ops[:i] + group.ops[i + 1 :])
                for to in range(len(plan.groups)):
                    other = plan.groups[to]
                    if to < at and self._is_free(op, plan.groups[to + 1 : at], group.ops[:i]):
                        joined = replace(other, ops=(*other.ops, op))
                        yield plan.with_groups(at, at + 1, rest).with_groups(to, to + 1, joined)
                    elif to > at and self._is_free(op, plan.groups[at + 1 : to], group.ops[i + 1 :]):
                        joined = replace(other, ops=(op, *other.ops))
                        yield plan.with_groups(to, to + 1, joined).with_groups(at, at + 1, rest)

    def _is_free(self, op: int, groups: tuple[Group, ...], ops: tuple[int, ...]) -> bool:
        """Whether an op may be exchanged with all these."""
        others = [*ops, *(one for group in groups for one in group.ops)]
        return not any(self.axes.shared[op][one] for one in others)

    def _again(self, plan: NestedPlan) -> Iterator[NestedPlan]:
        """Neighbours with values recomputed for a later group, alone or with their operands; or no longer recomputed."""
        runs: set[int] = set()
        for at, group in enumerate(plan.groups):
            for i, op in enumerate(group.ops):
                if op in runs:
                    yield plan.with_groups(at, at + 1, replace(group, ops=group.ops[:i] + group.ops[i + 1 :]))
            for op in sorted(runs - set(group.ops)):
                if any(self.axes.writes[op] & self.axes.reads[one] for one in group.ops):
                    chain = [op]
                    for _ in range(_DEPTH):
                        yield plan.with_groups(at, at + 1, replace(group, ops=(*chain, *group.ops)))
                        need = self.axes.reads[chain[0]]
                        makers = [one for one in sorted(runs - set(chain)) if self.axes.writes[one] & need]
                        if not makers:
                            break
                        chain = [makers[-1], *chain]
            runs |= set(group.ops)

    def _turned(self, plan: NestedPlan) -> Iterator[NestedPlan]:
        """Neighbours with the direction of one loop of a group reversed."""
        for at, group in enumerate(plan.groups):
            for loop in group.loops:
                yield plan.with_groups(at, at + 1, replace(group, back=group.back ^ {loop}))


# Orders of a tiled graph as loop nests that ops share: a group of ops runs tile by tile of its loops, all ops for each tile
# That is how a flash-like attention runs: scores, softmax and mix of one tile of queries before the next. An op of the group that
# lacks a loop runs before or after all turns of it, whichever the other ops of the group need.


BEFORE, INSIDE, AFTER = 0, 1, 2  # where an op runs, seen from a loop of its group


@dataclass(frozen=True)
class Group:
    """Ops that run together, by number, one after the other for every turn of the loops that they share."""

    ops: tuple[int, ...]
    loops: tuple[str, ...] = ()  # outermost first
    back: frozenset[str] = frozenset()  # loops that begin with the last tile


class OpAxes:
    """The axes that each op of a graph loops over, and the ops that must not be exchanged because of certain tensors."""

    def __init__(self, graph: Graph, axes: Iterable[str]) -> None:
        cut, flow = set(axes), graph.dataflow
        self.axes_of: dict[int, set[str]] = {}  # of storages
        for number, tensor in enumerate(graph.tensors):
            own = {axis for axis, _ in tensor.axes or ()} & cut
            root = int(flow.storage[number])
            self.axes_of[root] = self.axes_of.get(root, own) & own
        self.loops: list[frozenset[str]] = []
        self.reads: list[frozenset[int]] = []
        self.writes: list[frozenset[int]] = []
        for op in graph.ops:
            reads = frozenset(int(flow.storage[graph.tensor_index(name)]) for name in op.reads)
            writes = frozenset(int(flow.storage[graph.tensor_index(name)]) for name in op.writes)
            touched = {axis for name in (*op.reads, *op.writes) for axis, _ in graph.tensor_named(name).axes or ()}
            self.loops.append(frozenset(touched & cut) - set(op.whole))
            self.reads.append(reads)
            self.writes.append(writes)
        ops = range(len(graph.ops))
        # Per two ops, the storages because of which they must stay in turn: both touch them, and one of them writes.
        self.shared = [
            [(self.writes[a] & (self.reads[b] | self.writes[b])) | (self.reads[a] & self.writes[b]) for b in ops]
            for a in ops
        ]
        self._sides: dict[tuple[tuple[int, ...], tuple[str, ...]], list[tuple[int, ...]] | None] = {}

    def sides(self, ops: tuple[int, ...], loops: tuple[str, ...]) -> list[tuple[int, ...]] | None:
        """Return the place of each op of a group as seen from each of its loops; None if the ops cannot share these loops.

        Two ops that must stay in turn may share a turn of a loop only if what they share is of that turn alone.

        >>> from pebbler.workloads import attention
        >>> axes = OpAxes(attention(), ["heads", "keys", "tokens"])
        >>> axes.sides((1, 3, 4, 5), ("heads", "tokens"))  # fwd_k, fwd_scores, fwd_softmax, fwd_mix
        [(1, 0), (1, 1), (1, 1), (1, 1)]
        >>> axes.sides((1, 3), ("keys",))  # tiles of keys are made one by one, and used one by one
        [(1,), (1,)]
        >>> axes.sides((3, 4, 5), ("keys",)) is None  # softmax needs the scores of all keys, before mix needs any
        True
        """
        if (ops, loops) not in self._sides:
            self._sides[ops, loops] = self._find_sides(ops, loops)
        return self._sides[ops, loops]

    def _find_sides(self, ops: tuple[int, ...], loops: tuple[str, ...]) -> list[tuple[int, ...]] | None:
        found: list[list[int]] = []
        for place, op in enumerate(ops):
            mine = []
            for number, loop in enumerate(loops):
                if loop in self.loops[op]:
                    mine.append(INSIDE)
                    continue
                earlier = (before for before in range(place) if self.shared[ops[before]][op])
                mine.append(AFTER if any(found[before][number] != BEFORE for before in earlier) else BEFORE)
            for before in range(place):
                storages = self.shared[ops[before]][op]
                if storages and not self._in_turn(storages, found[before], mine, loops):
                    return None
            found.append(mine)
        return [tuple(one) for one in found]

    def _in_turn(self, storages: frozenset[int], first: list[int], second: list[int], loops: Sequence[str]) -> bool:
        """Whether all that two ops share is touched by the first of them first, for every tile."""
        for storage in storages:
            for number, loop in enumerate(loops):
                a, b = first[number], second[number]
                if a < b:
                    break
                if a > b or (a == INSIDE and loop not in self.axes_of[storage]):
                    return False
        return True


class NestOrders:
    """Orders of the pieces of one tiled graph, group by group; groups that were met before are not ordered again."""

    def __init__(self, tiles: TracedTiles, axes: OpAxes, place: Sequence[int], room: float) -> None:
        """`place` is the op of the (fused) graph that each op of a group has become, negative where it is part of a later one.

        `room` is that of the memory in which blocks of an op's operands are to stay.
        """
        self.tiles, self.axes, self.place, self.room = tiles, axes, place, room
        self._known: dict[Group, Ints | None] = {}

    def order(self, groups: Sequence[Group]) -> Ints | None:
        """Return the pieces of all groups in turn; None where the ops of a group cannot share its loops."""
        found = []
        for group in groups:
            if group not in self._known:
                self._known[group] = self._pieces(group)
            pieces = self._known[group]
            if pieces is None:
                return None
            found.append(pieces)
        return np.concatenate(found)

    def _pieces(self, group: Group) -> Ints | None:
        sides = self.axes.sides(group.ops, group.loops)
        if sides is None:
            return None
        ops = [(self.place[op], side) for op, side in zip(group.ops, sides, strict=True) if self.place[op] >= 0]
        keys, pieces = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for turn, (op, side) in enumerate(ops):
            index, inner = self.tiles.index(op), self.tiles.inner_loops(op, group.loops, self.room)
            key = np.zeros(int(self.tiles.first[op + 1] - self.tiles.first[op]), np.int64)
            for loop, where in zip(group.loops, side, strict=True):
                count = self.tiles.count(loop)
                at = np.int64(-1 if where == BEFORE else count) if loop not in index else index[loop]
                turned = loop in group.back and loop in index
                key = key * (count + 2) + 1 + (count - 1 - at if turned else at)
            key = key * len(ops) + turn
            rank = np.zeros(len(key), np.int64)
            for loop, step in inner:
                rank = rank * self.tiles.count(loop) + index[loop] // step
            sequence = np.lexsort((rank, key)) if inner else np.argsort(key, kind="stable")
            keys.append(key[sequence])
            pieces.append(sequence + self.tiles.first[op])
        return np.concatenate(pieces)[np.argsort(np.concatenate(keys), kind="stable")]
