"""A plan as a program: an FX graph of the calls in the plan's order, each value freed after its last use.

Every time a plan makes a value, the FX graph has nodes of its own for it, so a value that is made again is another node, and what
FX frees after the last use is what the plan drops.
"""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.fx
from torch.utils._pytree import tree_flatten

from pebbler.errors import InputError, quoted
from pebbler.game.moves import Compute, Copy, Drop, Move
from pebbler.run.torch.capture.call_groups import CallGroup
from pebbler.run.torch.capture.calls import Call, Constant, Place, Scalar, TensorRef
from pebbler.run.torch.capture.operand_trees import map_leaves
from pebbler.run.torch.capture.phases import Phase
from pebbler.run.torch.capture.random_state import restore_generator, save_generator
from pebbler.run.torch.capture.scalars import inputs_of, operator_of
from pebbler.run.torch.capture.views import view_call
from pebbler.run.torch.fuse.inductor import Kernel, KernelInterface, Kernels
from pebbler.run.torch.plan.host_link import HOST, MEMORY
from pebbler.run.torch.plan.launch_fusion import launch_group
from pebbler.run.torch.run.host_copies import Transfers, arrive, begin_load, begin_store, end_store
from pebbler.run.torch.run.program import Program

__all__ = ["ProgramBuilder"]

aten = torch.ops.aten


@functools.cache
def unless(func: Any) -> Any:
    """Return a function that takes a number first, and returns None instead of calling `func` where that is not zero.

    >>> unless(len)(0.0, "abc"), unless(len)(1.0, "abc")
    (3, None)
    """

    def run(number: float, *args: Any, **kwargs: Any) -> Any:
        return None if number else func(*args, **kwargs)

    run.__name__ = f"unless_{getattr(func, '__name__', 'call').replace('.', '_')}"
    return run


