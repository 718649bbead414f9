"""What Inductor will run: its own lowering, fusion and order of a graph and the memory of its buffers, before any code is made.

Inductor lowers a graph, fuses and orders it, and then walks over the scheduled nodes to write a program: for each it allocates
buffers, lets results take the memory of operands that nobody needs again, and frees what was read for the last time. Here the same
walk is made with Inductor's own objects, so the allocations, reuses and frees are those of the program. For a GPU no kernel is
written; for a CPU kernels are written, since what they keep to themselves depends on it, and none is compiled.

Private in torch, the same in 2.11 and 2.13: `GraphLowering.codegen`, `init_wrapper_code`, `_update_scheduler`; `Scheduler.nodes`,
`free_buffers`, `buffer_names_to_free`, `completed_operations`, `available_buffer_names`; `decide_inplace_update`, `mark_run` and
`last_usage` of its nodes; `Kernel.remove_kernel_local_buffers`; the wrapper's `lines`, its `AllocateLine`, `ReuseLine`, `FreeLine`,
`FreeIfNotReusedLine` and `run_wrapper_ir_passes`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, wraps
from typing import Any

import torch
from torch import fx

from pebbler.errors import PebblerError
from pebbler.run.torch.backend.node_costs import hinted, scratch_bytes
from pebbler.run.torch.cost.costs import Device, operator_flops

__all__ = ["Allocation", "Free", "KernelCall", "NotScheduled", "Reuse", "ScheduledGraph", "schedule_graph"]


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


@dataclass
class ScheduledGraph:
    """The program of one graph: calls with their allocations and frees, in order."""

    inputs: dict[str, int]  # bytes of what the graph is given, by name
    outputs: list[str | None]  # buffers that it returns; None for numbers
    strides: list[tuple[int, ...] | None]  # of what it returns
    events: list[Allocation | Reuse | Free | KernelCall] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)  # buffers in the memory of others


@dataclass(frozen=True)
class _Ran:
    """Stands among the lines of a program where a node runs."""

    node: Any


class _ScheduleMade(BaseException):
    """Carries a scheduled graph out of Inductor; not an `Exception`, so that nobody takes it for a failure."""

    def __init__(self, graph: ScheduledGraph) -> None:
        self.graph = graph


_READ: ContextVar[Callable[[Any], ScheduledGraph] | None] = ContextVar("read", default=None)


@cache
def _listen() -> None:
    """Have Inductor stop where it would write code, in threads that want to see the schedule alone."""
    from torch._inductor.graph import GraphLowering

    write = GraphLowering.codegen

    @wraps(write)
    def stop(self: Any, *args: Any, **more: Any) -> Any:
        read = _READ.get()
        if read is None:
            return write(self, *args, **more)
        raise _ScheduleMade(read(self))

    GraphLowering.codegen = stop


def schedule_graph(gm: fx.GraphModule, device: Device, inputs: Sequence[Any], **told: Any) -> ScheduledGraph:
    """Return the program of a graph that nobody else needs, as Inductor would write it; `told` as for `compile_fx_inner`."""
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx_inner

    _listen()
    token = _READ.set(lambda graph: _ScheduleReader(graph, device).read())
    try:
        with config.patch(fx_graph_cache=False, fx_graph_remote_cache=False):
            compile_fx_inner(gm, list(inputs), **told)
    except _ScheduleMade as done:
        return done.graph
    except Exception as error:  # whatever is not as it was in the versions that are known
        raise NotScheduled(
            f"torch {torch.__version__}: its compiler's schedule cannot be read ({type(error).__name__}: {error}); "
            "known to work: 2.11, 2.13"
        ) from error
    finally:
        _READ.reset(token)
    raise NotScheduled("Inductor compiled a graph without scheduling it")


def _device(node: Any) -> Any:
    return node.get_device()


class _ScheduleReader:
    """Walks over a lowered graph's scheduled nodes as Inductor does when it writes the program."""

    def __init__(self, graph: Any, device: Device) -> None:
        self.graph, self.device = graph, device
        self.made: set[str] = set()  # results of calls that have several

    def read(self) -> ScheduledGraph:
        """Return the program."""
        from torch._inductor.virtualized import V

        graph = self.graph
        graph.init_wrapper_code()
        graph._update_scheduler()
        wrapper, scheduler = graph.wrapper_code, graph.scheduler
        assert V.graph is graph
        found = ScheduledGraph(
            inputs={name: self._input_bytes(name) for name in graph.graph_inputs},
            outputs=[self._output_name(out) for out in graph.graph_outputs],
            strides=[self._stride(out) for out in graph.graph_outputs],
        )
        wrapper.lines.clear()
        if all(device.type == "cpu" for device in map(_device, scheduler.nodes) if device is not None):
            self._write()
        else:
            self._walk()
        wrapper.run_wrapper_ir_passes(graph.is_inference)
        self._translate(wrapper.lines, found)
        return found

    def _write(self) -> None:
        """Have the program written, and note where each node runs: what a C++ kernel keeps to itself follows from its code."""
        lines, scheduler = self.graph.wrapper_code.lines, self.graph.scheduler
        free, enter = scheduler.free_buffers, scheduler.enter_context
        entered: list[Any] = []

        def note() -> None:
            if scheduler.current_node in entered:
                count = entered.index(scheduler.current_node) + 1
                lines.extend(_Ran(node) for node in entered[:count])
                del entered[:count]

        def note_and_free() -> None:
            note()  # a flush comes before the node that was entered last
            free()

        def note_node(node: Any) -> None:
            entered.append(node)
            enter(node)

        scheduler.free_buffers, scheduler.enter_context = note_and_free, note_node
        self.graph.wrapper_code.push_codegened_graph(self.graph)
        try:
            scheduler.codegen()
        finally:
            self.graph.wrapper_code.pop_codegened_graph()
        note()

    def _walk(self) -> None:
        """Allocate and free what every node does, and note where it runs, without writing any kernel."""
        lines, scheduler = self.graph.wrapper_code.lines, self.graph.scheduler
        for node in scheduler.nodes:
            scheduler.current_node = node
            scheduler.buffer_names_to_free.update(node.last_usage)
            self._allocate(node)
            lines.append(_Ran(node))
            scheduler.free_buffers()
            scheduler.available_buffer_names.update(node.get_buffer_names())
            scheduler.completed_operations.update(node.get_operation_names())

    def _allocate(self, node: Any) -> None:
        """Allocate what a node makes, as kernels of Triton do: what nobody else reads stays in the kernel."""
        from torch._inductor.codegen.common import Kernel
        from torch._inductor.virtualized import V

        kernel = Kernel(increase_kernel_count=False)
        parts = list(node.get_nodes())
        with V.set_kernel_handler(kernel):
            for part in parts:
                part.decide_inplace_update()
            if not node.is_extern():
                written = {dep.name for part in parts for dep in part.read_writes.writes}
                kernel.store_buffer_names.update(sorted(written))
                kernel.remove_kernel_local_buffers()
            for part in parts:
                part.mark_run()
        self.graph.removed_buffers |= kernel.removed_buffers
        self.graph.inplaced_to_remove |= kernel.inplaced_to_remove

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
            made.append(KernelCall(node.get_name(), reads, writes, self._seconds(node), self._scratch(node)))
        return made

    def _own(self, buf: Any) -> list[Any]:
        """Return the memory that a call of a library makes by itself: one piece for each of its results."""
        from torch._inductor.ir import MultiOutput, MultiOutputLayout
        from torch._inductor.scheduler import OutputNode

        if not isinstance(buf.node.get_output_spec(), MultiOutputLayout):
            if buf.node.get_inputs_that_alias_output() or buf.node.get_mutation_names():
                return []
            return [Allocation(buf.get_name(), self._bytes(buf.node))]
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
            if isinstance(line, _Ran):
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

    def _seconds(self, node: Any) -> float:
        """Return about how long a node takes, by a roofline of the bytes that it reads and writes and its flops."""
        moved = node.get_read_write_buffers_sizes() / self.device.bandwidth
        origin = node.node.get_origin_node() if node.is_extern() and node.node is not None else None
        if origin is None or origin.op != "call_function":
            return float(max(self.device.launch, moved))
        values = fx.node.map_arg((origin.args, origin.kwargs), lambda n: hinted(n.meta.get("val")))
        out = torch.utils._pytree.tree_map(hinted, origin.meta.get("val"))
        flops = operator_flops(origin.target, list(values[0]), dict(values[1]), out)
        dtypes = [n.meta["val"].dtype for n in origin.all_input_nodes if hasattr(n.meta.get("val"), "dtype")]
        rate, _ = self.device.rate(str(dtypes[0]).removeprefix("torch.") if dtypes else "")
        return float(max(self.device.launch, moved, flops / rate))

    def _scratch(self, node: Any) -> int:
        origin = node.node.get_origin_node() if node.is_extern() and node.node is not None else None
        return 0 if origin is None else scratch_bytes(origin)
