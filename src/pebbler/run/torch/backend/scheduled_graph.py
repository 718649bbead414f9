"""Inductor's own schedule of a graph (lowering, fusion, order and buffer memory), before it is compiled.

Inductor lowers a graph, fuses and orders it, and then walks over the scheduled nodes to write a program: for each it allocates
buffers, lets results take the memory of operands that nobody needs again, and frees what was read for the last time. Here it does
so and stops before anything is compiled, so the allocations, reuses and frees are those of the program. A program that is taken is
not lowered and written again: where Inductor is given the same graph later, it goes on with what it has.

Private in torch, the same in 2.11 and 2.13: `GraphLowering.run`, `codegen`, `_update_scheduler`; `Scheduler.free_buffers`,
`enter_context`, `current_node`; the wrapper's `lines`, its `AllocateLine`, `ReuseLine`, `FreeLine`, `FreeIfNotReusedLine` and
`run_wrapper_ir_passes`.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, wraps
from typing import Any

import torch
from torch import fx

from pebbler.errors import PebblerError
from pebbler.run.torch.backend.graph_frontier import nodes_key
from pebbler.run.torch.backend.host_operators import ARRIVED, FETCH, SEND, SENT
from pebbler.run.torch.backend.node_costs import all_bytes, call_cost, drawing_flops, hinted, scratch_bytes
from pebbler.run.torch.cost.costs import Device

__all__ = [
    "Allocation",
    "Free",
    "KernelCall",
    "NotScheduled",
    "Reuse",
    "ScheduledGraph",
    "WrittenGraph",
    "schedule_graph",
    "written_before",
]

_LOG = logging.getLogger(__name__)


class NotScheduled(PebblerError):
    """A graph whose program cannot be read off Inductor."""


@dataclass(frozen=True)
class Allocation:
    """Memory for a buffer, `size` bytes."""

    buffer: str
    size: int


@dataclass(frozen=True)
class Reuse:
    """A buffer that takes the memory of another one, which is not read any more."""

    old: str
    buffer: str


@dataclass(frozen=True)
class Free:
    """A buffer that is let go."""

    buffer: str


@dataclass(frozen=True)
class KernelCall:
    """A scheduled node: one kernel, or one call of a library."""

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    seconds: float
    scratch: int = 0  # bytes that it holds while it runs, besides operands and results
    nodes: tuple[str, ...] = ()  # of the graph that it computes, in their order
    calls: tuple[str, ...] = ()  # their operators
    module: str = ""  # of the model, that they come from
    sent: int = 0  # bytes that it sends to the host


@dataclass
class ScheduledGraph:
    """The program of one graph: calls with their allocations and frees, in order."""

    inputs: dict[str, int]  # bytes of what the graph is given, by name
    outputs: list[str | None]  # buffers that it returns; None for numbers
    strides: list[tuple[int, ...] | None]  # of what it returns
    events: list[Allocation | Reuse | Free | KernelCall] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)  # buffers in the memory of others


@dataclass(frozen=True)
class WrittenGraph:
    """A graph that Inductor has lowered and written, for reuse instead of a second lowering; `key` identifies its source."""

    key: str
    lowered: Any
    code: Any


class _ScheduleMade(BaseException):
    """Carries a scheduled graph out of Inductor; not an `Exception`, so that nobody takes it for a failure."""

    def __init__(self, graph: ScheduledGraph, written: WrittenGraph) -> None:
        self.graph, self.written = graph, written


# The device of a graph whose schedule alone is wanted, and what was written before, in the thread that compiles for us.
_DEVICE: ContextVar[Device | None] = ContextVar("device", default=None)
_WRITTEN: ContextVar[Sequence[WrittenGraph]] = ContextVar("written", default=())


@cache
def _listen() -> None:
    """Have Inductor take what it has written before, and stop after writing in threads that want to see the schedule alone."""
    from torch._inductor.graph import GraphLowering

    run, write = GraphLowering.run, GraphLowering.codegen

    @wraps(run)
    def run_or_take(self: Any, *args: Any) -> Any:
        if _DEVICE.get() is not None:
            self.__dict__["_pebbler_key"] = _lowering_key(self, args)
        elif _WRITTEN.get():
            key = _lowering_key(self, args)
            for written in _WRITTEN.get():
                if written.key == key:
                    self.__dict__ = written.lowered.__dict__ | {"_pebbler_code": written.code}
                    return None
            _LOG.info("compiling: a graph is not as it was planned, and is lowered again")
        return run(self, *args)

    @wraps(write)
    def write_or_stop(self: Any) -> Any:
        device = _DEVICE.get()
        if device is None:
            return self.__dict__.pop("_pebbler_code", None) or write(self)
        reader = _ScheduleReader(self, device)
        code = reader.write(write)
        raise _ScheduleMade(reader.read(), WrittenGraph(self.__dict__.pop("_pebbler_key"), self, code))

    GraphLowering.run, GraphLowering.codegen = run_or_take, write_or_stop


def _lowering_key(graph: Any, inputs: Sequence[Any]) -> str:
    """Return a key of all that a graph's lowering depends on and that may differ between planning and compiling."""
    from torch._inductor import config
    from torch._inductor.utils import get_donated_idxs

    nodes = graph.module.graph
    strides = [str(list(x.stride())) if isinstance(x, torch.Tensor) else str(x) for x in inputs]
    visible = nodes.output_node().meta.get("user_visible_output_idxs")
    donated = sorted(get_donated_idxs() or ()) if graph.is_backward else []
    checked = list(getattr(graph, "inputs_to_check", None) or ())
    said = (strides, visible, donated, checked, graph.is_backward, graph.is_inference, config.graph_partition)
    return hashlib.sha256(repr((nodes_key(nodes), *said)).encode()).hexdigest()


