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
from pebbler.run.torch.backend.kernels.saved_memory import SavedRun, simulate_saved
from pebbler.run.torch.backend.kernels.step_arrays import VIEW, StepArrays
from pebbler.run.torch.backend.node_costs import hinted
from pebbler.run.torch.cost.costs import Link

__all__ = ["END", "HostRoom", "SavedChoice", "SentValue", "StepMemory", "eager_peak"]

END = -1  # instead of a node: after the last one


@dataclass(frozen=True)
class HostRoom:
    """The host's memory for one graph: bytes that it may take, if limited, whether buffers are rounded up, and the way there."""

    limit: int | None
    rounded: bool
    link: Link  # in seconds
    seconds: tuple[float, ...]  # of every node
    watts: float | None = None  # drawn while the step waits, where the cost is energy

    def cost(self, waiting: float, sent: int) -> float:
        """Return the seconds or joules that so many seconds of waiting, and bytes copied out and back, add to a step."""
        return waiting if self.watts is None else waiting * self.watts + 2 * sent * self.link.joules_per_byte

    def taken(self, size: int) -> int:
        """Return the bytes that a buffer takes: pinned memory is rounded up to powers of two.

        >>> HostRoom(None, True, Link(1.0, 1.0, True), ()).taken(100)
        128
        """
        return 1 << (size - 1).bit_length() if self.rounded else size


@dataclass(frozen=True)
class SentValue:
    """A saved value that goes to the host; the nodes before which it has left (or `END`) and before which it is fetched."""

    node: int
    left: int
    fetched: int


@dataclass(frozen=True)
class SavedChoice:
    """Values that forward saves, by number, with their bytes, the costs of forward and backward, and the peak.

    It is not legal where backward would have to run what must not run again.
    """

    saved: tuple[int, ...]
    bytes: int
    cost: float  # seconds, or joules
    peak: int
    legal: bool = True
    sent: tuple[SentValue, ...] = ()
    host: int = 0  # bytes that are sent
    copying: float = 0.0  # what of the cost is for copies to the host and back


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
            np.array(step.cost, np.float64), np.array(step.drawing, np.float64),
            np.array(step.tangent, np.bool_), np.array(step.fixed, np.bool_), forward_end, backward_end,
            step.byte_cost, step.launch_cost,
        )  # fmt: skip
        self.resident = sum(step.size[i] for i, given in enumerate(step.given) if given and not step.tangent[i])
        self._known: dict[bytes, SavedChoice] = {}

    def simulate(self, chosen: Iterable[int], fusing: bool = True) -> SavedChoice:
        """Return the outcome of saving values; values that backward does not need are left out, inputs that it needs are added.

        Forward and backward are run in torch's order: backward as it was traced, what is computed again just before its first
        use. What forward returns is taken to be gone when backward runs, unless it is saved.
        """
        saved = np.zeros(len(self.step.nodes), np.bool_)
        saved[list(chosen)] = True
        key = saved.tobytes()
        if fusing and key in self._known:
            return self._known[key]
        forward, backward, legal = simulate_saved(self.arrays, saved, fusing)
        kept = np.flatnonzero(saved)
        own = {int(place) for place in self.arrays.storage[kept] if not self.step.given[place]}
        choice = SavedChoice(
            saved=tuple(kept.tolist()),
            bytes=sum(self.step.size[i] for i in own),
            cost=float(forward.cost + backward.cost),
            peak=self.resident + int(max(forward.held.max(), backward.held.max())),
            legal=bool(legal),
        )
        if fusing:
            self._known[key] = choice
        return choice

    def runs(self, choice: SavedChoice) -> tuple[SavedRun, SavedRun]:
        """Return forward and backward of a choice, place by place."""
        saved = np.zeros(len(self.step.nodes), np.bool_)
        saved[list(choice.saved)] = True
        forward, backward, _ = simulate_saved(self.arrays, saved, True)
        return forward, backward

    def sendable(self, choice: SavedChoice) -> list[int]:
        """Return the saved values that may go to the host: nothing else holds their memory, and it has no gaps."""
        step, storage = self.step, self.arrays.storage
        held = [*choice.saved, *step.forward_outputs]
        holders = Counter(int(storage[i]) for i in held)
        ends = {int(storage[i]) for i in step.backward_outputs}
        return [
            i for i in choice.saved
            if not step.given[i] and not step.view[i] and i not in ends and holders[int(storage[i])] == 1
            and step.size[i] and _is_dense(step.nodes[i].meta.get("val"))
        ]  # fmt: skip


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
