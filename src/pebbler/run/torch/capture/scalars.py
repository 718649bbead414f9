"""Numbers that a training step computes in Python, traced so that a learning rate set later takes effect.

An optimizer reads `lr` and its step counters as plain Python numbers, does arithmetic on them and passes the results to operators.
A recording would freeze those results. So while a step is recorded, every such number is a `TracedFloat` with a value of its own
that nothing else has, and remembers how it was computed. Two recordings with different values then tell which operands of
operators depend on them, and which expression each of them is.

A step may also read numbers from its tensors with `item()`, to return them. They are not known before the step runs, so such a
number is no float while the step is recorded (`LateNumber`), and nothing can look at it unseen: arithmetic is remembered, a
comparison is answered if that can be known before the step, and everything else is refused where it happens.
"""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from pebbler.errors import InputError
from pebbler.run.torch.capture.source_lines import user_line

__all__ = [
    "Branches",
    "Expression",
    "LateNumber",
    "Scalars",
    "TracedFloat",
    "evaluate",
    "inputs_of",
    "largest",
    "operator_of",
    "smallest",
]

_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
# ("input", name) | ("constant", value) | (operator name, operand, ...)
Expression = tuple[Any, ...]
_OPERATORS: dict[str, Callable[..., Any]] = {
    name: getattr(operator, name)
    for name in ("add", "sub", "mul", "truediv", "pow", "mod", "neg", "lt", "le", "gt", "ge", "eq", "ne")
} | {"max": max, "min": min}


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


def operator_of(name: str) -> Callable[..., Any]:
    """Return the operator of an expression.

    >>> operator_of("max")(1, 2)
    2
    """
    return _OPERATORS[name]


def inputs_of(expression: Expression) -> set[str]:
    """Return the names that an expression is computed from.

    >>> sorted(inputs_of(("mul", ("input", "lr"), ("add", ("input", "t"), ("constant", 1.0)))))
    ['lr', 't']
    """
    kind, *rest = expression
    if kind == "input":
        return {rest[0]}
    return set() if kind == "constant" else set().union(*map(inputs_of, rest))


class Branches:
    """Comparisons that decided branches; those that differ in the names of their numbers only are evaluated once."""

    def __init__(self, guards: Mapping[Expression, bool]) -> None:
        self._rows = [(expression, *_numbered(expression), result) for expression, result in guards.items()]

    def other(self, number: Callable[[str], float]) -> Expression | None:
        """Return the first comparison that has another result with these numbers, None if there is none.

        >>> Branches({("gt", ("input", "step"), ("constant", 5)): False}).other({"step": 6.0}.__getitem__)
        ('gt', ('input', 'step'), ('constant', 5))
        """
        known: dict[tuple[Any, ...], Any] = {}
        for expression, form, names, result in self._rows:
            values = tuple(map(number, names))
            if (form, values) not in known:
                inputs = dict(zip(map(str, range(len(names))), values, strict=True))
                known[form, values] = evaluate(form, inputs)
            if known[form, values] != result:
                return expression
        return None


def _numbered(expression: Expression) -> tuple[Expression, list[str]]:
    """Return an expression with numbers in place of names, and the names."""
    names: list[str] = []

    def renamed(part: Expression) -> Expression:
        kind, *rest = part
        if kind == "constant":
            return part
        if kind != "input":
            return (kind, *map(renamed, rest))
        if rest[0] not in names:
            names.append(rest[0])
        return ("input", str(names.index(rest[0])))

    return renamed(expression), names


