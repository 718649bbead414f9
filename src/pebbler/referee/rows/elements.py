"""Liveness: the values that are alive across a moment in every order, tiling and fusion of a graph.

A moment T is right after the move that makes the last element of some value B for the first time (`Liveness`). Some axes may be
known to be cut, others to be whole (`tile_range`); docs/bounds.md has the rules of tiling and fusion.

- *Before.* If a result of op a goes into B along reads and writes, every piece of a has run by T. By induction from B backwards:
  every piece of the op that makes B takes part in elements of B, all of which are complete at T. If every piece of an op has run,
  every element of what it reads had been completely made, so every piece of its maker has run.
- *After.* An axis of B *runs through* to a value along some way if it may be cut, every tensor on that way has it, and no op on
  it needs it whole. Along the way an element depends at least on all elements of B that agree with it on the axes that run
  through: an op that lacks the axis in a result sums over it and is complete only with all indices, an op that needs it whole
  reads all of them. If along some way to an operand of op c no axis runs through any more, or only axes that c needs whole, every
  piece of c needs every element of B, so none has run by T, unless c and the maker of B may be one fused op: those are not
  counted. An op that sums over the last axis that runs through is not after: its pieces need their own part of B only.
- *Together.* Let A be the ops after B, and B' any other made value of which every piece of every op in A needs every element,
  whose maker is in no group of an op in A. Take the moment when all such values are complete: what goes into any of them is
  before, and all of A is still after, since its pieces need the element that was made last, whichever value it is of
  (`Liveness.values`).

An op that is neither before nor after runs at a time unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from pebbler.game.dataflow import NONE
from pebbler.game.graph import Graph, Tensor

__all__ = ["Axes", "Elements", "Liveness", "Readers"]

Axes = frozenset[str]
Readers = dict[
    int, set[Axes]
]  # per group of ops that might be one: of each reader the axes that cut it and not the value
_FEW_VALUES = 400  # above this a barrier is about one value
_MOST_WAYS = 8  # ways kept per value; fewer only means that less is known to wait


class Elements:
    """The element-wise dependences of a graph, with axes that are cut or may be cut, under every possible fusion."""

    def __init__(self, graph: Graph, may_cut: Axes | None = None, cut: Axes = frozenset()) -> None:
        self.graph, self.flow, self.cut = graph, graph.dataflow, cut
        self.axes: list[Axes] = [frozenset(axis for axis, _ in tensor.axes or ()) for tensor in graph.tensors]
        self.may_cut: Axes = frozenset().union(*self.axes) if may_cut is None else may_cut
        self.whole = [frozenset(op.whole) for op in graph.ops]
        self.op_axes: list[Axes] = [
            frozenset(axis for name in (*op.reads, *op.writes) for axis in self.axes[graph.tensor_index(name)])
            for op in graph.ops
        ]
        flow = self.flow
        self.op_reads = [flow.op_reads.row(op).tolist() for op in range(flow.ops)]
        self.op_writes = [flow.op_writes.row(op).tolist() for op in range(flow.ops)]
        self.readers = [flow.value_readers.row(value).tolist() for value in range(flow.values)]
        self._waiting: dict[tuple[int, str | None], set[int]] = {}
        self._shared: dict[tuple[int, int], Axes] = {}

    def tensor(self, value: int) -> Tensor:
        """Return the tensor of a value."""
        return self.graph.tensors[int(self.flow.value_tensor[value])]

    def tensor_axes(self, value: int) -> Axes:
        """Return the axes of the tensor of a value."""
        return self.axes[int(self.flow.value_tensor[value])]

    def ancestors(self, value: int) -> set[int]:
        """Return the ops that have to do with making `value`: every piece of each goes into some element of it."""
        needed, found = {value}, set()
        for op in range(int(self.flow.value_maker[value]), -1, -1):
            if needed.intersection(self.op_writes[op]):
                found.add(op)
                needed.update(self.op_reads[op])
        return found

    def waiting(self, value: int) -> set[int]:
        """Return the ops of which no piece, however small, can do without any element of `value`.

        An axis of the value *runs through* to another one when it may be cut, every tensor on the way between them has it and no op
        on the way needs it whole: then an index there needs that index only. A piece of an op that reads such a tensor waits for
        its own indices, also where the op sums over the axis: its pieces add up one by one.
        """
        return self.waiting_along(value, None)

    def waiting_along(self, value: int, axis: str | None) -> set[int]:
        """Return the ops of which no piece can do without any element of `value` whose index along an axis is one of its own."""
        key = (value, axis)
        if key not in self._waiting:
            self._waiting[key] = self._wait(value, frozenset() if axis is None else frozenset({axis}))
        return self._waiting[key]

    def _wait(self, value: int, beside: Axes) -> set[int]:
        flow, axes = self.flow, self.axes
        # Per value: for each way, the axes. A piece has all indices of an axis that is not cut.
        running: dict[int, set[Axes]] = {value: {axes[flow.value_tensor[value]] & self.may_cut}}
        found = set()
        for op in range(int(flow.value_maker[value]) + 1, flow.ops):
            ways = {way - self.whole[op] for read in self.op_reads[op] for way in running.get(read, ())}
            if any(way <= beside for way in ways):
                found.add(op)
            for made in self.op_writes[op] if ways else ():
                kept = {way & axes[flow.value_tensor[made]] for way in ways}
                least = {way for way in kept if not any(other < way for other in kept)}
                running[made] = set(sorted(least, key=lambda way: (len(way), sorted(way)))[:_MOST_WAYS])
        return found

    @cached_property
    def loose_group(self) -> list[int]:
        """Per op: the group of ops that fusion could make one op of in any tiling, named by its first op."""
        return self._groups(lambda value: False)

    @cached_property
    def group(self) -> list[int]:
        """Per op: the group of ops that fusion could make one op of when these axes are cut."""
        return self._groups(self.adds_up) if self.cut else self.loose_group

    @cached_property
    def kept_whole(self) -> list[Axes]:
        """Per op: the axes along which it may stay whole because it, or an op that could be fused with it, needs them whole."""
        wholes: dict[int, Axes] = {}
        for op, leader in enumerate(self.loose_group):
            wholes[leader] = wholes.get(leader, frozenset()) | self.whole[op]
        return [wholes[leader] for leader in self.loose_group]

    def adds_up(self, value: int) -> bool:
        """Whether several pieces certainly add a value up; then it is written several times and cannot be fused away."""
        return bool(self.summed(value) & self.cut)

    def _groups(self, stays: Callable[[int], bool]) -> list[int]:
        flow = self.flow
        leader = list(range(flow.ops))

        def find(op: int) -> int:
            while leader[op] != op:
                op = leader[op]
            return op

        fusible = [value for value in range(flow.values) if self._may_fuse(value) and not stays(value)]
        changed = True
        while changed:
            changed = False
            for value in fusible:
                readers = {find(reader) for reader in self.readers[value]}
                ends = sorted({find(int(flow.value_maker[value])), *readers})
                if len(readers) == 1 and len(ends) == 2:
                    leader[ends[1]] = ends[0]
                    changed = True
        return [find(op) for op in range(flow.ops)]

    def _may_fuse(self, value: int) -> bool:
        """Whether a value is a temp all of whose readers are pointwise."""
        tensor, readers = self.tensor(value), self.readers[value]
        made = tensor.kind == "temp" and tensor.axes is not None and self.flow.value_maker[value] != NONE
        return bool(made and readers) and all(self.graph.ops[reader].pointwise for reader in readers)

    @cached_property
    def vanishing(self) -> set[int]:
        """Temps that fusion may do away with, so that nothing of them need be stored or priced."""
        return {
            value
            for value in range(self.flow.values)
            if self._may_fuse(value)
            and not self.adds_up(value)
            and len({self.group[reader] for reader in self.readers[value]}) == 1
        }

    def summed(self, value: int) -> Axes:
        """Return the axes that cut the op that makes a value into pieces that all write it, one after the other."""
        maker = int(self.flow.value_maker[value])
        if maker == NONE:
            return frozenset()
        own = self.axes[int(self.flow.value_tensor[value])]
        return self.op_axes[maker] - own - self.kept_whole[maker]

    def shared(self, op: int, value: int) -> Axes:
        """Return the axes that certainly cut an op, if they are cut, into pieces that all read the same elements of a value."""
        if (op, value) not in self._shared:
            self._shared[op, value] = self._share(op, value, self.op_axes[op] - self.kept_whole[op])
        return self._shared[op, value]

    def may_share(self, op: int, value: int) -> Axes:
        """Return all axes that may cut an op, whatever it is fused with, into pieces that read the same elements of a value."""
        return self._share(op, value, self.cutting(self.group[op])[1])

    def _share(self, op: int, value: int, axes: Axes) -> Axes:
        flow = self.flow
        tensor = int(flow.value_tensor[value])
        written = [int(flow.value_tensor[made]) for made in self.op_writes[op]]
        if flow.storage[tensor] in {flow.storage[other] for other in written}:
            return frozenset()  # what it updates in place: later pieces go on from what the first has made of it
        shared = axes - self.axes[tensor]
        if self.added_once(op, value):
            shared -= {axis for axis in shared if any(axis not in self.axes[other] for other in written)}
        return shared

    def added_once(self, op: int, value: int) -> bool:
        """Whether only the first piece of a sum reads a value; a sum may begin with its last tile, which may be a smaller one."""
        if self.tensor(value).name not in self.graph.ops[op].meta.get("adds", ()):
            return False
        cutting = self.op_axes[op] & self.may_cut - self.whole[op]
        return any(not cutting <= self.axes[int(self.flow.value_tensor[made])] for made in self.op_writes[op])

    def reads(self, value: int, ops: Iterable[int] | None = None) -> Readers:
        """Return by which groups of ops a value is read, by all its readers or by some of them."""
        found: Readers = {}
        for reader in self.readers[value] if ops is None else ops:
            found.setdefault(self.group[reader], set()).add(self.shared(reader, value))
        return found

    def cutting(self, group: int) -> tuple[int, Axes]:
        """Return the number of ops in a group, and the axes that may cut them."""
        ops = [op for op, leader in enumerate(self.group) if leader == group]
        axes = frozenset(axis for op in ops for axis in self.op_axes[op])
        return len(ops), axes - self.whole[ops[0]] if len(ops) == 1 else axes

    def writes_alone(self, op: int) -> bool:
        """Whether an op writes one tensor only, whatever is fused into it."""
        others = [other for other in range(self.flow.ops) if self.group[other] == self.group[op]]
        written = {value for other in others for value in self.op_writes[other]}
        return len(written - self.vanishing) == 1

    def can_rerun(self, op: int) -> bool:
        """Whether an op of which every piece has run could run again; pieces that add up change their result in place."""
        return bool(self.flow.op_can_rerun[op]) and not any(self.adds_up(value) for value in self.op_writes[op])

    def can_remake(self, value: int) -> bool:
        """Whether an element of a value may be made more than once.

        Pieces that begin a sum may run again until the next one goes on with it, and make whatever else they write again.
        """
        maker = int(self.flow.value_maker[value])
        return maker != NONE and bool(self.flow.op_can_rerun[maker]) and not self.adds_up(value)

    def recomputing(self, value: int) -> list[tuple[int, Fraction, Axes]]:
        """Return the reads of a recomputation, in elements per element of the value, and the axes whose indices share them."""
        tensor, maker = self.tensor(value), int(self.flow.value_maker[value])
        reads = []
        for read in dict.fromkeys(self.op_reads[maker]):
            other = self.tensor(read)
            if other.axes is None or tensor.axes is None or read in self.vanishing or not tensor.size:
                continue
            # Axes of both: the same index. Of the operand alone: all of it. Of the value alone: shared by a piece at best.
            own = self.axes[self.flow.value_tensor[value]] - self.axes[self.flow.value_tensor[read]]
            ratio = Fraction(other.size, tensor.size * self.sharing(maker, read))
            reads.append((read, ratio, own - self.kept_whole[maker]))
        return reads

    def sharing(self, maker: int, read: int) -> int:
        """Return the number of values that one run can recompute with one read of an operand: its readers that may be one op."""
        readers = [op for op in self.readers[read] if self.group[op] == self.group[maker]]
        made = {value for op in readers for value in self.op_writes[op]}
        return max(1, len(made - self.vanishing))


@dataclass(frozen=True)
class Liveness:
    """The ops before and after one barrier: the moment when all of a value has been made, and of others with it."""

    elements: Elements
    value: int

    @cached_property
    def values(self) -> tuple[int, ...]:
        """Values made completely at the barrier: its own, and all values that every op waiting for it also waits for."""
        elements, group = self.elements, self.elements.group
        waiting = {group[op] for op in self._waiting}
        if elements.flow.values > _FEW_VALUES or not waiting:
            return (self.value,)
        makers = [int(maker) for maker in elements.flow.value_maker]
        others = (
            other
            for other in range(elements.flow.values)
            if other != self.value and makers[other] != NONE and group[makers[other]] not in waiting
        )
        return (self.value, *(other for other in others if self._waiting <= elements.waiting(other)))

    @cached_property
    def _waiting(self) -> set[int]:
        """The ops that wait for the value, less those that may run in the same move as the last of it."""
        group = self.elements.group
        together = group[int(self.elements.flow.value_maker[self.value])]
        return {op for op in self.elements.waiting(self.value) if group[op] != together}

    @cached_property
    def last(self) -> list[int]:
        """Those of the values that go into none of the others."""
        flow = self.elements.flow
        inner = {read for op in self.before for read in self.elements.op_reads[op]}
        return sorted((value for value in self.values if value not in inner), key=lambda value: flow.value_maker[value])

    @cached_property
    def before(self) -> set[int]:
        """Ops that have run completely by the time of the barrier."""
        return set().union(*(self.elements.ancestors(value) for value in self.values))

    @property
    def after(self) -> set[int]:
        """Ops of which no piece has run by the time of the barrier."""
        return self._waiting

    def late(self, op: int, axis: str) -> bool:
        """Whether no piece of an op has run that has the indices, along an axis, of the element made last.

        Each waits for all of the barrier's values, or for all that has its own indices along the axis.
        """
        elements = self.elements
        makers = {elements.group[int(elements.flow.value_maker[value])] for value in self.values}
        return elements.group[op] not in makers and all(
            op in elements.waiting(value)
            or (axis in elements.tensor_axes(value) and op in elements.waiting_along(value, axis))
            for value in self.values
        )

    @cached_property
    def readers(self) -> list[tuple[Readers, Readers, Readers]]:
        """Per value: by whom it is read before, after, and at a time unknown."""
        elements, found = self.elements, []
        for value, readers in enumerate(elements.readers):
            early = [reader for reader in readers if reader in self.before]
            late = [reader for reader in readers if reader in self.after and reader not in self.before]
            known = {elements.group[reader] for reader in (*early, *late)}
            # A fused op runs at one time, so what reads before and what reads after are never one; the rest may be part of either.
            other = [reader for reader in readers if elements.group[reader] not in known]
            found.append((elements.reads(value, early), elements.reads(value, late), elements.reads(value, other)))
        return found

    @cached_property
    def alive(self) -> int:
        """An estimate of the elements alive across the barrier; elements read on both sides count twice."""
        flow, total = self.elements.flow, 0
        for value, (early, late, _) in enumerate(self.readers):
            if late and (flow.value_maker[value] == NONE or int(flow.value_maker[value]) in self.before):
                total += int(flow.value_size[value]) * (1 + bool(early))
        return total
