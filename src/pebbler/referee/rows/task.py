"""The subject of a bound: a graph on a machine, with the initial placement of its values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from pebbler.game.graph import Graph
from pebbler.game.machine import Machine
from pebbler.game.plan import Plan
from pebbler.referee import pricing

__all__ = ["Task"]

_MOST_LEVELS = 5  # of an explicit machine: there is a counter for every set of levels


@dataclass(frozen=True)
class Task:
    """A graph and all its forms, on a machine in the graph's unit."""

    graph: Graph
    machine: Machine
    steady: bool
    start: Mapping[str, Any] = field(default_factory=dict)

    @property
    def excluded(self) -> str:
        """The reason why no rows hold for it; empty where rows hold."""
        if self.machine.management == "recency":
            return "the machine ranks tensors by recency"
        if self.machine.results != "apart" or any(tensor.start == "free" for tensor in self.graph.tensors):
            return "starts or results follow rules of their own"
        if not self.caches and len(self.machine.level) > _MOST_LEVELS:
            return f"the machine has more than {_MOST_LEVELS} levels"
        return ""

    @cached_property
    def caches(self) -> bool:
        """Whether the machine decides what stays where."""
        return self.machine.management != "explicit"

    @cached_property
    def start_levels(self) -> dict[int, list[int]]:
        """The levels that each start value is in, by tensor number."""
        return dict(Plan.in_order(self.graph, self.machine, [], start=self.start, steady=self.steady).start_levels())

    @cached_property
    def read(self) -> list[float]:
        """The price of a read from each level."""
        return [float(price) for price in pricing.prices(self.machine, "read")]

    @cached_property
    def write(self) -> list[float]:
        """The price of a write to each level."""
        return [float(price) for price in pricing.prices(self.machine, "write")]

    @cached_property
    def reach(self) -> list[int]:
        """The units of a stack found in each level or above it; the last level has no end."""
        room = pricing.capacities(self.machine)
        return [int(units) for units in np.cumsum(room[:-1]) // self.machine.line * self.machine.line]

    @cached_property
    def room(self) -> list[int]:
        """The capacity of each level in units."""
        return [int(units) for units in pricing.capacities(self.machine)]

    @cached_property
    def levels(self) -> range:
        """The levels, fastest first."""
        return range(len(self.machine.level))
