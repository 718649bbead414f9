"""A partitioned step as Inductor would schedule it, as one plan of the game: scheduled nodes are ops, pieces of memory tensors.

One machine with one level holds everything and frees are drops, so the peak that the referee reports is what the compiled step
will hold. Both graphs are copied, lowered and scheduled, and nothing is compiled. AOTAutograd tells Inductor a few things between
partitioning and compiling, and here they are told the same way: which outputs the user sees, which saved values backward may write
over, and how forward has laid out what it saves. Private in torch for that: `TracingContext.fw_metadata`,
`collect_bw_donated_buffer_idxs`, `count_tangents`, `user_visible_output_idxs` of an output's meta.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import fx
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from pebbler.game.graph import Graph, Op, Tensor
from pebbler.game.machine import Level, Machine
from pebbler.game.moves import Compute, Drop, Move, Moves
from pebbler.game.plan import Plan
from pebbler.referee.judgement import require_legal
from pebbler.run.torch.backend.host_operators import SEND
from pebbler.run.torch.backend.node_costs import is_symbol
from pebbler.run.torch.backend.recompute_order import recompute_late
from pebbler.run.torch.backend.scheduled_graph import (
    Allocation,
    Free,
    KernelCall,
    NotScheduled,
    Reuse,
    ScheduledGraph,
    WrittenGraph,
    schedule_graph,
)
from pebbler.run.torch.backend.sent_graphs import kept_order
from pebbler.run.torch.cost.costs import Device
from pebbler.run.torch.plan.launch_fusion import held_between

__all__ = ["ScheduledStep", "copied", "schedule_step", "scheduled_step"]

_DEVICE = Machine("device", "byte", (Level("memory", 0, 0),), operands="any", prices="ns")


@dataclass(frozen=True)
class ScheduledStep:
    """A step as it will run: the plan, its peak in bytes as the referee counts it, and about how long it takes.

    `above` are the bytes that forward and backward hold above what they begin with, and those that are saved between them.
    """

    plan: Plan
    peak: int
    seconds: float
    above: tuple[int, int, int]


def scheduled_step(
    forward: ScheduledGraph,
    backward: ScheduledGraph,
    saved: Mapping[str, int],
    batch: Collection[str] = (),
    passing: Collection[str] = (),
) -> ScheduledStep:
    """Return the plan of a step; what forward is given stays all the time, and some of it is the `batch`.

    `saved` says for inputs of backward which output of forward they are. Gradients of results stay until backward has ended, since
    autograd keeps them for the hook that says so; those that are `passing` end when they have been read.
    """
    writer = _PlanWriter()
    first = {name: f"arg.{name}" if name in batch else f"given {name}" for name in forward.inputs}
    for name, size in forward.inputs.items():
        writer.give(first[name], size)
    ends = writer.run("forward", forward, first, set())
    given: dict[str, str] = {}
    tangents: dict[str, int] = {}
    for name, size in backward.inputs.items():
        place = ends[saved[name]] if name in saved else None
        if place is None and name in saved:
            continue  # a number
        place = first.get(name) if place is None else place
        if place is None:
            tangents[name] = size
        given[name] = place or f"tangent {name}"
    writer.turn(given, tangents)
    mortal = {memory for name, memory in given.items() if name not in tangents or name in passing}
    return writer.finish(writer.run("backward", backward, given, mortal))


class _PlanWriter:
    """Writes events as tensors, ops and moves; a tensor is one piece of memory, written by whatever is put there."""

    def __init__(self) -> None:
        self.tensors: dict[str, int] = {}
        self.ops: list[Op] = []
        self.moves: list[Move] = []
        self.given: list[str] = []
        self.held: dict[str, set[str]] = {}  # names of buffers by the memory that they are in
        self.seconds = 0.0
        self.known: set[str] = set()  # nodes of forward
        self.turned = 0  # moves before backward begins

    def give(self, name: str, size: int) -> None:
        """Note memory that exists from the start to the end."""
        self.tensors[name] = size
        self.given.append(name)

    def run(self, phase: str, graph: ScheduledGraph, given: Mapping[str, str], mortal: set[str]) -> list[str | None]:
        """Write the events of a graph, and return the memory of its outputs; of its inputs only `mortal` may be freed."""
        place = dict(given)  # of buffers
        for name, memory in given.items():
            self.held.setdefault(memory, set()).add(name)
        fresh: list[str] = []

        def find(buffer: str) -> str | None:
            while buffer not in place and buffer in graph.aliases:
                buffer = graph.aliases[buffer]
            return place.get(buffer)

        ends = {out for out in graph.outputs if out is not None}
        let_go = {event.buffer for event in graph.events if isinstance(event, Free)}
        for event in graph.events:
            if isinstance(event, Allocation):
                memory = f"{phase} {event.buffer}"
                place[event.buffer] = memory
                self.tensors[memory] = event.size
                self.held[memory] = {event.buffer}
                fresh.append(memory)
            elif isinstance(event, Reuse):
                memory = place[event.old]
                place[event.buffer] = memory
                self.held[memory].discard(event.old)
                self.held[memory].add(event.buffer)
            elif isinstance(event, KernelCall):
                for view in event.writes:  # a part of another buffer, which holds its memory until both are let go
                    memory_of = find(view)
                    if view in let_go and view not in place and memory_of is not None:
                        self.held[memory_of].add(view)
                self._call(phase, event, [find(b) for b in event.reads], [find(b) for b in event.writes], fresh)
            elif isinstance(event, Free):
                freed = find(event.buffer)
                names = self.held.get(freed or "")
                if freed is None or names is None or event.buffer in ends:
                    continue
                names.discard(event.buffer)
                if not names and (freed in mortal or freed.startswith(f"{phase} ")) and freed not in self.given:
                    self._drop(freed, fresh)
        return [None if out is None else find(out) for out in graph.outputs]

    def _call(
        self, phase: str, call: KernelCall, reads: Sequence[str | None], writes: Sequence[str | None], fresh: list[str]
    ) -> None:
        self._allocate([memory for memory in fresh if memory not in writes])
        fresh.clear()
        name = f"{phase} {call.name}"
        results = [memory for memory in dict.fromkeys(writes) if memory is not None and memory not in self.given]
        scratch = f"{name} scratch"
        if call.scratch:
            self.tensors[scratch] = call.scratch
            results.append(scratch)
        operands = [memory for memory in dict.fromkeys(reads) if memory is not None]
        if operands or results:
            meta = self._about(phase, call)
            self.ops.append(Op(name, tuple(operands), tuple(results), round(call.seconds * 1e9), meta=meta))
            self.moves.append(Compute(name))
            self.seconds += call.seconds
        if call.scratch:
            self.moves.append(Drop(scratch, "memory"))

    def _about(self, phase: str, call: KernelCall) -> dict[str, Any]:
        """Return a page's facts about a call: a kernel of backward is recomputation if all its nodes ran in forward."""
        if phase == "forward":
            self.known.update(call.nodes)
        again = phase == "backward" and bool(call.nodes) and self.known.issuperset(call.nodes)
        about = {"part": phase, "module": call.module, "calls": list(call.calls)}
        return about | ({"again": True} if again else {}) | ({"sent": call.sent} if call.sent else {})

    def _allocate(self, memories: Sequence[str]) -> None:
        """Take memory that no kernel writes at once."""
        for memory in memories:
            self.ops.append(Op(f"{memory} allocated", (), (memory,)))
            self.moves.append(Compute(f"{memory} allocated"))

    def _drop(self, memory: str, fresh: list[str]) -> None:
        if memory in fresh:
            fresh.remove(memory)
            del self.tensors[memory]
            return
        self.moves.append(Drop(memory, "memory"))
        self.held.pop(memory, None)

    def turn(self, saved: Mapping[str, str], tangents: Mapping[str, int]) -> None:
        """Begin backward: results of forward that are not saved are gone, and gradients of the results come in."""
        kept = set(saved.values())
        for memory in list(self.held):
            if memory.startswith("forward ") and memory not in kept:
                self._drop(memory, [])
            self.held.pop(memory, None)
        for name, size in tangents.items():
            self.tensors[f"tangent {name}"] = size
        self._allocate([f"tangent {name}" for name in tangents])
        self.turned = len(self.moves)

    def finish(self, ends: Sequence[str | None]) -> ScheduledStep:
        """Return the plan, judged."""
        results = {memory for memory in ends if memory is not None}
        written = {memory for op in self.ops for memory in op.writes}
        tensors = [
            Tensor(name, size, "input" if name in self.given else "output" if name in results else "temp")
            for name, size in self.tensors.items()
            if name in self.given or name in written
        ]
        graph = Graph("compiled step", "byte", tensors, self.ops)
        start = dict.fromkeys(self.given, "memory")
        plan = Plan(
            graph, _DEVICE, Moves.of(graph, _DEVICE, self.moves), start=start, steady=False, meta={"cost_unit": "ns"}
        )
        judged = require_legal(plan)
        return ScheduledStep(plan, int(judged.peak["memory"]), self.seconds, self._above(plan))

    def _above(self, plan: Plan) -> tuple[int, int, int]:
        """Return the peaks of forward and backward above their inputs, gradients included, and the bytes saved between them."""
        held = held_between(plan, "memory")
        begins, turned = held[0], held[self.turned]
        tangents = sum(size for memory, size in self.tensors.items() if memory.startswith("tangent "))
        saved = turned - begins - tangents
        return max(held[: self.turned + 1]) - begins, max(held[self.turned :]) - begins - saved, saved


# From graphs of torch's to their schedules ------------------------------------------------------------------------------


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
        return scheduled_step(ahead, back, saved, batch, _passing(second, saved)), [program, other]
    except Exception as error:  # an order of buffers that is not understood is no reason to refuse a model
        raise NotScheduled(f"its compiler's schedule is no plan ({type(error).__name__}: {error})") from error


def _passing(backward: fx.GraphModule, saved: Collection[str]) -> list[str]:
    """Return the gradients that nobody is expected to give, so that autograd fills in zeros: all but that of the one scalar result.

    It hands them over in a list, of which backward may let go; in torch 2.11 it holds them to the end.
    """
    given = {n.name: n.meta.get("val") for n in backward.graph.find_nodes(op="placeholder") if n.name not in saved}
    tangents = {name: x for name, x in given.items() if name.startswith("tangents") and isinstance(x, torch.Tensor)}
    scalars = [name for name, x in tangents.items() if x.dim() == 0]
    if len(scalars) != 1 or not hasattr(torch.autograd.Function, "boxed_grads_call"):
        return []
    return [name for name in tangents if name not in scalars]


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
    numbers = sum(isinstance(node, fx.Node) and is_symbol(node) for node in results[outputs:])
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
