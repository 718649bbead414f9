"""Legal changes of a sequence of ops: blocks shift past what they do not depend on, ops run again or stop doing so.

Every change fills `new`, the changed sequence, and `where`, the place to which every position went (-1 if it is gone).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pebbler.compiled import separate_kernel
from pebbler.solver.paging.kernels.random_draws import draw
from pebbler.solver.paging.kernels.residency import INNER, MADE, OLD, READS, STORAGE

__all__ = ["RerunRules", "can_rerun", "delete_reruns", "insert_reruns", "shift_block", "splice"]

Array = npt.NDArray[Any]


class RerunRules(NamedTuple):
    """The ops that may run again, and the last position of each."""

    maker: Array  # per value
    rerun: Array  # per op: neither in place nor once
    kill_start: Array  # per op: the ops after which it can never run again
    kill_items: Array
    most: int  # the longest sequence


@INNER
def _conflict(arrays, a, b):  # type: ignore[no-untyped-def]
    """Whether two ops may not change places: both touch a storage, and one of them writes it."""
    for i in range(arrays.operand_start[a], arrays.operand_start[a + 1]):
        for j in range(arrays.operand_start[b], arrays.operand_start[b + 1]):
            if arrays.operand[i, STORAGE] == arrays.operand[j, STORAGE] and (
                arrays.operand[i, MADE] >= 0 or arrays.operand[j, MADE] >= 0
            ):
                return True
    return False


@INNER
def shift_block(arrays, sequence, rng, new, where):  # type: ignore[no-untyped-def]
    """Move a block of ops earlier or later; return whether anything moved."""
    steps = len(sequence)
    i = draw(rng, steps)
    block = min(steps - i, 1 if draw(rng, np.int64(2)) else 1 + draw(rng, 1 << (1 + draw(rng, np.int64(6)))))
    reach = 1 + draw(rng, 1 << (1 + draw(rng, np.int64(11))))
    forward = draw(rng, np.int64(2)) == 1
    moved = 0
    while moved < reach:
        at = i + block + moved if forward else i - 1 - moved
        if at < 0 or at >= steps:
            break
        stuck = False
        for j in range(i, i + block):
            if _conflict(arrays, sequence[j], sequence[at]):
                stuck = True
                break
        if stuck:
            break
        moved += 1
    if moved == 0:
        return False
    for t in range(steps):
        where[t] = t
    if forward:
        for j in range(i, i + block):
            where[j] = j + moved
        for j in range(i + block, i + block + moved):
            where[j] = j - block
    else:
        for j in range(i, i + block):
            where[j] = j - moved
        for j in range(i - moved, i):
            where[j] = j + block
    for t in range(steps):
        new[where[t]] = sequence[t]
    return True


@INNER
def can_rerun(rules, first, op, t):  # type: ignore[no-untyped-def]
    """Whether an op that has run may run again just before position t."""
    if not rules.rerun[op] or first[op] >= t:
        return False
    for k in range(rules.kill_start[op], rules.kill_start[op + 1]):
        if first[rules.kill_items[k]] < t:
            return False
    return True


@INNER
def splice(sequence, t, picked, count, new, where):  # type: ignore[no-untyped-def]
    """Put some ops in just before position t."""
    for j in range(len(sequence)):
        where[j] = j if j < t else j + count
        new[where[j]] = sequence[j]
    for i in range(count):
        new[t + i] = picked[i]


@separate_kernel
def insert_reruns(arrays, rules, accesses, first, rng, new, where):  # type: ignore[no-untyped-def]
    """Run an op again just before a reader of its result, perhaps with the ops before it; return the new length, 0 if none."""
    steps = len(accesses.sequence)
    e = draw(rng, len(accesses.when))
    k, t = accesses.operand[e], accesses.when[e]
    if arrays.operand[k, READS] == 0 or rules.maker[arrays.operand[k, OLD]] < 0:
        return 0
    op = rules.maker[arrays.operand[k, OLD]]
    if not can_rerun(rules, first, op, t):
        return 0
    eagerness = draw(rng, np.int64(3)) * 35
    picked = np.empty(64, np.int64)
    picked[0] = op
    count, at = 1, 0
    while at < count:
        op = picked[at]
        at += 1
        for j in range(arrays.operand_start[op], arrays.operand_start[op + 1]):
            if arrays.operand[j, READS] > 0 and count < 64 and draw(rng, np.int64(100)) < eagerness:
                before = rules.maker[arrays.operand[j, OLD]]
                if before >= 0 and can_rerun(rules, first, before, t):
                    known = False
                    for i in range(count):
                        known |= picked[i] == before
                    if not known:
                        picked[count] = before
                        count += 1
    if steps + count > rules.most:
        return 0
    for i in range(1, count):  # sort by first run: an op after all that it depends on
        j = i
        while j > 0 and first[picked[j - 1]] > first[picked[j]]:
            picked[j - 1], picked[j] = picked[j], picked[j - 1]
            j -= 1
    splice(accesses.sequence, t, picked, count, new, where)
    return steps + count


@INNER
def delete_reruns(sequence, first, rng, new, where):  # type: ignore[no-untyped-def]
    """Take out one or several runs that are not an op's first; return the new length, 0 if there are none."""
    steps = len(sequence)
    t, found = draw(rng, steps), np.int64(-1)
    for ahead in range(steps):
        if first[sequence[(t + ahead) % steps]] < (t + ahead) % steps:
            found = (t + ahead) % steps
            break
    if found < 0:
        return 0
    wish = 1 if draw(rng, np.int64(2)) else 1 + draw(rng, np.int64(6))
    kept = 0
    for j in range(steps):
        if wish > 0 and j >= found and first[sequence[j]] < j:
            where[j] = -1
            wish -= 1
        else:
            where[j] = kept
            new[kept] = sequence[j]
            kept += 1
    return kept
