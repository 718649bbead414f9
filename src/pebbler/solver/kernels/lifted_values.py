"""Better levels for the values of a finished plan: up to where there is room, or left below and read from there.

A plan that has all operands in one level is turned into one that has them where they cost least. The moves stay as they are, but
for the levels they name and for copies that are no longer needed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pebbler.compiled import inner_kernel, kernel

__all__ = ["Stay", "find_stays", "move_stays", "place_stays", "price_moves"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_COMPUTE, _COPY, _DROP = 0, 1, 2  # as in `game.moves`


class Stay(NamedTuple):
    """The stays of values in the level that the plan works in; one entry per stay."""

    value: Ints
    first: Ints  # the move that brings it, -1: it is there at the start
    end: Ints  # the move that drops or destroys it, or the number of moves
    last: Ints  # the last move that reads it there
    reads: Ints  # by ops
    copies: Ints  # out of the level


@kernel
def find_stays(
    rows: Ints, level: int, at_start: npt.NDArray, r_start: Ints, reads: Ints, w_start: Ints, writes: Ints,
    d_start: Ints, destroyed: Ints,
) -> Stay:  # fmt: skip
    """Return the stays of values in a level."""
    values, most = len(at_start), len(at_start)
    for i in range(len(rows)):
        if rows[i, 0] == _COMPUTE:
            most += w_start[rows[i, 1] + 1] - w_start[rows[i, 1]]
        elif rows[i, 0] == _COPY:
            most += 1
    value, first, end = np.empty(most, np.int64), np.empty(most, np.int64), np.full(most, len(rows), np.int64)
    last, read, copied = np.empty(most, np.int64), np.zeros(most, np.int64), np.zeros(most, np.int64)
    here, count = np.full(values, -1, np.int64), 0
    for i in range(-1, len(rows)):
        begin, stop, source = 0, values, at_start  # what comes: at the start, all that is there
        if i >= 0 and rows[i, 0] == _COMPUTE:
            op = rows[i, 1]
            for k in range(r_start[op], r_start[op + 1]):
                at = here[reads[k]]
                if at >= 0:
                    read[at] += 1
                    last[at] = i
            for k in range(d_start[op], d_start[op + 1]):
                if here[destroyed[k]] >= 0:
                    end[here[destroyed[k]]] = i
                    here[destroyed[k]] = -1
            begin, stop = w_start[op], w_start[op + 1]
        elif i >= 0:
            v = rows[i, 1]
            at = here[v]
            if rows[i, 0] == _COPY and rows[i, 2] == level and at >= 0:
                copied[at] += 1
                last[at] = i
            if rows[i, 0] == _DROP and rows[i, 2] == level and at >= 0:
                end[at] = i
                here[v] = -1
            begin, stop = v, v + (rows[i, 0] == _COPY and rows[i, 3] == level)
        for k in range(begin, stop):
            v = writes[k] if i >= 0 and rows[i, 0] == _COMPUTE else k
            if here[v] < 0 and (i >= 0 or source[v]):
                here[v] = count
                value[count], first[count], last[count] = v, i, i
                count += 1
    return Stay(value[:count], first[:count], end[:count], last[:count], read[:count], copied[:count])


@inner_kernel
def _push(most: Ints, added: Ints, leaf: int) -> None:
    """Hand down what was added above a leaf of a tree of maxima."""
    node = len(most) // 2
    while node > 0:
        above = leaf // node
        if node > 1 and added[above] != 0:
            for child in range(2 * above, 2 * above + 2):
                most[child] += added[above]
                added[child] += added[above]
            added[above] = 0
        node //= 2


@kernel(_nrt=False)
def _hold(most: Ints, added: Ints, first: int, end: int, units: int, room: int) -> bool:
    """Add units from one move to another, if there is room all the time; return whether there is."""
    leaves = len(most) // 2
    left, right = first + leaves, end + leaves
    _push(most, added, left)
    _push(most, added, right - 1)
    while left < right:
        if (left & 1 and most[left] + units > room) or (right & 1 and most[right - 1] + units > room):
            return False
        left, right = (left + 1) // 2, right // 2
    left, right = first + leaves, end + leaves
    while left < right:
        if left & 1:
            most[left] += units
            added[left] += units
        if right & 1:
            most[right - 1] += units
            added[right - 1] += units
        left, right = (left + 1) // 2, right // 2
    for node in ((first + leaves) // 2, (end + leaves - 1) // 2):
        while node > 0:
            most[node] = max(most[2 * node], most[2 * node + 1]) + added[node]
            node //= 2
    return True


@kernel
def place_stays(
    rows: Ints, level: int, stays: Stay, size: Ints, single: npt.NDArray, capacity: Ints, read: Floats, write: Floats
) -> tuple[Ints, npt.NDArray]:
    """Return the level of every stay, and which of them are given up: what they were for is read from below.

    The stays that gain most per unit and move go first, to the highest level with room. `single` are the ops with one result: all
    results of a run go to one level.
    """
    count, moves = len(stays.value), len(rows)
    placed, below = np.full(count, level, np.int64), np.full(count, level, np.int64)
    unread = np.zeros(count)  # what is gained per unit by leaving it below
    dropped = np.full((len(size), len(read)), moves + 1, np.int64)  # the next drop, going backwards through the moves
    at = count - 1  # stays are in the order in which they begin
    for i in range(moves - 1, -1, -1):
        while at >= 0 and stays.first[at] >= i:
            one = at
            at -= 1
            if rows[i, 0] == _COPY and stays.copies[one] == 0 and stays.end[one] < moves:
                source = rows[i, 2]
                if source > level and dropped[rows[i, 1], source] > stays.last[one]:
                    below[one] = source
                    unread[one] = read[source] + write[level] + stays.reads[one] * (read[level] - read[source])
        if rows[i, 0] == _DROP:
            dropped[rows[i, 1], rows[i, 2]] = i
    leaves = 1
    while leaves < moves + 1:
        leaves *= 2
    for up in range(level):
        gain = np.zeros(count)
        for one in range(count):
            i = stays.first[one]
            if placed[one] != level or i < 0 or stays.end[one] >= moves or size[stays.value[one]] == 0:
                continue
            if rows[i, 0] == _COMPUTE and not single[rows[i, 1]]:
                continue
            used = stays.reads[one] + stays.copies[one]
            saved = write[level] - write[up] + used * (read[level] - read[up])
            if saved > max(0.0, unread[one]):
                gain[one] = saved / max(1, stays.end[one] - i)
        most, added = np.zeros(2 * leaves, np.int64), np.zeros(2 * leaves, np.int64)
        for one in np.argsort(-gain, kind="mergesort"):
            if gain[one] <= 0:
                break
            i, e, units = stays.first[one], stays.end[one], size[stays.value[one]]
            if _hold(most, added, i, e, units, capacity[up]):
                placed[one] = up
    return placed, (placed == level) & (unread > 0)


@kernel
def move_stays(rows: Ints, level: int, stays: Stay, placed: Ints, given_up: npt.NDArray) -> Ints:
    """Return the moves with every stay in its level, and without those that are given up."""
    moved, keep = rows.copy(), np.ones(len(rows), np.bool_)
    here, at = np.full(1 + stays.value.max(), -1, np.int64), 0
    for i in range(-1, len(rows)):
        if i >= 0 and rows[i, 0] == _COPY and rows[i, 2] == level:
            moved[i, 2] = placed[here[rows[i, 1]]]
        while at < len(stays.value) and stays.first[at] == i:  # stays are in the order in which they begin
            here[stays.value[at]] = at
            if i >= 0:
                moved[i, 2 if rows[i, 0] == _COMPUTE else 3] = placed[at]
                keep[i] = not given_up[at]
            if stays.end[at] < len(rows) and rows[stays.end[at], 0] == _DROP:
                moved[stays.end[at], 2] = placed[at]
                keep[stays.end[at]] = not given_up[at]
            at += 1
    return moved[keep]


@kernel
def price_moves(
    rows: Ints, at_start: Ints, size: Ints, cost: Floats, r_start: Ints, reads: Ints, w_start: Ints, writes: Ints,
    d_start: Ints, destroyed: Ints, read: Floats, write: Floats,
) -> float:  # fmt: skip
    """Return the cost of moves where operands may be anywhere; `at_start` are the levels of every value, as bits."""
    present, total = at_start.copy(), 0.0
    for i in range(len(rows)):
        kind, subject, at = rows[i, 0], rows[i, 1], rows[i, 2]
        if kind == _COMPUTE:
            total += cost[subject]
            for k in range(r_start[subject], r_start[subject + 1]):
                source = 0
                while present[reads[k]] >> source & 1 == 0:
                    source += 1
                total += size[reads[k]] * read[source]
            for k in range(d_start[subject], d_start[subject + 1]):
                present[destroyed[k]] = 0
            for k in range(w_start[subject], w_start[subject + 1]):
                present[writes[k]] |= 1 << at
                total += size[writes[k]] * write[at]
        elif kind == _COPY:
            total += size[subject] * (read[at] + write[rows[i, 3]])
            present[subject] |= 1 << rows[i, 3]
        else:
            present[subject] &= ~(1 << at)
    return total
