"""Sums whose terms may be added in any order, and the graph with a different order of the terms.

A sum is a tensor that only ops with the kernel `add` write. The first addition reads two terms and stores the sum in place of
one of them. Every further addition reads the sum and one more term. A term is made by one op and read by one addition only. In
exact arithmetic the order of the terms does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from pebbler.arrays import Ints
from pebbler.game.graph import Graph, Op

__all__ = ["Sums"]


@dataclass(frozen=True)
class Sums:
    """The sums of a graph: which ops make terms, and which sum each term belongs to.

    >>> from pebbler.workloads import matmul
    >>> sums = Sums.of(matmul(1, 2, 2))
    >>> [sums.graph.op_names[op] for op in sums.makers]
    ['mul_0_0_0', 'mul_0_0_1', 'mul_0_1_0', 'mul_0_1_1']
    >>> [op.name for op in sums.in_order([3, 2, 1, 0]).ops][:3]
    ['mul_0_1_1', 'mul_0_1_0', 'add_0_1_1']
    """

    graph: Graph
    makers: tuple[int, ...]  # the ops that make terms, in program order
    sum_of: tuple[int, ...]  # per maker: the tensor it is added up to
    additions: dict[int, tuple[int, ...]]  # per sum: the ops that add
    others: tuple[int, ...]  # all other ops; they come after every term is made

    @classmethod
    def of(cls, graph: Graph) -> Sums | None:
        """Return the sums of a graph; None where there are none, or where other ops are needed between."""
        additions: dict[int, list[int]] = {}
        for number, op in enumerate(graph.ops):
            if op.meta.get("kernel") == "add" and len(op.writes) == 1 and len(op.reads) == 2:
                additions.setdefault(graph.tensor_numbers[op.writes[0]], []).append(number)
        made: dict[int, int] = {}
        writers = _writers(graph)
        for total, ops in additions.items():
            for term in _terms(graph, total, ops) or [-1]:
                if term < 0 or not _is_term(graph, term, writers.get(term, [])):
                    return None
                made[writers[term][0]] = total
        inside = set(made) | {op for ops in additions.values() for op in ops}
        others = [op for op in range(len(graph.ops)) if op not in inside]
        before = graph.dataflow.before
        if not made or any(not inside.issuperset(before.row(op).tolist()) for op in sorted(inside)):
            return None
        makers = sorted(made)
        groups = {total: tuple(ops) for total, ops in additions.items()}
        return cls(graph, tuple(makers), tuple(made[op] for op in makers), groups, tuple(others))

    def in_order(self, order: Sequence[int] | Ints) -> Graph:
        """Return the graph with the terms made in this order (positions in `makers`), each added as soon as it is made."""
        graph = self.graph
        begun: dict[int, list[str]] = {}
        ops: list[Op] = []
        for place in np.asarray(order, np.int64).tolist():
            op, total = graph.ops[self.makers[place]], self.sum_of[place]
            ops.append(op)
            terms = begun.setdefault(total, [])
            terms.append(op.writes[0])
            if len(terms) > 1:
                addition = graph.ops[self.additions[total][len(terms) - 2]]
                before = graph.tensor_names[total] if len(terms) > 2 else terms[0]
                ops.append(msgspec.structs.replace(addition, reads=(before, terms[-1])))
        ops += [graph.ops[op] for op in self.others]
        tensors = [
            msgspec.structs.replace(tensor, overwrites=begun[number][0])
            if number in begun and tensor.overwrites is not None
            else tensor
            for number, tensor in enumerate(graph.tensors)
        ]
        return Graph(graph.name, graph.unit, tensors, ops, graph.meta)

    def order_of(self, graph: Graph) -> list[int] | None:
        """Return the order in which another graph makes the terms; None unless it is this one with its terms in another order.

        >>> from pebbler.workloads import matmul
        >>> sums = Sums.of(matmul(2, 1, 2))
        >>> sums.order_of(sums.in_order([2, 1, 3, 0])), sums.order_of(matmul(1, 2, 2))
        ([2, 1, 3, 0], None)
        """
        place = {self.graph.op_names[op]: i for i, op in enumerate(self.makers)}
        order = [place[op.name] for op in graph.ops if op.name in place]
        if sorted(order) != list(range(len(self.makers))) or self.in_order(order) != graph:
            return None
        return order


def _writers(graph: Graph) -> dict[int, list[int]]:
    """Return the ops that write each tensor."""
    found: dict[int, list[int]] = {}
    for number, op in enumerate(graph.ops):
        for name in op.writes:
            found.setdefault(graph.tensor_numbers[name], []).append(number)
    return found


def _is_term(graph: Graph, term: int, writers: Sequence[int]) -> bool:
    """Return whether a tensor is made by one op, which makes nothing else and updates nothing, and read once."""
    flow = graph.dataflow
    if len(writers) != 1 or graph.tensors[term].kind != "temp" or len(flow.op_destroys.row(writers[0])):
        return False
    made = flow.op_writes.row(writers[0]).tolist()
    return len(made) == 1 and len(flow.value_readers.row(made[0])) == 1


def _terms(graph: Graph, total: int, ops: Sequence[int]) -> list[int] | None:
    """Return the tensors that are added up to a sum, None if something else happens to it on the way."""
    name, number = graph.tensor_names[total], graph.tensor_numbers
    first, *rest = (graph.ops[op] for op in ops)
    if name in first.reads or first.reads[0] == first.reads[1] or graph.tensors[total].kind not in ("temp", "output"):
        return None
    if graph.tensors[total].overwrites not in (None, first.reads[0]):
        return None
    if any(op.reads[0] != name or op.reads[1] == name for op in rest):
        return None
    inner = {graph.dataflow.op_writes.row(op)[0].item() for op in ops[:-1]}
    if any(len(graph.dataflow.value_readers.row(value)) != 1 for value in sorted(inner)):
        return None
    return [number[one] for one in (*first.reads, *(op.reads[1] for op in rest))]
