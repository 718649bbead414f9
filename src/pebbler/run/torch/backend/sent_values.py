"""Choices in which some saved values go to the host; a frontier without the host gives the other saved and recomputed values.

A choice is a sequence of nodes, forward and then backward, with the bytes held at each. Saved values lie idle from their last use
in forward to their first in backward. Which of them are away meanwhile, so that the rest fits into less and less memory, and when
their copies begin and end, is for the same kernels to say as for steps that are planned by `pt.step` (`plan/kernels`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from pebbler.arrays import Bools, Ints
from pebbler.game.moves import COPY
from pebbler.game.moves import DROP as FREE
from pebbler.run.torch.backend.joint_step import JointStep
from pebbler.run.torch.backend.saved_frontier import pareto
from pebbler.run.torch.backend.step_memory import END, HostRoom, SavedChoice, SentValue, StepMemory
from pebbler.run.torch.cost.costs import Device
from pebbler.run.torch.plan.kernels.copy_schedule import DROP, LOAD, RUN, schedule_copies
from pebbler.run.torch.plan.kernels.idle_spans import Timeline, choose_spans, span_end, timeline
from pebbler.run.torch.plan.kernels.move_timing import OpArrays, time_moves
from pebbler.solver.recompute.kernels.sequence_memory import RecomputeArrays

__all__ = ["host_room", "send_frontier", "sent_choices"]

_LEADS = (2.0, math.inf)  # how many copies ahead of its use a load may begin
_LATENESS = (0.0, 4.0)  # how much more values cost that are sent late in forward
_BASES = 64  # choices without the host from which values are sent
_PARTS = 24  # capacities that are tried with each
_SMALL = 0.003  # of all bytes that may be sent: what is smaller stays


def host_room(device: Device, objective: str, limit: int | None, timed: JointStep) -> HostRoom:
    """Return the host's memory as a described device sees it; `timed` is the step with costs in seconds."""
    watts = device.static_watts if objective == "energy" else None
    return HostRoom(limit, device.name != "cpu", device.host_link, tuple(timed.cost), watts)


def send_frontier(
    memory: StepMemory, front: Sequence[SavedChoice], room: HostRoom, time_limit: float
) -> list[SavedChoice]:
    """Return a frontier of choices with and without sent values, from those without; the first stays the first."""
    deadline = time.monotonic() + time_limit
    found = list(front)
    for place in np.linspace(0, len(front) - 1, min(len(front), _BASES)).round().astype(int).tolist():
        base = front[place]
        if time.monotonic() > deadline:
            break
        size, values = memory.step.size, memory.sendable(base)
        least = _SMALL * sum(size[i] for i in values)
        found += sent_choices(memory, base, [i for i in values if size[i] >= least], room)
    return pareto(found)


