"""Walks within blocks of an order: each block is run depth first, as if it were a graph of its own."""

from __future__ import annotations

import numpy as np

from pebbler.arrays import Array, Ints
from pebbler.compiled import inner_kernel, kernel

__all__ = ["walk_blocks"]


@inner_kernel(forceinline=False)
def _walk(
    end: int, inside: Ints, start: Ints, items: Ints, at: Ints, seen: Array, stack: Ints, found: Ints, used: int
) -> int:
    """Add what an op waits for in its block, depth first, and the op; return the number of ops found."""
    seen[end], stack[0], depth = True, end, 1
    while depth > 0:
        op = stack[depth - 1]
        if at[op] == start[op + 1]:
            found[used] = op
            used += 1
            depth -= 1
            continue
        other = items[at[op]]
        at[op] += 1
        if inside[other] == inside[end] and not seen[other]:
            seen[other], stack[depth] = True, other
            depth += 1
    return used


@kernel
def walk_blocks(ranked: Ints, block: Ints, before: tuple[Ints, Ints], after: tuple[Ints, Ints], onward: bool) -> Ints:
    """Return some ops block by block, each walked depth first from those of its ops that no other op of it waits for.

    `block` says of each op of `ranked` in which block it is; walks begin in the order of `ranked`. With `onward`, a walk goes on to
    what waits for its ops, the first op first, before another one begins. Rows of `before` and `after` have the ops that an op
    waits for and those that wait for it.
    """
    start, items = before
    count, ops = len(ranked), len(start) - 1
    inside, found = np.full(ops, -1, np.int64), np.empty(count, np.int64)
    for i in range(count):
        inside[ranked[i]] = block[i]
    is_end = np.ones(ops, np.bool_)
    for op in ranked:
        for k in range(start[op], start[op + 1]):
            if inside[items[k]] == inside[op]:
                is_end[items[k]] = False
    seen, stack, at = np.zeros(ops, np.bool_), np.empty(count, np.int64), start[:-1].copy()
    used = looked = 0
    for first in ranked:
        if not is_end[first] or seen[first]:
            continue
        used = _walk(first, inside, start, items, at, seen, stack, found, used)
        while onward and looked < used:
            op = found[looked]
            looked += 1
            for k in range(after[0][op], after[0][op + 1]):
                end = after[1][k]
                if inside[end] != inside[op] or seen[end]:
                    continue
                going = True
                while going:  # on to an end
                    going = False
                    for j in range(after[0][end], after[0][end + 1]):
                        if inside[after[1][j]] == inside[op]:
                            end, going = after[1][j], True
                            break
                if not seen[end]:
                    used = _walk(end, inside, start, items, at, seen, stack, found, used)
        looked = used
    return found
