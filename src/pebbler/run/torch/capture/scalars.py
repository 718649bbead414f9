"""Numbers that a training step computes in Python, traced so that a learning rate set later takes effect.

An optimizer reads `lr` and its step counters as plain Python numbers, does arithmetic on them and passes the results to operators.
A recording would freeze those results. So while a step is recorded, every such number is a `TracedFloat` with a value of its own
that nothing else has, and remembers how it was computed. Two recordings with different values then tell which operands of
operators depend on them, and which expression each of them is.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Mapping
from typing import Any

from pebbler.errors import InputError
from pebbler.run.torch.capture.source_lines import user_line

__all__ = ["Expression", "Scalars", "TracedFloat", "evaluate", "inputs_of"]

# ("input", name) | ("constant", value) | (operator name, operand, ...)
Expression = tuple[Any, ...]
_OPERATORS: dict[str, Callable[..., Any]] = {
    name: getattr(operator, name)
    for name in ("add", "sub", "mul", "truediv", "pow", "neg", "lt", "le", "gt", "ge", "eq", "ne")
}


def evaluate(expression: Expression, inputs: Mapping[str, float]) -> Any:
    """Return the value of an expression.

    >>> evaluate(("mul", ("input", "lr"), ("constant", 2.0)), {"lr": 0.1})
    0.2
    """
    kind, *rest = expression
    if kind == "input":
        return inputs[rest[0]]
    if kind == "constant":
        return rest[0]
    return _OPERATORS[kind](*(evaluate(part, inputs) for part in rest))


def inputs_of(expression: Expression) -> set[str]:
    """Return the names that an expression is computed from.

    >>> sorted(inputs_of(("mul", ("input", "lr"), ("add", ("input", "t"), ("constant", 1.0)))))
    ['lr', 't']
    """
    kind, *rest = expression
    if kind == "input":
        return {rest[0]}
    return set() if kind == "constant" else set().union(*map(inputs_of, rest))


class Scalars:
    """The traced numbers of one recording: their values, and what was computed from them."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.expressions: dict[float, Expression] = {}
        self.guards: dict[Expression, bool] = {}

    def number(self, name: str, low: float, high: float) -> TracedFloat:
        """Return a new traced number between `low` and `high`."""
        return self.traced(self._random.uniform(low, high), ("input", name))

    def traced(self, value: float, expression: Expression) -> TracedFloat:
        """Return a value that remembers its expression."""
        number = TracedFloat(value)
        number.expression = expression
        number.scalars = self
        self.expressions.setdefault(float(value), expression)
        return number


class TracedFloat(float):
    """A float that records the arithmetic done on it, and the comparisons that decided a branch."""

    expression: Expression
    scalars: Scalars

    __hash__ = float.__hash__

    def __neg__(self) -> Any:
        return self._apply("neg", self)

    def __bool__(self) -> bool:
        return bool(self._apply("ne", self, 0.0))

    def __int__(self, *others: Any) -> int:
        raise InputError(
            f"{user_line()}: the optimizer makes a whole number of a setting or of its step counter; no plan can follow that"
        )

    def _apply(self, name: str, *operands: Any) -> Any:
        if not all(isinstance(operand, int | float) for operand in operands):
            return NotImplemented
        value = _OPERATORS[name](*(float(operand) for operand in operands))
        expression = (name, *(_expression(operand) for operand in operands))
        if isinstance(value, bool):
            if any(name.startswith("item_") for name in inputs_of(expression)):
                raise InputError(
                    f"{user_line()}: the optimizer branches on a number that it reads from a tensor, such as its step counter; "
                    "no plan can follow that"
                )
            self.scalars.guards[expression] = value
            return value
        return self.scalars.traced(value, expression)


def _expression(operand: Any) -> Expression:
    return operand.expression if isinstance(operand, TracedFloat) else ("constant", operand)


def _binary(name: str) -> Callable[[TracedFloat, Any], Any]:
    return lambda self, other: self._apply(name, self, other)


def _reflected(name: str) -> Callable[[TracedFloat, Any], Any]:
    return lambda self, other: self._apply(name, other, self)


for _name in ("index", "trunc", "floor", "ceil", "round", "mod", "rmod", "floordiv", "rfloordiv", "divmod", "rdivmod"):
    setattr(TracedFloat, f"__{_name}__", TracedFloat.__int__)
for _name in ("add", "sub", "mul", "truediv", "pow"):
    setattr(TracedFloat, f"__{_name}__", _binary(_name))
    setattr(TracedFloat, f"__r{_name}__", _reflected(_name))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(TracedFloat, f"__{_name}__", _binary(_name))
