"""The choices of one joint graph, and which one is taken: plain data, so that a file can hold it.

The peak of a choice is simulated, or known from its schedule; the schedules of a few choices correct the simulated peaks and costs
of all others.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import fx

from pebbler.game.byte_sizes import shown_bytes
from pebbler.run.torch.backend.joint_step import JointStep
from pebbler.run.torch.backend.saved_frontier import saved_frontier
from pebbler.run.torch.backend.sent_values import send_frontier
from pebbler.run.torch.backend.step_memory import HostRoom, SavedChoice, StepMemory, eager_peak
from pebbler.run.torch.backend.step_timeline import StepTimeline

__all__ = ["GraphFrontier", "PlannedCall", "Scheduled", "fit_step", "nodes_key", "settle_place", "step_peak"]

_TRIES = 3  # schedules that are made for one decision: on large models each takes half as long as compiling does
_WORTH = 0.05  # of the cost: what one more schedule must promise, once a choice fits
_NEAR = 0.05  # of the room: what a choice may leave free
_HARDLY = 0.03  # of the cost: what a choice must be better than torch's own, since kernels' times are estimates
_CLOSE = 0.08  # of the cost: torch's own is compared with schedules where it is no more behind
_DOUBT = 0.1  # of a peak that is simulated
_MISSED = 0.5  # of what the last schedule held above its expected peak: what the next aim allows for
_LEAST_TRIES = 8  # schedules that are made to find the smallest choice
_LEAST_DOUBT = (0.15, 0.3)  # of a simulated peak; more for torch's own: the least is never above what torch reaches
_LEAST_SURE = 0.01  # of a peak that two schedules or more have corrected, besides twice what these differ


@dataclass(frozen=True)
class Scheduled:
    """The schedule of a choice: its peak in bytes, and its cost, where that is time.

    `above` are the bytes that forward and backward hold above what they begin with, and those that are saved between them.
    """

    peak: int
    cost: float | None = None
    above: tuple[int, int, int] | None = None


@dataclass
class GraphFrontier:
    """The choices of one joint graph, the first of them torch's own without a budget, and which one is taken: `place`.

    Sizes are bytes.
    """

    key: str  # of the joint graph that this was made for
    names: list[str]
    choices: list[SavedChoice]
    eager: int  # the peak where nothing is fused and all is saved
    inputs: int  # what the graph is given
    padded: bool  # whether operands of products are copied to round sizes
    place: int = 0
    largest: int = 0  # what the graph was given in the largest step that was measured
    cut_off: bool = False  # whether time ended the search for choices
    own: list[int] = field(
        default_factory=lambda: [0]
    )  # places of torch's own choices, which are compiled as torch does
    scheduled: dict[int, Scheduled] = field(default_factory=dict)  # by place
    room: int | None = None  # bytes that it may hold when it is compiled next; None where the place is decided
    slack: int = 0  # bytes more, for torch's own choices: their peaks are those of torch without us
    shared: bool = False  # whether a measured step will share the room among this graph and others

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
        # Torch's own stay, whatever the simulation says of them: their schedules may say something else.
        known = {choice.saved for choice in choices}
        own = [memory.simulate(saved) for saved in theirs]
        choices += [choice for choice in own if choice.legal and choice.saved not in known]
        theirs_saved = {choice.saved for choice in own}
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
            own=[i for i, choice in enumerate(choices) if (choice.saved in theirs_saved and not choice.sent) or not i],
        )

    @property
    def choice(self) -> SavedChoice:
        """The current choice."""
        return self.choices[self.place]

    def peak(self, place: int | None = None) -> int:
        """Return the peak of a choice: as scheduled, or as simulated and corrected by the schedules of its neighbours."""
        place = self.place if place is None else place
        if place in self.scheduled:
            return self.scheduled[place].peak
        simulated = self.choices[place].peak
        if not self.scheduled:
            return simulated
        known = sorted((self.choices[i].peak, s.peak - self.choices[i].peak) for i, s in self.scheduled.items())
        below = [pair for pair in known if pair[0] <= simulated]
        above = [pair for pair in known if pair[0] >= simulated]
        if not below or not above:
            return simulated + (below[-1] if below else above[0])[1]
        (low, less), (high, more) = below[-1], above[0]
        part = (simulated - low) / (high - low) if high > low else 0.5
        return simulated + round(less + part * (more - less))

    def cost(self, place: int | None = None) -> float:
        """Return the cost of a choice: as scheduled, or as estimated and corrected by what was scheduled."""
        place = self.place if place is None else place
        timed = {i: s.cost for i, s in self.scheduled.items() if s.cost is not None}
        if place in timed:
            return timed[place]
        cost = self.choices[place].cost
        if not timed:
            return cost
        simulated = sum(self.choices[i].cost for i in timed)
        return cost * sum(timed.values()) / simulated if simulated > 0 else cost

    def _above(self, place: int) -> tuple[int, int, int]:
        known = self.scheduled[place].above if place in self.scheduled else None
        if known is not None:
            return known
        whole, saved = max(0, self.peak(place) - self.inputs), self.choices[place].bytes
        return whole, max(0, whole - saved), saved

    def forward(self, place: int) -> int:
        """Return the bytes that forward holds above its inputs."""
        return self._above(place)[0]

    def backward(self, place: int) -> int:
        """Return the bytes that backward holds above its inputs."""
        return self._above(place)[1]

    def saved(self, place: int) -> int:
        """Return the bytes that are saved from forward to backward."""
        return self._above(place)[2]

    def fits(self, place: int, room: int) -> bool:
        """Return whether a choice holds at most so many bytes."""
        return self.peak(place) <= room + (self.slack if place in self.own else 0)

    def within(self, room: int, doubt: float = 0.0) -> int:
        """Return the place of the fastest choice that fits, or of the smallest; what is not scheduled may hold more by `doubt`."""
        fitting = [
            i
            for i in range(len(self.choices))
            if self.fits(i, room if i in self.scheduled else int(room / (1 + doubt)))
        ]
        return self.fastest(fitting) if fitting else self.least

    def fastest(self, places: Iterable[int]) -> int:
        """Return the place among some whose choice costs least; torch's own where another is hardly better."""
        return min(places, key=lambda i: (self.cost(i) * (1 - _HARDLY if i in self.own else 1), i))

    def rival(self, room: int) -> int | None:
        """Return the place of the fastest choice of torch's own that may fit, if one is not clearly slower than the others."""
        near = [i for i in self.own if self.peak(i) <= (1 + _DOUBT) * room + self.slack]
        best = self.fastest(near) if near else None
        return best if best is not None and self.cost(best) <= self.cost(self.within(room)) * (1 + _CLOSE) else None

    def may_fit(self, room: int) -> bool:
        """Return whether a schedule may show that some choice holds at most so many bytes."""
        return any((1 - _LEAST_DOUBT[i in self.own]) * self.peak(i) <= room for i in range(len(self.choices)))

    @property
    def least(self) -> int:
        """The place of the smallest choice."""
        return min(range(len(self.choices)), key=lambda i: (self.peak(i), self.cost(i), i))

    def __str__(self) -> str:
        """Say which choice is taken, for the log."""
        said = "scheduled" if self.place in self.scheduled else "simulated"
        return f"choice {self.place} of {len(self.choices)}, {said} {shown_bytes(self.peak())}"


