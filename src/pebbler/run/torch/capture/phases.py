"""One kind of step as a graph in bytes: calls become ops, storages become tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pebbler.game.graph import Graph
from pebbler.run.torch.capture.call_groups import CallGroup, group_calls
from pebbler.run.torch.capture.call_recorder import require_valid
from pebbler.run.torch.capture.call_rewrites import rewrite_calls
from pebbler.run.torch.capture.call_sites import common_module
from pebbler.run.torch.capture.calls import Call, Constant, Place, Record, shown
from pebbler.run.torch.capture.dead_buffers import reuse_dead_operands
from pebbler.run.torch.capture.random_state import is_state_call

__all__ = ["Phase", "assemble", "build_phase"]

# Bytes of one call of an optimizer on a list: short, gradients can go early; long, its kernels are fast.
_CHUNKS = 32 * 2**20, 128 * 2**20
_CUDA_BLOCK = 512  # the CUDA allocator rounds every request up to this


@dataclass
class Phase:
    """One kind of step: what must exist before it, the calls as groups, and the graph that the planner sees."""

    record: Record
    groups: list[CallGroup]
    graph: Graph
    entry: frozenset[Place]  # optimizer state and gradients that it reads
    binds: dict[Place, int]  # tensors that it leaves behind in a new place
    storage_names: dict[int, str]
    fingerprint: str
    device: str

    def group(self, op: str) -> CallGroup:
        """Return the calls behind an op of the graph."""
        return self.groups[self.graph.op_index(op)]


def build_phase(record: Record, entry: frozenset[Place], read_grads: set[Place], device: str) -> Phase:
    """Return the phase of a recording; of the gradients it leaves only those in `read_grads` are kept."""
    binds = {p: n for p, n in record.binds.items() if p[0] != "grad" or p in read_grads}
    groups = group_calls(_protect_statistics(rewrite_calls(record, binds, _CHUNKS)))
    groups = reuse_dead_operands(record, groups, record.kept(binds))
    return assemble(record, groups, entry, binds, device)


def assemble(
    record: Record, groups: list[CallGroup], entry: frozenset[Place], binds: dict[Place, int], device: str
) -> Phase:
    """Return the phase of these groups, in this order."""
    graph, names = _build_graph(record, groups, record.kept(binds), device)
    text = [record.describe(call) for group in groups for call in group.calls]
    text += [f"{t.name} {t.size} {t.kind}" for t in graph.tensors]
    digest = hashlib.sha256("\n".join(text).encode()).hexdigest()
    return Phase(record, groups, graph, entry, binds, names, digest, device)


def _draws_once(call: Call) -> bool:
    """Whether a call must not run again: it sets a generator, or draws from one whose state is not kept."""
    if is_state_call(call.func):
        return not call.makes
    return call.random and any(isinstance(leaf, Constant) for leaf in (*call.args, *call.kwargs.values()))


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


def _site(group: CallGroup) -> dict[str, str]:
    """Return the origin of a group, as an op's meta: the module that holds all its calls, the first one's line and part."""
    sites = [call.site for call in group.calls if call.site is not None]
    if not sites:
        return {}
    return {"module": common_module(site.module for site in sites), "line": sites[0].line, "part": sites[0].part}


def _build_graph(
    record: Record, groups: Sequence[CallGroup], kept: set[int], device: str
) -> tuple[Graph, dict[int, str]]:
    """Return the graph of the groups, and the name of every storage in it."""
    graph = Graph("step", unit="byte")
    names: dict[int, str] = {}
    returned = record.numbers
    block = _CUDA_BLOCK if device.startswith("cuda") else 1

    def add(storage: int, name: str, kind: Any) -> None:
        known = record.storages[storage]
        size = -(-known.bytes // block) * block if known.device == device else 0
        names[storage] = name
        label = {} if known.place not in record.labels else {"label": record.labels[known.place]}
        graph.tensor(name, size, kind=kind, meta={"type": shown(record.root(storage)), "device": known.device, **label})

    for s, storage in enumerate(record.storages):
        if storage.place is not None:
            add(s, ".".join(map(str, storage.place)), "param")
    token: str | None = None
    checks: list[str] = []  # of values, which must have held before anything that lasts is changed
    for g, group in enumerate(groups):
        call = group.calls[0]
        name = f"{group.name}_{g}"
        for k, s in enumerate(sorted(group.makes)):
            add(s, name if len(group.makes) == 1 else f"{name}.{k}", "output" if s in kept else "temp")
        reads = [names[s] for s in sorted(group.reads)] + sorted(group.scalars)
        writes = [names[s] for s in sorted(group.makes | group.mutates)]
        for number in group.calls:
            if number.scalar is not None:
                graph.tensor(number.scalar, 0, kind="output" if number.scalar in returned else "temp")
                writes.append(number.scalar)
        if group.random:
            # Draws keep their order: each leaves a token for the next. It takes no room, so a draw can be repeated.
            reads += [token] if token is not None else []
            token = f"{name}.drawn"
            graph.tensor(token, 0)
            writes.append(token)
        if checks and any(record.storages[s].place is not None for s in group.mutates):
            reads += [name for name in checks if name not in reads]
        checks += [c.scalar for c in group.calls if c.func is require_valid and c.scalar is not None]
        once = any(_draws_once(c) for c in group.calls)
        meta = {"calls": [c.name for c in group.calls], "where": call.where, **_site(group)}
        graph.op(name, reads=reads, writes=writes, once=once, meta=meta)
    return graph, names
