"""Questions of optimizers about their step counters, seen before they become operators."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from pebbler.run.torch.capture.call_recorder import CallRecorder
from pebbler.run.torch.capture.random_state import RecordedGenerator
from pebbler.run.torch.capture.source_lines import in_optimizer

__all__ = ["ItemReader"]

_QUESTIONS = frozenset(
    getattr(torch.Tensor, name)
    for name in ("__bool__", "__float__", "__int__", "__index__", "__complex__", "__contains__", "item", "tolist", "is_nonzero",
                 "equal", "numpy", "__array__", "__format__", "__repr__")
) | {torch.is_nonzero, torch.equal}  # fmt: skip


class ItemReader(TorchFunctionMode):  # type: ignore[misc]
    """Lets optimizers read their step counters as traced numbers; anything else that asks for a value is refused later."""

    def __init__(self, recorder: CallRecorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.item and args[0].dim() == 0 and in_optimizer():
            return self.recorder.item(args[0])
        kwargs = kwargs or {}
        if isinstance(kwargs.get("generator"), RecordedGenerator):
            kwargs = {**kwargs, "generator": None}  # torch's own, which draws come from anyway
        before, self.recorder.calling = self.recorder.calling, func not in _QUESTIONS
        try:
            return func(*args, **kwargs)
        finally:
            self.recorder.calling = before