def settle_place(
    frontier: GraphFrontier, room: int, schedule: Callable[[int], Scheduled], below: float = math.inf
) -> None:
    """Take the fastest choice whose scheduled peak is at most `room`, or the smallest; schedule as few as can be.

    Torch's own comes first, where it is about as fast. Every schedule corrects what is thought of the others; where one held more
    than was expected, the next stays that much more on the safe side. None is made that promises next to nothing more than the best
    so far, none where nothing can fit, and one alone where a measured step will share the room among several graphs. A room of 0
    asks for as little as there is; only what may hold less than `below`, as other forms of the graph do, is scheduled then.
    """
    if room == 0:
        _settle_least(frontier, schedule, below)
        return
    doubt = 0.0
    for done in range(1 if frontier.shared else _TRIES if frontier.may_fit(room) else 0):
        place = None if done or frontier.shared else frontier.rival(room)
        place = frontier.within(room, doubt) if place is None else place
        fitting = [i for i in frontier.scheduled if frontier.fits(i, room)]
        if fitting:
            best = frontier.fastest(fitting)
            own = best in frontier.own
            near = not own and frontier.peak(best) >= room * (1 - _NEAR)
            if near or frontier.cost(place) >= frontier.cost(best) * (1 - (_HARDLY if own else _WORTH)):
                break
        if place in frontier.scheduled:
            break
        expected = frontier.peak(place)
        frontier.scheduled[place] = schedule(place)
        doubt = max(0.0, frontier.peak(place) / max(1, expected) - 1) * _MISSED
    fitting = [i for i in frontier.scheduled if frontier.fits(i, room)]
    if fitting:
        frontier.place = frontier.fastest(fitting)
    else:
        known = frontier.scheduled or range(len(frontier.choices))
        frontier.place = min(known, key=lambda i: (frontier.peak(i), frontier.cost(i), i))