@contextmanager
def written_before(written: Sequence[WrittenGraph]) -> Iterator[None]:
    """Have Inductor take graphs that it has written before, where it is given the same."""
    token = _WRITTEN.set(written)
    try:
        yield
    finally:
        _WRITTEN.reset(token)


def schedule_graph(
    gm: fx.GraphModule, device: Device, inputs: Sequence[Any], **told: Any
) -> tuple[ScheduledGraph, WrittenGraph]:
    """Return the program of a graph that nobody else needs, as Inductor writes it; `told` as for `compile_fx_inner`."""
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx_inner

    _listen()
    token = _DEVICE.set(device)
    try:
        with config.patch(fx_graph_cache=False, fx_graph_remote_cache=False, graph_partition=False):
            compile_fx_inner(gm, list(inputs), **told)
    except _ScheduleMade as done:
        return done.graph, done.written
    except Exception as error:  # whatever is not as it was in the versions that are known
        raise NotScheduled(
            f"torch {torch.__version__}: its compiler's schedule cannot be read ({type(error).__name__}: {error}); "
            "known to work: 2.11, 2.13"
        ) from error
    finally:
        _DEVICE.reset(token)
    raise NotScheduled("Inductor compiled a graph without scheduling it")


@cache
def _mark() -> Any:
    """Return the class of what stands among the lines of a program where a node runs; it writes nothing."""
    from torch._inductor.codegen.wrapper import WrapperLine

    class Ran(WrapperLine):  # type: ignore[misc]
        def __init__(self, node: Any) -> None:
            self.node = node

        def codegen(self, code: Any) -> None:
            pass

    return Ran


