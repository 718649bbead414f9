"""The game of explicit moves as flat arrays: what is played, where everything is, and why a move is illegal."""

from __future__ import annotations

from typing import NamedTuple

from pebbler.arrays import Array

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
    "Board",
    "ExplicitGame",
    "MoveArrays",
]


# Why a move is illegal; `explicit_play.play` returns one of these with up to three numbers that say what it is about.
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


class ExplicitGame(NamedTuple):
    """A graph, a machine and a start as the rules see them. Rows of several items are `x[x_start[i]:x_start[i + 1]]`."""

    capacity: Array  # per level
    read_price: Array
    write_price: Array
    fastest_only: bool  # reads must be in the fastest level, and results go there
    over: bool  # a result may take the room of what is dropped right after
    tensor: Array  # per value: the tensor it is a version of
    size: Array
    maker: Array  # per value: the op that makes it, -1: there at the start
    survives: Array  # per value: must be present at the end
    cost: Array  # per op
    once: Array
    in_place: Array
    reads_start: Array  # per op: values
    reads: Array
    writes_start: Array
    writes: Array
    destroys_start: Array
    destroys: Array
    readers_start: Array  # per value: ops
    readers: Array
    tensors: int
    start: Array  # per value: a bit for each level that has a copy at the start
    param_start: Array  # per param: its first value, and its final one
    param_end: Array
    steady: bool
    ignore_war: bool  # an update may overwrite what is still to be read; the old version lives on beside the new one


class MoveArrays(NamedTuple):
    """Moves as numbers: kind (0 compute, 1 copy, 2 drop), op or tensor, level, and the level that a copy goes to."""

    kind: Array
    subject: Array
    level: Array
    to: Array


class Board(NamedTuple):
    """The state of a game: the place of every value, and the history so far."""

    present: Array  # per value: a bit for each level that has a copy
    made: Array
    lost: Array  # per value: absent, and nothing can compute it again
    overwritten: Array
    ran: Array  # per op
    current: Array  # per tensor: the value that copies and drops mean, -1: none
    used: Array  # per level
    stack: Array  # scratch