class Scalars:
    """The traced numbers of one recording: their values, and what was computed from them."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._actual: dict[str, Callable[[], float]] = {}
        self.expressions: dict[float, Expression] = {}
        self.guards: dict[Expression, bool] = {}

    def number(self, name: str, low: float, high: float, actual: Callable[[], float]) -> TracedFloat:
        """Return a new traced number between `low` and `high`; `actual` returns what it would be in the next step."""
        return self.traced(self._random.uniform(low, high), self.know(name, actual))

    def computed(self, name: str, operands: tuple[Any, ...]) -> Any:
        """Return the result of an operator: a traced number, or for a comparison the branch that the next step takes."""
        expression = (name, *(_expression(operand) for operand in operands))
        if name in _COMPARISONS:
            return self.branch(expression)
        # Any value will do that nothing else has: it only tells the operands of operators apart.
        value: Any = None
        if name not in ("max", "min", "mod"):
            try:
                value = _OPERATORS[name](*(float(operand) for operand in operands))
            except ArithmeticError:
                value = None
        if not isinstance(value, float) or not math.isfinite(value):
            value = self._random.uniform(0.1, 0.9)
        return self.traced(value, expression)

    def branch(self, expression: Expression) -> bool:
        """Return the result of a comparison in the next step; it must be the same in every step of the plan."""
        self.guards[expression] = bool(self._evaluate(expression))
        return self.guards[expression]

    def know(self, name: str, actual: Callable[[], float]) -> Expression:
        """Return a number by name; `actual` returns what it would be in the next step."""
        self._actual[name] = actual
        return ("input", name)

    def _evaluate(self, expression: Expression) -> Any:
        return evaluate(expression, {name: self._actual[name]() for name in sorted(inputs_of(expression))})

    def actual(self, value: float) -> float:
        """Return the value in the next step of a number that may stand for another."""
        expression = self.expressions.get(value)
        return value if expression is None else float(self._evaluate(expression))

    def is_traced(self, value: float) -> bool:
        """Whether a number is one of the values that stand for others."""
        return value in self.expressions

    def traced(self, value: float, expression: Expression) -> TracedFloat:
        """Return a value that remembers its expression."""
        number = TracedFloat(value)
        number.expression = expression
        number.scalars = self
        self.expressions.setdefault(float(value), expression)
        return number


class _Arithmetic:
    """Operators that go to `_apply`, by name."""

    _apply: Callable[..., Any]

    def __neg__(self) -> Any:
        return self._apply("neg", self)

    def __bool__(self) -> bool:
        return bool(self._apply("ne", self, 0.0))


def _binary(name: str) -> Callable[[_Arithmetic, Any], Any]:
    return lambda self, other: self._apply(name, self, other)


def _reflected(name: str) -> Callable[[_Arithmetic, Any], Any]:
    return lambda self, other: self._apply(name, other, self)


for _name in ("add", "sub", "mul", "truediv", "pow"):
    setattr(_Arithmetic, f"__{_name}__", _binary(_name))
    setattr(_Arithmetic, f"__r{_name}__", _reflected(_name))
for _name in _COMPARISONS:
    setattr(_Arithmetic, f"__{_name}__", _binary(_name))


class TracedFloat(_Arithmetic, float):
    """A float that records the arithmetic done on it, and the comparisons that decided a branch."""

    expression: Expression
    scalars: Scalars

    __hash__ = float.__hash__

    def __int__(self, *others: Any) -> int:
        raise InputError(
            f"{user_line()}: the optimizer makes a whole number of a setting or of its step counter; no plan can follow that"
        )

    def _apply(self, name: str, *operands: Any) -> Any:
        if not all(isinstance(operand, int | float) for operand in operands):
            return NotImplemented
        return self.scalars.computed(name, operands)


for _name in ("index", "trunc", "floor", "ceil", "round", "rmod", "floordiv", "rfloordiv", "divmod", "rdivmod"):
    setattr(TracedFloat, f"__{_name}__", TracedFloat.__int__)
TracedFloat.__mod__ = _binary("mod")  # type: ignore[method-assign,assignment]


class LateNumber(_Arithmetic):
    """A number that is known only when the step runs; it can be computed with and returned."""

    def __init__(self, scalars: Scalars, expression: Expression) -> None:
        self.scalars, self.expression = scalars, expression

    def __repr__(self) -> str:
        return "a number from a tensor"

    def _apply(self, name: str, *operands: Any) -> Any:
        if not all(isinstance(operand, int | float | LateNumber) for operand in operands):
            self._refuse()
        expression = (name, *map(_expression, operands))
        return self.scalars.branch(expression) if name in _COMPARISONS else LateNumber(self.scalars, expression)

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


def _expression(operand: Any) -> Expression:
    return operand.expression if isinstance(operand, TracedFloat | LateNumber) else ("constant", operand)


def largest(*numbers: Any, **options: Any) -> Any:
    """Return the result of the built-in `max`, as an expression if that is not known yet.

    >>> largest(2, 3), largest([2, 3], key=lambda x: -x)
    (3, 2)
    """
    return _choice("max", max, numbers, options)


def smallest(*numbers: Any, **options: Any) -> Any:
    """Return the result of the built-in `min`, as an expression if that is not known yet.

    >>> smallest(2, 3)
    2
    """
    return _choice("min", min, numbers, options)


def _choice(name: str, plain: Callable[..., Any], numbers: tuple[Any, ...], options: dict[str, Any]) -> Any:
    traced = [number for number in numbers if isinstance(number, TracedFloat)]
    if not traced or options or not all(isinstance(number, int | float) for number in numbers):
        return plain(*numbers, **options)
    return traced[0].scalars.computed(name, numbers)
