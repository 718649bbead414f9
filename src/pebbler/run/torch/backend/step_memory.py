"""The peak and the cost of a step, simulated for a choice of saved values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch

from pebbler.arrays import Ints
from pebbler.run.torch.backend.joint_step import JointStep
from pebbler.run.torch.backend.kernels.copy_timing import CopyArrays
from pebbler.run.torch.backend.kernels.saved_memory import END, simulate_saved
from pebbler.run.torch.backend.kernels.step_arrays import VIEW, StepArrays
from pebbler.run.torch.backend.node_costs import hinted

__all__ = ["END", "HostLink", "SavedChoice", "Sending", "SentValue", "StepMemory", "eager_peak"]


@dataclass(frozen=True)
class HostLink:
    """The way to the host as a step sees it: how long nodes take, seconds of a byte, and what waiting and copying cost."""

    seconds: tuple[float, ...]  # of every node
    out: float  # seconds of a byte
    into: float
    overlap: bool  # whether copies run beside kernels
    byte_cost: float = 0.0  # joules, there and back, where the cost is energy
    wait_cost: float = 1.0  # of a second


@dataclass(frozen=True)
class Sending:
    """Saved values that go to the host, by number, and how many copies are under way at most."""

    values: frozenset[int]
    ahead: int
    link: HostLink


@dataclass(frozen=True)
class SentValue:
    """A saved value that goes to the host; the nodes before which it has left (or `END`) and before which it is fetched."""

    node: int
    left: int
    fetched: int


@dataclass(frozen=True)
class SavedChoice:
    """Values that forward saves, by number, with their bytes, what forward and backward cost, and the peak.

    It is not legal where backward would have to run what must not run again.
    """

    saved: tuple[int, ...]
    bytes: int
    cost: float  # seconds, or joules
    peak: int
    legal: bool = True
    sent: tuple[SentValue, ...] = ()
    host: int = 0  # bytes that are sent


class StepMemory:
    """A joint graph as flat arrays, for many simulations."""

    def __init__(self, step: JointStep) -> None:
        self.step = step
        count = len(step.nodes)
        forward_end, backward_end = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        forward_end[step.forward_outputs] = True
        backward_end[step.backward_outputs] = True
        first_input, inputs = _flat(step.inputs)
        first_user, users = _flat(step.users)
        self.arrays = StepArrays(
            first_input, inputs, first_user, users,
            np.array(step.kind, np.int16), np.array(_storages(step), np.int64), np.array(step.size, np.int64),
            np.array(step.extent, np.int64), np.array(step.reach, np.int64),
            np.array(step.cost, np.float64), np.array(step.apart, np.bool_),
            np.array(step.tangent, np.bool_), np.array(step.fixed, np.bool_),
            np.array(step.operations, np.int64), forward_end, backward_end, step.byte_cost, step.launch_cost,
        )  # fmt: skip
        self.resident = sum(step.size[i] for i, given in enumerate(step.given) if given and not step.tangent[i])
        self._known: dict[bytes, SavedChoice] = {}
        self._still = _copies(Sending(frozenset(), 1, HostLink((0.0,) * count, 0.0, 0.0, True)))

    def simulate(self, chosen: Iterable[int], fusing: bool = True, sending: Sending | None = None) -> SavedChoice:
        """Return what comes of saving values; those that backward does not need are left out, inputs that it needs are added.

        Forward and backward are run in torch's order: backward as it was traced, what is computed again just before its first
        use. What forward returns is taken to be gone when backward runs, unless it is saved. What is sent must be `sendable`.
        """
        saved = np.zeros(len(self.step.nodes), np.bool_)
        saved[list(chosen)] = True
        key = saved.tobytes()
        if sending is None and fusing and key in self._known:
            return self._known[key]
        copies = self._still if sending is None else _copies(sending)
        peak, cost, legal, waiting, left, fetched = simulate_saved(self.arrays, saved, copies, self.resident, fusing)
        kept = np.flatnonzero(saved)
        sent = kept[copies.sent[kept]].tolist()
        own = {int(place) for place in self.arrays.storage[kept] if not self.step.given[place]}
        host = sum(self.step.size[i] for i in sent)
        if sending is not None:
            cost += waiting * sending.link.wait_cost + host * sending.link.byte_cost
        choice = SavedChoice(
            saved=tuple(kept.tolist()),
            bytes=sum(self.step.size[i] for i in own) - host,
            cost=float(cost),
            peak=int(peak),
            legal=bool(legal),
            sent=tuple(SentValue(i, int(left[i]), int(fetched[i])) for i in sent),
            host=host,
        )
        if sending is None and fusing:
            self._known[key] = choice
        return choice

    def sendable(self, choice: SavedChoice) -> list[int]:
        """Return the saved values that may go to the host: nobody else holds their memory, and it has no gaps."""
        step, storage = self.step, self.arrays.storage
        held = [*choice.saved, *step.forward_outputs]
        holders = Counter(int(storage[i]) for i in held)
        ends = {int(storage[i]) for i in step.backward_outputs}
        return [
            i for i in choice.saved
            if not step.given[i] and not step.view[i] and i not in ends and holders[int(storage[i])] == 1
            and step.size[i] and _is_dense(step.nodes[i].meta.get("val"))
        ]  # fmt: skip


def _copies(sending: Sending) -> CopyArrays:
    link = sending.link
    sent = np.zeros(len(link.seconds), np.bool_)
    sent[list(sending.values)] = True
    return CopyArrays(sent, np.array(link.seconds), link.out, link.into, link.overlap, sending.ahead)


def _is_dense(value: Any) -> bool:
    """Return whether a tensor's numbers are next to each other, in some order of its axes."""
    if not isinstance(value, torch.Tensor):
        return False
    count = 1
    for stride, size in sorted((hinted(a), hinted(n)) for a, n in zip(value.stride(), value.shape, strict=True)):
        if size != 1 and stride != count:
            return False
        count *= size
    return True


def eager_peak(memory: StepMemory) -> int:
    """Return the peak of the step where nothing is fused and every value of forward that backward reads is saved."""
    step = memory.step
    read = {i for node, late in enumerate(step.tangent) if late for i in step.inputs[node] if not step.tangent[i]}
    return memory.simulate((i for i in read if step.tensor[i]), fusing=False).peak


def _storages(step: JointStep) -> list[int]:
    """Return for every node the node whose memory holds it."""
    storage = list(range(len(step.nodes)))
    for i, kind in enumerate(step.kind):
        if kind == VIEW and step.inputs[i]:
            storage[i] = storage[step.inputs[i][0]]
    return storage


def _flat(lists: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    first = np.array([0, *accumulate(len(some) for some in lists)], np.int64)
    return first, np.array([i for some in lists for i in some], np.int64)
