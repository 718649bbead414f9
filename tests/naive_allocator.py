"""The `reuse` allocator with a Python list of free blocks, straight from its description in docs/rules.md."""

from __future__ import annotations

from collections.abc import Sequence

from pebbler.game.graph import Graph

__all__ = ["reuse"]


def reuse(graph: Graph, order: Sequence[int], line: int) -> list[int]:
    """Return the address of every touch of an order: each op's reads, then its writes."""
    sizes = [-(-tensor.size // line) * line for tensor in graph.tensors]
    number = {tensor.name: i for i, tensor in enumerate(graph.tensors)}
    home = list(range(len(sizes)))  # the tensor whose storage each one lives in
    for i, tensor in enumerate(graph.tensors):
        if tensor.overwrites is not None:
            home[i] = home[number[tensor.overwrites]]
    kept = {home[i] for i, tensor in enumerate(graph.tensors) if tensor.kind != "temp"}
    steps = []
    for op in order:
        reads, writes = (
            [home[number[name]] for name in names] for names in (graph.ops[op].reads, graph.ops[op].writes)
        )
        steps.append((reads, writes, {one for one in writes if one not in reads}))
    held: dict[int, int] = {}
    memory: list[int | None] = []  # per unit: the storage that has it
    for i in sorted({home[i] for i, tensor in enumerate(graph.tensors) if tensor.kind in ("input", "param")}):
        held[i] = len(memory)
        memory += [i] * sizes[i]
    places = []
    for now, (reads, writes, _) in enumerate(steps):
        for one in (*reads, *writes):
            if one not in held:
                held[one] = _lowest(memory, sizes[one])
                memory += [None] * (held[one] + sizes[one] - len(memory))
                memory[held[one] : held[one] + sizes[one]] = [one] * sizes[one]
            places.append(held[one])
        for one in {*reads, *writes} - kept:
            later = next((step for step in steps[now + 1 :] if one in step[0] or one in step[1]), None)
            if later is None or one in later[2]:
                at = held.pop(one)
                memory[at : at + sizes[one]] = [None] * sizes[one]
    return places


def _lowest(memory: list[int | None], size: int) -> int:
    """Return the lowest free block of `size` units; memory goes on for ever."""
    if size == 0:
        return next((at for at, owner in enumerate(memory) if owner is None), len(memory))
    at = 0
    while any(owner is not None for owner in memory[at : at + size]):
        at += 1
    return at
