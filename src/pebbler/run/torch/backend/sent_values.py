"""Choices in which some saved values go to the host; a frontier without the host gives the other saved and recomputed values.

From each choice the values that were made first are sent, since they have the longest way to go until backward needs them, or
values spread evenly over forward, which keeps the link busy all the time; more and more of them, with few and with many copies
under way. Each is simulated, copies included, and single values more or less are tried with the best of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from pebbler.run.torch.backend.joint_step import JointStep
from pebbler.run.torch.backend.saved_frontier import pareto
from pebbler.run.torch.backend.step_memory import HostRoom, SavedChoice, Sending, StepMemory
from pebbler.run.torch.cost.costs import Device

__all__ = ["host_room", "send_frontier"]

_AHEAD = (1, 2, 4, 16)  # copies under way
_PARTS = 12  # numbers of values that are tried
_SMALL = 0.003  # of all bytes that may be sent: what is smaller stays
_TRIES = 3_000_000  # nodes simulated when values are sent or kept one by one


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
    for base in front:
        for values in _groups(memory, base, room):
            for ahead in _AHEAD if room.link.overlap else _AHEAD[:1]:
                if time.monotonic() > deadline:
                    return pareto(found)
                found.append(memory.simulate(base.saved, sending=Sending(values, ahead, room)))
    return _improved(memory, pareto(found), room, deadline)


def _groups(memory: StepMemory, base: SavedChoice, room: HostRoom) -> Iterable[frozenset[int]]:
    """Return sets of values to send, from few to many: those made first, or some everywhere."""
    size = memory.step.size
    values = memory.sendable(base)
    least = _SMALL * sum(size[i] for i in values)
    values = [i for i in values if size[i] >= least]
    known: set[frozenset[int]] = set()
    for part in range(1, _PARTS + 1):
        count = max(1, len(values) * part // _PARTS)
        for some in (values[:count], [values[k * len(values) // count] for k in range(min(count, len(values)))]):
            group = frozenset(_within(some, size, room))
            if group and group not in known:
                known.add(group)
                yield group


def _within(values: Sequence[int], size: Sequence[int], room: HostRoom) -> Iterable[int]:
    """Return the first values as long as the host has room for them."""
    taken = 0
    for i in values:
        taken += room.taken(size[i])
        if room.limit is not None and taken > room.limit:
            return
        yield i


def _improved(memory: StepMemory, front: list[SavedChoice], room: HostRoom, deadline: float) -> list[SavedChoice]:
    """Return the choices with what comes of sending single values more or less, from small to fast."""
    size = memory.step.size
    tries = _TRIES // len(memory.step.nodes)
    found: list[SavedChoice] = []
    for here in reversed(front):
        sent = frozenset(value.node for value in here.sent)
        values = memory.sendable(here)
        worth = _SMALL * sum(size[i] for i in values)
        for i in values:
            group = sent ^ {i}
            if size[i] < worth or not group or not room.fits(size[k] for k in group):
                continue
            for ahead in _AHEAD[1:3] if room.link.overlap else _AHEAD[:1]:
                tries -= 1
                if tries < 0 or time.monotonic() > deadline:
                    return pareto([*front, *found])
                found.append(memory.simulate(here.saved, sending=Sending(group, ahead, room)))
    return pareto([*front, *found])
