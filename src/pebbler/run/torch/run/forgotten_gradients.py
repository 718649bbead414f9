"""Running a step as it is after a plan that did not keep gradients: one that needs them is stopped.

Zeros stand for the forgotten gradients. A step that clears them first does what it always does; one that adds to them, or lets an
optimizer use them, would train differently, and is told so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager

import torch

from pebbler.errors import PebblerError

__all__ = ["GradientsForgotten", "stand_ins"]


class GradientsForgotten(PebblerError):
    """A call needs gradients that an earlier one left, and that its plan did not keep."""

    def __init__(self, done: str = "") -> None:
        super().__init__(
            "the step now needs gradients that an earlier call left in .grad, and the plan of that call did not keep them; use "
            f"pt.step(..., keep_grads=True){done}"
        )


@contextmanager
def stand_ins(parameters: Iterable[torch.Tensor]) -> Iterator[None]:
    """Stop whatever adds to the gradients of some parameters, or uses them, before it has cleared them.

    >>> weight = torch.ones(2, requires_grad=True)
    >>> with stand_ins([weight]):
    ...     weight.sum().backward()
    Traceback (most recent call last):
    pebbler.run.torch.run.forgotten_gradients.GradientsForgotten: the step now needs gradients that an earlier call left in .grad...
    """
    zeros = {parameter: torch.zeros_like(parameter) for parameter in parameters if parameter.grad is None}
    versions = {parameter: parameter._version for parameter in zeros}
    with ExitStack() as stack:
        for parameter, zero in zeros.items():
            parameter.grad = zero
            handle = parameter.register_post_accumulate_grad_hook(_refuse_to_add(zero))
            stack.callback(handle.remove)
        try:
            yield
        finally:
            untouched = [p for p, zero in zeros.items() if p.grad is zero and zero._version == 0]
            for parameter in untouched:
                parameter.grad = None
    if any(parameter._version != versions[parameter] for parameter in untouched):
        raise GradientsForgotten("; parameters have been updated without them")


def _refuse_to_add(zero: torch.Tensor) -> Callable[[torch.Tensor], None]:
    def look(parameter: torch.Tensor) -> None:
        if parameter.grad is zero and zero._version == 1:  # the first change of it was this addition, not a clearing
            parameter.grad = None
            raise GradientsForgotten

    return look
