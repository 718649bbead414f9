"""Rewrites of a recording that make it easier to plan; none changes a bit of any result.

- An optimizer's call on lists of tensors becomes several calls on shorter lists, so that gradients can go early.
- A copy of something that is never used again becomes that thing itself.
- An update in place of something whose old value is kept in a copy becomes an update apart, and the copy goes.
- Calls whose results nobody uses are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch

from pebbler.run.torch.capture.call_groups import scalar_names
from pebbler.run.torch.capture.call_recorder import require_valid
from pebbler.run.torch.capture.calls import Call, Place, Record, Scalar, Storage, TensorRef, reference, unique_refs
from pebbler.run.torch.capture.operand_trees import map_leaves

__all__ = ["rewrite_calls"]

aten = torch.ops.aten


def rewrite_calls(record: Record, binds: Mapping[Place, int], chunks: tuple[int, int]) -> list[Call]:
    """Return the calls of a recording with lists split, copies elided and unused calls left out.

    `binds` are tensors that are used after the step; lists are cut into about four pieces, of a size within `chunks` bytes.
    """
    calls = [piece for call in record.calls for piece in _split(record, call, chunks)]
    calls = _elide_copies(record, calls, record.kept(binds))
    calls = _update_apart(record, calls, record.kept(binds))
    return _drop_unused(record, calls, record.kept(binds))  # copies that are elided may have changed what is kept


def _split(record: Record, call: Call, chunks: tuple[int, int]) -> list[Call]:
    """Return a call on lists of tensors as calls on shorter lists."""
    if (
        not call.name.startswith(("_foreach_", "_fused_"))
        or not call.args
        or not isinstance(call.args[0], list | tuple)
    ):
        return [call]
    count = len(call.args[0])
    sizes = [
        max(record.storages[record.tensors[ref.number].storage].bytes for ref in refs)
        for refs in zip(*(a for a in call.args if _is_list(a, count) and isinstance(a[0], TensorRef)), strict=True)
    ]
    chunk = min(max(sum(sizes) // 4, chunks[0]), chunks[1])
    bounds, held = [0], 0
    for i, size in enumerate(sizes):
        if held and held + size > chunk:
            bounds.append(i)
            held = 0
        held += size
    bounds.append(count)
    if len(bounds) == 2:
        return [call]
    return [_piece(record, call, count, low, high) for low, high in pairwise(bounds)]


def _is_list(value: Any, count: int) -> bool:
    return isinstance(value, list | tuple) and len(value) == count > 0


def _piece(record: Record, call: Call, count: int, low: int, high: int) -> Call:
    def cut(value: Any) -> Any:
        return list(value[low:high]) if _is_list(value, count) else value

    args, kwargs = tuple(map(cut, call.args)), {key: cut(value) for key, value in call.kwargs.items()}
    outputs = cut(call.outputs)

    reads = record.storages_of(unique_refs((args, kwargs)))
    mine = {*reads, *record.storages_of(unique_refs(outputs))}
    return replace(
        call, args=args, kwargs=kwargs, outputs=outputs, reads=tuple(reads),
        makes=tuple(s for s in call.makes if s in mine), mutates=tuple(s for s in call.mutates if s in mine),
    )  # fmt: skip


def _elide_copies(record: Record, calls: list[Call], kept: set[int]) -> list[Call]:
    """Replace `b = empty(); b.copy_(a)` by `a` where `a` is never used again; autograd makes such copies of gradients."""
    last_use: dict[int, int] = {}
    for i, call in enumerate(calls):
        for s in (*call.reads, *call.mutates):
            last_use[s] = i
    empties = {call.makes[0]: i for i, call in enumerate(calls) if call.func is aten.empty_strided.default}
    same: dict[int, int] = {}
    gone: set[int] = set()
    uses: dict[int, list[int]] = {}
    for i, call in enumerate(calls):
        for s in call.reads:
            uses.setdefault(s, []).append(i)
    for i, call in enumerate(calls):
        if call.unless is not None:
            continue
        if call.func is not aten.copy_.default or len(call.args) < 2 or not isinstance(call.args[1], TensorRef):
            continue
        target, source = (record.tensors[ref.number] for ref in call.args[:2])
        a, b = source.storage, target.storage
        if b not in empties or uses[b][0] != i or last_use[a] != i or a in kept or record.storages[a].maker is None:
            continue
        alike = (source.layout, source.dtype) == (target.layout, target.dtype)
        if not alike or record.storages[a].bytes != record.storages[b].bytes:
            continue
        same[b] = same.get(a, a)
        gone |= {i, empties[b]}
    if not same:
        return calls
    # Every tensor of the copy now is a view of the original.
    for n, info in enumerate(record.tensors):
        if info.storage in same:
            record.tensors[n] = replace(info, storage=same[info.storage])

    def renamed(storages: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(same.get(s, s) for s in storages))

    return [
        replace(call, reads=renamed(call.reads), makes=renamed(call.makes), mutates=renamed(call.mutates))
        for i, call in enumerate(calls)
        if i not in gone
    ]


def _drop_unused(record: Record, calls: list[Call], kept: set[int]) -> list[Call]:
    """Remove calls whose results are never read; calls that draw random numbers stay, since later draws depend on them."""
    wanted = {s for s, storage in enumerate(record.storages) if storage.place is not None} | set(kept)
    names = record.numbers
    needed = []
    for call in reversed(calls):
        useful = bool({*call.makes, *call.mutates, *call.statistics} & wanted) or call.random or call.scalar in names
        useful |= call.func is require_valid
        if useful:
            wanted |= set(call.reads)
            names |= scalar_names(call)
            needed.append(call)
    return needed[::-1]


# Updates in place of something whose old value is kept in a copy ----------------------------------------------------------
# `b = a.clone(); a.silu_()` is how autograd records an activation in place: it needs the old value for the gradient. As
# `a2 = silu(a)`, with `a` in place of `b`, it holds as much, copies nothing, and each value can be dropped and made again.


def _update_apart(record: Record, calls: list[Call], kept: set[int]) -> list[Call]:
    """Return the calls with every update of a value that has a copy replaced; the record gets the new storages."""
    pairs = _find_pairs(record, calls, kept)
    if not pairs:
        return calls
    renaming = _Renaming(record)
    updates = dict(pairs.values())
    rewritten = []
    for i, call in enumerate(calls):
        if i in pairs:
            renaming.take_for(call.makes[0], call.reads[0])
        elif i in updates:
            rewritten.append(renaming.updated(call, updates[i]))
        else:
            rewritten.append(renaming.renamed(call))
    return rewritten


def _find_pairs(record: Record, calls: list[Call], kept: set[int]) -> dict[int, tuple[int, Any]]:
    """Return, by position of a copy, the update that it is kept for, and the out-of-place form of the update's operator."""
    writers: dict[int, list[int]] = {}
    last_read: dict[int, int] = {}
    for i, call in enumerate(calls):
        for s in (*call.mutates, *call.statistics):
            writers.setdefault(s, []).append(i)
        for s in call.reads:
            last_read[s] = i
    pairs: dict[int, tuple[int, Any]] = {}
    taken: set[int] = set()
    for i, call in enumerate(calls):
        if call.func is not aten.clone.default or not isinstance(call.args[0], TensorRef) or call.unless is not None:
            continue
        (copy,), source = call.makes, record.tensors[call.args[0].number].storage
        update = next((j for j in writers.get(source, []) if j > i), None)
        if update is None or update in taken or copy in writers or {copy, source} & kept:
            continue
        if record.storages[source].maker is None or last_read.get(copy, -1) <= update:
            continue
        functional = _functional(record, calls[update], source)
        if functional is not None and _is_whole(record, call.args[0]) and _alike(record, call.args[0], call.outputs):
            pairs[i] = (update, functional)
            taken.add(update)
    return pairs