class _ScheduleReader:
    """Looks on while Inductor writes a lowered graph's program."""

    def __init__(self, graph: Any, device: Device) -> None:
        self.graph, self.device = graph, device
        self.made: set[str] = set()  # results of calls that have several
        self.lines: list[Any] = []  # of the program, when memory is planned
        self.order = {node: i for i, node in enumerate(graph.module.graph.nodes)}

    def write(self, write: Callable[[Any], Any]) -> Any:
        """Have the program written, and note where each node runs: values that a kernel keeps to itself follow from its code."""
        graph, ran = self.graph, _mark()
        update = graph._update_scheduler

        def update_and_look() -> None:
            update()
            scheduler, wrapper = graph.scheduler, graph.wrapper_code
            free, enter, plan = scheduler.free_buffers, scheduler.enter_context, wrapper.run_wrapper_ir_passes
            entered: list[Any] = []

            def note() -> None:
                if scheduler.current_node in entered:
                    count = entered.index(scheduler.current_node) + 1
                    graph.wrapper_code.lines.extend(ran(node) for node in entered[:count])
                    del entered[:count]

            def note_and_free() -> None:
                note()  # a flush comes before the node that was entered last
                free()

            def note_node(node: Any) -> None:
                entered.append(node)
                enter(node)

            def note_and_plan(*told: Any) -> None:
                note()
                plan(*told)
                self.lines = list(wrapper.lines)

            scheduler.free_buffers, scheduler.enter_context = note_and_free, note_node
            wrapper.run_wrapper_ir_passes = note_and_plan

        graph._update_scheduler = update_and_look
        try:
            return write(graph)
        finally:
            del graph._update_scheduler

    def read(self) -> ScheduledGraph:
        """Return the program that was written."""
        graph = self.graph
        found = ScheduledGraph(
            inputs={name: self._input_bytes(name) for name in graph.graph_inputs},
            outputs=[self._output_name(out) for out in graph.graph_outputs],
            strides=[self._stride(out) for out in graph.graph_outputs],
        )
        self._translate(self.lines, found)
        return found

    def _ran(self, node: Any) -> list[Any]:
        """Return a node as a call, with the memory that it makes by itself."""
        from torch._inductor.ir import MultiOutput, NoneLayout
        from torch._inductor.scheduler import NopKernelSchedulerNode

        removed = self.graph.removed_buffers
        if isinstance(node, NopKernelSchedulerNode):
            return []
        made: list[Any] = []
        for buf in node.get_outputs():
            given = buf.node.should_allocate() or isinstance(buf.node.get_output_spec(), NoneLayout)
            if not given and not isinstance(buf.node, MultiOutput) and buf.get_name() not in removed:
                made += self._own(buf)
        if not isinstance(node.node, MultiOutput):
            own = {buf.get_name(): None for buf in node.get_outputs()}
            # A fused kernel may read its own results, in other loops than those that write them.
            reads = tuple(
                dict.fromkeys(
                    dep.name
                    for dep in node.read_writes.reads
                    if dep.name not in own and not getattr(dep, "is_fake", False)
                )
            )
            writes = tuple(name for name in own if name not in removed)
            seconds, scratch = self._cost(node)
            made.append(KernelCall(node.get_name(), reads, writes, seconds, scratch, *self._origin(node)))
        return made

    def _own(self, buf: Any) -> list[Any]:
        """Return the memory that a call of a library makes by itself: one piece for each of its results."""
        from torch._inductor.ir import MultiOutput, MultiOutputLayout
        from torch._inductor.scheduler import OutputNode

        if not isinstance(buf.node.get_output_spec(), MultiOutputLayout):
            if buf.node.get_inputs_that_alias_output() or buf.node.get_mutation_names():
                return []
            sent = any(origin.target is SEND for origin in buf.node.origins)  # what it makes is the host's
            return [Allocation(buf.get_name(), 0 if sent else self._bytes(buf.node))]
        found = []
        for user in buf.users:
            if isinstance(user.node, OutputNode):
                continue
            for child in user.node.get_outputs():
                if isinstance(child.node, MultiOutput) and child.get_name() not in self.made:
                    self.made.add(child.get_name())
                    found += self._own(child)
        return found

    def _translate(self, lines: Sequence[Any], found: ScheduledGraph) -> None:
        from torch._inductor.codegen import wrapper as w

        for line in lines:
            if isinstance(line, _mark()):
                found.events += self._ran(line.node)
            elif isinstance(line, w.AllocateLine):
                found.events.append(Allocation(line.node.get_name(), self._bytes(line.node)))
            elif isinstance(line, w.ReuseLine):
                found.events.append(Reuse(line.node.get_name(), line.reused_as.get_name()))
            elif isinstance(line, w.ReinterpretLine):
                found.aliases[line.reused_as.get_name()] = line.node.get_name()
            elif isinstance(line, w.FreeIfNotReusedLine):
                if not line.is_reused:
                    found.events.append(Free(line.node.get_name()))
            elif isinstance(line, w.FreeLine):
                found.events.append(Free(line.node.get_name()))
        for name, buf in self.graph.scheduler.name_to_buf.items():
            for source in (*buf.node.get_inputs_that_alias_output(), *buf.node.get_mutation_names()):
                found.aliases.setdefault(name, source)

    def _bytes(self, node: Any) -> int:
        count = self.graph.get_allocation_storage_size(node)
        return self._hint(count) * int(node.get_dtype().itemsize)

    def _hint(self, expression: Any) -> int:
        sizes = self.graph.sizevars
        ask = getattr(sizes, "optimization_hint", None) or sizes.size_hint
        return int(ask(expression, fallback=0))

    def _input_bytes(self, name: str) -> int:
        given = self.graph.graph_inputs[name]
        if not hasattr(given, "get_dtype"):
            return 0
        try:
            numel = self._hint(given.get_numel())
        except (AttributeError, NotImplementedError):
            return 0
        return numel * int(given.get_dtype().itemsize)

    def _output_name(self, out: Any) -> str | None:
        try:
            return str(out.get_name())
        except (AttributeError, NotImplementedError):
            return None

    def _stride(self, out: Any) -> tuple[int, ...] | None:
        try:
            return tuple(self._hint(n) for n in out.get_layout().stride)
        except (AttributeError, NotImplementedError):
            return None

    def _cost(self, node: Any) -> tuple[float, int]:
        """Return about how many seconds a node takes, and the bytes that it holds while it runs."""
        moved = node.get_read_write_buffers_sizes()
        origin = node.node.get_origin_node() if node.is_extern() and node.node is not None else None
        if any(one.target in (SEND, SENT, FETCH, ARRIVED) for one in getattr(node.node, "origins", ())):
            return 0.0, 0  # what waiting for copies takes depends on all of them
        if origin is None or origin.op != "call_function":
            drawn = sum(map(drawing_flops, {n for one in node.get_nodes() for n in getattr(one.node, "origins", ())}))
            return self.device.kernel(moved, [("float32", drawn)])[0], 0
        strides = self._operand_strides(node, origin)
        return call_cost(origin, self.device, "time", moved, strides), scratch_bytes(origin, strides)

    def _origin(self, node: Any) -> tuple[tuple[str, ...], tuple[str, ...], str, int]:
        """Return the nodes of the graph that a scheduled node computes, their operators and module, and bytes that are sent."""
        found = {origin for one in node.get_nodes() for origin in one.node.origins if origin.op == "call_function"}
        nodes = sorted(found, key=self.order.__getitem__)
        modules = [module for module in map(_module_of, nodes) if module]
        sent = sum(all_bytes([n.args[0].meta.get("val")]) for n in nodes if n.target is SEND)
        calls = tuple(dict.fromkeys(map(_operator_name, nodes)))
        return tuple(n.name for n in nodes), calls, modules[-1] if modules else "", sent

    def _operand_strides(self, node: Any, origin: fx.Node) -> dict[fx.Node, tuple[int, ...]]:
        """Return the strides of a call's operands; Inductor may have chosen another layout than the graph's."""
        sources = [source for source in origin.all_input_nodes if isinstance(source.meta.get("val"), torch.Tensor)]
        inputs = [x for x in getattr(node.node, "inputs", []) if hasattr(x, "get_size")]
        if len(sources) != len(inputs):
            return {}
        found = {}
        for source, given in zip(sources, inputs, strict=True):
            stride = self._stride(given)
            sizes = [self._hint(n) for n in given.get_size()]
            if stride is not None and sizes == list(hinted(source.meta["val"]).shape):
                found[source] = stride
        return found


