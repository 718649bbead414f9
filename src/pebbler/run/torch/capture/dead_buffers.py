"""Reuse of dead buffers: a result is written into the memory of an operand that nothing needs any more.

In `c = f(a, b)` the operand `a` is often dead afterwards. An elementwise kernel may write its result over such an operand, with the
same bits, and one buffer less is needed. An op that does so cannot run again, so only ops of the backward pass and the loss
right before it do: their results are used at once, and nothing would be gained by computing them twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from pebbler.run.torch.capture.call_groups import CallGroup, last_uses
from pebbler.run.torch.capture.calls import Call, Record, TensorInfo, TensorRef
from pebbler.run.torch.capture.operand_trees import map_leaves

__all__ = ["reuse_dead_operands", "reuse_operands_of_fused"]

aten = torch.ops.aten
# Elementwise, or row by row with every element read before it is written; with the operands that may be written over.
_IN_PLACE: dict[Any, tuple[Any, tuple[int, ...]]] = {
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
_LEAST_BYTES = 4096  # of a fused op's result: for less an extra call does not pay
_BEFORE = 4  # groups before the backward pass that count as its beginning: the loss


class _TensorsByStorage:
    """Tensors of a record by the storage that they are views of, so that moving a storage need not look at other tensors."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self._numbers: dict[int, list[int]] = {}
        for number, info in enumerate(record.tensors):
            self._numbers.setdefault(info.storage, []).append(number)

    def add(self, info: TensorInfo) -> int:
        """Add a tensor to the record, and return its number."""
        number = len(self.record.tensors)
        self.record.tensors.append(info)
        self._numbers.setdefault(info.storage, []).append(number)
        return number

    def move(self, source: int, target: int) -> None:
        """Make all tensors on one storage views of another."""
        numbers = self._numbers.pop(source, [])
        for number in numbers:
            self.record.tensors[number] = replace(self.record.tensors[number], storage=target)
        self._numbers.setdefault(target, []).extend(numbers)