def sent_choices(memory: StepMemory, base: SavedChoice, values: Sequence[int], room: HostRoom) -> list[SavedChoice]:
    """Return a choice with some of these values sent, as many as the host has room for, for less and less memory."""
    within = list(_within(values, memory.step.size, room))
    if not within:
        return []
    game = _SendingGame.of(memory, base, within, room)
    lowest, highest, touches = game.lowest, int(game.held.max()), game.touches
    capacities = sorted({lowest + (highest - lowest) * part // _PARTS for part in range(_PARTS)})
    price, even = float(room.link.out + room.link.into), np.ones(len(game.spans))
    found: dict[tuple[SentValue, ...], SavedChoice] = {}
    for capacity, lateness in product(capacities, _LATENESS):
        chosen = np.zeros(len(touches.t_value), np.bool_)
        if choose_spans(touches, game.arrays.size, game.spans, chosen, capacity, price, lateness, even):
            leads = _LEADS if room.link.overlap else _LEADS[:1]
            made = (game.choice(base, chosen, capacity, lead, room) for lead in leads)
            found |= {choice.sent: choice for choice in made if choice is not None}
    return list(found.values())


def _within(values: Sequence[int], size: Sequence[int], room: HostRoom) -> Iterable[int]:
    """Return the first values as long as the host has room for them."""
    taken = 0
    for i in values:
        taken += room.taken(size[i])
        if room.limit is not None and taken > room.limit:
            return
        yield i


@dataclass(frozen=True)
class _SendingGame:
    """A choice as a game of one run for every node: its values are those that may be sent, and for each run what else is held."""

    nodes: Ints  # of the runs, forward and then backward
    turn: int  # the first run of backward
    held: Ints  # bytes at each run
    values: Sequence[int]  # nodes; the game's first values
    arrays: RecomputeArrays
    touches: Timeline
    spans: Ints  # the touches after which a value lies idle until backward

    @classmethod
    def of(cls, memory: StepMemory, base: SavedChoice, values: Sequence[int], room: HostRoom) -> _SendingGame:
        """Return the game of a choice without sent values."""
        forward, backward = memory.runs(base)
        turn, runs = len(forward.order), len(forward.order) + len(backward.order)
        nodes = np.concatenate([forward.order, backward.order])
        held = memory.resident + np.concatenate([forward.held, backward.held])
        place = {int(node): t for t, node in enumerate(forward.order)}
        rest = held.copy()
        reads: list[list[int]] = [[] for _ in range(runs)]
        writes: list[list[int]] = [[len(values) + t] for t in range(runs)]
        first: dict[int, int] = {}  # the place in backward at which a node is read first
        for t, node in enumerate(backward.order.tolist()):
            for i in memory.step.inputs[node]:
                first.setdefault(i, t)
        for v, i in enumerate(values):
            last = turn + int(backward.until[i])
            rest[place[i] : last + 1] -= memory.step.size[i]
            writes[place[i]].append(v)
            for t in {int(forward.until[i]), turn + first[i], last} - {place[i]}:
                reads[t].append(v)
        (r_start, r_items), (w_start, w_items) = _rows(reads), _rows(writes)
        none = np.full(len(values) + runs, -1, np.int64)
        maker = np.array([*(place[i] for i in values), *range(runs)], np.int64)
        size = np.array([*(memory.step.size[i] for i in values), *np.maximum(rest, 0)], np.int64)
        arrays = RecomputeArrays(
            np.int64(0), size, maker, none, np.zeros(len(size), np.bool_), np.array(room.seconds)[nodes],
            np.zeros(runs, np.bool_), r_start, r_items, w_start, w_items, np.zeros(runs + 1, np.int64), none[:0],
        )  # fmt: skip
        touches = timeline(arrays, np.arange(runs))
        after = touches.t_run[np.maximum(touches.t_next, 0)]
        idle = (touches.t_next >= 0) & (touches.t_run < turn) & (after >= turn) & (after > touches.t_run + 1)
        return cls(nodes, turn, held, values, arrays, touches, np.flatnonzero(idle))

    @property
    def lowest(self) -> int:
        """The bytes held at the most where all values are away for as long as they can be."""
        held, touches = self.touches.most.copy(), self.touches
        for i in self.spans:
            held[touches.t_run[i] + 1 : span_end(touches, i)] -= self.arrays.size[touches.t_value[i]]
        return int(held.max())

    def choice(
        self, base: SavedChoice, chosen: Bools, capacity: int, lead: float, room: HostRoom
    ) -> SavedChoice | None:
        """Return a choice with values away over some spans, their copies timed; None where none has to go, or it does not fit.

        What has not left when forward ends leaves then, and nothing comes back before backward begins.
        """
        arrays, touches, runs = self.arrays, self.touches, np.arange(len(self.nodes))
        prices = float(room.link.out), float(room.link.into), room.link.overlap
        cost, events = schedule_copies(touches, arrays, runs, chosen, capacity, *prices, float(lead))
        kinds, subjects, at = events["kind"], events["subject"], np.cumsum(events["kind"] == RUN)
        values = subjects[kinds == LOAD]
        if not np.isfinite(cost) or not len(values):
            return None
        begun, gone = np.zeros((2, len(arrays.size)), np.int64)
        begun[touches.t_value[self.spans]] = touches.t_run[self.spans] + 1
        drops = np.flatnonzero(kinds == DROP)[::-1]  # of two the first counts
        gone[subjects[drops]] = at[drops]
        left, fetched = np.minimum(gone[values], self.turn), np.maximum(at[kinds == LOAD], self.turn)
        places = np.concatenate([begun[values], left, fetched])
        moves = [
            np.insert(before, places, np.repeat(column, len(values)) if len(column) else np.tile(values, 3))
            for before, column in ((0 * runs, (COPY, FREE, COPY)), (runs, ()), (0 * runs, (0, 0, 1)))
        ]
        ops = OpArrays(
            arrays.cost, arrays.r_start, arrays.r_items, arrays.w_start, arrays.w_items, arrays.size, np.arange(len(arrays.size))
        )  # fmt: skip
        waiting = time_moves(*moves, ops, *prices) - float(arrays.cost.sum())
        held = self.held.copy()
        for v, start, end in zip(values, left, fetched, strict=True):
            held[start:end] -= arrays.size[v]
        before = [END if t == self.turn else int(self.nodes[t]) for t in left]
        sent = zip((self.values[v] for v in values), before, self.nodes[fetched].tolist(), strict=True)
        host = int(arrays.size[values].sum())
        copying = float(room.cost(max(0.0, waiting), host))
        return replace(
            base, bytes=base.bytes - host, cost=base.cost + copying, peak=int(held.max()), host=host, copying=copying,
            sent=tuple(SentValue(*value) for value in sent),  # in the order in which they come back
        )  # fmt: skip


def _rows(lists: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    start = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return start, np.array([i for row in lists for i in row], np.int64)