# Names that people know a graph's nodes by ---------------------------------------------------------------------------------


def _module_of(node: fx.Node) -> str:
    """Return the path of the innermost module that a node comes from; of a node of backward, that of its forward node."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    entries = [entry for entry in stack.values() if isinstance(entry, tuple) and len(entry) == 2]
    kinds = {_plain(str(path)): getattr(kind, "__name__", str(kind).rpartition(".")[2]) for path, kind in entries}
    path = next(reversed(kinds), "")
    first = path.partition(".")[0]
    return f"{kinds[first]} {path}" if first.isdigit() and first in kinds else path


def _plain(path: str) -> str:
    """Return a module's path as people write it.

    >>> _plain("L['self'].h.3"), _plain("L['self']._modules['0']"), _plain("L['model'].blocks[2].fc")
    ('h.3', '0', 'blocks.2.fc')
    """
    names = path.replace("_modules", "").replace("[", ".").translate({ord(c): None for c in "]'\""}).split(".")
    return ".".join(name for name in names[2:] if name and name != "_orig_mod") if names[0] in ("L", "G") else path


def _operator_name(node: fx.Node) -> str:
    """Return the operator that a node calls, such as `mm`."""
    target: Any = node.target
    return str(target._schema.name.partition("::")[2]) if isinstance(target, torch._ops.OpOverload) else node.name
