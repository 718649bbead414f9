"""Optimizer steps during backward: every gradient is used and freed as soon as it is there.

A loop keeps its `optimizer.step()` and `zero_grad()`; by then nothing is left to do. What needs all gradients at once cannot be
right here (clipping by a global norm, scaled losses, gradients added up over several backward passes, DDP's averages): in place of
a gradient that was used stands a tensor without memory, and whoever looks at it is told.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.optim import Optimizer

from pebbler.errors import InputError, PebblerError

__all__ = ["GradientGone", "step_in_backward"]

# Their update of a parameter depends on nothing but it, its gradient, its state and its group's numbers.
_ALONE = (
    "SGD",
    "Adam",
    "AdamW",
    "Adamax",
    "NAdam",
    "RAdam",
    "Adagrad",
    "Adadelta",
    "RMSprop",
    "Rprop",
    "ASGD",
    "Adafactor",
    "Muon",
)


class GradientGone(PebblerError, RuntimeError):
    """Something asked for a gradient that the optimizer has used during backward."""


class _UsedGradient(torch.Tensor):  # type: ignore[misc]
    """Stands where a gradient was; has its shape and no memory, and refuses every operator."""

    @staticmethod
    def __new__(cls, parameter: torch.Tensor) -> _UsedGradient:
        made: _UsedGradient = torch.Tensor._make_wrapper_subclass(
            cls, parameter.shape, dtype=parameter.dtype, device=parameter.device
        )
        return made

    def __repr__(self, **_: Any) -> str:
        return f"gradient of shape {list(self.shape)}, used during backward"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return args[0]  # the engine and `zero_grad` look at what it hangs on, not at its numbers
        raise GradientGone(
            f"{func}: this gradient was used by the optimizer during backward and is gone. Clipping by a global norm, GradScaler, "
            "adding gradients up over several backward passes (or without zero_grad between), and DDP need it: leave "
            "step_in_backward out there"
        )


class _BackwardStepper:
    """Steps an optimizer one parameter at a time, in hooks of autograd."""

    def __init__(self, optimizer: Optimizer, host_state: bool) -> None:
        self.optimizer, self.host_state = optimizer, host_state
        # Without hooks of the optimizer's: those belong to `optimizer.step()`, which the loop still calls.
        self._step = partial(getattr(type(optimizer).step, "__wrapped__", type(optimizer).step), optimizer)
        self._lock = threading.Lock()  # autograd has a thread for every device

    def use(self, group: int, parameter: torch.Tensor) -> None:
        """Update one parameter and free its gradient."""
        with self._lock:
            groups = self.optimizer.param_groups
            alone = {**groups[group], "params": [parameter]}
            before = {name: value for name, value in alone.items() if name != "params"}
            if self.host_state:
                _move(self.optimizer.state.get(parameter, {}), parameter.device)
            self.optimizer.param_groups = [alone]
            try:
                self._step()
            finally:
                self.optimizer.param_groups = groups
            if any(alone.get(name) is not value for name, value in before.items()):
                raise InputError(
                    "step_in_backward: the optimizer changes its groups' numbers at every step; it must see all parameters"
                )
            if self.host_state:
                _move(self.optimizer.state[parameter], torch.device("cpu"))
            parameter.grad = _UsedGradient(parameter)

    def forget(self) -> None:
        """Take the stand-ins away, so that `step` and the next backward find no gradients; wait for copies to the host."""
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                if isinstance(parameter.grad, _UsedGradient):
                    parameter.grad = None
        if self.host_state and torch.cuda.is_available():
            torch.cuda.current_stream().synchronize()

    def before_step(self, _optimizer: Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Leave the loop's own step nothing to do, after its closure where there is one."""
        self.forget()
        closure = kwargs.get("closure") if "closure" in kwargs else (args[1] if len(args) > 1 else None)
        if closure is None:
            return args, kwargs

        def closed() -> Any:
            loss = closure()
            self.forget()
            return loss

        return args[:1], {**kwargs, "closure": closed}


def step_in_backward(optimizer: Optimizer, *, host_state: bool = False, alone: bool = False) -> Callable[[], None]:
    """Update every parameter as soon as its gradient exists, and free the gradient; return a function that undoes this.

    Numbers are those of the ordinary loop, bit for bit; `state_dict`, learning rates and schedulers stay the optimizer's own, and
    the loop stays as it is. With `host_state`, state lives in host memory and comes to the device for its parameter's update only.
    Optimizers other than torch's are refused unless you say that each parameter is updated from itself, its gradient and its
    state `alone`.

    >>> x = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    >>> optimizer = torch.optim.SGD([x], lr=0.5)
    >>> undo = step_in_backward(optimizer)
    >>> x.square().sum().backward()
    >>> x.tolist(), x.grad
    ([0.0, 0.0], gradient of shape [2], used during backward)
    >>> optimizer.step(), optimizer.zero_grad(), x.grad
    (None, None, None)
    """
    kind = type(optimizer)
    if not alone and not (f"{kind.__module__}.".startswith("torch.optim.") and kind.__name__ in _ALONE):
        raise InputError(
            f"step_in_backward: whether {kind.__name__} updates every parameter from its own gradient and state alone is not "
            "known; say alone=True if it does"
        )
    if optimizer._optimizer_step_pre_hooks:
        raise InputError("step_in_backward: the optimizer has hooks before its steps; they would find no gradients")
    if any(p.grad is not None for group in optimizer.param_groups for p in group["params"]):
        raise InputError("step_in_backward: there are gradients already; call optimizer.zero_grad() first")
    stepper = _BackwardStepper(optimizer, host_state)
    handles = [optimizer.register_step_pre_hook(stepper.before_step)]
    for number, group in enumerate(optimizer.param_groups):
        for parameter in group["params"]:
            if parameter.requires_grad:
                handles.append(parameter.register_post_accumulate_grad_hook(partial(stepper.use, number)))

    def undo() -> None:
        stepper.forget()
        for handle in handles:
            handle.remove()

    return undo


def _move(state: dict[str, Any], device: torch.device) -> None:
    """Move a parameter's state; single numbers stay where the optimizer put them."""
    for name, value in state.items():
        if isinstance(value, torch.Tensor) and value.dim() and value.device.type != device.type:
            away = device.type == "cpu"
            target = torch.empty_like(value, device=device, pin_memory=away)
            state[name] = target.copy_(value, non_blocking=True)
