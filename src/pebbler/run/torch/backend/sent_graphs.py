"""Writing copies to the host into the graphs of forward and backward, after torch has made them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import fx
from torch._inductor import config
from torch._subclasses.fake_tensor import FakeTensor, extract_tensor_metadata
from torch.utils._pytree import tree_leaves

from pebbler.run.torch.backend.host_operators import ARRIVED, FETCH, SEND, SENT
from pebbler.run.torch.backend.step_memory import END, SentValue

__all__ = ["kept_order", "send_values"]


def send_values(
    forward: fx.GraphModule,
    backward: fx.GraphModule,
    outputs: int,
    names: Sequence[str],
    sent: Sequence[SentValue],
    pool: int,
) -> int:
    """Have forward send values to the host and backward fetch them; return how many.

    `outputs` is how many results forward has besides what it saves; values that are not saved, or are results too, stay.
    """
    results = list(forward.graph.output_node().args[0])
    others = set(tree_leaves(results[:outputs]))
    saved = {node.name: node for node in results[outputs:] if isinstance(node, fx.Node)}
    given = {node.name: node for node in backward.graph.find_nodes(op="placeholder")}
    count = 0
    for value in sent:
        name = names[value.node]
        node, place = saved.get(name), given.get(name)
        if node is None or place is None or node in others or not place.users:
            continue
        there = _write_send(forward.graph, node, names[value.left] if value.left != END else None, pool)
        results = [there if result is node else result for result in results]
        _write_fetch(backward.graph, place, there.meta["val"], names[value.fetched], pool)
        count += 1
    forward.graph.output_node().update_arg(0, tuple(results))
    for module in (forward, backward):
        module.graph.lint()
        module.recompile()
    return count


def _write_send(graph: fx.Graph, node: fx.Node, left: str | None, pool: int) -> fx.Node:
    """Begin to send a value when it is made; the wait comes before the node of a name, or at the end."""
    with graph.inserting_after(node):
        there = _call(graph, SEND, (node, pool))
    order = {other: i for i, other in enumerate(graph.nodes)}
    anchor = next((other for other in graph.nodes if other.name == left and order[other] > order[there]), None)
    with graph.inserting_before(anchor or graph.output_node()):
        _call(graph, SENT, (there, node, pool))
    return there


def _write_fetch(graph: fx.Graph, place: fx.Node, there: torch.Tensor, fetched: str, pool: int) -> None:
    """Begin to fetch a value before the node of a name, or before its first reader, which waits for it."""
    order = {node: i for i, node in enumerate(graph.nodes)}
    reader = min(place.users, key=lambda user: order[user])
    anchor = next(
        (n for n in graph.nodes if n.name == fetched and n.op != "placeholder" and order[n] < order[reader]), reader
    )
    value = place.meta["val"]
    place.meta["val"], place.meta["tensor_meta"] = there, extract_tensor_metadata(there)
    with graph.inserting_before(anchor):
        back = _call(graph, FETCH, (place, value.dtype, value.device, pool))
    with graph.inserting_before(reader):
        _call(graph, ARRIVED, (back, pool))
    place.replace_all_uses_with(back, delete_user_cb=lambda user: user is not back)


def _call(graph: fx.Graph, target: Any, args: tuple[Any, ...]) -> fx.Node:
    """Return a new node with what torch knows of a traced one."""
    node = graph.call_function(target, args)
    operands = [arg.meta["val"] if isinstance(arg, fx.Node) else arg for arg in args]
    with next(value.fake_mode for value in operands if isinstance(value, FakeTensor)):
        node.meta["val"] = target(*operands)
    if isinstance(node.meta["val"], torch.Tensor):
        node.meta["tensor_meta"] = extract_tensor_metadata(node.meta["val"])
    return node


@contextmanager
def kept_order(graph: fx.Graph) -> Iterator[None]:
    """Keep Inductor from moving kernels to save memory in a graph with copies: it would move waits to where they take time."""
    copies = any(node.target in (SEND, FETCH) for node in graph.nodes)
    if copies:
        _lower_fetch()
    with config.patch({"reorder_for_peak_memory": False} if copies else {}):
        yield


@cache
def _lower_fetch() -> None:
    """Tell Inductor that what is fetched is in new, aligned memory: it trusts nothing that is made from host memory."""
    from torch._inductor.lowering import fallback_handler, register_lowering
    from torch._inductor.virtualized import V

    call = fallback_handler(FETCH, add_to_fallback_set=False)

    @register_lowering(FETCH, type_promotion_kind=None)  # type: ignore[untyped-decorator]
    def fetch(*args: Any) -> Any:
        value = call(*args)
        V.graph.unaligned_buffers.discard(value.get_name())
        return value
