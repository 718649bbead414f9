"""What must be alive when: which values live across a barrier in every order, tiling and fusion of a graph.

A barrier is the moment right after the move that makes the last element of some value for the first time. An op comes *before* it
when its result goes into that value: then every piece of it has run. It comes *after* it when every piece of it, however small,
needs every element of the value: then no piece of it has. `docs/tiling.md` has the proof.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from pebbler.game.dataflow import NONE
from pebbler.game.graph import Graph, Tensor

__all__ = ["Elements", "Liveness"]

Axes = frozenset[str]
_MOST_WAYS = 8  # ways kept per value; fewer only means that less is known to wait


class Elements:
    """The element-wise dependences of a graph, and what fusion may do to it."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.flow = graph, graph.dataflow
        self.axes = [frozenset(axis for axis, _ in tensor.axes or ()) for tensor in graph.tensors]
        self.whole = [frozenset(op.whole) for op in graph.ops]

    def tensor(self, value: int) -> Tensor:
        """Return the tensor of a value."""
        return self.graph.tensors[int(self.flow.value_tensor[value])]

    def ancestors(self, value: int) -> set[int]:
        """Return the ops that have to do with making `value`: every piece of each goes into some element of it."""
        flow = self.flow
        needed, found = {value}, set()
        for op in range(int(flow.value_maker[value]), -1, -1):
            if needed.intersection(flow.op_writes.row(op).tolist()):
                found.add(op)
                needed.update(flow.op_reads.row(op).tolist())
        return found

    def waiting(self, value: int) -> set[int]:
        """Return the ops of which no piece, however small, can do without any element of `value`.

        An axis of the value *runs through* to another one when every tensor on the way between them has it and no op on the way
        needs it whole: then an index there needs that index only. A piece of an op that reads such a tensor waits for its own
        indices, also where the op sums over the axis: its pieces add up one by one.
        """
        flow, axes = self.flow, self.axes
        running: dict[int, set[Axes]] = {value: {axes[flow.value_tensor[value]]}}  # per value: for each way, the axes
        found = set()
        for op in range(int(flow.value_maker[value]) + 1, flow.ops):
            ways = {way - self.whole[op] for read in flow.op_reads.row(op).tolist() for way in running.get(read, ())}
            if frozenset() in ways:
                found.add(op)
            for made in flow.op_writes.row(op).tolist() if ways else ():
                kept = {way & axes[flow.value_tensor[made]] for way in ways}
                least = {way for way in kept if not any(other < way for other in kept)}
                running[made] = set(sorted(least, key=lambda way: (len(way), sorted(way)))[:_MOST_WAYS])
        return found

    @cached_property
    def group(self) -> list[int]:
        """Per op: the group of ops that fusion could make one op of, named by its first op."""
        flow = self.flow
        leader = list(range(flow.ops))

        def find(op: int) -> int:
            while leader[op] != op:
                op = leader[op]
            return op

        changed = True
        while changed:
            changed = False
            for value in range(flow.values):
                if not self._may_vanish(value, find):
                    continue
                ends = sorted({find(int(flow.value_maker[value])), find(int(flow.value_readers.row(value)[0]))})
                if len(ends) == 2:
                    leader[ends[1]] = ends[0]
                    changed = True
        return [find(op) for op in range(flow.ops)]

    def _may_vanish(self, value: int, find: Callable[[int], int]) -> bool:
        flow, tensor = self.flow, self.tensor(value)
        readers = flow.value_readers.row(value).tolist()
        return (
            tensor.kind == "temp"
            and tensor.axes is not None
            and flow.value_maker[value] != NONE
            and len({find(reader) for reader in readers}) == 1
            and all(self.graph.ops[reader].pointwise for reader in readers)
        )

    @cached_property
    def vanishing(self) -> set[int]:
        """Temps that fusion may do away with, so that nothing of them need be stored or priced."""
        group = self.group
        return {value for value in range(self.flow.values) if self._may_vanish(value, group.__getitem__)}

    def reader_groups(self, value: int) -> set[int]:
        """Return the groups of ops that read a value; each reads all its elements at least once."""
        return {self.group[reader] for reader in self.flow.value_readers.row(value).tolist()}

    def writes_alone(self, op: int) -> bool:
        """Whether an op writes one tensor only, whatever is fused into it."""
        flow = self.flow
        written = {
            value
            for other in range(flow.ops)
            if self.group[other] == self.group[op]
            for value in flow.op_writes.row(other).tolist()
        }
        return len(written - self.vanishing) == 1

    def recomputing(self, value: int) -> list[tuple[int, float]]:
        """Return what recomputing a value reads, in elements per element of the value, however its op is cut."""
        tensor, maker = self.tensor(value), int(self.flow.value_maker[value])
        results = len(
            self.flow.op_writes.row(maker)
        )  # one run makes all of them again, so each has a share of its reads
        reads = []
        for read in dict.fromkeys(self.flow.op_reads.row(maker).tolist()):
            other = self.tensor(read)
            known = other.axes is not None and tensor.axes is not None and read not in self.vanishing
            # Axes of both: the same index. Axes of the operand alone: all of it. Axes of the value alone: shared at best.
            reads.append((read, other.size / tensor.size / results if known and tensor.size else 0.0))
        return reads


@dataclass(frozen=True)
class Liveness:
    """The ops before and after one barrier."""

    elements: Elements
    value: int

    @cached_property
    def before(self) -> set[int]:
        """Ops that have run completely by the time of the barrier."""
        return self.elements.ancestors(self.value)

    @cached_property
    def after(self) -> set[int]:
        """Ops of which no piece has run by the time of the barrier.

        What fusion may make one op with the maker of the value runs in the same move as the last of it.
        """
        group = self.elements.group
        together = group[int(self.elements.flow.value_maker[self.value])]
        return {op for op in self.elements.waiting(self.value) if group[op] != together}

    def readers(self, value: int) -> tuple[int, int, int]:
        """Return by how many groups a value is read at least before, after, and at a time unknown."""
        elements = self.elements
        early: set[int] = set()
        late: set[int] = set()
        any_time: set[int] = set()
        for reader in elements.flow.value_readers.row(value).tolist():
            group = elements.group[reader]
            (early if reader in self.before else late if reader in self.after else any_time).add(group)
        # A fused op runs at one time, so what reads before and what reads after are never one; the rest may be part of either.
        return len(early), len(late), len(any_time - early - late)
