"""Recognition of optimizers whose step runs only torch's own code, which need not be watched."""

from __future__ import annotations

import inspect
from typing import Any

from torch.optim import optimizer as torch_optimizer
from torch.optim.optimizer import Optimizer

from pebbler.run.torch.capture.executed_code import package_of

__all__ = ["runs_torch_alone"]


def runs_torch_alone(optimizer: Optimizer, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    """Whether `optimizer.step` calls nothing of the user's: its class is torch's, and there is no closure and no hook but ours.

    `arguments` and `keywords` are what a hook before the step gets, the optimizer itself first.

    >>> import torch
    >>> rule = torch.optim.SGD([torch.ones(2, requires_grad=True)])
    >>> runs_torch_alone(rule, (rule,), {}), runs_torch_alone(rule, (rule, lambda: 0.0), {})
    (True, False)
    """
    kind: Any = type(optimizer)
    if len(arguments) > 1 or keywords or not kind.__module__.startswith("torch.optim."):
        return False
    code = getattr(inspect.unwrap(kind.step), "__code__", None)
    if code is None or package_of(code.co_filename) != "torch":
        return False
    shared: Any = torch_optimizer
    if len(shared._global_optimizer_pre_hooks) > 1 or len(shared._global_optimizer_post_hooks) > 1:
        return False
    return not optimizer._optimizer_step_pre_hooks and not optimizer._optimizer_step_post_hooks
