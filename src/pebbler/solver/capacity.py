"""The least fast memory with which a graph has any legal plan."""

from __future__ import annotations

from dataclasses import dataclass

from pebbler.errors import InputError
from pebbler.game.graph import Graph
from pebbler.game.machine import Machine
from pebbler.solver.problem import Problem

__all__ = ["LeastMemory", "find_least_capacity"]


@dataclass(frozen=True)
class LeastMemory:
    """`least` units are enough, less than `bound` are not; the two agree where the answer is exact."""

    least: int
    bound: int
    reason: str


def find_least_capacity(
    graph: Graph, machine: Machine, *, steady: bool | None = None, time_limit: float = 10.0
) -> LeastMemory:
    """Return the least capacity of the fastest level with which some plan is legal, whatever it costs.

    >>> from pebbler import machine, workloads
    >>> find_least_capacity(workloads.note_mlp(), machine("cortex-m").in_unit("float32")).least
    40000
    """
    from pebbler.solver.needs import needs
    from pebbler.solver.recompute.capacity import least_capacity

    if machine.management != "explicit":
        raise InputError(f"machine {machine.name} has caches: every schedule runs in any amount of them")
    problem = Problem.of(graph, machine, steady=steady)
    if len(machine.level) == 1:
        found = least_capacity(problem, time_limit)
        return LeastMemory(found.upper, found.lower, found.reason)
    need = needs(problem)
    if need is None:
        why = "operands may be anywhere, so no op needs room" if graph.ops else "there is no op that needs room"
        return LeastMemory(1, 1, f"{why} in the fastest level")
    return LeastMemory(
        need.units, need.units, f"{need.op} needs {need.units:,} units at once, and the rest can be elsewhere"
    )
