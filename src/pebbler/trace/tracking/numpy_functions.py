"""The parts of their operands that numpy functions touch, for tracked arrays.

Only functions with a certain answer are listed. Functions that depend on values (`searchsorted`), stop early, or touch a part
chosen by their arguments are left out, or handled individually in `tracked_array`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["CREATING", "MASKED", "METHODS", "OUT_POSITION", "VIEWS", "WHOLE"]

Functions = frozenset[Callable[..., Any]]


def _named(names: str) -> Functions:
    return frozenset(operator.attrgetter(name)(np) for name in names.split())


VIEWS = _named(
    "array_split atleast_1d atleast_2d atleast_3d broadcast_arrays broadcast_to diagonal dsplit einsum expand_dims flip fliplr "
    "flipud hsplit matrix_transpose moveaxis ravel reshape rollaxis rot90 split squeeze swapaxes transpose vsplit"
)
"""Give views where numpy can; where it cannot, they read every element of every operand once and write the copy."""

WHOLE = _named(
    "all allclose amax amin any argmax argmin argsort array_equal average clip column_stack concatenate copy count_nonzero cross "
    "cumprod cumsum diff dot dstack hstack inner isclose kron max mean median min nonzero outer pad prod ptp repeat roll round "
    "sort stack std sum tensordot tile unique var vdot vstack linalg.det linalg.inv linalg.norm linalg.solve"
)
"""Read every element of every operand once, in the order of the arguments, then write the result."""

MASKED = _named("all amax amin any max mean min prod std sum var")
"""Read only the elements that a mask `where=` chooses."""

_OUT_THIRD = _named("all amax amin any argmax argmin concatenate dot max median min outer ptp round stack")
_OUT_FOURTH = _named("clip cumprod cumsum mean prod std sum var")
OUT_POSITION: dict[Callable[..., Any], int] = {**dict.fromkeys(_OUT_THIRD, 2), **dict.fromkeys(_OUT_FOURTH, 3)}
"""The position of `out` among the arguments of functions that also accept it by position."""

CREATING = _named("empty_like zeros_like ones_like full_like")
"""Look only at the shape and type of the first operand."""

METHODS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in _named(
        "all any argmax argmin argsort clip cumprod cumsum diagonal dot max mean min nonzero prod ravel repeat round squeeze std "
        "sum swapaxes take trace var"
    )
}
"""Methods of arrays that do what the function of the same name does."""
