"""A measured step as a sequence of segments: graphs forward and backward, eager code between them, and what is held in each.

What a graph holds above the beginning of its segment is known from its schedule, for every choice; what is held at that beginning,
and by eager code, is measured. So the peak of the step is known for other choices of its graphs, too: what they save more or less
is held from the end of their forward to the end of their backward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Segment", "StepMoment", "StepTimeline"]


class HoldsBytes(Protocol):
    """The choices of a graph: bytes held above the start of forward and of backward, and from one to the other."""

    def forward(self, place: int) -> int: ...

    def backward(self, place: int) -> int: ...

    def saved(self, place: int) -> int: ...


@dataclass(frozen=True)
class StepMoment:
    """A mark in a step: the graph that begins or ends there, the bytes held, and the peak since the last mark."""

    kind: str  # forward, forward ends, backward, backward ends, or end
    graph: int
    held: int
    most: int


@dataclass(frozen=True)
class Segment:
    """The work between two marks: forward or backward of a graph, or eager code, with bytes at its start and at its peak."""

    kind: str
    graph: int
    start: int
    peak: int


@dataclass(frozen=True)
class StepTimeline:
    """The segments of a step, and the choice that each of its graphs had in it."""

    segments: Sequence[Segment]
    places: Sequence[int]

    @classmethod
    def of(cls, held: int, marks: Sequence[StepMoment], places: Sequence[int]) -> StepTimeline:
        """Return the timeline of marks; `held` bytes were there before the first one."""
        found, kind, graph = [], "eager", 0
        for mark in marks:
            found.append(Segment(kind, graph, held, max(held, mark.most)))
            held, graph = mark.held, mark.graph
            kind = mark.kind if mark.kind in ("forward", "backward") else "eager"
        return cls(found, places)

    @classmethod
    def expected(cls, graphs: Sequence[HoldsBytes], places: Sequence[int]) -> StepTimeline:
        """Return the timeline of a step that was not measured, above the inputs of its graphs: all forward, then all backward."""
        found, held = [], 0
        for i, (graph, place) in enumerate(zip(graphs, places, strict=True)):
            found.append(Segment("forward", i, held, held + graph.forward(place)))
            held += graph.saved(place)
        for i in reversed(range(len(graphs))):
            found.append(Segment("backward", i, held, held + graphs[i].backward(places[i])))
            held -= graphs[i].saved(places[i])
        return cls(found, places)

    def peak(self, graphs: Sequence[HoldsBytes], places: Sequence[int], corrected: bool = True) -> int:
        """Return the step's peak with other choices of its graphs.

        `corrected`: by how much each segment differed from its graph's schedule when it was measured.

        >>> class Graph:
        ...     def forward(self, place): return (50, 20)[place]
        ...     def backward(self, place): return 10
        ...     def saved(self, place): return (40, 5)[place]
        >>> told = ("forward", 100, 100), ("forward ends", 140, 152), ("backward", 145, 170), ("backward ends", 105, 156)
        >>> step = StepTimeline.of(100, [StepMoment(kind, 0, held, most) for kind, held, most in told], [0])
        >>> step.peak([Graph()], [0]), step.peak([Graph()], [1]), step.peak([Graph()], [0], corrected=False)
        (170, 135, 170)
        """
        most = shift = going = 0
        for part in self.segments:
            if part.kind == "eager":
                most = max(most, part.start + shift)  # what a backward has read is let go after it
                shift, going = shift - going, 0
                most = max(most, part.peak + shift if part.peak > part.start else 0)
                continue
            graph, before, now = graphs[part.graph], self.places[part.graph], places[part.graph]
            above = graph.forward if part.kind == "forward" else graph.backward
            base = part.peak - above(before) if corrected else part.start
            most = max(most, base + shift + above(now))
            more = graph.saved(now) - graph.saved(before)
            shift, going = (shift + more, 0) if part.kind == "forward" else (shift, more)
        return most
