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
from pebbler.torch.costs import Cost, Costs, Device, profile, roofline
from pebbler.torch.memory import measure_peak
from pebbler.torch.plan import TorchPlan, plan, plan_captured
from pebbler.torch.runner import CompiledStep, compile

__all__ = [
    "Captured",
    "CompiledStep",
    "Cost",
    "Costs",
    "Device",
    "Phase",
    "TorchPlan",
    "capture",
    "compile",
    "measure_peak",
    "plan",
    "plan_captured",
    "profile",
    "roofline",
]
