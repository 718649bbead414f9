"""Questions about values that a step asks while it runs: is this mask all ones, has the average begun.

A plan follows the branch that was recorded. Where the answer is computed by a few small operators from arguments, buffers and
constants alone, it is computed for real while the step is recorded, and again before every run of the plan: another answer is
refused. Questions about activations, gradients and random numbers are refused at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from pebbler.run.torch.capture.calls import Call, Constant, Place, Record, Scalar, TensorRef
from pebbler.run.torch.capture.operand_trees import map_leaves

__all__ = ["ValueQuestion", "certain_answer", "question_about"]

aten = torch.ops.aten
_MOST_CALLS = 48
_MOST_BYTES = 16 * 2**20  # made on the way to an answer
Resolve = Callable[[Place], Any]


@dataclass(frozen=True)
class ValueQuestion:
    """The calls that lead from what exists before the step to a tensor of one element, and the answer when it was recorded."""

    record: Record
    calls: tuple[Call, ...]
    number: int
    places: tuple[tuple[int, Place], ...]  # storages that must be there before
    answer: Any
    where: str

    def ask(self, resolve: Resolve) -> Any:
        """Return the answer now."""
        roots = {storage: resolve(place) for storage, place in self.places}

        def operand(leaf: Any) -> Any:
            if isinstance(leaf, TensorRef):
                return _view(self.record, roots, leaf.number)
            return self.record.constants[leaf.number] if isinstance(leaf, Constant) else leaf

        with (
            torch.no_grad(),
            torch._C._DisableAutocast(),
            torch._C._AutoDispatchBelowAutograd(),
            torch._C.DisableTorchFunction(),
        ):
            for call in self.calls:
                args, kwargs = map_leaves(operand, (call.args, call.kwargs))
                result = call.func(*args, **kwargs)
                for storage, _, index in self.record.results(call):
                    roots[storage] = result if index is None else result[index]
            return _view(self.record, roots, self.number).item()


def _view(record: Record, roots: dict[int, torch.Tensor], number: int) -> torch.Tensor:
    info = record.tensors[number]
    root, first = roots[info.storage], record.root(info.storage)
    if info.layout == first.layout:
        return root
    return torch.as_strided(root, info.shape, info.stride, root.storage_offset() + info.offset - first.offset)


def question_about(record: Record, number: int, resolve: Resolve, where: str) -> ValueQuestion | None:
    """Return a question with its answer, None where it cannot be asked before the step runs."""
    wanted = {record.tensors[number].storage}
    calls: list[Call] = []
    for call in reversed(record.calls):
        if wanted & {*call.makes, *call.mutates, *call.statistics}:
            calls.append(call)
            wanted |= set(call.reads)
    places: list[tuple[int, Place]] = []
    for storage in sorted(wanted):
        place = record.storages[storage].place
        if place is not None:
            places.append((storage, place))
    if not _may_run(record, calls, [resolve(place) for _, place in places]):
        return None
    changed = {storage for call in calls for storage in (*call.mutates, *call.statistics)}
    if any(storage in changed for storage, _ in places):
        return None  # to ask would be to change it
    snapshot = replace(record, tensors=list(record.tensors), storages=list(record.storages))
    question = ValueQuestion(snapshot, tuple(reversed(calls)), number, tuple(places), None, where)
    return replace(question, answer=question.ask(resolve))


def _may_run(record: Record, calls: Sequence[Call], tensors: Sequence[Any]) -> bool:
    if len(calls) > _MOST_CALLS or sum(record.storages[s].bytes for call in calls for s in call.makes) > _MOST_BYTES:
        return False
    for call in calls:
        if call.random or call.backward or call.scalar is not None:
            return False
        if any(
            isinstance(leaf, Scalar) or (type(leaf) is not float and isinstance(leaf, float)) for leaf in call.leaves
        ):
            return False
    real = all(isinstance(tensor, torch.Tensor) and not isinstance(tensor, FakeTensor) for tensor in tensors)
    return real and not any(tensor.requires_grad for tensor in tensors)


def certain_answer(record: Record, number: int) -> bool | None:
    """Return the answer to `torch.rand([]) < p` where it is always the same: nothing in [0, 1) is below 0, everything below 1.

    Models that leave layers out at random ask so even where no layer is to be left out.
    """
    storage = record.tensors[number].storage
    maker = next((call for call in record.calls if storage in call.makes), None)
    if maker is None or maker.func not in (aten.lt.Scalar, aten.ge.Scalar) or not isinstance(maker.args[0], TensorRef):
        return None
    drawn = record.tensors[maker.args[0].number].storage
    draw = next((call for call in record.calls if drawn in call.makes), None)
    changed = any({drawn, storage} & set(call.mutates) for call in record.calls)
    if draw is None or draw.func is not aten.rand.default or changed:
        return None
    bound = maker.args[1]
    if not isinstance(bound, int | float) or 0 < bound < 1:
        return None
    below = bound >= 1
    return below if maker.func is aten.lt.Scalar else not below