def _is_whole(record: Record, ref: TensorRef) -> bool:
    """Return whether a tensor is all of its storage, in the order in which it was made."""
    info = record.tensors[ref.number]
    storage = record.storages[info.storage]
    elements = int(torch.Size(info.shape).numel())
    return info.layout == record.tensors[storage.root].layout and elements * info.dtype.itemsize == storage.bytes


def _alike(record: Record, a: TensorRef, b: TensorRef) -> bool:
    first, second = record.tensors[a.number], record.tensors[b.number]
    return (first.layout, first.dtype) == (second.layout, second.dtype)


def _functional(record: Record, call: Call, source: int) -> Any:
    """Return the operator that makes a new tensor where this call changes its first operand, or None."""
    if call.mutates != (source,) or call.makes or call.statistics or call.random or call.unless is not None:
        return None
    if (
        getattr(call.func, "namespace", "") != "aten"
        or not call.name.endswith("_")
        or torch.Tag.pointwise not in call.func.tags
    ):
        return None
    target = call.args[0] if call.args else None
    if (
        not isinstance(target, TensorRef)
        or not _is_whole(record, target)
        or any(isinstance(x, Scalar) for x in call.leaves)
    ):
        return None
    packet = getattr(aten, call.name.removesuffix("_"), None)
    functional = getattr(packet, call.func._overloadname, None)
    return functional if functional is not None and _makes_alike(record, call, functional) else None


