"""Steps with a `GradScaler`: the optimizer runs only where all gradients are finite, in the plan as in the step itself.

The scaler reads that off a tensor and branches. While a step is recorded it does not; the optimizer's calls are recorded as calls
that are left out in steps where that tensor is not zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch.amp.grad_scaler import GradScaler

from pebbler.errors import InputError
from pebbler.run.torch.capture.one_at_a_time import replaced

__all__ = ["begin_scalers", "recorded_scalers"]

_Condition = Callable[[torch.Tensor], AbstractContextManager[None]]


def begin_scalers(objects: Iterable[Any], tensors: Iterable[Any]) -> list[GradScaler]:
    """Return the scalers among some objects; those that were not used yet get the scale that they begin with."""
    scalers = [value for value in objects if isinstance(value, GradScaler) and value.is_enabled()]
    devices = [tensor.device for tensor in tensors if isinstance(tensor, torch.Tensor)]
    for scaler in scalers:
        if scaler._scale is None:
            device = next((d for d in devices if d.type == scaler._device), torch.device(scaler._device))
            scaler._lazy_init_scale_growth_tracker(device)
        if scaler._per_optimizer_states:
            raise InputError("a GradScaler is in the middle of a step; call its update() before planning")
    return scalers


@contextmanager
def recorded_scalers(
    scalers: list[GradScaler], only_if_zero: _Condition, listening: Callable[[], bool]
) -> Iterator[None]:
    """Let scalers of the step run their optimizer under a condition that is decided in every step of the plan."""
    kind: Any = GradScaler
    original = kind._maybe_opt_step

    def conditional(scaler: GradScaler, optimizer: Any, state: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        if not listening():
            return original(scaler, optimizer, state, *args, **kwargs)
        found = list(state["found_inf_per_device"].values())
        with only_if_zero(found[0] if len(found) == 1 else torch.stack(found).sum()):
            return optimizer.step(*args, **kwargs)

    try:
        with replaced(kind, "_maybe_opt_step", conditional):
            yield
        for scaler in scalers:
            if scaler._per_optimizer_states:
                raise InputError(
                    "the step uses a GradScaler without its update(); call update() inside of the step too"
                )
    finally:
        for scaler in scalers:
            scaler._per_optimizer_states.clear()
