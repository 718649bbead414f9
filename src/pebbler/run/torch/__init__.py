"""PyTorch: capture a training step, plan it within a memory budget, run the plan."""

from __future__ import annotations

from pebbler.errors import PebblerError


class MissingTorch(PebblerError, ImportError):
    """PyTorch is not installed."""


try:
    import torch as _torch  # noqa: F401
except ImportError as _error:
    raise MissingTorch("pebbler.torch needs PyTorch, which is not installed: pip install 'pebbler[torch]'") from _error

from pebbler.run.torch.capture import Captured, Phase, capture  # noqa: E402
from pebbler.run.torch.costs import Cost, Costs, Device, Link, roofline  # noqa: E402
from pebbler.run.torch.fusion import fuse  # noqa: E402
from pebbler.run.torch.inductor import Kernels, NoCompiler  # noqa: E402
from pebbler.run.torch.loading import load_step  # noqa: E402
from pebbler.run.torch.memory import measure_peak  # noqa: E402
from pebbler.run.torch.plan import least_budget, plan, plan_captured  # noqa: E402
from pebbler.run.torch.profiling import profile  # noqa: E402
from pebbler.run.torch.runner import CompiledStep, compile  # noqa: E402
from pebbler.run.torch.torch_plan import TorchPlan  # noqa: E402

__all__ = [
    "Captured",
    "CompiledStep",
    "Cost",
    "Costs",
    "Device",
    "Kernels",
    "Link",
    "MissingTorch",
    "NoCompiler",
    "Phase",
    "TorchPlan",
    "capture",
    "compile",
    "fuse",
    "least_budget",
    "load_step",
    "measure_peak",
    "plan",
    "plan_captured",
    "profile",
    "roofline",
]
