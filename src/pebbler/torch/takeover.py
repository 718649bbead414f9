"""Results that take over the memory of an operand that nothing needs any more.

Autograd and people write `c = f(a, b)` where `a` is dead afterwards. An elementwise kernel may write its result over such an
operand, with the same bits, and one buffer less is needed. An op that does so cannot be run again, so only ops of the backward
pass and the loss right before it do: their results are used at once, and nothing is won by making them twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from pebbler.torch.aliases import Group
from pebbler.torch.record import Call, Record, TensorRef

__all__ = ["take_over"]

aten = torch.ops.aten
# Elementwise, or row by row with every element read before it is written; with the operands that may be written over.
_TAKERS: dict[Any, tuple[Any, tuple[int, ...]]] = {
    aten.add.Tensor: (aten.add.out, (0, 1)),
    aten.sub.Tensor: (aten.sub.out, (0, 1)),
    aten.mul.Tensor: (aten.mul.out, (0, 1)),
    aten.div.Tensor: (aten.div.out, (0, 1)),
    aten.gelu_backward.default: (aten.gelu_backward.grad_input, (0, 1)),
    aten.threshold_backward.default: (aten.threshold_backward.grad_input, (0,)),
    aten.tanh_backward.default: (aten.tanh_backward.grad_input, (0, 1)),
    aten.sigmoid_backward.default: (aten.sigmoid_backward.grad_input, (0, 1)),
    aten.silu_backward.default: (aten.silu_backward.grad_input, (0, 1)),
    aten._log_softmax.default: (aten._log_softmax.out, (0,)),
    aten._log_softmax_backward_data.default: (aten._log_softmax_backward_data.out, (0,)),
    aten._softmax_backward_data.default: (aten._softmax_backward_data.out, (0,)),
}
_BEFORE = 4  # groups before the backward pass that count as its beginning: the loss


def take_over(record: Record, groups: Sequence[Group], kept: set[int]) -> list[Group]:
    """Return the groups with results written over dead operands where that is safe; tensors of the record move with them."""
    first = next((i for i, group in enumerate(groups) if group.calls[0].backward), len(groups)) - _BEFORE
    last: dict[int, int] = {}
    for i, group in enumerate(groups):
        for s in group.reads | group.makes | group.mutates:
            last[s] = i
    same: dict[int, int] = {}
    result = []
    for i, group in enumerate(groups):
        group = _renamed(group, same)
        operand = _dead_operand(record, group, last, i, kept) if i >= first else None
        if operand is not None:
            (call,), (made,) = group.calls, group.makes
            over = record.tensors[operand.number].storage
            last[over] = last[made]
            if made in kept:
                kept.add(over)
            same[made] = over
            for n, info in enumerate(record.tensors):
                if info.storage == made:
                    record.tensors[n] = replace(info, storage=over)
            func = _TAKERS[call.func][0]
            (name,) = [a.name for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
            written = replace(call, func=func, kwargs={**call.kwargs, name: operand}, makes=(), mutates=(over,))
            group = Group([])
            group.take(written)
        result.append(group)
    return result


def _dead_operand(record: Record, group: Group, last: dict[int, int], at: int, kept: set[int]) -> TensorRef | None:
    call = group.calls[0]
    if len(group.calls) != 1 or call.func not in _TAKERS or len(call.makes) != 1:
        return None
    out = record.tensors[call.outputs.number]
    for position in _TAKERS[call.func][1]:
        operand = call.args[position] if position < len(call.args) else None
        if not isinstance(operand, TensorRef):
            continue
        info = record.tensors[operand.number]
        storage = record.storages[info.storage]
        alike = (info.shape, info.stride, info.offset, info.dtype) == (out.shape, out.stride, out.offset, out.dtype)
        root = record.tensors[storage.root]
        whole = (root.shape, root.stride, root.offset) == (info.shape, info.stride, info.offset)
        shared = sum(_storage(record, arg) == info.storage for arg in call.args) > 1
        if (
            alike
            and whole
            and not shared
            and storage.maker is not None
            and last[info.storage] == at
            and info.storage not in kept
        ):
            return operand
    return None


def _storage(record: Record, leaf: Any) -> int:
    return record.tensors[leaf.number].storage if isinstance(leaf, TensorRef) else -1


def _renamed(group: Group, same: dict[int, int]) -> Group:
    def final(s: int) -> int:
        while s in same:
            s = same[s]
        return s

    def rename(call: Call) -> Call:
        reads, mutates = tuple(map(final, call.reads)), tuple(map(final, call.mutates))
        return replace(call, reads=reads, mutates=mutates)

    if not same or not (group.reads | group.mutates) & set(same):
        return group
    return Group(
        list(map(rename, group.calls)),
        set(map(final, group.reads)),
        group.makes,
        set(map(final, group.mutates)),
        group.needs,
    )
