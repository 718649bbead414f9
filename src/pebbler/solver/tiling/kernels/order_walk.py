"""A walk, depth first, through all orders of some ops that wait for one another, which can stop anywhere and go on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pebbler.arrays import Array, Floats, Ints
from pebbler.compiled import inner_kernel

__all__ = ["OrderWalk", "begin_walk", "go_on", "next_op"]


class OrderWalk(NamedTuple):
    """The state of a walk."""

    after_start: Array
    after: Array  # per op: those that wait for it
    floor: Array  # per op: what it costs at least
    waits: Array  # per op: ops that it waits for and that have not run
    ran: Array  # per op
    tried: Array  # per depth: the last op tried
    prefix: Array  # per depth: the op that runs
    depth: Array  # one number, negative when the walk is over
    rest: Array  # one number: the floors of the ops that have not run


def begin_walk(waits: Ints, after_start: Ints, after: Ints, floor: Floats) -> OrderWalk:
    """Return a walk at its beginning; `waits` counts the ops that each waits for.

    >>> begin_walk(np.array([0, 1]), np.array([0, 1, 1]), np.array([1]), np.array([2.0, 3.0])).rest.tolist()
    [5.0]
    """
    ops = len(waits)
    return OrderWalk(
        after_start, after, floor, waits.copy(), np.zeros(ops, np.bool_), np.full(ops + 1, -1, np.int64),
        np.zeros(ops, np.int64), np.zeros(1, np.int64), np.array([floor.sum()]),
    )  # fmt: skip


@inner_kernel
def next_op(walk):  # type: ignore[no-untyped-def]
    """Return the next op to be tried after the prefix, which counts as run until the next call; -1 when the walk is over."""
    while walk.depth[0] >= 0:
        depth = walk.depth[0]
        if walk.tried[depth] >= 0:
            walk.ran[walk.tried[depth]] = False
        op = walk.tried[depth] + 1
        while op < len(walk.waits) and (walk.ran[op] or walk.waits[op] > 0):
            op += 1
        if op < len(walk.waits):
            walk.tried[depth] = walk.prefix[depth] = op
            walk.ran[op] = True
            return op
        walk.tried[depth] = -1
        walk.depth[0] -= 1
        if depth > 0:
            _count_run(walk, walk.prefix[depth - 1], -1)
    return np.int64(-1)


@inner_kernel
def go_on(walk):  # type: ignore[no-untyped-def]
    """Add the op that was tried last to the prefix."""
    _count_run(walk, walk.prefix[walk.depth[0]], 1)
    walk.depth[0] += 1


@inner_kernel
def _count_run(walk, op, step):  # type: ignore[no-untyped-def]
    """Count an op as run (`step` 1) or not run (-1)."""
    walk.rest[0] -= step * walk.floor[op]
    for k in range(walk.after_start[op], walk.after_start[op + 1]):
        walk.waits[walk.after[k]] -= step
