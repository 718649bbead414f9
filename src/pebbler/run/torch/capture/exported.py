"""Graphs of exported programs: `torch.export` in, a `Graph` in bytes out, without a plan.

Views share the memory of their base, so they are no ops: their readers read the base. Buffers that the program updates are written
by a last op, as the exported program's own copy does. Parameters, buffers and constants are params.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from pebbler.errors import InputError, quoted
from pebbler.game.graph import Graph, Kind

__all__ = ["from_export"]


def from_export(program: ExportedProgram, name: str = "exported") -> Graph:
    """Return an exported program as a graph in bytes: one op per operator, in the program's order.

    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU())
    >>> graph = from_export(torch.export.export(model, (torch.ones(2, 8),)))
    >>> [(op.name, op.writes) for op in graph.ops]
    [('linear', ('linear',)), ('relu', ('relu',))]
    >>> {tensor.name: (tensor.kind, tensor.size) for tensor in graph.tensors if tensor.kind != "temp"}
    {'0.weight': ('param', 128), '0.bias': ('param', 16), 'input': ('input', 64), 'relu': ('output', 32)}
    """
    if not isinstance(program, ExportedProgram):
        raise InputError(f"from_export: expected the result of torch.export.export, got {type(program).__name__}")
    signature, nodes = program.graph_signature, list(program.graph.nodes)
    params = signature.inputs_to_parameters | signature.inputs_to_buffers | signature.inputs_to_lifted_tensor_constants
    places: dict[Node, tuple[str, ...]] = {}  # the tensors of the graph that hold a node's results
    sizes: dict[str, int] = {}
    kinds: dict[str, Kind] = {}
    for node in nodes:
        labels = _shared_place(node, places)
        if labels is None:
            labels, found = _own_place(node, params), _tensors(node.meta.get("val"))
            sizes |= {label: _size(value) for label, value in zip(labels, found, strict=True)}
            if node.op == "placeholder":
                kinds |= dict.fromkeys(labels, "param" if node.name in params else "input")
        places[node] = labels
    updated = {node: buffer for node in nodes if (buffer := signature.buffers_to_mutate.get(node.name)) is not None}
    for node in nodes[-1].all_input_nodes:
        if node not in updated:
            kinds |= {label: kinds.get(label, "output") for label in places[node]}
    graph = Graph(name, unit="byte")
    for label, size in sizes.items():
        graph.tensor(label, size, kind=kinds.get(label, "temp"))
    for node in nodes:
        if node.op == "call_function" and _shared_place(node, places) is None:
            _add_op(graph, node, places)
    for node, buffer in updated.items():
        graph.op(f"update {buffer}", reads=places[node], writes=[buffer])
    return graph


def _add_op(graph: Graph, node: Node, places: dict[Node, tuple[str, ...]]) -> None:
    reads = dict.fromkeys(label for operand in node.all_input_nodes for label in places[operand])
    random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    graph.op(node.name, reads=tuple(reads), writes=places[node], once=random, meta={"operator": str(node.target)})


def _shared_place(node: Node, places: dict[Node, tuple[str, ...]]) -> tuple[str, ...] | None:
    """Return the tensors of an earlier node that a node only looks at, as a view or a part; None for results of its own."""
    if node.target is operator.getitem:
        return (f"{node.args[0]}.{node.args[1]}",)
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.returns or not node.all_input_nodes:
        return None
    alias = schema.returns[0].alias_info
    return None if alias is None or alias.is_write else places[node.all_input_nodes[0]]


def _own_place(node: Node, params: dict[str, str]) -> tuple[str, ...]:
    """Return names for the results of a node."""
    if node.op not in ("placeholder", "call_function", "output"):
        raise InputError(f"from_export: {quoted(node.name)} is a node {quoted(node.op)}; export the program again")
    if getattr(getattr(node.target, "_schema", None), "is_mutable", False):
        raise InputError(
            f"from_export: {quoted(str(node.target))} changes its operand in place; pass program.run_decompositions() instead"
        )
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return (params.get(node.name, node.name),)
    return tuple(f"{node.name}.{i}" for i, part in enumerate(_parts(value)) if isinstance(part, torch.Tensor))


def _tensors(value: Any) -> list[torch.Tensor]:
    """Return the tensors of a node's value: itself, or those of a list."""
    return [part for part in _parts(value) if isinstance(part, torch.Tensor)]


def _parts(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


def _size(value: torch.Tensor) -> int:
    """Return the bytes of a tensor; at least 1, as every tensor of a graph has."""
    if not all(isinstance(length, int) for length in value.shape):
        raise InputError(f"from_export: the shape {tuple(value.shape)} is not fixed; export without dynamic shapes")
    size: int = math.prod(value.shape) * value.element_size()
    return max(1, size)