class ProgramBuilder:
    """Builds the program of a plan for a phase; fused ops run call by call without `kernels`."""

    def __init__(
        self,
        phase: Phase,
        moves: Sequence[Move],
        device: str,
        kernels: Kernels | None = None,
        launches: Sequence[Sequence[int]] = (),
    ) -> None:
        self.phase, self.record, self.moves, self.device = phase, phase.record, moves, device
        self.kernels = kernels
        self.launches = {launch[0]: tuple(launch) for launch in launches}
        self.modules = torch.nn.Module()
        self.graph = torch.fx.Graph()
        self.roots: dict[int, torch.fx.Node] = {}
        self.views: dict[int, dict[int, torch.fx.Node]] = {}  # storage -> tensor -> node
        self.numbers: dict[str, torch.fx.Node] = {}
        self.states: dict[str, torch.fx.Node] = {}
        self.ran: set[str] = set()
        self.grad = False
        self.unless: torch.fx.Node | None = None  # the number that the current call depends on
        self.conditional: dict[int, torch.fx.Node] = {}  # storage -> the number that it depends on whether it is made
        self.storage_of = {name: s for s, name in phase.storage_names.items()}
        self.copies: dict[int, torch.fx.Node] = {}  # storage -> its copy on the host
        self.storing: dict[int, torch.fx.Node] = {}  # the same, while the store may still be under way
        self.loading: dict[int, torch.fx.Node] = {}  # storage -> the load that nothing has waited for yet

    def build(self) -> Program:
        """Return the program."""
        counts = Counter(move.op for move in self.moves if isinstance(move, Compute))
        copies = any(isinstance(move, Copy) for move in self.moves)
        self.transfers = self.graph.placeholder("transfers") if copies else None
        places = self._placeholders()
        self.constants = [self.graph.placeholder(f"constant_{i}") for i in range(len(self.record.constants))]
        rates = sorted(_rates(self.phase))
        for name in rates:
            self.numbers[name] = self.graph.placeholder(name)
        done: set[int] = set()
        for position, move in enumerate(self.moves):
            if position in self.launches:
                launch = self.launches[position]
                done.update(launch)
                self._launch(launch)
            elif position not in done:
                match move:
                    case Compute(op):
                        self._run(op, again=op in self.ran, repeats=counts[op] > 1)
                    case Drop(tensor, level) if tensor in self.storage_of:
                        self._drop(self.storage_of[tensor], level)
                    case Copy():
                        self._copy(move)
        for storage in [*self.storing, *self.loading]:
            self._end_copies(storage)
        results = [
            self._tensor(leaf.number) if isinstance(leaf, TensorRef) else self._expression(leaf.expression)
            for leaf in tree_flatten(self.record.result)[0]
            if isinstance(leaf, TensorRef | Scalar)
        ]
        binds = list(self.phase.binds)
        self.graph.output([*results, *(self._tensor(self.phase.binds[place]) for place in binds)])
        module = torch.fx.GraphModule(self.modules, self.graph)
        return Program(module, places, rates, binds, self.device, Transfers(self.device) if copies else None)

    def _placeholders(self) -> list[Place]:
        places = []
        for s, storage in enumerate(self.record.storages):
            if storage.place is not None:
                name = "_".join(map(str, storage.place)).replace(".", "_")
                self._set_root(s, self.graph.placeholder(f"in_{name}"))
                places.append(storage.place)
        return places

    # One op -----------------------------------------------------------------------------------------------------------

    def _launch(self, launch: Sequence[int]) -> None:
        group = launch_group(self.phase, self.moves, launch)
        kernel = None if self.kernels is None else self.kernels.known(self.record, group)
        self.ran.update(move.op for move in (self.moves[position] for position in launch) if isinstance(move, Compute))
        self._prepare(group)
        if kernel is not None:
            self._run_kernel(f"launch_{launch[0]}", group, kernel)
        else:
            for call in group.calls:
                self._call(call, again=False)

    def _prepare(self, group: CallGroup) -> None:
        for storage in sorted(group.reads):
            self._end_load(storage)
        for storage in sorted(group.mutates):
            # What is copied must not change meanwhile, and the copy is of the old version.
            self._end_copies(storage)
            self.copies.pop(storage, None)

    def _run(self, op: str, again: bool, repeats: bool) -> None:
        group: CallGroup = self.phase.group(op)
        self.ran.add(op)
        self._prepare(group)
        kernel = None if self.kernels is None else self.kernels.known(self.record, group)
        if kernel is not None:
            self._run_kernel(op, group, kernel)
            return
        current = None
        if group.random and repeats:
            now = self.graph.call_function(save_generator, (self.device,))
            if again:
                current = now
                self.graph.call_function(restore_generator, (self.states[op], self.device))
            else:
                self.states[op] = now
        for call in group.calls:
            self._call(call, again)
        if current is not None:
            self.graph.call_function(restore_generator, (current, self.device))

    def _run_kernel(self, op: str, group: CallGroup, kernel: Kernel) -> None:
        interface = KernelInterface(self.record, group)
        self.modules.add_module(op, kernel)
        inputs = [self.roots[s] for s in interface.reads] + [self.constants[n] for n in interface.constants]
        node = self.graph.call_module(op, tuple(inputs))
        node.meta["changes"] = self._places(s for call in group.calls for s in (*call.mutates, *call.statistics))
        for i, s in enumerate(interface.makes):
            root = self.graph.call_function(operator.getitem, (node, i))
            root.meta["made"] = self.record.root(s)
            self._set_root(s, root)

    def _call(self, call: Call, again: bool) -> None:
        self.unless = None if call.unless is None else self.numbers[call.unless]
        if call.scalar is not None:
            self.numbers[call.scalar] = self._node(call.func, (self._tensor(call.args[0].number),))
            self.unless = None
            return

        def operand(leaf: Any) -> Any:
            if isinstance(leaf, TensorRef):
                node = self._tensor(leaf.number)
                if again and self.record.tensors[leaf.number].storage in call.statistics:
                    # The statistics have been updated by the first run; this one updates a copy.
                    return self.graph.call_function(aten.clone.default, (node,))
                return node
            if isinstance(leaf, Scalar):
                return self._expression(leaf.expression)
            return self.constants[leaf.number] if isinstance(leaf, Constant) else leaf

        args, kwargs = map_leaves(operand, (call.args, call.kwargs))
        if call.grad != self.grad:
            self.grad = call.grad
            self.graph.call_function(torch._C._set_grad_enabled, (self.grad,))
        node = self._node(call.func, args, kwargs)
        node.meta["changes"] = self._places((*call.mutates, *(() if again else call.statistics)))
        for storage, ref, index in self.record.results(call):
            root = node if index is None else self._node(operator.getitem, (node, index))
            root.meta["made"] = self.record.tensors[ref.number]
            self._set_root(storage, root)
            if self.unless is not None:
                self.conditional[storage] = self.unless
        self.unless = None

    def _node(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> torch.fx.Node:
        """Return a node that calls a function, unless the number that the current call depends on is not zero."""
        if self.unless is None:
            return self.graph.call_function(func, args, kwargs or {})
        return self.graph.call_function(unless(func), (self.unless, *args), kwargs or {})

    def _places(self, storages: Iterable[int]) -> list[Place]:
        """Return the place where those storages are found that outlive the step."""
        places = (self.record.storages[s].place for s in storages)
        return [place for place in places if place is not None]

    def _expression(self, expression: Any) -> Any:
        kind, *rest = expression
        if kind == "input":
            return self.numbers[rest[0]]
        if kind == "constant":
            return rest[0]
        return self._node(operator_of(kind), tuple(self._expression(part) for part in rest))

    # Tensors ----------------------------------------------------------------------------------------------------------

    def _set_root(self, storage: int, node: torch.fx.Node) -> None:
        self._end_copies(storage)
        self.roots[storage] = node
        self.views[storage] = {}

    def _tensor(self, number: int) -> torch.fx.Node:
        info = self.record.tensors[number]
        self._end_load(info.storage)
        if info.storage not in self.roots:
            name = self.phase.storage_names[info.storage]
            raise InputError(
                f"the plan leaves {quoted(name)} on the host; what a step returns must be in {MEMORY} at the end"
            )
        root, views = self.roots[info.storage], self.views[info.storage]
        view = view_call(self.record, number)
        if view is None:
            return root
        if number not in views:
            take, parts = view
            condition = self.conditional.get(info.storage)
            views[number] = (
                self.graph.call_function(take, (root, *parts))
                if condition is None
                else self.graph.call_function(unless(take), (condition, root, *parts))
            )
        return views[number]

    def _drop(self, storage: int, level: str) -> None:
        if level == HOST:
            self.copies.pop(storage, None)
            return
        self._end_copies(storage)
        self.roots.pop(storage, None)
        self.views.pop(storage, None)

    # Copies -----------------------------------------------------------------------------------------------------------

    def _copy(self, move: Copy) -> None:
        name, source, target = move.tensor, move.source, move.target
        if {source, target} != {MEMORY, HOST} or name not in self.storage_of:
            raise InputError(
                f"the plan copies {quoted(name)} from {quoted(source)} to {quoted(target)}; that cannot be run"
            )
        storage = self.storage_of[name]
        self._end_copies(storage)
        if target == MEMORY:
            if storage not in self.copies:
                raise InputError(
                    f"the plan starts with {quoted(name)} on the host; the step's own tensors stay where they are"
                )
            self.loading[storage] = self.graph.call_function(begin_load, (self.transfers, self.copies[storage]))
            return
        self.copies[storage] = self.graph.call_function(begin_store, (self.transfers, self.roots[storage]))
        self.storing[storage] = self.copies[storage]

    def _end_load(self, storage: int) -> None:
        """Wait for a load to end before its value is used."""
        if storage in self.loading:
            root = self.graph.call_function(arrive, (self.loading.pop(storage),))
            self.roots[storage], self.views[storage] = root, {}

    def _end_copies(self, storage: int) -> None:
        """Wait for the copies of a storage before its memory changes or goes."""
        self._end_load(storage)
        if storage in self.storing:
            self.graph.call_function(end_store, (self.storing.pop(storage), self.roots[storage]))


def _rates(phase: Phase) -> set[str]:
    """Return the names of the learning rates that some operand follows from."""
    calls = (call for group in phase.groups for call in group.calls)
    leaves = (leaf for call in calls for leaf in call.leaves)
    names = {name for leaf in leaves if isinstance(leaf, Scalar) for name in inputs_of(leaf.expression)}
    return {name for name in names if not name.startswith("item_")}
