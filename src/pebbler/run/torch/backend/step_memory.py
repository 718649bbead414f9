"""The peak and the cost of a step, simulated for a choice of saved values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from pebbler.arrays import Ints
from pebbler.run.torch.backend.joint_step import JointStep
from pebbler.run.torch.backend.kernels.saved_memory import simulate_saved
from pebbler.run.torch.backend.kernels.step_arrays import VIEW, StepArrays

__all__ = ["SavedChoice", "StepMemory", "eager_peak"]


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

    def simulate(self, chosen: Iterable[int], fusing: bool = True) -> SavedChoice:
        """Return what comes of saving values; those that backward does not need are left out, inputs that it needs are added.

        Forward and backward are run in torch's order: backward as it was traced, what is computed again just before its first
        use. What forward returns is taken to be gone when backward runs, unless it is saved.
        """
        saved = np.zeros(len(self.step.nodes), np.bool_)
        saved[list(chosen)] = True
        key = saved.tobytes()
        if fusing and key in self._known:
            return self._known[key]
        peak, cost, legal = simulate_saved(self.arrays, saved, self.resident, fusing)
        kept = np.flatnonzero(saved)
        own = {int(place) for place in self.arrays.storage[kept] if not self.step.given[place]}
        choice = SavedChoice(
            saved=tuple(kept.tolist()),
            bytes=sum(self.step.size[i] for i in own),
            cost=float(cost),
            peak=int(peak),
            legal=bool(legal),
        )
        if fusing:
            self._known[key] = choice
        return choice


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