def _makes_alike(record: Record, call: Call, functional: Any) -> bool:
    """Return whether an operator makes a tensor laid out and typed as its first operand is."""

    def without_memory(leaf: Any) -> Any:
        if not isinstance(leaf, TensorRef):
            return leaf
        info = record.tensors[leaf.number]
        return torch.empty_strided(info.shape, info.stride, dtype=info.dtype, device="meta")

    info = record.tensors[call.args[0].number]
    args, kwargs = map_leaves(without_memory, (call.args, call.kwargs))
    try:
        made = functional(*args, **kwargs)
    except (RuntimeError, TypeError, NotImplementedError):
        return False
    return (tuple(made.shape), made.stride(), made.dtype) == (info.shape, info.stride, info.dtype)


class _Renaming:
    """Storages that stand for others from here on, and the tensors on them."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self._now: dict[int, int] = {}
        self._numbers: dict[tuple[int, int], int] = {}

    def take_for(self, copy: int, source: int) -> None:
        """Replace a copy by its source."""
        self._now[copy] = self._now.get(source, source)

    def updated(self, call: Call, functional: Any) -> Call:
        """Return a call that makes its first operand's new value apart; from here on that is meant."""
        (storage,) = call.mutates
        before = self.renamed(call)
        old, new = self.record.storages[before.mutates[0]], len(self.record.storages)
        self.record.storages.append(Storage(old.bytes, old.device, len(self.record.tensors), old.maker))
        self.record.tensors.append(replace(self.record.tensors[old.root], storage=new))
        self._now[storage] = new
        made = reference(self.record.storages[new].root)
        return replace(before, func=functional, outputs=made, makes=(new,), mutates=())

    def renamed(self, call: Call) -> Call:
        """Return a call on what stands for its operands now."""
        if not any(s in self._now for s in (*call.reads, *call.mutates, *call.statistics)):
            return call
        args, kwargs, outputs = map_leaves(self._refer, (call.args, call.kwargs, call.outputs))
        return replace(
            call, args=args, kwargs=kwargs, outputs=outputs, reads=self._storages(call.reads),
            mutates=self._storages(call.mutates), statistics=self._storages(call.statistics),
        )  # fmt: skip

    def _storages(self, storages: Iterable[int]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(self._now.get(s, s) for s in storages))

    def _refer(self, leaf: Any) -> Any:
        if not isinstance(leaf, TensorRef):
            return leaf
        info = self.record.tensors[leaf.number]
        now = self._now.get(info.storage)
        if now is None:
            return leaf
        if (leaf.number, now) not in self._numbers:
            self._numbers[leaf.number, now] = len(self.record.tensors)
            self.record.tensors.append(replace(info, storage=now))
        return reference(self._numbers[leaf.number, now])
