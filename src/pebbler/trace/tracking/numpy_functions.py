"""How much of their operands numpy's functions touch, for arrays that record it.

Only functions for which the answer is certain are listed. Those that depend on values (`searchsorted`), stop early or
touch a part that their arguments choose are left out, or handled one by one where arrays are tracked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["CREATING", "MASKED", "METHODS", "OUT_POSITION", "VIEWS", "WHOLE"]

Functions = frozenset[Callable[..., Any]]

VIEWS: Functions = frozenset(
    {
        *(
            np.array_split,
            np.atleast_1d,
            np.atleast_2d,
            np.atleast_3d,
            np.broadcast_arrays,
            np.broadcast_to,
            np.diagonal,
        ),
        *(np.dsplit, np.einsum, np.expand_dims, np.flip, np.fliplr, np.flipud, np.hsplit, np.matrix_transpose),
        *(np.moveaxis, np.ravel, np.reshape, np.rollaxis, np.rot90, np.split, np.squeeze, np.swapaxes, np.transpose),
        np.vsplit,
    }
)
"""Give views where numpy can; where it cannot, they read every element of every operand once and write the copy."""

WHOLE: Functions = frozenset(
    {
        *(np.all, np.allclose, np.amax, np.amin, np.any, np.argmax, np.argmin, np.argsort, np.array_equal, np.average),
        *(
            np.clip,
            np.column_stack,
            np.concatenate,
            np.copy,
            np.count_nonzero,
            np.cross,
            np.cumprod,
            np.cumsum,
            np.diff,
        ),
        *(np.dot, np.dstack, np.hstack, np.inner, np.isclose, np.kron, np.max, np.mean, np.median, np.min, np.nonzero),
        *(
            np.outer,
            np.pad,
            np.prod,
            np.ptp,
            np.repeat,
            np.roll,
            np.round,
            np.sort,
            np.stack,
            np.std,
            np.sum,
            np.tensordot,
        ),
        *(np.tile, np.unique, np.var, np.vdot, np.vstack),
        *(np.linalg.det, np.linalg.inv, np.linalg.norm, np.linalg.solve),
    }
)
"""Read every element of every operand once, in the order of the arguments, then write the result."""

MASKED: Functions = frozenset(
    {np.all, np.amax, np.amin, np.any, np.max, np.mean, np.min, np.prod, np.std, np.sum, np.var}
)
"""Read only the elements that a mask `where=` chooses."""

_OUT_THIRD: Functions = frozenset(
    {
        *(np.all, np.amax, np.amin, np.any, np.argmax, np.argmin, np.concatenate, np.dot, np.max, np.median, np.min),
        *(np.outer, np.ptp, np.round, np.stack),
    }
)
_OUT_FOURTH: Functions = frozenset({np.clip, np.cumprod, np.cumsum, np.mean, np.prod, np.std, np.sum, np.var})
OUT_POSITION: dict[Callable[..., Any], int] = {**dict.fromkeys(_OUT_THIRD, 2), **dict.fromkeys(_OUT_FOURTH, 3)}
"""Where `out` stands among the arguments of functions that take it by position too."""

CREATING: Functions = frozenset({np.empty_like, np.zeros_like, np.ones_like, np.full_like})
"""Look only at the shape and type of the first operand."""

METHODS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        *(
            np.all,
            np.any,
            np.argmax,
            np.argmin,
            np.argsort,
            np.clip,
            np.cumprod,
            np.cumsum,
            np.diagonal,
            np.dot,
            np.max,
        ),
        *(np.mean, np.min, np.nonzero, np.prod, np.ravel, np.repeat, np.round, np.squeeze, np.std, np.sum, np.swapaxes),
        *(np.take, np.trace, np.var),
    )
}
"""Methods of arrays that do what the function of the same name does."""
