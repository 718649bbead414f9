"""Fusing groups of calls into larger ones, each of which a compiler turns into a few kernels.

A matrix product, a convolution or an attention is a kernel of its own. Between them lie elementwise operators, reductions and
copies. Where such operators make values that only their own neighbours read, one fused op does the work of all of them and
those values never exist. The fused step is a captured step like any other: it is planned, judged and run by the same code.
What it holds at most is what its plan says, because the fused ops are ops of that plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from pebbler.game.ready_list import ReadyList, schedule_by_key
from pebbler.run.torch.capture.call_groups import CallGroup
from pebbler.run.torch.capture.calls import Call, Record, Scalar, unique_refs
from pebbler.run.torch.capture.captured import Captured
from pebbler.run.torch.capture.dead_buffers import reuse_operands_of_fused
from pebbler.run.torch.capture.phases import Phase, assemble
from pebbler.run.torch.fuse.inductor import Kernels

__all__ = ["CapturedWithKernels", "fuse", "inner_bytes", "is_fusable", "kernels_of", "mark_fusable"]

# Reductions, normalizations, losses and copies that Inductor writes kernels for. Elementwise operators carry a tag instead.
_FUSABLE = {
    "_log_softmax", "_log_softmax_backward_data", "_softmax", "_softmax_backward_data", "_to_copy", "_unsafe_view", "amax",
    "amin", "cat", "clone", "copy_", "elu_backward", "embedding", "empty_strided", "fill", "fill_", "full", "gather", "glu",
    "hardtanh_backward", "leaky_relu_backward", "logsumexp", "mean", "mse_loss", "mse_loss_backward", "native_group_norm",
    "native_group_norm_backward", "native_layer_norm", "native_layer_norm_backward", "nll_loss_backward", "nll_loss_forward",
    "ones", "select_backward", "slice_backward", "softplus_backward", "stack", "sum", "tril", "triu", "var_mean", "zero_",
    "zeros",
}  # fmt: skip
_MOST_CALLS = 48  # of one fused op: beyond that kernels only get slower to compile
_NEAR = 2  # other ops between those that join: with more, what they read may be kept for long


@dataclass
class CapturedWithKernels(Captured):
    """A captured step whose fused groups run as compiled kernels."""

    kernels: Kernels = field(repr=False)


def kernels_of(captured: Captured) -> Kernels | None:
    """Return the compiled kernels of a captured step, None where operators run one by one."""
    return captured.kernels if isinstance(captured, CapturedWithKernels) else None


def fuse(captured: Captured, kernels: Kernels | None = None) -> CapturedWithKernels:
    """Return a captured step with neighbouring operators fused; kernels compiled before for a step like it can be used again.

    >>> from pebbler.run.torch.capture.captured import capture
    >>> captured = capture(lambda x: (x.exp() + 1).sqrt() @ x, torch.ones(3, 3))
    >>> [op.name for op in captured.graph.ops]
    ['exp_0', 'add_1', 'sqrt_2', 'mm_3']
    >>> [op.name for op in fuse(captured).graph.ops]
    ['exp_add_sqrt_0', 'mm_1']
    """
    if isinstance(captured, CapturedWithKernels):
        return captured
    phases = [_fuse_phase(phase) for phase in captured.phases]
    return CapturedWithKernels(captured.state, phases, captured.device, captured.guards, kernels or Kernels())


def mark_fusable(captured: Captured) -> CapturedWithKernels:
    """Return a captured step whose ops are as they were, with those marked that may be launched together as one kernel."""
    phases = [
        replace(phase, groups=[replace(g, fused=is_fusable(phase.record, g, phase.device)) for g in phase.groups])
        for phase in captured.phases
    ]
    return CapturedWithKernels(captured.state, phases, captured.device, captured.guards, Kernels())


def inner_bytes(record: Record, group: CallGroup) -> int:
    """Return the peak size of the values inside a fused group when its calls run one by one.

    >>> from pebbler.run.torch.capture.captured import capture
    >>> phase = fuse(capture(lambda x: x.exp().sum(0, keepdim=True) @ x, torch.ones(3, 3))).phases[0]
    >>> inner_bytes(phase.record, phase.groups[0])  # the result of exp
    36
    """
    inner = {s for call in group.calls for s in call.makes} - group.makes
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for i, call in enumerate(group.calls):
        for s in inner & {*call.reads, *call.makes, *call.mutates}:
            first.setdefault(s, i)
            last[s] = i
    held = [sum(record.storages[s].bytes for s in inner if first[s] <= i <= last[s]) for i in range(len(group.calls))]
    return max(held, default=0)


def _fuse_phase(phase: Phase) -> Phase:
    record = replace(phase.record, tensors=list(phase.record.tensors), storages=list(phase.record.storages))
    kept = record.kept(phase.binds)
    groups = _Contraction(record, phase.groups, kept, phase.device).result()
    groups = reuse_operands_of_fused(record, groups, kept)
    return assemble(record, groups, phase.entry, phase.binds, phase.device)


def is_fusable(record: Record, group: CallGroup, device: str) -> bool:
    """Whether every call of a group may be part of a compiled kernel: no random numbers, nothing that changes between steps."""
    return all(_is_plain(record, call, device) for call in group.calls)


def _is_plain(record: Record, call: Call, device: str) -> bool:
    if call.random or call.scalar or call.unless or call.statistics or not hasattr(call.func, "overloadpacket"):
        return False
    if any(isinstance(leaf, Scalar) for leaf in call.leaves):
        return False
    touched = {*call.reads, *call.makes, *call.mutates}
    if any(record.storages[s].device != device for s in touched):
        return False
    if any(record.root(s).dtype.is_complex for s in touched) or _looks_otherwise(record, call):
        return False
    return call.name in _FUSABLE or _is_elementwise(call.func)


def _looks_otherwise(record: Record, call: Call) -> bool:
    """Whether a call takes the memory of a tensor for another dtype, or for negated or conjugated numbers."""
    infos = (record.tensors[number] for number in unique_refs((call.args, call.kwargs, call.outputs)))
    return any(info.dtype != record.root(info.storage).dtype or info.conjugated or info.negated for info in infos)


def _is_elementwise(func: Any) -> bool:
    packet = func.overloadpacket
    return any(torch.Tag.pointwise in getattr(packet, name).tags for name in (func._overloadname, *packet.overloads()))


class _Contraction:
    """Groups merged step by step; `home[i]` is the cluster of group `i`, named after its first member."""

    def __init__(self, record: Record, groups: Sequence[CallGroup], kept: set[int], device: str) -> None:
        self.record, self.groups, self.kept = record, groups, kept
        self.fusable = [is_fusable(record, group, device) for group in groups]
        self.home = list(range(len(groups)))
        self.members = {i: [i] for i in range(len(groups))}
        self.after = _dependencies(groups)
        self.before: list[set[int]] = [set() for _ in groups]
        for i, later in enumerate(self.after):
            for j in later:
                self.before[j].add(i)
        self.users: dict[int, list[int]] = {}
        for i, group in enumerate(groups):
            for s in group.touches:
                self.users.setdefault(s, []).append(i)
        self.rank = list(range(len(groups)))

    def result(self) -> list[CallGroup]:
        """Merge all groups that can be merged, and return them in an order that keeps every dependency."""
        while self._merge_vanishing():
            pass
        return [self._merged(self.members[c]) for c in sorted(self.members, key=lambda c: self.rank[c])]

    def _merge_vanishing(self) -> bool:
        """Merge the maker of a value with all its readers, if the value then disappears."""
        merged = False
        for group in self.groups:
            for s in sorted(group.makes):
                if s not in self.kept and self.record.storages[s].place is None:
                    merged |= self._merge({self.home[u] for u in self.users[s]})
        return merged

    def _merge(self, clusters: set[int]) -> bool:
        members = sorted(i for c in clusters for i in self.members[c])
        if len(clusters) < 2 or not all(self.fusable[i] for i in members):
            return False
        if sum(len(self.groups[i].calls) for i in members) > _MOST_CALLS:
            return False
        if not self._worth_it(members) or not self._is_convex(clusters):
            return False
        first = min(clusters)
        for c in clusters - {first}:
            for i in self.members.pop(c):
                self.home[i] = first
        self.members[first] = members
        self._rank()
        return True

    def _worth_it(self, members: list[int]) -> bool:
        """Whether the bytes that disappear outweigh the bytes now kept for longer."""
        if members[-1] - members[0] + 1 - len(members) <= _NEAR:
            return True
        inside, end = set(members), members[-1]
        made = {s for i in members for s in self.groups[i].makes}
        gone = sum(self._bytes(s) for s in made if s not in self.kept and set(self.users[s]) <= inside)
        read = {s for i in members for s in self.groups[i].reads} - made
        longer = [s for s in read if self.users[s][-1] <= end and self.record.storages[s].place is None]
        return sum(self._bytes(s) for s in longer) <= gone

    def _bytes(self, storage: int) -> int:
        return self.record.storages[storage].bytes

    # The clusters as a graph ------------------------------------------------------------------------------------------

    def _next(self, cluster: int, edges: Sequence[Iterable[int]]) -> set[int]:
        return {self.home[j] for i in self.members[cluster] for j in edges[i]} - {cluster}

    def _is_convex(self, clusters: set[int]) -> bool:
        """Whether no path leads out of the clusters and back in."""
        last = max(self.rank[c] for c in clusters)
        stack = [d for c in clusters for d in self._next(c, self.after) if d not in clusters]
        seen: set[int] = set()
        while stack:
            c = stack.pop()
            if c in clusters:
                return False
            if c not in seen and self.rank[c] < last:
                seen.add(c)
                stack.extend(self._next(c, self.after))
        return True

    def _rank(self) -> None:
        """Number the clusters so that every dependency points upwards, as near to program order as that allows."""
        clusters = sorted(self.members)
        number = {c: i for i, c in enumerate(clusters)}
        waits = [len(self._next(c, self.before)) for c in clusters]
        after = [[number[d] for d in self._next(c, self.after)] for c in clusters]
        order = schedule_by_key(ReadyList(waits, after), key=lambda i: self.members[clusters[i]][-1])
        for rank, i in enumerate(order):
            self.rank[clusters[i]] = rank

    def _merged(self, members: list[int]) -> CallGroup:
        if len(members) == 1:
            return replace(self.groups[members[0]], fused=self.fusable[members[0]])
        inside = set(members)
        merged = CallGroup.of((call for i in members for call in self.groups[i].calls), fused=True)
        merged.makes = {s for s in merged.makes if s in self.kept or not set(self.users[s]) <= inside}
        return merged


def _dependencies(groups: Sequence[CallGroup]) -> list[set[int]]:
    """Return for every group the later ones that must stay after it."""
    after: list[set[int]] = [set() for _ in groups]
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    namer: dict[str, int] = {}
    drawer: int | None = None
    for i, group in enumerate(groups):
        statistics = {s for call in group.calls for s in call.statistics}
        for s in group.reads | group.mutates | statistics:
            if s in writer:
                after[writer[s]].add(i)
        for s in group.makes | group.mutates | statistics:
            for j in readers.pop(s, []):
                after[j].add(i)
            if s in writer:
                after[writer[s]].add(i)
            writer[s] = i
        for s in group.reads:
            readers.setdefault(s, []).append(i)
        for name in group.scalars:
            after[namer[name]].add(i)
        for call in group.calls:
            if call.scalar is not None:
                namer[call.scalar] = i
        if group.random:
            if drawer is not None:
                after[drawer].add(i)
            drawer = i
    for i, later in enumerate(after):
        later.discard(i)
    return after
