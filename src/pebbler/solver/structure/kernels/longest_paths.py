"""Longest paths from marked ops, forward or backward through the ops."""

from __future__ import annotations

from pebbler.arrays import Ints
from pebbler.compiled import kernel

__all__ = ["longest_paths"]


@kernel
def longest_paths(start: Ints, items: Ints, weight: Ints, first: Ints, backward: bool) -> Ints:
    """Return per op the largest of its own number and of those of the ops that it waits for, each with the weight of its edge.

    Backward: the same of the ops that wait for it. Ops are numbered in a legal order; row `op` has those that it waits for.
    """
    found, count = first.copy(), len(start) - 1
    for number in range(count):
        op = count - 1 - number if backward else number
        for k in range(start[op], start[op + 1]):
            source, target = (op, items[k]) if backward else (items[k], op)
            found[target] = max(found[target], found[source] + weight[k])
    return found
