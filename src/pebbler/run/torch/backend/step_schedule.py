"""A partitioned step as Inductor would schedule it: both graphs are copied, lowered and scheduled, and nothing is compiled.

AOTAutograd tells Inductor a few things between partitioning and compiling, and here they are told the same way: which outputs the
user sees, which saved values backward may write over, and how forward has laid out what it saves. Private in torch for that:
`TracingContext.fw_metadata`, `collect_bw_donated_buffer_idxs`, `count_tangents`, `user_visible_output_idxs` of an output's meta.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch import fx
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from pebbler.run.torch.backend.host_operators import SEND
from pebbler.run.torch.backend.recompute_order import recompute_late
from pebbler.run.torch.backend.scheduled_graph import NotScheduled, ScheduledGraph, WrittenGraph, schedule_graph
from pebbler.run.torch.backend.scheduled_step import ScheduledStep, scheduled_step
from pebbler.run.torch.backend.sent_graphs import kept_order
from pebbler.run.torch.cost.costs import Device

__all__ = ["copied", "schedule_step"]


def schedule_step(
    forward: fx.GraphModule,
    backward: fx.GraphModule,
    outputs: int,
    device: Device,
    late: bool = False,
    static: Sequence[int] = (),
) -> tuple[ScheduledStep, list[WrittenGraph]]:
    """Return the step as it would run, with its programs; `outputs` is how many results forward has besides what it saves.

    `late`: values are computed again as late as backward has them. `static` are the places of inputs that stay where they are.
    """
    from torch._inductor.utils import count_tangents

    first, second = copied(forward), copied(backward)
    results = list(first.graph.output_node().args[0])
    # Backward calls what comes from the host by the name of the value that went there.
    saved = {
        (node.args[0] if node.target is SEND else node).name: i
        for i, node in enumerate(results)
        if i >= outputs and isinstance(node, fx.Node)
    }
    with _told(first, second, outputs, static):
        given = first.graph.find_nodes(op="placeholder")
        with kept_order(first.graph):
            ahead, program = schedule_graph(
                first, device, [node.meta["val"] for node in given], static_input_idxs=list(static)
            )
        values = [_as_laid_out(n, saved, ahead) for n in second.graph.find_nodes(op="placeholder")]
        fixed = list(range(count_tangents(second)))
        with kept_order(second.graph), recompute_late(late):
            back, other = schedule_graph(second, device, values, is_backward=True, static_input_idxs=fixed)
    try:
        batch = {node.name for place, node in enumerate(given) if place not in static}
        return scheduled_step(ahead, back, saved, batch), [program, other]
    except Exception as error:  # an order of buffers that is not understood is no reason to refuse a model
        raise NotScheduled(f"its compiler's schedule is no plan ({type(error).__name__}: {error})") from error


def copied(gm: fx.GraphModule) -> fx.GraphModule:
    """Return a graph that may be changed, with the same constants."""
    graph = fx.Graph()
    results, output = graph.graph_copy(gm.graph, {}, return_output_node=True)
    graph.output(results).meta = copy.copy(output.meta)
    made = fx.GraphModule(gm, graph)
    made.meta.update(gm.meta)
    return made


def _as_laid_out(node: fx.Node, saved: Mapping[str, int], forward: ScheduledGraph) -> Any:
    """Return backward's input at a place, as forward lays it out."""
    value = node.meta["val"]
    stride = forward.strides[saved[node.name]] if node.name in saved else None
    if not isinstance(value, FakeTensor) or stride is None or len(stride) != value.dim():
        return value
    if tuple(value.stride()) == stride or any(not isinstance(n, int) for n in (*value.shape, *value.stride())):
        return value
    node.meta["val"] = value = value.as_strided(value.shape, stride)
    return value


@contextmanager
def _told(forward: fx.GraphModule, backward: fx.GraphModule, outputs: int, static: Sequence[int]) -> Iterator[None]:
    """Tell Inductor for a while what AOTAutograd would tell it."""
    from torch._functorch import config
    from torch._functorch._aot_autograd.graph_compile import collect_bw_donated_buffer_idxs
    from torch._inductor import config as inductor

    results = list(forward.graph.output_node().args[0])
    # What forward returns besides the model's own results, such as inputs that it has changed, nobody sees as a result.
    kinds = [type(desc).__name__ for desc in tree_leaves(forward.graph.output_node().meta.get("desc") or [])]
    own = [len(kinds) != len(results) or kinds[i] == "PlainAOTOutput" for i in range(outputs)]
    for graph, seen in ((forward, own), (backward, [inductor.bw_outputs_user_visible] * len(_results(backward)))):
        graph.graph.output_node().meta["user_visible_output_idxs"] = [
            i for i, (node, is_seen) in enumerate(zip(_results(graph), seen, strict=False))
            if is_seen and isinstance(node, fx.Node)
        ]  # fmt: skip
    context = TracingContext.try_get()
    if context is None:
        yield
        return
    numbers = sum(_is_number(node) for node in results[outputs:])
    told = SimpleNamespace(
        num_forward=outputs,
        tensors_saved_for_backwards_slice=slice(outputs, len(results) - numbers),
        num_symints_saved_for_bw=numbers,
        static_input_indices=list(static),
        num_mutated_inp_runtime_indices=0,
        bw_donated_idxs=None,
    )
    if config.donated_buffer:
        told.bw_donated_idxs = collect_bw_donated_buffer_idxs(forward, backward, told)
    before, strides = context.fw_metadata, context.output_strides
    context.fw_metadata = told
    try:
        yield
    finally:
        context.fw_metadata, context.output_strides = before, strides


def _results(gm: fx.GraphModule) -> list[Any]:
    return list(gm.graph.output_node().args[0])


def _is_number(node: Any) -> bool:
    return isinstance(node, fx.Node) and isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool)
