"""The moves of a chain schedule, one at a time, from the tables of splits that describe it.

Moves are pairs (kind, node): compute, backward, load, store, drop. An adjoint schedule also has snap (make the running state a
checkpoint) and restore (make a checkpoint the running state), both free. Nothing is held but the tables and a stack as deep as
the number of checkpoints, so a schedule of billions of moves streams as well as a short one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from pebbler.game.moves import MoveList
from pebbler.solver.chain.chain_model import Chain, ChainParts

__all__ = ["ChainMove", "ChainMoveKind", "Recorded", "Splits", "Tally", "plan_moves", "stream", "tally"]

ChainMoveKind = Literal["compute", "backward", "load", "store", "drop", "snap", "restore"]
ChainMove = tuple[ChainMoveKind, int]


class Splits(Protocol):
    """A solver's answer: the split of each segment, and the bases in slow memory.

    A segment (s, t) in `room` is the backward steps t .. s over a base N_s that stays red. It is split at z: sweep from s to z,
    do (z, t) with what room is left beside N_s, then (s, z - 1).
    """

    room: int  # for the first red segment, in whatever unit the tables count
    bases: list[int]  # in slow memory, lowest first; empty when nothing is ever stored
    top: int  # up to where the first sweep carries nothing along: the base of the first red segment

    def inside(self, s: int, room: int) -> int:
        """The room left beside N_s."""

    def split(self, s: int, t: int, room: int, keep: bool) -> int:
        """The split of (s, t), with the pebble above t kept red or recomputed."""

    def keeps(self, s: int, t: int, room: int) -> bool:
        """Whether the pebble above t is better kept."""

    def carry(self, base: int, t: int) -> int:
        """0 if the loaded base stays; else the z it is carried to, negative if the pebble above t is recomputed."""


@dataclass(frozen=True)
class Recorded:
    """A schedule that is short enough to be written out."""

    recorded: tuple[ChainMove, ...]


@dataclass(frozen=True)
class Tally:
    """The make-up of a schedule: paid moves by kind, all moves, and the peak of fast memory."""

    computes: int
    loads: int
    stores: int
    moves: int
    peak: int


def stream(chain: Chain, splits: Splits | Recorded) -> Iterator[ChainMove]:
    """Yield the moves of a schedule in order."""
    if isinstance(splits, Recorded):
        return iter(splits.recorded)
    return _adjoint(chain, splits) if chain.adjoint else _red_blue(chain, splits)


def tally(chain: Chain, moves: Iterable[ChainMove]) -> Tally:
    """Count moves and the most fast memory in use (checkpoints, in the adjoint convention) by playing them."""
    count: dict[str, int] = {}
    sizes, adjoint = chain.sizes, chain.adjoint
    used = 0 if adjoint or chain.start == "slow" else sizes[0]
    peak = used
    for kind, node in moves:
        count[kind] = count.get(kind, 0) + 1
        if kind == "drop":
            used -= sizes[node]
        elif kind == "snap" or (not adjoint and kind in ("compute", "load")):
            used += sizes[node]
            peak = max(peak, used)
    computes, loads, stores = (count.get(kind, 0) for kind in ("compute", "load", "store"))
    return Tally(computes, loads, stores, sum(count.values()), peak)


def plan_moves(parts: ChainParts, moves: Iterable[ChainMove], slow: int) -> MoveList:
    """Return the moves of a chain as moves of a graph that holds it, on a machine whose slow level has number `slow`.

    >>> list(plan_moves(ChainParts((0, 1), (-1, 0), (2, 1)), [("compute", 1), ("drop", 1)], 1).subject)
    [0, 1]
    """
    found = MoveList()
    for kind, node in moves:
        if kind == "compute":
            found.compute(parts.forward[node])
        elif kind == "backward":
            found.compute(parts.backward[node])
        elif kind == "store":
            found.copy(parts.nodes[node], 0, slow)
        elif kind == "load":
            found.copy(parts.nodes[node], slow, 0)
        else:
            found.drop(parts.nodes[node], 0)
    return found


_AGAIN, _KEEP, _BEST, _SERVE, _DISCARD = range(5)


def _red_blue(chain: Chain, splits: Splits) -> Iterator[ChainMove]:
    n = chain.length
    if chain.start == "slow":
        yield "load", 0
    stored = 0 if chain.start == "fast" else 1
    bases = splits.bases
    for k in range(splits.top):
        if stored < len(bases) and bases[stored] == k:
            yield "store", k
            stored += 1
        yield "compute", k + 1
        yield "drop", k
    stack = [(_AGAIN, splits.top, n - 1, splits.room)]
    waiting = list(bases)
    t = splits.top - 1
    while stack or waiting:
        if not stack:
            stack.append((_SERVE, waiting[-1], t, splits.room))
            t = waiting.pop() - 1
        task, s, top, room = stack.pop()
        if task == _BEST:
            task = _KEEP if s == top or splits.keeps(s, top, room) else _AGAIN
            if task == _AGAIN:
                yield "drop", top + 1
        if task == _SERVE:
            carry = splits.carry(s, top)
            kept = carry > 0 if carry else splits.keeps(s, top, room)
            if not kept:
                yield "drop", top + 1
            yield "load", s
            z = abs(carry) or s
            for k in range(s + 1, z + 1):
                yield "compute", k
                yield "drop", k - 1
            if carry:
                stack.append((_SERVE, s, z - 1, room))
            stack.append((_KEEP if kept else _AGAIN, z, top, room))
        elif s == top:
            if task == _AGAIN:
                yield "compute", top + 1
                if top + 1 == n:
                    yield "backward", n
            yield "backward", top
            yield "drop", top + 1
        else:
            z = splits.split(s, top, room, task == _KEEP)
            yield "compute", s + 1
            for k in range(s + 2, z + 1):
                yield "compute", k
                yield "drop", k - 1
            stack.append((_BEST, s, z - 1, room))
            stack.append((task, z, top, splits.inside(s, room)))


def _adjoint(chain: Chain, splits: Splits) -> Iterator[ChainMove]:
    stored = 0
    for k in range(splits.top):
        if stored < len(splits.bases) and splits.bases[stored] == k:
            yield "store", k
            stored += 1
        yield "compute", k + 1
    # _AGAIN: the running state is the base, which is no checkpoint yet; _BEST: the base is a checkpoint, to be restored.
    stack = [(_AGAIN, splits.top, chain.last, splits.room)]
    waiting = list(splits.bases)
    t = splits.top - 1
    while stack or waiting:
        if not stack:
            stack.append((_SERVE, waiting[-1], t, splits.room))
            t = waiting.pop() - 1
        task, s, top, room = stack.pop()
        if task == _DISCARD:
            yield "drop", s
            continue
        if task == _SERVE:
            z = splits.carry(s, top) or s
            yield "load", s
            for k in range(s + 1, z + 1):
                yield "compute", k
            if z > s:
                stack.append((_SERVE, s, z - 1, room))
            stack.append((_AGAIN, z, top, room))
            continue
        if task == _BEST:
            yield "restore", s
        if s == top:
            yield "backward", s
            continue
        if task == _AGAIN:
            yield "snap", s
            stack.append((_DISCARD, s, s, 0))
        z = splits.split(s, top, room, True)
        for k in range(s + 1, z + 1):
            yield "compute", k
        stack.append((_BEST, s, z - 1, room))
        stack.append((_AGAIN, z, top, splits.inside(s, room)))
