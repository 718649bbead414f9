"""Questions about the number in a tensor, seen before they become operators."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from pebbler.errors import InputError
from pebbler.run.torch.capture.call_recorder import CallRecorder
from pebbler.run.torch.capture.calls import Call, reference
from pebbler.run.torch.capture.early_values import apart
from pebbler.run.torch.capture.random_state import RecordedGenerator
from pebbler.run.torch.capture.scalars import LateNumber, TracedFloat
from pebbler.run.torch.capture.source_lines import in_optimizer, user_line

__all__ = ["ItemReader"]

_CTC = (torch.ctc_loss, torch.nn.functional.ctc_loss)
_QUESTIONS = frozenset(
    getattr(torch.Tensor, name)
    for name in ("__bool__", "__float__", "__int__", "__index__", "__complex__", "__contains__", "item", "tolist", "is_nonzero",
                 "equal", "numpy", "__array__", "__format__", "__repr__")
) | {torch.is_nonzero, torch.equal}  # fmt: skip


_SET_MEMORY = frozenset((torch.Tensor.data.__set__,))  # what goes past all operators


def read_item(tensor: torch.Tensor) -> Any:
    """Return the number in a tensor of one element, as Python has it."""
    return tensor.item()


def _lengths(kwargs: dict[str, Any]) -> list[Any]:
    return [kwargs[name] for name in ("input_lengths", "target_lengths") if name in kwargs]


class ItemReader(TorchFunctionMode):  # type: ignore[misc]
    """Lets optimizers read their step counters as traced numbers, and steps read numbers to return them.

    Anything else that asks for a value is refused later, unless the value is known before the step.
    """

    def __init__(self, recorder: CallRecorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return self._call(func, args, kwargs or {})
        except InputError as error:
            self.recorder.refusal = self.recorder.refusal or error
            raise

    def _call(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if func in _SET_MEMORY:
            raise InputError(
                f"{user_line()}: the step gives a tensor other memory (.data = ...), and a plan needs it where it is; copy into "
                "it instead (with torch.no_grad(): tensor.copy_(...))"
            )
        if func is torch.Tensor.item and args[0].dim() == 0 and in_optimizer():
            return self.recorder.item(args[0])
        if func is torch.Tensor.item and args[0].numel() == 1:
            late = self._late_item(args[0])
            if late is not None:
                return late
        if func in _CTC and not all(isinstance(x, torch.Tensor) for x in (*args[2:4], *_lengths(kwargs))):
            raise InputError(
                f"{user_line()}: pass the lengths to ctc_loss as tensors; the plan then takes those of every batch"
            )
        if func in (torch.tensor, torch.as_tensor) and args and isinstance(args[0], TracedFloat):
            func, args = torch.full, ((), *args)  # an operator, which gets the number in every step
        if isinstance(kwargs.get("generator"), RecordedGenerator):
            kwargs = {**kwargs, "generator": None}  # torch's own, which draws come from anyway
        before, self.recorder.calling = self.recorder.calling, func not in _QUESTIONS
        try:
            return func(*args, **kwargs)
        finally:
            self.recorder.calling = before

    def _late_item(self, tensor: torch.Tensor) -> LateNumber | None:
        """Record that the step reads a number out of a tensor; return what stands for it, None if it is known before the step."""
        recorder = self.recorder
        with apart():  # this is no operator of the step, so nobody has stopped listening
            number = recorder.seen.entry(tensor).reference.number
            if recorder.answers.is_known(number, tensor.dtype):
                return None
        calls, reads = recorder.record.calls, (recorder.record.tensors[number].storage,)
        name = recorder.next_item()
        actual = partial(recorder.answers.number, name, number, len(calls), optimizer=False)
        calls.append(Call(read_item, (reference(number),), {}, None, reads, (), (), scalar=name, where=user_line()))
        return LateNumber(recorder.scalars, recorder.scalars.know(name, actual))
