"""Rewrites of a recording that make it easier to plan; none changes a bit of any result.

- An optimizer's call on lists of tensors becomes several calls on shorter lists, so that gradients can go early.
- A copy of something that is never used again becomes that thing itself.
- An update in place of something whose old value is kept in a copy becomes an update apart, and the copy goes.
- Calls whose results nobody uses are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch

from pebbler.run.torch.capture.call_groups import scalar_names
from pebbler.run.torch.capture.call_recorder import require_valid
from pebbler.run.torch.capture.calls import Call, Place, Record, TensorRef, unique_refs
from pebbler.run.torch.capture.saved_inputs import update_apart

__all__ = ["rewrite_calls"]

aten = torch.ops.aten


def rewrite_calls(record: Record, binds: Mapping[Place, int], chunks: tuple[int, int]) -> list[Call]:
    """Return the calls of a recording with lists split, copies elided and unused calls left out.

    `binds` are tensors that are used after the step; lists are cut into about four pieces, of a size within `chunks` bytes.
    """
    calls = [piece for call in record.calls for piece in _split(record, call, chunks)]
    calls = _elide_copies(record, calls, record.kept(binds))
    calls = update_apart(record, calls, record.kept(binds))
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
    """Leave out calls that only make what nobody reads; what draws random numbers stays, for the next draw depends on it."""
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
