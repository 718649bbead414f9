"""The joint graph of forward and backward as numbers: sizes, aliases, times, what fuses and what may run again."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._functorch import partitioners
from torch.utils._pytree import tree_leaves

from pebbler.run.torch.backend.kernels.step_arrays import CALL, VIEW
from pebbler.run.torch.backend.node_costs import (
    all_bytes,
    call_cost,
    drawing_cost,
    fused_cost,
    is_symbol,
    scratch_bytes,
)
from pebbler.run.torch.backend.node_kinds import node_kind, seeded_operators
from pebbler.run.torch.backend.ordered_copy import COPY_AFTER, SUM_ROWS
from pebbler.run.torch.cost.costs import Device

__all__ = ["JointStep", "runs_alike"]


@dataclass(frozen=True)
class JointStep:
    """Nodes of a joint graph, by number in program order, with the facts that a planner needs. Sizes are bytes.

    A node is `tangent` if it can only run in backward; any other node that backward needs is saved in forward or runs in backward.
    """

    nodes: list[fx.Node]
    inputs: list[list[int]]
    users: list[list[int]]
    size: list[int]
    tensor: list[bool]  # whether it can be saved: tuples cannot, their elements can
    view: list[bool]  # no memory of its own
    kind: list[int]  # how Inductor computes it (`node_kinds`)
    cost: list[float]  # of running it again, in seconds or joules; next to nothing where it is fused into what reads it
    drawing: list[float]  # what of it is for random numbers, whatever kernel draws them
    byte_cost: float  # of reading or writing a byte
    launch_cost: float  # of a kernel
    given: list[bool]
    required: list[bool]  # forward's outputs need it
    tangent: list[bool]
    fixed: list[bool]  # must not run again: random, collective, with effects, unknown, or told so
    again: list[bool]  # must run again: the user's own checkpointing says so
    forward_outputs: list[int]
    backward_outputs: list[int]

    @classmethod
    def read(
        cls, graph: fx.Graph, info: Any, forward_outputs: int, device: Device, objective: str = "time"
    ) -> JointStep:
        """Return the facts about a joint graph that torch has classified; `objective` is time or energy."""
        kinds = partitioners.get_default_op_list()
        nodes = [node for node in graph.nodes if node.op != "output"]
        number = {node: i for i, node in enumerate(nodes)}
        output = next(iter(reversed(graph.nodes)))
        out = tree_leaves(output.args[0])
        changed = _changed_inputs(nodes, output)
        ends = [
            [number[n] for n in part if isinstance(n, fx.Node)]
            for part in (out[:forward_outputs], out[forward_outputs:])
        ]
        # Gradients of results are given to backward, whether it reads them or not.
        closure = {*getattr(info, "tangents_closure", info.required_bw_nodes), *filter(_is_tangent, nodes)}
        kind = [node_kind(node) for node in nodes]
        view = [k == VIEW for k in kind]
        users = [[number[user] for user in node.users if user in number] for node in nodes]
        byte_cost, launch_cost = device.unit_costs(objective)
        drawing = [drawing_cost(node, device, objective) for node in nodes]
        return cls(
            nodes=nodes,
            inputs=[[number[source] for source in node.all_input_nodes] for node in nodes],
            users=users,
            size=[0 if v else _bytes(node) + scratch_bytes(node) for node, v in zip(nodes, view, strict=True)],
            tensor=[isinstance(node.meta.get("val"), torch.Tensor) or is_symbol(node) for node in nodes],
            view=view,
            kind=kind,
            cost=[
                call_cost(node, device, objective)
                if kind[i] == CALL
                else 0.0
                if view[i]
                else drawing[i] + fused_cost(node, byte_cost, any(kind[user] == CALL for user in users[i]))
                for i, node in enumerate(nodes)
            ],
            drawing=drawing,
            byte_cost=byte_cost,
            launch_cost=launch_cost,
            given=[node.op in ("placeholder", "get_attr") for node in nodes],
            required=[info.is_required_fw(node) for node in nodes],
            tangent=[node in closure for node in nodes],
            # What was read from an input before forward changed it cannot be read again.
            fixed=[
                node not in closure
                and (_is_fixed(node, kinds) or any(source in changed for source in node.all_input_nodes))
                for node in nodes
            ],
            again=[bool(partitioners.must_recompute(node)) for node in nodes],
            forward_outputs=ends[0],
            backward_outputs=ends[1],
        )


def _is_tangent(node: fx.Node) -> bool:
    return bool(node.op == "placeholder" and "tangents" in str(node.target))  # as AOTAutograd calls them


def _changed_inputs(nodes: Sequence[fx.Node], output: fx.Node) -> set[fx.Node]:
    """Return the inputs that forward changes in place, such as running means, with their views."""
    told = [getattr(desc, "mutated_input", None) for desc in tree_leaves(output.meta.get("desc") or [])]
    changed = {n for n in nodes if n.op == "placeholder" and n.meta.get("desc") is not None and n.meta["desc"] in told}
    for node in nodes:
        mutable = isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
        if mutable and node.args and isinstance(node.args[0], fx.Node):
            changed.add(node.args[0])
    kinds = partitioners.get_default_op_list()
    for node in nodes:
        if kinds.is_view(node) and any(source in changed for source in node.all_input_nodes):
            changed.add(node)
    return changed


def _is_fixed(node: fx.Node, kinds: Any) -> bool:
    """Return whether a node of forward must never run again."""
    if node.op != "call_function":
        return bool(node.op != "get_attr")  # constants are in both graphs
    if node.target is operator.getitem or is_symbol(node):
        return False
    if partitioners.must_recompute(node):
        return False  # torch makes its random numbers repeat
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return True  # a higher-order operator: nobody knows what is in it
    if str(node.meta.get("recompute")).endswith("MUST_SAVE"):
        return True
    if target in seeded_operators() or target in (COPY_AFTER, SUM_ROWS):
        return False
    seeded = (torch.Tag.nondeterministic_seeded in target.tags or kinds.is_random(node)) and not _draws_nothing(node)
    return bool(seeded or target.namespace not in ("aten", "prims") or target._schema.is_mutable)


def runs_alike(graph: fx.Graph) -> bool:
    """Return whether a joint graph does the same whenever it runs: no random numbers, no changed inputs, no unknown operators."""
    nodes = [node for node in graph.nodes if node.op != "output"]
    kinds = partitioners.get_default_op_list()
    if _changed_inputs(nodes, graph.output_node()):
        return False
    calls = [node for node in nodes if node.op == "call_function"]
    return not any(node.target in seeded_operators() or _is_fixed(node, kinds) for node in calls)


def _draws_nothing(node: fx.Node) -> bool:
    """Return whether an operator that could drop values, such as attention, is told to drop none."""
    target: Any = node.target
    for place, argument in enumerate(target._schema.arguments):
        if argument.name == "dropout_p":
            told = (
                node.args[place] if place < len(node.args) else node.kwargs.get(argument.name, argument.default_value)
            )
            return bool(told == 0.0)
    return False


def _bytes(node: fx.Node) -> int:
    """Return the bytes of a tensor; tuples have none, their elements do."""
    value = node.meta.get("val")
    return all_bytes([value]) if isinstance(value, torch.Tensor) else 0
