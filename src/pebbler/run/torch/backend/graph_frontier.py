"""The choices of one joint graph, and which one is taken: plain data, so that a file can hold it; and moving to smaller ones."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import fx

from pebbler.game.byte_sizes import shown_bytes
from pebbler.run.torch.backend.joint_step import JointStep
from pebbler.run.torch.backend.saved_frontier import saved_frontier
from pebbler.run.torch.backend.sent_values import send_frontier
from pebbler.run.torch.backend.step_memory import HostRoom, SavedChoice, StepMemory, eager_peak

__all__ = ["GraphFrontier", "PlannedCall", "give_bytes", "joint_key", "shrink"]


@dataclass
class GraphFrontier:
    """The choices of one joint graph from fast to small, and which one is taken: `place`. Sizes are bytes."""

    key: str  # of the joint graph that this was made for
    names: list[str]
    choices: list[SavedChoice]
    eager: int  # the peak where nothing is fused and all is saved
    inputs: int  # what the graph is given
    padded: bool  # whether operands of products are copied to round sizes
    place: int = 0
    fastest: int = 0  # the first place that is not known to be over the budget
    largest: int = 0  # what the graph was given in the largest step that was measured
    cut_off: bool = False  # whether time ended the search for choices

    @classmethod
    def plan(
        cls,
        step: JointStep,
        theirs: Sequence[Sequence[int]],
        key: str,
        time_limit: float,
        room: HostRoom | None = None,
    ) -> GraphFrontier:
        """Return the choices of a graph; `theirs` are torch's own, the first of them without a budget.

        Values may go to the host's `room`, where there is one.
        """
        ends = time.monotonic() + time_limit
        memory = StepMemory(step)
        choices = saved_frontier(memory, theirs, time_limit)
        if room is not None:
            choices = send_frontier(memory, choices, room, time_limit)
        names = [node.name for node in step.nodes]
        return cls(
            key=key,
            names=names,
            choices=choices,
            eager=eager_peak(memory),
            inputs=memory.resident,
            # Inductor's pass that pads the operands of products names its copies so.
            padded=any(name.startswith("constant_pad_nd_default") for name in names),
            cut_off=time.monotonic() > ends,
        )

    @property
    def choice(self) -> SavedChoice:
        """What is taken now."""
        return self.choices[self.place]

    def within(self, target: int) -> int:
        """Return the place of the fastest choice whose simulated peak is at most `target`, or the last place."""
        places = range(self.fastest, len(self.choices))
        return next((i for i in places if self.choices[i].peak <= target), len(self.choices) - 1)

    def take(self, room: int) -> float:
        """Move to the fastest choice that holds at most so much more, and return the cost that this saves."""
        here = self.choice
        self.place = min(self.place, self.within(here.peak + room))
        return here.cost - self.choice.cost

    def moves(self) -> list[tuple[float, int, int]]:
        """Return cost per byte, place and bytes of the moves to smaller choices."""
        here = self.choice
        after = enumerate(self.choices[self.place + 1 :], start=self.place + 1)
        return [((c.cost - here.cost) / (here.peak - c.peak), place, here.peak - c.peak) for place, c in after]

    def __str__(self) -> str:
        """Say which choice is taken, for the log."""
        return f"choice {self.place} of {len(self.choices)}, simulated {shown_bytes(self.choice.peak)}"


class PlannedCall(Protocol):
    """What a budget asks of a compiled graph."""

    @property
    def frontier(self) -> GraphFrontier | None: ...

    def compile_again(self) -> None: ...

    def compile_smaller(self) -> bool: ...

    def settle(self, peak: int) -> None: ...


def shrink(running: Iterable[PlannedCall]) -> bool:
    """Have graphs compiled again in forms that hold less, and return whether any has one."""
    return sum(graph.compile_smaller() for graph in running) > 0


def give_bytes(frontiers: Sequence[GraphFrontier], excess: int) -> None:
    """Move to smaller choices, always the move that costs least time per byte, then back as far as enough is still given."""
    given = 0
    while given < excess:
        moves = [(*move, i) for i, frontier in enumerate(frontiers) for move in frontier.moves()]
        if not moves:
            return
        _, place, less, i = min(moves)
        frontiers[i].place = place
        given += less
    for frontier in frontiers:
        here = frontier.choice.peak
        frontier.place = frontier.within(here + given - excess)
        given -= frontier.choice.peak - here


def joint_key(graph: fx.Graph) -> str:
    """Return a key that is equal for joint graphs that are equal in names, operators, operands and sizes."""
    said = hashlib.sha256()
    for node in graph.nodes:
        value = node.meta.get("val")
        shape = (str(getattr(value, "dtype", "")), str(list(getattr(value, "shape", ()))))
        said.update(repr((node.name, node.op, str(node.target), str(node.args), str(node.kwargs), *shape)).encode())
    return said.hexdigest()
