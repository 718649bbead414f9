"""Note 000's pricing read straight from its description, with lists and sorting."""

from __future__ import annotations

from pebbler.game.graph import Graph
from pebbler.game.machine import Machine

__all__ = ["price"]


def price(graph: Graph, machine: Machine, order: list[str]) -> dict[str, float]:
    """Return the energy by level of running the ops in `order`."""
    size = {tensor.name: tensor.size for tensor in graph.tensors}
    initial = [tensor.name for tensor in graph.tensors if tensor.kind in ("input", "param")]
    live = dict.fromkeys(initial, 0)  # last access; a dict keeps the order of insertion
    spent = {level.name: 0.0 for level in machine.level}
    for step, name in enumerate(order, start=1):
        op = graph.op_named(name)
        spent[machine.level[0].name] += op.cost
        for read in op.reads:
            ranked = sorted(live, key=lambda other: -live[other])  # sorting is stable: ties in order of insertion
            depth = sum(size[other] for other in ranked[: ranked.index(read) + 1])
            room = 0
            for level in machine.level:
                room += level.capacity or depth
                if depth <= room:
                    spent[level.name] += size[read] * level.read
                    break
            live[read] = step
        for written in op.writes:
            level = next(one for one in machine.level if one.capacity is None or size[written] <= one.capacity)
            spent[level.name] += size[written] * level.write
            live[written] = step
        later = {read for other in order[step:] for read in graph.op_named(other).reads}
        for other in list(live):
            if other not in later and other not in initial and other not in op.writes:
                del live[other]
    return spent
