"""Recognition of chains by structure, independent of names."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal

from pebbler.game.graph import Graph, Op
from pebbler.game.machine import Machine
from pebbler.solver.chain.chain_model import Chain, ChainParts

__all__ = ["as_chain"]


def as_chain(
    graph: Graph, machine: Machine, start: Mapping[str, str | Sequence[str]] | None = None
) -> tuple[Chain, ChainParts] | None:
    """Return a graph as a chain, and where its parts are, or None unless the two games are exactly the same.

    That takes an explicit machine of one or two levels that computes in the fastest; an input, a line of temps each computed
    from the one before, and a backward op for each, from the last to the first, that reads its node, the next one and the
    gradient before, and makes a gradient that takes no room.

    >>> from pebbler import machine, workloads
    >>> chain, parts = as_chain(workloads.chain(5), machine("red-blue"), {"N0": "fast"})
    >>> chain == Chain.uniform(5, red=11, io=100), parts.backward[:2]
    (True, (10, 9))
    >>> as_chain(workloads.note_mlp(), machine("red-blue")) is None
    True
    """
    levels = machine.level
    if machine.management != "explicit" or machine.operands != "fastest" or len(levels) > 2:
        return None
    capacity = levels[0].capacity
    parts = _find_parts(graph)
    if capacity is None or parts is None:
        return None
    at = _start(machine, (start or {}).get(graph.tensor_names[parts.nodes[0]]))
    sizes = tuple(graph.tensors[node].size for node in parts.nodes)
    if min(sizes) < 1 or any(a + b > capacity for a, b in pairwise(sizes)):
        return None
    if len(levels) == 2:
        store, load = levels[0].read + levels[1].write, levels[1].read + levels[0].write
    else:
        store = load = math.inf
    chain = Chain(
        sizes,
        (0.0, *(graph.ops[op].cost for op in parts.forward[1:])),
        tuple(graph.ops[op].cost for op in parts.backward),
        tuple(store * size for size in sizes),
        tuple(load * size for size in sizes),
        capacity,
        start=at,
    )
    return chain, parts


def _start(machine: Machine, where: str | Sequence[str] | None) -> Literal["fast", "slow", "both"]:
    names = [machine.names[-1]] if where is None else [where] if isinstance(where, str) else list(where)
    levels = {machine.level_index(name) for name in names}
    return "both" if len(levels) == 2 else "fast" if levels == {0} else "slow"


def _find_parts(graph: Graph) -> ChainParts | None:
    tensors = {tensor.name: tensor for tensor in graph.tensors}
    if any(tensor.overwrites for tensor in graph.tensors) or any(op.once or len(op.writes) != 1 for op in graph.ops):
        return None
    makers = {op.writes[0]: op for op in graph.ops}
    starts = [tensor.name for tensor in graph.tensors if tensor.kind in ("input", "param")]
    if len(makers) != len(graph.ops) or len(starts) != 1 or tensors[starts[0]].kind != "input":
        return None
    if starts[0] in makers or len(makers) != len(tensors) - 1:
        return None
    steps = {op.reads[0]: op for op in graph.ops if len(op.reads) == 1 and tensors[op.writes[0]].size > 0}
    nodes, forward = [starts[0]], [""]
    while nodes[-1] in steps:
        op = steps.pop(nodes[-1])
        if tensors[op.writes[0]].kind != "temp" or op.writes[0] in nodes[-1:]:
            return None
        nodes.append(op.writes[0])
        forward.append(op.name)
    n = len(nodes) - 1
    if steps or n < 1 or len(graph.ops) != 2 * n + 1 or len(set(nodes)) != n + 1:
        return None
    backward = _backward(graph, nodes, set(forward))
    if backward is None or any(tensors[op.writes[0]].size for op in backward):
        return None
    numbers = graph.op_numbers
    return ChainParts(
        tuple(graph.tensor_numbers[name] for name in nodes),
        (-1, *(numbers[name] for name in forward[1:])),
        tuple(numbers[op.name] for op in backward),
    )


def _backward(graph: Graph, nodes: list[str], forward: set[str]) -> list[Op] | None:
    """Return the backward ops from b_0 up, or None if they are anything but a chain's."""
    by_reads = {frozenset(op.reads): op for op in graph.ops if op.name not in forward}
    reads = frozenset({nodes[-1]})
    found: list[Op] = []
    for i in range(len(nodes) - 1, -1, -1):
        op = by_reads.get(reads)
        if op is None or len(op.reads) != len(reads):
            return None
        found.append(op)
        if i > 0:
            reads = frozenset({nodes[i - 1], nodes[i], op.writes[0]})
    return found[::-1]
