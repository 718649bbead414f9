"""Capturing a training step as a graph in bytes.

A step is recorded at least twice: what it does may depend on what an earlier step left behind (the first step of an optimizer
makes its state), and two recordings with different learning rates show which operands follow from it. Each kind of step is a
`Phase` with a graph of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from pebbler.errors import InputError
from pebbler.game.graph import Graph
from pebbler.run.torch.aliases import Group, group_calls, rewrite
from pebbler.run.torch.inductor import Kernels
from pebbler.run.torch.record import Call, Place, Record, Scalar, shown, unique_refs
from pebbler.run.torch.scalars import Scalars
from pebbler.run.torch.takeover import take_over
from pebbler.run.torch.tracing import World

__all__ = ["Captured", "Phase", "assemble", "capture"]

# Bytes of one call of an optimizer on a list: short, gradients can go early; long, its kernels are fast.
_CHUNKS = 32 * 2**20, 128 * 2**20
_MOST_PHASES = 4
_CUDA_BLOCK = 512  # the CUDA allocator rounds every request up to this


@dataclass
class Phase:
    """One kind of step: what must exist before it, the calls as groups, and the graph that the planner sees."""

    record: Record
    groups: list[Group]
    graph: Graph
    entry: frozenset[Place]  # optimizer state and gradients that it reads
    binds: dict[Place, int]  # tensors that it leaves behind in a new place
    storage_names: dict[int, str]
    fingerprint: str
    device: str

    def group(self, op: str) -> Group:
        """Return the calls behind an op of the graph."""
        return self.groups[self.graph.op_index(op)]


@dataclass
class Captured:
    """A captured step: its phases, the last of which is the one that repeats.

    >>> weight = torch.ones(3, requires_grad=True)
    >>> def step(x):
    ...     loss = (weight * x).sum()
    ...     loss.backward()
    ...     with torch.no_grad():
    ...         weight.sub_(weight.grad)
    ...     weight.grad = None
    ...     return loss
    >>> captured = capture(step, torch.ones(3))
    >>> [op.name for op in captured.graph.ops][-1], captured.graph.unit, weight.tolist()
    ('sub__4', 'byte', [1.0, 1.0, 1.0])
    """

    world: World = field(repr=False)
    phases: list[Phase] = field(repr=False)
    device: str
    kernels: Kernels | None = field(default=None, repr=False)  # of fused ops, where neighbouring operators were fused

    @property
    def graph(self) -> Graph:
        """The graph of the step that repeats."""
        return self.phases[-1].graph

    @property
    def fingerprint(self) -> str:
        """What two captures of the same step with the same shapes share."""
        return "-".join(phase.fingerprint[:16] for phase in self.phases)


def capture(step: Callable[..., Any], *args: Any, device: str | None = None) -> Captured:
    """Record a training step on fake tensors and return it as graphs in bytes; nothing is computed or changed.

    `step(*args)` is an ordinary function: forward, loss, backward, optimizer step. Memory is counted on `device`, by default where
    the tensors are. Raises `InputError` for what no plan can promise to repeat: branches on values, shapes that depend on values.

    >>> model = torch.nn.Linear(4, 2)
    >>> rate = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> def step(x):
    ...     rate.zero_grad()
    ...     loss = model(x).square().mean()
    ...     loss.backward()
    ...     rate.step()
    ...     return loss
    >>> len(capture(step, torch.ones(8, 4)).phases)
    1
    """
    world = World(step, args)
    try:
        recordings = _record_until_it_repeats(world)
    finally:
        world.restore()
    device = device or _main_device([record for record, _, _ in recordings])
    settled = _settle(recordings)
    read_grads = {place for _, entry in settled for place in entry if place[0] == "grad"}
    phases = [_phase(record, entry, read_grads, device) for record, entry in settled]
    return Captured(world, phases, device)


Recording = tuple[Record, Scalars, frozenset[Place]]


def _record_until_it_repeats(world: World) -> list[Recording]:
    recordings: list[Recording] = []
    for seed in range(_MOST_PHASES + 1):
        record, scalars = world.record(seed)
        recordings.append((record, scalars, _entry(record)))
        if seed and recordings[-2][2] == recordings[-1][2]:
            return recordings
    raise InputError(
        f"the step still makes new state after {_MOST_PHASES} steps; only state of a fixed number can be planned"
    )


def _entry(record: Record) -> frozenset[Place]:
    places = [storage.place for storage in record.storages if storage.place is not None]
    return frozenset(place for place in places if place[0] in ("state", "grad"))


def _settle(recordings: list[Recording]) -> list[tuple[Record, frozenset[Place]]]:
    """Return one recording per phase, with the numbers that change from step to step found by comparing two."""
    *first, (before, scalars_a, entry), (after, scalars_b, _) = recordings
    settled: list[tuple[Record, frozenset[Place]]] = []
    for record, scalars, places in first:
        # Only one recording exists of a phase that happens once; every operand that some expression has as its value is one.
        settled.append((_match(record, scalars, None, None), places))
    settled.append((_match(before, scalars_a, after, scalars_b), entry))
    return settled


def _match(record: Record, scalars: Scalars, other: Record | None, others: Scalars | None) -> Record:
    calls: list[Call] = []
    if other is not None and [str(c.func) for c in other.calls] != [str(c.func) for c in record.calls]:
        raise InputError("the step runs other operators each time; a plan needs the same ones")
    for i, call in enumerate(record.calls):
        leaves, spec = tree_flatten((call.args, call.kwargs))
        twins = leaves if other is None else tree_flatten((other.calls[i].args, other.calls[i].kwargs))[0]
        if len(twins) != len(leaves):
            raise InputError(f"{call.where}: {call.func} gets other operands each time")
        changed = False
        for k, (leaf, twin) in enumerate(zip(leaves, twins, strict=True)):
            if not isinstance(leaf, float):
                if isinstance(leaf, int | str | bool | torch.dtype) and leaf != twin:
                    raise InputError(
                        f"{call.where}: {call.func} gets {leaf} and then {twin}; a plan needs the same operands"
                    )
                continue
            expression = scalars.expressions.get(leaf)
            if leaf == twin and other is not None:
                continue
            if other is None and (expression is None or leaf in (0.0, 1.0)):
                continue
            if expression is None or (others is not None and others.expressions.get(twin) != expression):
                raise InputError(
                    f"{call.where}: {call.func} gets a number that changes from step to step ({leaf}, then {twin}), and how it "
                    "follows from the learning rate is not known; keep the learning rate in a tensor"
                )
            leaves[k] = Scalar(expression)
            changed = True
        args, kwargs = tree_unflatten(leaves, spec)
        calls.append(replace(call, args=args, kwargs=kwargs) if changed else call)
    return replace(record, calls=calls)


def _main_device(records: Sequence[Record]) -> str:
    """Return the device where most of the memory is."""
    total: dict[str, int] = {}
    for record in records:
        for storage in record.storages:
            total[storage.device] = total.get(storage.device, 0) + storage.bytes
    return max(total, key=lambda name: (total[name], name)) if total else "cpu"


def _phase(record: Record, entry: frozenset[Place], read_grads: set[Place], device: str) -> Phase:
    binds = {p: n for p, n in record.binds.items() if p[0] != "grad" or p in read_grads}
    calls = rewrite(record, [*binds.values(), *unique_refs(record.result)], _CHUNKS)
    groups = group_calls(record, _protect_statistics(calls))
    numbers = (*binds.values(), *unique_refs(record.result))
    groups = take_over(record, groups, {record.tensors[n].storage for n in numbers})
    return assemble(record, groups, entry, binds, device)


def assemble(
    record: Record, groups: list[Group], entry: frozenset[Place], binds: dict[Place, int], device: str
) -> Phase:
    """Return the phase of these groups, in this order."""
    kept = {record.tensors[n].storage for n in (*binds.values(), *unique_refs(record.result))}
    graph, names = build_graph(record, groups, kept, device)
    text = [record.describe(call) for group in groups for call in group.calls]
    text += [f"{t.name} {t.size} {t.kind}" for t in graph.tensors]
    digest = hashlib.sha256("\n".join(text).encode()).hexdigest()
    return Phase(record, groups, graph, entry, binds, names, digest, device)


def _protect_statistics(calls: list[Call]) -> list[Call]:
    """Make the update of running statistics a plain change in place where something else uses them too."""
    users: dict[int, int] = {}
    for call in calls:
        for s in call.reads:
            users[s] = users.get(s, 0) + 1
    return [
        replace(call, mutates=(*call.mutates, *call.statistics), statistics=())
        if any(users[s] > 1 for s in call.statistics)
        else call
        for call in calls
    ]


def build_graph(record: Record, groups: Sequence[Group], kept: set[int], device: str) -> tuple[Graph, dict[int, str]]:
    """Return the graph of the groups, and the name of every storage in it."""
    graph = Graph("step", unit="byte")
    names: dict[int, str] = {}
    block = _CUDA_BLOCK if device.startswith("cuda") else 1

    def add(storage: int, name: str, kind: Any) -> None:
        known = record.storages[storage]
        size = -(-known.bytes // block) * block if known.device == device else 0
        names[storage] = name
        info = record.tensors[known.root]
        graph.tensor(name, size, kind=kind, meta={"type": shown(info), "device": known.device})

    for s, storage in enumerate(record.storages):
        if storage.place is not None:
            add(s, ".".join(map(str, storage.place)), "param")
    token: str | None = None
    for g, group in enumerate(groups):
        call = group.calls[0]
        name = f"{group.name}_{g}"
        for k, s in enumerate(sorted(group.makes)):
            add(s, name if len(group.makes) == 1 else f"{name}.{k}", "output" if s in kept else "temp")
        reads = [names[s] for s in sorted(group.reads)] + sorted(group.needs)
        writes = [names[s] for s in sorted(group.makes | group.mutates)]
        for number in group.calls:
            if number.scalar is not None:
                graph.tensor(number.scalar, 0)
                writes.append(number.scalar)
        if group.random:
            # Draws keep their order: each leaves a token for the next. It takes no room, so a draw can be repeated.
            reads += [token] if token is not None else []
            token = f"{name}.drawn"
            graph.tensor(token, 0)
            writes.append(token)
        once = any(c.random and c.kwargs.get("generator") is not None for c in group.calls)
        meta = {"calls": [c.name for c in group.calls], "where": call.where}
        graph.op(name, reads=reads, writes=writes, once=once, meta=meta)
    return graph, names
