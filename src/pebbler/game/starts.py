"""The initial placement of values: given by the problem, or chosen by the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pebbler.game.graph import Graph
from pebbler.game.machine import Machine
from pebbler.game.plan import Plan

__all__ = ["PlayedGraph", "free_starts", "looped_params", "start_choices"]


class PlayedGraph(Protocol):
    """A graph on a machine in the graph's unit, with the requirements on its start."""

    @property
    def graph(self) -> Graph:
        """The graph."""

    @property
    def machine(self) -> Machine:
        """The machine."""

    @property
    def steady(self) -> bool:
        """Whether it is one step of an endless loop."""

    @property
    def start(self) -> Mapping[str, str | Sequence[str]]:
        """The levels that were named for some tensors."""


def start_choices(played: PlayedGraph) -> dict[int, list[int] | None]:
    """Return the levels where each start value is, by tensor number; None where the plan chooses.

    Inputs of a steady step arrive in the slowest level, and only there. Its params start where the plan likes, as long as they
    end there too; a machine of one level leaves no choice. What has `start = "free"` starts where the plan likes. Everything else
    starts where it is said to, or in the slowest level.
    """
    graph, machine = played.graph, played.machine
    empty = Plan.in_order(graph, machine, [], start=dict(played.start), steady=played.steady)
    levels: dict[int, list[int] | None] = dict(empty.start_levels())
    slowest = len(machine.level) - 1
    for tensor in levels if played.steady else ():
        free = slowest > 0 and graph.tensors[tensor].kind == "param"
        levels[tensor] = None if free else [slowest]
    for tensor in free_starts(played):
        levels[tensor] = None
    return levels


def free_starts(played: PlayedGraph) -> list[int]:
    """Return the tensors that start where the plan says, by number; a machine of one level leaves no choice."""
    if len(played.machine.level) == 1:
        return []
    return [number for number, tensor in enumerate(played.graph.tensors) if tensor.start == "free"]


def looped_params(played: PlayedGraph) -> list[int]:
    """Return the params of a steady step, by tensor number: each must end exactly where it starts."""
    if not played.steady:
        return []
    return [number for number, tensor in enumerate(played.graph.tensors) if tensor.kind == "param"]
