"""The rules of the game on flat arrays: plays the moves of a plan and stops at the first illegal one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pebbler.compiled import kernel

__all__ = [
    "ALREADY_RAN",
    "LEGAL",
    "LOSES_NEEDED",
    "NEVER_RAN",
    "NOT_AT_END",
    "NOT_FAST",
    "NOT_MADE",
    "NOT_PRESENT",
    "NOT_STEADY",
    "NOT_THERE",
    "OVERFLOW",
    "OVERWRITES_EARLY",
    "OVERWRITES_UNMADE",
    "RESULT_NOT_FAST",
    "SAME_LEVEL",
    "STALE_RESULT",
    "play",
]

Array = npt.NDArray[Any]

# Why a move is illegal; `play` returns one of these with up to three numbers that say what it is about.
LEGAL = 0
OVERFLOW = 1  # level, units in it
NOT_MADE = 2  # value that was never made
NOT_PRESENT = 3  # value, op that reads it
NOT_THERE = 15  # tensor, level that a copy or drop says it is in
NOT_FAST = 4  # value, op that reads it
RESULT_NOT_FAST = 5  # op, level
OVERWRITES_EARLY = 6  # value, op that still has to read it, op that overwrites
OVERWRITES_UNMADE = 7  # value, op that still has to write it, op that overwrites
ALREADY_RAN = 8  # op that may run only once
STALE_RESULT = 9  # value that recomputing would bring back over a newer one, op
LOSES_NEEDED = 10  # value that can no longer be had, op that needs it (-1: the end), value whose loss caused it
SAME_LEVEL = 11  # tensor, level
NEVER_RAN = 12  # op
NOT_AT_END = 13  # value
NOT_STEADY = 14  # value, levels that have it, levels that should (bits)


@kernel
def _recoverable(
    v: int, maker: Array, op_once: Array, op_in_place: Array, r_start: Array, r_items: Array, w_start: Array, w_items: Array,
    lost: Array, overwritten: Array,
) -> bool:  # fmt: skip
    """Whether an absent value can still be computed again."""
    op = maker[v]
    if op < 0 or op_once[op] or op_in_place[op]:
        return False
    for k in range(w_start[op], w_start[op + 1]):
        if overwritten[w_items[k]]:
            return False
    for k in range(r_start[op], r_start[op + 1]):
        if lost[r_items[k]]:
            return False
    return True


@kernel
def _lose(
    first: int, present: Array, made: Array, ran: Array, survive: Array, maker: Array, op_once: Array, op_in_place: Array,
    r_start: Array, r_items: Array, w_start: Array, w_items: Array, rd_start: Array, rd_items: Array,
    lost: Array, overwritten: Array, stack: Array,
) -> tuple[int, int]:  # fmt: skip
    """Mark `first` as gone for good with everything that could only be recomputed from it.

    Returns the first value found that is still needed and the op that needs it (-1: the end), or -1, -1.
    """
    needed, by = -1, -1
    lost[first] = True
    stack[0] = first
    top = 1
    while top > 0:
        top -= 1
        v = stack[top]
        if needed < 0:
            for k in range(rd_start[v], rd_start[v + 1]):
                if not ran[rd_items[k]]:
                    needed, by = v, rd_items[k]
                    break
            if needed < 0 and survive[v]:
                needed = v
        for k in range(rd_start[v], rd_start[v + 1]):
            op = rd_items[k]
            for j in range(w_start[op], w_start[op + 1]):
                w = w_items[j]
                if made[w] and present[w] == 0 and not lost[w]:
                    lost[w] = True
                    stack[top] = w
                    top += 1
        if overwritten[v] and maker[v] >= 0:
            # Its maker can never run again, so what else it made cannot be had again either.
            op = maker[v]
            for j in range(w_start[op], w_start[op + 1]):
                w = w_items[j]
                if made[w] and present[w] == 0 and not lost[w]:
                    lost[w] = True
                    stack[top] = w
                    top += 1
    return needed, by


@kernel
def play(
    kind: Array, subject: Array, level: Array, to: Array,
    capacity: Array, read_price: Array, write_price: Array, fastest_only: bool,
    value_tensor: Array, size: Array, maker: Array, survive: Array,
    op_cost: Array, op_once: Array, op_in_place: Array,
    r_start: Array, r_items: Array, w_start: Array, w_items: Array,
    d_start: Array, d_items: Array, rd_start: Array, rd_items: Array,
    tensors: int, start_mask: Array, param_start: Array, param_end: Array,
    steady: bool, ignore_war: bool,
    by_level: Array, by_tensor: Array, by_op: Array, by_kind: Array,
    peak: Array, step_energy: Array,
) -> tuple[int, int, int, int, int]:  # fmt: skip
    """Play all moves; return (reason, move, a, b, c).

    `start_mask` holds, per value, a bit per level that has a copy at the start. `param_start`/`param_end` pair each param's
    first and final value for steady plans. The `by_*`, `peak` and `step_energy` arrays are filled as the game goes; a
    `step_energy` of length 0 is not wanted. `move` is -1 for the start and len(kind) for the end.
    """
    values, ops, levels = len(size), len(op_cost), len(capacity)
    present = start_mask.copy()
    made = np.zeros(values, np.bool_)
    lost = np.zeros(values, np.bool_)
    overwritten = np.zeros(values, np.bool_)
    ran = np.zeros(ops, np.bool_)
    current = np.full(tensors, -1, np.int64)
    stack = np.empty(values + 1, np.int64)
    used = np.zeros(levels, np.int64)
    bit = np.int64(1)
    for v in range(values):
        if maker[v] < 0:
            made[v] = True
            current[value_tensor[v]] = v
            for at in range(levels):
                if present[v] & (bit << at):
                    used[at] += size[v]
    for at in range(levels):
        peak[at] = used[at]
        if used[at] > capacity[at]:
            return OVERFLOW, -1, at, used[at], 0

    for i in range(len(kind)):
        energy = 0.0
        at = int(level[i])
        if kind[i] == 0:
            op = subject[i]
            if fastest_only and at != 0:
                return RESULT_NOT_FAST, i, op, at, 0
            if ran[op]:
                if op_once[op] or op_in_place[op]:
                    return ALREADY_RAN, i, op, 0, 0
                for k in range(w_start[op], w_start[op + 1]):
                    if overwritten[w_items[k]]:
                        return STALE_RESULT, i, w_items[k], op, 0
            for k in range(r_start[op], r_start[op + 1]):
                v = r_items[k]
                if not made[v]:
                    return NOT_MADE, i, v, op, 0
                if present[v] == 0:
                    return NOT_PRESENT, i, v, op, 0
                if fastest_only and not present[v] & 1:
                    return NOT_FAST, i, v, op, 0
            # Prices are those of the moment before anything is overwritten.
            energy = op_cost[op]
            by_level[at] += op_cost[op]
            if w_start[op] < w_start[op + 1]:
                by_tensor[value_tensor[w_items[w_start[op]]]] += op_cost[op]
            else:
                by_tensor[value_tensor[r_items[r_start[op]]]] += op_cost[op]
            if not fastest_only:
                for k in range(r_start[op], r_start[op + 1]):
                    v = r_items[k]
                    source = 0
                    while not present[v] & (bit << source):
                        source += 1
                    paid = size[v] * read_price[source]
                    energy += paid
                    by_level[source] += paid
                    by_tensor[value_tensor[v]] += paid
                for k in range(w_start[op], w_start[op + 1]):
                    v = w_items[k]
                    paid = size[v] * write_price[at]
                    energy += paid
                    by_level[at] += paid
                    by_tensor[value_tensor[v]] += paid
            first_run = not ran[op]
            ran[op] = True
            if first_run:
                for k in range(d_start[op], d_start[op + 1]):
                    v = d_items[k]
                    if not made[v]:
                        return OVERWRITES_UNMADE, i, v, maker[v], op
                    pending = -1
                    for j in range(rd_start[v], rd_start[v + 1]):
                        if not ran[rd_items[j]]:
                            pending = rd_items[j]
                            break
                    if pending >= 0:
                        if ignore_war:
                            continue  # the note's mistake, on request: the old version lives on beside the new one
                        return OVERWRITES_EARLY, i, v, pending, op
                    for a in range(levels):
                        if present[v] & (bit << a):
                            used[a] -= size[v]
                    present[v] = 0
                    overwritten[v] = True
                    if current[value_tensor[v]] == v:
                        current[value_tensor[v]] = -1
            for k in range(w_start[op], w_start[op + 1]):
                v = w_items[k]
                made[v] = True
                if first_run:
                    current[value_tensor[v]] = v
                if not present[v] & (bit << at):
                    present[v] |= bit << at
                    used[at] += size[v]
            if first_run:
                for k in range(d_start[op], d_start[op + 1]):
                    v = d_items[k]
                    if overwritten[v] and not lost[v]:
                        gone, by = _lose(
                            v, present, made, ran, survive, maker, op_once, op_in_place,
                            r_start, r_items, w_start, w_items, rd_start, rd_items, lost, overwritten, stack,
                        )  # fmt: skip
                        if gone >= 0:
                            return LOSES_NEEDED, i, gone, by, v
            by_op[op] += energy
        else:
            tensor = subject[i]
            v = current[tensor]
            if v < 0 or not present[v] & (bit << at):
                return NOT_THERE, i, tensor, at, 0
            if kind[i] == 1:
                goal = int(to[i])
                if goal == at:
                    return SAME_LEVEL, i, tensor, at, 0
                out = size[v] * read_price[at]
                into = size[v] * write_price[goal]
                energy = out + into
                by_level[at] += out
                by_level[goal] += into
                by_tensor[tensor] += energy
                if not present[v] & (bit << goal):
                    present[v] |= bit << goal
                    used[goal] += size[v]
                at = goal
            else:
                present[v] ^= bit << at
                used[at] -= size[v]
                if present[v] == 0 and not _recoverable(
                    v, maker, op_once, op_in_place, r_start, r_items, w_start, w_items, lost, overwritten
                ):
                    gone, by = _lose(
                        v, present, made, ran, survive, maker, op_once, op_in_place,
                        r_start, r_items, w_start, w_items, rd_start, rd_items, lost, overwritten, stack,
                    )  # fmt: skip
                    if gone >= 0:
                        return LOSES_NEEDED, i, gone, by, v
        by_kind[kind[i]] += energy
        if len(step_energy):
            step_energy[i] = energy
        if used[at] > capacity[at]:
            return OVERFLOW, i, at, used[at], 0
        if used[at] > peak[at]:
            peak[at] = used[at]

    end = len(kind)
    for op in range(ops):
        if not ran[op]:
            return NEVER_RAN, end, op, 0, 0
    for v in range(values):
        if survive[v] and present[v] == 0:
            return NOT_AT_END, end, v, 0, 0
    if steady:
        for k in range(len(param_start)):
            if present[param_end[k]] != start_mask[param_start[k]]:
                return NOT_STEADY, end, param_end[k], present[param_end[k]], start_mask[param_start[k]]
    return LEGAL, end, 0, 0, 0
