"""Gradients that a plan did not keep. Tensors without memory replace them, and any use of their numbers is an error.

A step leaves gradients behind, and throws them away when it runs again. A plan does not keep them, unless it is asked to. Eager
code, an optimizer or another planned step that adds to them, clips, logs or applies them would then train differently, so it gets
an error. Clearing them is allowed, and to move them to another device or dtype with their module.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from pebbler.errors import PebblerError

__all__ = ["ZEROING", "ForgottenGradient", "GradientsForgotten", "forget", "require_gradients"]

aten = torch.ops.aten
ZEROING = {aten.zero_.default, aten._foreach_zero_.default}
_SAME = {aten.detach.default, aten.alias.default, aten.clone.default, aten._to_copy.default, aten.contiguous.default,
         aten._pin_memory.default}  # fmt: skip
_KEPT_AS_IT_IS = {"share_memory_", "pin_memory", "is_pinned", "is_shared"}


class GradientsForgotten(PebblerError, RuntimeError):
    """Code needs gradients of a planned step that its plan did not keep."""

    def __init__(self, what: str = "") -> None:
        super().__init__(
            f"{what}this needs gradients that a planned step left in .grad, and its plan did not keep them; use "
            "pt.step(..., keep_grads=True), or clear them first (zero_grad)"
        )


class ForgottenGradient(torch.Tensor):  # type: ignore[misc]
    """Stands where a gradient would be; has its shape and no memory, and refuses to show numbers.

    >>> weight = torch.ones(2, requires_grad=True)
    >>> forget([weight])
    >>> weight.grad
    gradient of shape [2], not kept by the plan of a step
    >>> weight.grad.norm()
    Traceback (most recent call last):
    pebbler.run.torch.capture.forgotten_gradients.GradientsForgotten: aten.linalg_vector_norm.default: this needs gradients ...
    >>> _ = weight.grad.zero_()
    >>> weight.grad
    tensor([0., 0.])
    """

    _parameter: Any  # a weak reference to whose gradient it is

    @staticmethod
    def __new__(
        cls, like: torch.Tensor, parameter: Any = None, dtype: torch.dtype | None = None, device: Any = None
    ) -> ForgottenGradient:
        made: ForgottenGradient = torch.Tensor._make_wrapper_subclass(
            cls, like.shape, strides=like.stride(), dtype=dtype or like.dtype, device=device or like.device
        )
        made._parameter = parameter
        return made

    def __repr__(self, **_: Any) -> str:
        return f"gradient of shape {list(self.shape)}, not kept by the plan of a step"

    def __deepcopy__(self, memo: dict[int, Any]) -> ForgottenGradient:
        return ForgottenGradient(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise GradientsForgotten("saving a gradient: ")

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in _KEPT_AS_IT_IS:
            return args[0] if not func.__name__.startswith("is_") else False
        try:
            return super().__torch_function__(func, types, args, kwargs or {})
        except GradientsForgotten:
            raise
        except RuntimeError as error:  # what is no operator, such as `tolist`
            raise GradientsForgotten(f"{getattr(func, '__name__', func)}: ") from error

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _SAME:
            options = kwargs or {}
            return ForgottenGradient(args[0], args[0]._parameter, options.get("dtype"), options.get("device"))
        if func in ZEROING:
            for gradient in tree_flatten(args)[0]:
                gradient.cleared() if isinstance(gradient, ForgottenGradient) else gradient.zero_()
            return None
        raise GradientsForgotten(f"{func}: ")

    def cleared(self) -> torch.Tensor:
        """Replace the gradient by zeros, and return them: its numbers are discarded."""
        parameter = None if self._parameter is None else self._parameter()
        if parameter is None or parameter.grad is not self:
            raise GradientsForgotten("clearing a gradient that no parameter has any more: ")
        zeros = torch.zeros_like(parameter)
        parameter.grad = zeros
        return zeros


def forget(parameters: Iterable[torch.Tensor]) -> None:
    """Leave stand-ins where the gradients of some parameters would be."""
    for parameter in parameters:
        if type(parameter.grad) is not ForgottenGradient:
            parameter.grad = ForgottenGradient(parameter, weakref.ref(parameter))


def require_gradients(parameters: Iterable[torch.Tensor]) -> None:
    """Refuse to go on where gradients that are needed were not kept."""
    if any(type(parameter.grad) is ForgottenGradient for parameter in parameters):
        raise GradientsForgotten
