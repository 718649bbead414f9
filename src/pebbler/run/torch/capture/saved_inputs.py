"""Updates in place of something whose old value is kept in a copy, rewritten as an update that is not in place.

`b = a.clone(); a.silu_()` is how autograd records an activation in place: it needs the old value for the gradient. As
`a2 = silu(a)`, with `a` in place of `b`, it holds as much, copies nothing, and each value can be dropped and made again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch

from pebbler.run.torch.capture.calls import Call, Record, Scalar, Storage, TensorRef, reference
from pebbler.run.torch.capture.operand_trees import map_leaves

__all__ = ["update_apart"]

aten = torch.ops.aten


def update_apart(record: Record, calls: list[Call], kept: set[int]) -> list[Call]:
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
    """Return for the position of a copy that of the update which it is kept for, with the operator that updates apart."""
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
        """Let what is its source now stand for a copy."""
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