def reuse_dead_operands(record: Record, groups: Sequence[CallGroup], kept: set[int]) -> list[CallGroup]:
    """Return the groups with results written over dead operands where that is safe; tensors of the record move with them."""
    first = next((i for i, group in enumerate(groups) if group.calls[0].backward), len(groups)) - _BEFORE
    last = last_uses(groups)
    tensors = _TensorsByStorage(record)
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
            tensors.move(made, over)
            func = _IN_PLACE[call.func][0]
            (name,) = [a.name for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
            written = replace(call, func=func, kwargs={**call.kwargs, name: operand}, makes=(), mutates=(over,))
            group = CallGroup.of([written])
        result.append(group)
    return result


def _dead_operand(record: Record, group: CallGroup, last: dict[int, int], at: int, kept: set[int]) -> TensorRef | None:
    call = group.calls[0]
    if len(group.calls) != 1 or call.func not in _IN_PLACE or len(call.makes) != 1:
        return None
    out = record.tensors[call.outputs.number]
    for position in _IN_PLACE[call.func][1]:
        operand = call.args[position] if position < len(call.args) else None
        if not isinstance(operand, TensorRef):
            continue
        info = record.tensors[operand.number]
        storage = record.storages[info.storage]
        alike = (info.layout, info.dtype) == (out.layout, out.dtype)
        covers_storage = record.root(info.storage).layout == info.layout or (
            _is_dense(info) and info.offset == 0 and math.prod(info.shape) * info.dtype.itemsize == storage.bytes
        )
        alone = sum(_storage(record, arg) == info.storage for arg in call.args) == 1
        dead = storage.maker is not None and last[info.storage] == at and info.storage not in kept
        if alike and covers_storage and alone and dead:
            return operand
    return None


def _storage(record: Record, leaf: Any) -> int:
    return record.tensors[leaf.number].storage if isinstance(leaf, TensorRef) else -1


def reuse_operands_of_fused(record: Record, groups: list[CallGroup], kept: set[int]) -> list[CallGroup]:
    """Write the results of fused ops in the backward pass over operands of the same shape that nothing reads afterwards."""
    last = last_uses(groups)
    tensors = _TensorsByStorage(record)
    result: list[CallGroup] = []
    moved: dict[int, int] = {}
    for i, group in enumerate(groups):
        group = _renamed(group, moved)
        if len(group.calls) > 1 and any(call.backward for call in group.calls):
            for made in sorted(group.makes - kept):
                dead = [s for s in sorted(group.reads - group.mutates, reverse=True) if last[s] == i]
                over = next((s for s in dead if _may_reuse(record, s, made)), None)
                if over is not None:
                    last[over] = last[made]
                    moved[made] = over
                    group = _write_over(tensors, group, made, over)
        result.append(group)
    return result


def _may_reuse(record: Record, over: int, made: int) -> bool:
    source, target = record.storages[over], record.storages[made]
    if source.place is not None or source.maker is None or source.bytes != target.bytes or source.bytes < _LEAST_BYTES:
        return False
    a, b = record.root(over), record.root(made)
    return a.dtype == b.dtype and a.offset == b.offset == 0 and _is_dense(a) and _is_dense(b)


def _is_dense(info: TensorInfo) -> bool:
    """Whether a tensor is laid out row after row without gaps."""
    step = 1
    for n, stride in zip(reversed(info.shape), reversed(info.stride), strict=True):
        if n != 1 and stride != step:
            return False
        step *= n
    return True


def _write_over(tensors: _TensorsByStorage, group: CallGroup, made: int, over: int) -> CallGroup:
    """Return the group with a last call that writes a result over an operand, of which the result's tensors then are views."""
    record = tensors.record
    inner = len(record.storages)
    old_root = record.storages[made].root
    record.storages.append(replace(record.storages[made], root=len(record.tensors)))
    numbers: dict[int, int] = {}

    def inside(number: int) -> int:
        if record.tensors[number].storage != made:
            return number
        if number not in numbers:
            numbers[number] = tensors.add(replace(record.tensors[number], storage=inner))
        return numbers[number]

    inside(old_root)

    def rename(leaf: Any) -> Any:
        return TensorRef(inside(leaf.number)) if isinstance(leaf, TensorRef) else leaf

    def swapped(storages: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(inner if s == made else s for s in storages)

    calls = []
    for call in group.calls:
        args, kwargs, outputs = map_leaves(rename, (call.args, call.kwargs, call.outputs))
        reads, makes, mutates = map(swapped, (call.reads, call.makes, call.mutates))
        calls.append(
            replace(call, args=args, kwargs=kwargs, outputs=outputs, reads=reads, makes=makes, mutates=mutates)
        )
    target = tensors.add(replace(record.tensors[old_root], storage=over))
    tensors.move(made, over)
    source = TensorRef(numbers[old_root])
    copy = Call(
        aten.copy_.default, (TensorRef(target), source), {}, TensorRef(target), (over, inner), (), (over,), backward=True,
        where=calls[-1].where,
    )  # fmt: skip
    return replace(group, calls=[*calls, copy], makes=group.makes - {made}, mutates=group.mutates | {over})


def _renamed(group: CallGroup, same: dict[int, int]) -> CallGroup:
    def final(s: int) -> int:
        while s in same:
            s = same[s]
        return s

    def rename(call: Call) -> Call:
        reads, mutates = (tuple(dict.fromkeys(map(final, s))) for s in (call.reads, call.mutates))
        return replace(call, reads=reads, mutates=mutates)

    if not same or not (group.reads | group.mutates) & set(same):
        return group
    reads, mutates = set(map(final, group.reads)), set(map(final, group.mutates))
    return replace(group, calls=list(map(rename, group.calls)), reads=reads, mutates=mutates)
