"""Matrix products in a graph of single elements: which ops multiply, and what they are added up to.

A *product op* reads two values that nobody makes, `a` and `b`, and makes one; what it makes is added up, by ops that read nothing
else, to one last value, the *sum*. With `a = A[i, k]`, `b = B[k, j]` and the sum `C[i, j]` every product op is a point `(i, j, k)`.
The indices need not be given: they are found from what is multiplied with what.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pebbler.arrays import Ints
from pebbler.game.dataflow import NONE, Dataflow

__all__ = ["ProductPoints"]


@dataclass(frozen=True)
class ProductPoints:
    """The product ops of a graph, and how many different values they read and sum up to."""

    count: int
    left: Ints  # the values that are read first, second, and that are summed up to
    right: Ints
    sums: Ints
    unit: int  # the size of the smallest value that has to do with it
    apart: bool  # whether no product op adds anything itself
    ops: Ints  # the ops that make products, and those that add on the way to a sum
    makers: Ints  # the ops that make products, in program order
    index: Ints  # their points: i, j and k of each, numbered from 0 in the order in which they come

    @classmethod
    def of(cls, flow: Dataflow) -> ProductPoints | None:
        """Return the products of a graph, None if they are not of the form of a matrix product.

        >>> from pebbler.game.graph import Graph
        >>> graph = Graph("outer", unit="pebble")
        >>> for name in ("a0", "a1", "b0", "b1"):
        ...     _ = graph.tensor(name, 1, "input")
        >>> for name in ("00", "01", "10", "11"):
        ...     _ = graph.tensor(f"c{name}", 1, "output")
        ...     _ = graph.op(f"times{name}", [f"a{name[0]}", f"b{name[1]}"], [f"c{name}"])
        >>> found = ProductPoints.of(graph.dataflow)
        >>> found.count, len(found.left), len(found.right), len(found.sums)
        (4, 2, 2, 4)
        """
        found, apart, ops, makers = _triples(flow)
        if not len(found):
            return None
        left, right, sums = (np.unique(column) for column in found.T)
        index = _points(found)
        if np.intersect1d(left, right).size or index is None:
            return None
        involved = [value for value in range(flow.values) if flow.value_maker[value] != NONE]
        unit = int(flow.value_size[[*involved, *left.tolist(), *right.tolist()]].min())
        return cls(len(found), left, right, sums, unit, apart, ops, makers, index) if unit else None


def _triples(flow: Dataflow) -> tuple[Ints, bool, Ints, Ints]:
    """Return per product op the two values it reads and its sum; whether none reads more; all ops involved; the product ops."""
    made = flow.value_maker != NONE
    reads = [flow.op_reads.row(op).tolist() for op in range(flow.ops)]
    writes = [flow.op_writes.row(op).tolist() for op in range(flow.ops)]
    given = [[value for value in row if not made[value]] for row in reads]
    alone = [len(row) == 1 for row in writes]
    # A sum ends where a value is read by several ops, or by one that does something else with it.
    last = list(range(flow.values))
    adding = set()
    for op in range(flow.ops - 1, -1, -1):
        for value in (value for value in reads[op] if made[value]):
            if len(flow.value_readers.row(value)) == 1 and alone[op] and len(given[op]) in (0, 2):
                last[value] = last[writes[op][0]]
                adding.add(op)
    ops = [op for op in range(flow.ops) if alone[op] and len(given[op]) == 2 and given[op][0] != given[op][1]]
    found = [(*given[op], last[writes[op][0]]) for op in ops]
    apart = all(len(reads[op]) == 2 for op in ops)
    every = np.array(sorted(adding | set(ops)), np.int64)
    return np.array(found, np.int64).reshape(-1, 3), apart, every, np.array(ops, np.int64)


def _points(triples: Ints) -> Ints | None:
    """Return i, j and k of all product ops; None if two have the same three, whatever indices are given to the values."""
    # The two indices of each value are nodes; a product joins those that it has in common.
    leader = np.arange(2 * (int(triples.max()) + 1))

    def find(node: int) -> int:
        while leader[node] != node:
            leader[node] = leader[leader[node]]
            node = int(leader[node])
        return node

    for left, right, total in triples.tolist():
        for one, other in ((2 * left, 2 * total), (2 * left + 1, 2 * right), (2 * right + 1, 2 * total + 1)):
            leader[find(one)] = find(other)
    points = [(find(2 * left), find(2 * right + 1), find(2 * left + 1)) for left, right, _ in triples.tolist()]
    if len(set(points)) < len(points):
        return None
    known: list[dict[int, int]] = [{}, {}, {}]
    numbered = [[names.setdefault(one, len(names)) for one, names in zip(row, known, strict=True)] for row in points]
    return np.array(numbered, np.int64)
