"""What must be alive when: which values live across a barrier in every order, tiling and fusion of a graph.

A barrier is the moment at which the last element of some value has been made. An op comes *before* it when every element of its
result goes into every element of that value, and *after* it when every element of the value goes into every element of its
result; then no way of cutting the ops along their axes lets a piece of one run on the other side. `docs/tiling.md` has the proof.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from pebbler.game.dataflow import NONE
from pebbler.game.graph import Graph, Tensor

__all__ = ["Elements", "Liveness"]

Ties = frozenset[str]
_MOST_TIES = 8  # sets of axes kept per value; fewer only means that less is known to be complete


class Elements:
    """The element-wise dependences of a graph, and what fusion may do to it."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.flow = graph, graph.dataflow
        self.axes = [frozenset(axis for axis, _ in tensor.axes or ()) for tensor in graph.tensors]
        self.whole = [frozenset(op.whole) for op in graph.ops]

    def tensor(self, value: int) -> Tensor:
        """Return the tensor of a value."""
        return self.graph.tensors[int(self.flow.value_tensor[value])]

    def reached(self, value: int) -> set[int]:
        """Return the values each of whose elements depends on every element of `value`."""
        flow = self.flow
        return self._complete(value, range(flow.ops), flow.op_reads.row, flow.op_writes.row)

    def reaching(self, value: int) -> set[int]:
        """Return the values each of whose elements goes into every element of `value`."""
        flow = self.flow
        return self._complete(value, range(flow.ops - 1, -1, -1), flow.op_writes.row, flow.op_reads.row)

    def _complete(self, value: int, ops: range, sources: Callable, goals: Callable) -> set[int]:  # type: ignore[type-arg]
        """Follow axes from a value: an axis that some value on the way lacks, or some op needs whole, ties nothing any more."""
        flow, axes = self.flow, self.axes
        ties: dict[int, set[Ties]] = {value: {axes[flow.value_tensor[value]]}}
        for op in ops:
            found = {tie for source in sources(op).tolist() for tie in ties.get(source, ())}
            if not found:
                continue
            for goal in goals(op).tolist():
                kept = {(tie & axes[flow.value_tensor[goal]]) - self.whole[op] for tie in found} | ties.get(goal, set())
                least = {tie for tie in kept if not any(other < tie for other in kept)}
                ties[goal] = set(sorted(least, key=lambda tie: (len(tie), sorted(tie)))[:_MOST_TIES])
        return {one for one, kept in ties.items() if frozenset() in kept and one != value}

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
        tensor = self.tensor(value)
        reads = []
        for read in dict.fromkeys(self.flow.op_reads.row(int(self.flow.value_maker[value])).tolist()):
            other = self.tensor(read)
            known = other.axes is not None and tensor.axes is not None and read not in self.vanishing
            # Axes of both: the same index. Axes of the operand alone: all of it. Axes of the value alone: shared at best.
            reads.append((read, other.size / tensor.size if known and tensor.size else 0.0))
        return reads


@dataclass(frozen=True)
class Liveness:
    """The ops before and after one barrier."""

    elements: Elements
    value: int

    @cached_property
    def before(self) -> set[int]:
        """Ops that have run completely by the time of the barrier."""
        flow = self.elements.flow
        done = self.elements.reaching(self.value) | {self.value}
        return {int(flow.value_maker[value]) for value in done} - {NONE}

    @cached_property
    def after(self) -> set[int]:
        """Ops of which no piece has run by the time of the barrier."""
        flow = self.elements.flow
        return {int(flow.value_maker[value]) for value in self.elements.reached(self.value)} - {NONE}

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