def _settle_least(frontier: GraphFrontier, schedule: Callable[[int], Scheduled], below: float) -> None:
    """Take the choice with the smallest scheduled peak, of all that may hold less than the best so far."""
    for _ in range(_LEAST_TRIES):
        best = min([below, *(known.peak for known in frontier.scheduled.values())])
        doubt = [_doubt(frontier, own) for own in (False, True)]
        places = (i for i in range(len(frontier.choices)) if i not in frontier.scheduled)
        left = [i for i in places if (1 - doubt[i in frontier.own]) * frontier.peak(i) < best]
        if not left:
            break
        place = min(left, key=lambda i: (frontier.peak(i), i))
        frontier.scheduled[place] = schedule(place)
    frontier.place = frontier.least


def _doubt(frontier: GraphFrontier, own: bool) -> float:
    """Return the part by which a choice, torch's own or not, may hold less than is expected after the schedules that were made."""
    missed = [
        s.peak / max(1, frontier.choices[i].peak) for i, s in frontier.scheduled.items() if (i in frontier.own) == own
    ]
    prior = _LEAST_DOUBT[own] / (2 if missed else 1)
    return min(prior, _LEAST_SURE + 2 * (max(missed) - min(missed))) if len(missed) > 1 else prior


class PlannedCall(Protocol):
    """The requirement of a budget on a compiled graph."""

    @property
    def frontier(self) -> GraphFrontier | None: ...

    def compile_again(self) -> None: ...

    def compile_least(self) -> bool: ...

    def settle(self, peak: int) -> None: ...


def step_peak(frontiers: Sequence[GraphFrontier], places: Sequence[int]) -> int:
    """Return the peak of a step's graphs, above their inputs."""
    return StepTimeline.expected(frontiers, places).peak(frontiers, places)


def fit_step(frontiers: Sequence[GraphFrontier], room: int, measured: StepTimeline | None = None) -> list[int]:
    """Return places whose step holds at most `room` bytes, or the fewest found: above its inputs, or as `measured`.

    Begins with the fastest of all, and moves one graph at a time to a choice with a smaller peak or fewer saved bytes, always the
    move that costs least per byte of the step's peak; then back, as far as the room allows.
    """

    def peak(places: Sequence[int]) -> int:
        return measured.peak(frontiers, places) if measured is not None else step_peak(frontiers, places)

    places = [frontier.fastest(range(len(frontier.choices))) for frontier in frontiers]
    most = peak(places)
    while most > room:
        best: tuple[float, int, int, int] | None = None
        for g, frontier in enumerate(frontiers):
            for place in range(len(frontier.choices)):
                if place == places[g]:
                    continue
                less = most - peak([*places[:g], place, *places[g + 1 :]])
                if less <= 0:
                    continue
                enough = min(less, most - room)
                price = max(0.0, frontier.cost(place) - frontier.cost(places[g])) / enough
                if best is None or (price, -less) < best[:2]:
                    best = (price, -less, g, place)
        if best is None:
            return places
        places[best[2]] = best[3]
        most += best[1]
    for g, frontier in enumerate(frontiers):  # the fastest that still fits
        choices = range(len(frontier.choices))
        fits = [place for place in choices if peak([*places[:g], place, *places[g + 1 :]]) <= room]
        places[g] = frontier.fastest(fits) if fits else places[g]
    return places


def nodes_key(graph: fx.Graph, known: str = "val") -> str:
    """Return a key that is equal for graphs that are equal in names, operators, operands and sizes.

    `known` is the name under which nodes have an example of their result: `val`, or `example_value` in graphs of Dynamo's.
    """
    said = hashlib.sha256()
    for node in graph.nodes:
        value = node.meta.get(known)
        name = getattr(node.target, "__qualname__", None) or str(node.target)
        shape = (str(getattr(value, "dtype", "")), str(list(getattr(value, "shape", ()))))
        said.update(repr((node.name, node.op, name, str(node.args), str(node.kwargs), *shape)).encode())
    return said.hexdigest()
