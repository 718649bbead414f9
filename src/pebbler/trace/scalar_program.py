"""ByteDMD: the data movement of a scalar Python program, priced by depth in an LRU stack of live values.

The cost of a program is the sum over its reads of ceil(sqrt(depth)), the depth 1-based in a stack that holds the live
values, most recently used on top; writes are free. The arguments are on the stack at the start, in reverse: the first
argument's last element is on top. An instruction prices all its inputs against the stack before it (a repeated input each
time), moves them to the top in read order, drops those that are never read again and pushes its result. Values never
read vanish when they are stored, arguments too; returned values live to the end.
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Callable, Iterable
from numbers import Number
from typing import Any

import numpy as np

from pebbler.arrays import Ints
from pebbler.errors import InputError
from pebbler.trace.kernels import live_value_stack as kernel

__all__ = ["ScalarProgram", "Value", "bytedmd", "trace_scalars"]

NOTHING = -1
_WIDEST = 2**20


class ScalarProgram:
    """The instructions a function ran on traced scalars.

    >>> program = trace_scalars(lambda a, b, c: (a + b) + c, 1, 2, 3)
    >>> program.depths().tolist(), program.cost(), program.cost(bytes=2)
    ([1, 2, 1, 2], 6, 14)
    """

    def __init__(self) -> None:
        self.arguments = 0
        self.left = array("i")
        self.right = array("i")
        self.returned: list[int] = []
        self.result: object = None

    def __len__(self) -> int:
        return len(self.left)

    def __repr__(self) -> str:
        return f"<ScalarProgram: {self.arguments} arguments, {len(self)} instructions>"

    def argument(self, number: Any) -> Value:
        """Put one more argument on top of the stack."""
        value = Value(self, self.arguments, number)
        self.arguments += 1
        return value

    def instruction(self, number: Any, left: int = NOTHING, right: int = NOTHING) -> Value:
        """Record that `number` was made from up to two values."""
        self.left.append(left)
        self.right.append(right)
        return Value(self, self.arguments + len(self.left) - 1, number)

    def depths(self) -> Ints:
        """Return the stack depth of every read, in the order of the reads."""
        left = np.array(self.left, dtype=np.int32)
        right = np.array(self.right, dtype=np.int32)
        returned = np.array(self.returned, dtype=np.int32)
        depths: Ints = kernel.depths(left, right, self.arguments, returned)
        return depths

    def cost(self, bytes: int = 1) -> int:
        """Return the ByteDMD of the program with elements of so many bytes."""
        if not isinstance(bytes, int) or not 1 <= bytes <= _WIDEST:
            raise InputError(f"bytes = {bytes!r}: an element has a whole number of bytes, 1 to {_WIDEST}")
        return int(kernel.cost(self.depths(), bytes))


def _plain(other: object) -> bool:
    # Arrays must answer an operator themselves, element by element.
    return isinstance(other, (int, float, Number, np.generic))


def _binary(function: Callable[[Any, Any], Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def forward(self: Value, other: object) -> Any:
        program = self.program
        if type(other) is Value:
            if other.program is not program:
                raise InputError("two values of different ByteDMD programs meet in one instruction")
            return program.instruction(function(self.number, other.number), self.id, other.id)
        if not _plain(other):
            return NotImplemented
        return program.instruction(function(self.number, other), self.id)

    def reflected(self: Value, other: object) -> Any:
        if not _plain(other):
            return NotImplemented
        return self.program.instruction(function(other, self.number), self.id)

    return forward, reflected


def _unary(function: Callable[[Any], Any]) -> Callable[..., Any]:
    def method(self: Value) -> Any:
        return self.program.instruction(function(self.number), self.id)

    return method


def _conversion(function: Callable[[Any], Any]) -> Callable[..., Any]:
    """A read whose result leaves the traced world: a branch, an index, a plain number."""

    def method(self: Value) -> Any:
        self.program.instruction(None, self.id)
        return function(self.number)

    return method


class Value:
    """A number that records what is done with it.

    Arithmetic and comparisons with other values or with plain constants (which cost nothing) are instructions; so is
    turning it into a plain bool, int or float, as `if` and `range` do, but that makes no new value.
    """

    __slots__ = ("id", "number", "program")

    def __init__(self, program: ScalarProgram, id: int, number: Any) -> None:
        self.program = program
        self.id = id
        self.number = number

    __add__, __radd__ = _binary(operator.add)
    __sub__, __rsub__ = _binary(operator.sub)
    __mul__, __rmul__ = _binary(operator.mul)
    __truediv__, __rtruediv__ = _binary(operator.truediv)
    __floordiv__, __rfloordiv__ = _binary(operator.floordiv)
    __mod__, __rmod__ = _binary(operator.mod)
    __pow__, __rpow__ = _binary(operator.pow)
    __and__, __rand__ = _binary(operator.and_)
    __or__, __ror__ = _binary(operator.or_)
    __xor__, __rxor__ = _binary(operator.xor)
    __lshift__, __rlshift__ = _binary(operator.lshift)
    __rshift__, __rrshift__ = _binary(operator.rshift)
    __lt__ = _binary(operator.lt)[0]
    __le__ = _binary(operator.le)[0]
    __gt__ = _binary(operator.gt)[0]
    __ge__ = _binary(operator.ge)[0]
    __eq__ = _binary(operator.eq)[0]
    __ne__ = _binary(operator.ne)[0]
    __neg__ = _unary(operator.neg)
    __pos__ = _unary(operator.pos)
    __abs__ = _unary(operator.abs)
    __invert__ = _unary(operator.invert)
    __bool__ = _conversion(bool)
    __int__ = _conversion(int)
    __float__ = _conversion(float)
    __complex__ = _conversion(complex)
    __index__ = _conversion(operator.index)
    __hash__ = None  # type: ignore[assignment]

    def __divmod__(self, other: object) -> Any:
        quotient = self // other
        # One instruction with two results: the remainder is pushed after the quotient and nothing is read again.
        return quotient, self.program.instruction(self.number % (other.number if isinstance(other, Value) else other))

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, self.program.instruction(other % self.number)

    def __repr__(self) -> str:
        return f"Value({self.number!r})"


def trace_scalars(function: Callable[..., object], *args: object) -> ScalarProgram:
    """Run a function on traced copies of its arguments and return the recorded program.

    Arguments are numbers, or lists, tuples and arrays of them, nested at will; anything else is passed on as it is.

    >>> program = trace_scalars(lambda a, b: a[0] * b[0] + a[1] * b[1], [1, 2], [3, 4])
    >>> program.depths().tolist(), program.result
    ([2, 4, 2, 3, 2, 1], 11)
    """
    program = ScalarProgram()
    traced = [_traced(program, arg) for arg in reversed(args)]
    result = function(*reversed(traced))
    program.returned = sorted({value.id for value in _values(result) if value.program is program})
    program.result = _untraced(result)
    return program


def bytedmd(function: Callable[..., object], *args: object, bytes: int = 1) -> int:
    """Return the ByteDMD of a function of numbers and nested lists of numbers.

    >>> bytedmd(lambda a, b, c: (a + b) + c, 1, 2, 3)
    6
    >>> bytedmd(lambda a: a[0] * a[0] - a[1], [3, 4], bytes=4)
    43
    """
    return trace_scalars(function, *args).cost(bytes)


def _traced(program: ScalarProgram, arg: object) -> object:
    if isinstance(arg, np.ndarray):
        traced = np.empty(arg.shape, dtype=object)
        for index, number in enumerate(arg.flat):
            traced.flat[index] = program.argument(number.item() if isinstance(number, np.generic) else number)
        return traced
    if isinstance(arg, list):
        return [_traced(program, element) for element in arg]
    if isinstance(arg, tuple):
        return tuple(_traced(program, element) for element in arg)
    return program.argument(arg) if _plain(arg) else arg


def _values(result: object) -> Iterable[Value]:
    if isinstance(result, Value):
        yield result
    elif isinstance(result, np.ndarray):
        yield from _values(result.ravel().tolist()) if result.dtype == object else ()
    elif isinstance(result, (list, tuple, set)):
        for element in result:
            yield from _values(element)
    elif isinstance(result, dict):
        yield from _values(list(result.values()))


def _untraced(result: object) -> object:
    if isinstance(result, Value):
        return result.number
    if isinstance(result, np.ndarray):
        return np.array(_untraced(result.tolist())) if result.dtype == object else result
    if isinstance(result, list):
        return [_untraced(element) for element in result]
    if isinstance(result, tuple):
        return tuple(_untraced(element) for element in result)
    if isinstance(result, dict):
        return {key: _untraced(element) for key, element in result.items()}
    return result
