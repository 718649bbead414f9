"""PyTorch: capture a training step, plan it within a memory budget, run the plan."""

from __future__ import annotations

from pebbler.errors import PebblerError

try:
    import torch as _torch  # noqa: F401
except ImportError as _error:
    raise PebblerError(
        "pebbler.torch needs PyTorch, which is not installed: pip install 'pebbler[torch]'"
    ) from _error

from pebbler.torch.capture import Captured, Phase, capture

__all__ = ["Captured", "Phase", "capture"]
