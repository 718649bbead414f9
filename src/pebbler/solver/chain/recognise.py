"""Which graphs are chains, whatever their tensors and ops are called."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from pebbler.game.graph import Graph, Op
from pebbler.game.machine import Machine
from pebbler.game.plan import Move
from pebbler.solver.chain.chain_model import Chain
from pebbler.solver.chain.chain_moves import ChainMove

__all__ = ["ChainNames", "as_chain", "named_moves"]


@dataclass(frozen=True)
class ChainNames:
    """What a graph calls the parts of a chain, from N_0 up."""

    nodes: tuple[str, ...]
    forward: tuple[str, ...]  # forward[0] is empty: nothing computes N_0
    backward: tuple[str, ...]


def as_chain(
    graph: Graph, machine: Machine, start: Mapping[str, str | Sequence[str]] | None = None
) -> tuple[Chain, ChainNames] | None:
    """Return a graph as a chain, with its names, or None unless the two games are exactly the same.

    That takes an explicit machine of one or two levels that computes in the fastest; an input, a line of temps each computed
    from the one before, and a backward op for each, from the last to the first, that reads its node, the next one and the
    gradient before, and makes a gradient that takes no room.

    >>> from pebbler import machine, workloads
    >>> chain, names = as_chain(workloads.chain(5), machine("red-blue"), {"N0": "fast"})
    >>> chain == Chain.uniform(5, red=11, io=100), names.backward[:2]
    (True, ('b0', 'b1'))
    >>> as_chain(workloads.note_mlp(), machine("red-blue")) is None
    True
    """
    levels = machine.level
    if machine.management != "explicit" or machine.operands != "fastest" or len(levels) > 2:
        return None
    capacity = levels[0].capacity
    names = _names(graph)
    if capacity is None or names is None:
        return None
    at = _start(machine, (start or {}).get(names.nodes[0]))
    tensors = {tensor.name: tensor for tensor in graph.tensors}
    costs = {op.name: op.cost for op in graph.ops}
    sizes = tuple(tensors[name].size for name in names.nodes)
    if min(sizes) < 1 or any(a + b > capacity for a, b in pairwise(sizes)):
        return None
    if len(levels) == 2:
        store, load = levels[0].read + levels[1].write, levels[1].read + levels[0].write
    else:
        store = load = math.inf
    chain = Chain(
        sizes,
        (0.0, *(costs[name] for name in names.forward[1:])),
        tuple(costs[name] for name in names.backward),
        tuple(store * size for size in sizes),
        tuple(load * size for size in sizes),
        capacity,
        start=at,
    )
    return chain, names


def _start(machine: Machine, where: str | Sequence[str] | None) -> Literal["fast", "slow", "both"]:
    names = [machine.names[-1]] if where is None else [where] if isinstance(where, str) else list(where)
    levels = {machine.level_index(name) for name in names}
    return "both" if len(levels) == 2 else "fast" if levels == {0} else "slow"


def _names(graph: Graph) -> ChainNames | None:
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
    return ChainNames(tuple(nodes), tuple(forward), tuple(op.name for op in backward))


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


def named_moves(chain: Chain, names: ChainNames, machine: Machine, moves: Iterator[ChainMove]) -> Iterator[Move]:
    """Yield the moves of a chain in the words of a graph and a machine.

    >>> from pebbler import machine
    >>> names = ChainNames(("x", "y"), ("", "f"), ("bx", "by"))
    >>> list(named_moves(Chain.uniform(1, red=2), names, machine("red-blue"), iter([("compute", 1), ("drop", 1)])))
    [('compute', 'f'), ('drop', 'y', 'fast')]
    """
    fast, slow = machine.names[0], machine.names[-1]
    for kind, node in moves:
        if kind == "compute":
            yield "compute", names.forward[node]
        elif kind == "backward":
            yield "compute", names.backward[node]
        elif kind == "store":
            yield "copy", names.nodes[node], fast, slow
        elif kind == "load":
            yield "copy", names.nodes[node], slow, fast
        else:
            yield "drop", names.nodes[node], fast
