"""Matrix products in a graph of single elements: the ops that multiply, and the sums that they contribute to.

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
        involved = np.concatenate([np.flatnonzero(flow.value_maker != NONE), left, right])
        unit = int(flow.value_size[involved].min())
        return cls(len(found), left, right, sums, unit, apart, ops, makers, index) if unit else None


def _triples(flow: Dataflow) -> tuple[Ints, bool, Ints, Ints]:
    """Return per product op the two values it reads and its sum; whether none reads more; all ops involved; the product ops."""
    made = flow.value_maker != NONE
    readers = np.repeat(np.arange(flow.ops), np.diff(flow.op_reads.start))
    given = ~made[flow.op_reads.items]
    count = np.bincount(readers[given], minlength=flow.ops)
    alone = np.diff(flow.op_writes.start) == 1
    two = given & (alone & (count == 2))[readers]
    ops, pairs = readers[two][::2], flow.op_reads.items[two].reshape(-1, 2)
    differ = pairs[:, 0] != pairs[:, 1]
    ops, pairs = ops[differ], pairs[differ]
    if not len(ops):
        return np.zeros((0, 3), np.int64), True, ops, ops
    # A sum ends where a value is read by several ops, or by one that does something else with it.
    adds = made[flow.op_reads.items] & (alone & ((count == 0) | (count == 2)))[readers]
    adds &= np.diff(flow.value_readers.start)[flow.op_reads.items] == 1
    last = np.arange(flow.values)
    last[flow.op_reads.items[adds]] = flow.op_writes.items[flow.op_writes.start[readers[adds]]]
    while not np.array_equal(last, last[last]):
        last = last[last]
    sums = last[flow.op_writes.items[flow.op_writes.start[ops]]]
    apart = bool((np.diff(flow.op_reads.start)[ops] == 2).all())
    every = np.union1d(readers[adds], ops)
    return np.column_stack([pairs, sums]), apart, every, ops


def _points(triples: Ints) -> Ints | None:
    """Return i, j and k of all product ops; None if two have the same three, whatever indices are given to the values."""
    # The two indices of each value are nodes; a product joins those that it has in common.
    left, right, total = 2 * triples.T
    leader = _joined(
        np.concatenate([left, left + 1, right + 1]),
        np.concatenate([total, right, total + 1]),
        int(triples.max() + 1) * 2,
    )
    points = leader[np.column_stack([left, right + 1, left + 1])]
    if len(np.unique(points, axis=0)) < len(points):
        return None
    return np.column_stack([_numbered(column) for column in points.T])


def _joined(one: Ints, other: Ints, nodes: int) -> Ints:
    """Return per node the smallest node that it is joined with by pairs."""
    leader = np.arange(nodes)
    while True:
        first, second = leader[one], leader[other]
        apart = first != second
        if not apart.any():
            return leader
        np.minimum.at(leader, np.maximum(first, second)[apart], np.minimum(first, second)[apart])
        while not np.array_equal(leader, leader[leader]):
            leader = leader[leader]


def _numbered(column: Ints) -> Ints:
    """Return names as numbers from 0 in the order in which they come."""
    _, first, names = np.unique(column, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[names]
