"""Numbers that a step reads from its tensors with `item()`, to return them: they are not known before the step runs.

Such a number is no float while the step is recorded, so that nothing can look at it unseen: arithmetic is remembered, a comparison
is answered if that can be known before the step, and everything else is refused where it happens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from pebbler.errors import InputError
from pebbler.run.torch.capture.scalars import Expression, Scalars
from pebbler.run.torch.capture.source_lines import user_line

__all__ = ["LateNumber"]


class LateNumber:
    """A number that only the step itself can tell; it can be computed with, and returned."""

    def __init__(self, scalars: Scalars, expression: Expression) -> None:
        self.scalars, self.expression = scalars, expression

    def __repr__(self) -> str:
        return "a number from a tensor"

    def _apply(self, name: str, *operands: Any) -> Any:
        if not all(isinstance(operand, int | float | LateNumber) for operand in operands):
            self._refuse()
        parts = [x.expression if isinstance(x, LateNumber) else ("constant", x) for x in operands]
        return LateNumber(self.scalars, (name, *parts))

    def _decide(self, name: str, *operands: Any) -> bool:
        if not all(isinstance(operand, int | float | LateNumber) for operand in operands):
            self._refuse()
        return self.scalars.branch(self._apply(name, *operands).expression)

    def __neg__(self) -> Any:
        return self._apply("neg", self)

    def __bool__(self) -> bool:
        return self._decide("ne", self, 0)

    def _refuse(self, *others: Any, **options: Any) -> NoReturn:
        raise InputError(
            f"{user_line()}: the step looks at the value of a tensor here (item, float, format): only the step itself can tell it, "
            "so do that outside, with what the step returns; in arithmetic on tensors use the tensor"
        )

    __float__ = __int__ = __index__ = __complex__ = __round__ = __trunc__ = __floor__ = __ceil__ = _refuse
    __str__ = __format__ = __hash__ = __iter__ = __len__ = __contains__ = __getitem__ = __call__ = _refuse

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse to be an operand of an operator."""
        cls._refuse(None)  # type: ignore[arg-type]


def _binary(name: str) -> Callable[[LateNumber, Any], Any]:
    return lambda self, other: self._apply(name, self, other)


def _reflected(name: str) -> Callable[[LateNumber, Any], Any]:
    return lambda self, other: self._apply(name, other, self)


def _comparison(name: str) -> Callable[[LateNumber, Any], bool]:
    return lambda self, other: self._decide(name, self, other)


for _name in ("add", "sub", "mul", "truediv", "pow"):
    setattr(LateNumber, f"__{_name}__", _binary(_name))
    setattr(LateNumber, f"__r{_name}__", _reflected(_name))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(LateNumber, f"__{_name}__", _comparison(_name))
