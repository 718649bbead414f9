"""PyTorch: capture a training step, plan it within a memory budget, run the plan. Users import `pebbler.torch`.

One folder per stage. A stage imports itself and the stages before it, never a later one:

- `capture`: a step is recorded on fake tensors and becomes graphs in bytes (`Captured`);
- `fuse`: neighbouring operators become one op, and the compiler behind `torch.compile` makes kernels of such ops;
- `cost`: what every op takes, measured here or described by a roofline (`Costs`);
- `plan`: order, recomputation and copies to the host within a budget (`TorchPlan`);
- `run`: the plan as a program that replaces the step (`CompiledStep`);
- `backend`: another door: the backend of `torch.compile`, which plans what every graph keeps for backward.
"""

from __future__ import annotations

from pebbler.errors import PebblerError

__all__ = ["MissingTorch"]


class MissingTorch(PebblerError, ImportError):
    """PyTorch is not installed."""


try:
    import torch as _torch  # noqa: F401
except ImportError as _error:
    raise MissingTorch("pebbler.torch needs PyTorch, which is not installed: pip install 'pebbler[torch]'") from _error
