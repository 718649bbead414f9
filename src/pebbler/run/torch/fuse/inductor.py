"""Fused ops as kernels: each is compiled as a separate graph by Inductor, the compiler of `torch.compile`.

The plan has already decided what is kept, made again and sent away, and in which order; the compiler decides how the
operators inside one op become kernels. So kernels are fused and the plan's promise about memory holds: what a kernel holds
besides its results is measured, like the scratch memory of any other op. Ops of the same kind share one kernel.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

from pebbler.errors import PebblerError
from pebbler.run.torch.capture.call_groups import CallGroup
from pebbler.run.torch.capture.calls import Constant, Record, TensorInfo, TensorRef
from pebbler.run.torch.capture.operand_trees import leaves_of, map_leaves

__all__ = ["Kernel", "KernelInterface", "Kernels", "NoCompiler"]

aten = torch.ops.aten


class NoCompiler(PebblerError):
    """Inductor cannot make kernels on this machine."""


class Kernel(torch.nn.Module):  # type: ignore[misc]
    """A compiled op: takes the storages that it reads, and constants; returns the storages that it makes."""

    def __init__(self, run: Callable[..., Any], reads: int) -> None:
        super().__init__()
        self.run, self.reads = run, reads

    def forward(self, *inputs: torch.Tensor) -> Any:
        """Run the kernel; tensors that it changes in place are among the inputs."""
        return self.run(*inputs)


class Kernels:
    """The kernels of a step, compiled when they are first asked for; None for calls that are better run one by one."""

    def __init__(self) -> None:
        self._known: dict[str, Kernel | None] = {}

    def kernel(self, record: Record, group: CallGroup, sample: Callable[[int], torch.Tensor]) -> Kernel | None:
        """Return the kernel of a fused group, compiled for operands like those that `sample` returns for its storages."""
        if not group.fused:
            return None
        interface = KernelInterface(record, group)
        if interface.signature not in self._known:
            self._known[interface.signature] = _compiled(record, group, interface, sample)
        return self._known[interface.signature]

    def refuse(self, record: Record, group: CallGroup) -> None:
        """Run such a group call by call from now on."""
        self._known[KernelInterface(record, group).signature] = None

    def known(self, record: Record, group: CallGroup) -> Kernel | None:
        """Return the kernel of a group that was compiled before."""
        return self._known.get(KernelInterface(record, group).signature) if group.fused else None


class KernelInterface:
    """The signature of a kernel: `reads` and `makes` are storages in order of appearance, `constants` numbers of constants.

    `reads` is all that must be there before, what is only written included.
    """

    def __init__(self, record: Record, group: CallGroup) -> None:
        order: dict[int, int] = {}
        constants: dict[int, int] = {}
        parts = []
        for call in group.calls:
            parts.append(str(call.func))
            for leaf in leaves_of((call.args, call.kwargs, call.outputs)):
                if isinstance(leaf, TensorRef):
                    info = record.tensors[leaf.number]
                    number = order.setdefault(info.storage, len(order))
                    parts.append(f"{info.dtype}{info.shape}{info.stride}+{info.offset}@{number}")
                elif isinstance(leaf, Constant):
                    parts.append(f"constant {constants.setdefault(leaf.number, len(constants))}")
                else:
                    parts.append(repr(leaf))
        inside = {s for call in group.calls for s in call.makes}
        self.reads = [s for s in order if s not in inside]
        self.makes = [s for s in order if s in group.makes]
        self.constants = list(constants)
        for s in (*self.reads, *self.makes):
            info = record.root(s)
            parts.append(f"{order[s]}: {info.dtype}{info.shape}{info.stride}+{info.offset}")
        self.signature = " ".join(parts)


def _compiled(
    record: Record, group: CallGroup, interface: KernelInterface, sample: Callable[[int], torch.Tensor]
) -> Kernel | None:
    module = build_module(record, group, interface)
    inputs = [sample(s) for s in interface.reads] + [record.constants[n] for n in interface.constants]
    with torch.no_grad():
        run = _compile(module, inputs)
        # What Inductor returns must look as the recording says, or later views of it would be wrong, and be memory of its own.
        results = run(*inputs)
    held = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    for s, result in zip(interface.makes, results, strict=True):
        info = record.root(s)
        if (tuple(result.shape), result.stride(), result.dtype) != (info.shape, info.stride, info.dtype):
            return None
        memory = result.untyped_storage().data_ptr()
        if memory in held and result.numel():
            return None
        held.add(memory)
    return Kernel(run, len(interface.reads))


def _compile(module: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler imports parts of torch that torch itself calls deprecated
        from torch._inductor import compile as inductor_compile
        from torch._inductor import config

        with config.patch(keep_output_stride=True):
            try:
                run: Callable[..., Any] = inductor_compile(module, list(inputs))
            except Exception as error:
                if "compiler" in str(error).lower():
                    reason = str(error).splitlines()[0]
                    raise NoCompiler(f"compiled kernels need a working compiler: {reason}") from error
                raise
    return run


def build_module(record: Record, group: CallGroup, interface: KernelInterface) -> torch.fx.GraphModule:
    """Return the calls of a group as a separate graph, from storages to storages."""
    graph = torch.fx.Graph()
    roots = {s: graph.placeholder(f"in_{i}") for i, s in enumerate(interface.reads)}
    constants = {n: graph.placeholder(f"constant_{n}") for n in interface.constants}
    views: dict[int, torch.fx.Node] = {}

    def tensor(number: int) -> torch.fx.Node:
        info = record.tensors[number]
        if number not in views:
            views[number] = view(graph, roots[info.storage], record.root(info.storage), info)
        return views[number]

    def operand(leaf: Any) -> Any:
        if isinstance(leaf, TensorRef):
            return tensor(leaf.number)
        return constants[leaf.number] if isinstance(leaf, Constant) else leaf

    for call in group.calls:
        args, kwargs = map_leaves(operand, (call.args, call.kwargs))
        node = graph.call_function(call.func, args, kwargs)
        for storage, _, index in record.results(call):
            roots[storage] = node if index is None else graph.call_function(operator.getitem, (node, index))
    graph.output(tuple(roots[s] for s in interface.makes))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def view(graph: torch.fx.Graph, root: torch.fx.Node, root_info: TensorInfo, info: TensorInfo) -> torch.fx.Node:
    """Return a node for another view of a storage, in view operators that a compiler sees through where there are any."""
    if info.layout == root_info.layout:
        return root
    dense, order = _permuted(root_info), _permuted(info)
    size = math.prod(root_info.shape)
    if dense is not None and order is not None and root_info.offset == info.offset and math.prod(_stored(info)) == size:
        flat = root
        if dense != sorted(dense):
            flat = graph.call_function(aten.permute.default, (root, dense))
        shape = [_stored(info)[d] for d in order]
        node = graph.call_function(aten.view.default, (flat, shape))
        if order != sorted(order):
            back = [order.index(d) for d in range(len(order))]
            node = graph.call_function(aten.permute.default, (node, back))
        if _stored(info) != list(info.shape):
            node = graph.call_function(aten.expand.default, (node, list(info.shape)))
        return node
    return graph.call_function(aten.as_strided.default, (root, list(info.shape), list(info.stride), info.offset))


def _stored(info: TensorInfo) -> list[int]:
    """Return the shape with expanded dimensions as one."""
    return [n if step else 1 for n, step in zip(info.shape, info.stride, strict=True)]


def _permuted(info: TensorInfo) -> list[int] | None:
    """Return the order of dimensions in which a tensor lies row after row without gaps, None if there is none."""
    shape = _stored(info)
    order = sorted(range(len(shape)), key=lambda d: (-info.stride[d] if shape[d] > 1 else 0, d))
    # Dimensions of one element may stand anywhere; leave them where they are as far as possible.
    wide = [d for d in order if shape[d] > 1]
    slots = iter(wide)
    order = [next(slots) if shape[d] > 1 else d for d in range(len(shape))]
    step = 1
    for d in reversed(order):
        if shape[d] > 1 and info.stride[d] != step:
            return None
        step *= shape[d]
    return order
