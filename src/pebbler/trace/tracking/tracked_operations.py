"""Operations on tracked arrays: run on the plain arrays, then recorded as reads and writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pebbler.errors import InputError
from pebbler.trace.tracking.tracked_buffer import View, one_recorder, plain, views_in

__all__ = ["SPECIAL", "operate", "scatter"]


def operate(
    call: Callable[..., Any], op: str, inputs: Any, kwargs: dict[str, Any], outputs: Any, *, elementwise: bool = False
) -> Any:
    """Run an operation on the plain arrays; then record what it read and wrote, unless it only made views."""
    where = kwargs.get("where", True)
    operands = [*views_in(inputs), *views_in(tuple(kwargs[key] for key in kwargs if key != "where"))]
    first = one_recorder([*operands, *views_in((where, *outputs))])
    if outputs:
        kwargs = kwargs | {"out": tuple(map(plain, outputs)) if len(outputs) > 1 else plain(outputs[0])}
    found = call(*map(plain, inputs), **{key: plain(value) for key, value in kwargs.items()})
    several = isinstance(found, (tuple, list))
    results = found if several else (found,)
    if not outputs and not elementwise:
        views = [_as_view(result, operands) for result in results]
        if views and all(view is not None for view in views):
            return type(found)(views) if several else views[0]
    mask = None if where is True else np.asarray(plain(where), dtype=np.bool_)
    for array in views_in((where,)):
        array.read_elements(op)
    for operand in operands:
        # Broadcast against nothing, nothing is read.
        if not elementwise or any(np.size(result) for result in results):
            operand.read_elements(op, operand.buffer.in_address_order(operand.held, mask))
    written = mask if elementwise else None
    made = []
    for position, result in enumerate(results):
        output = outputs[position] if position < len(outputs) else None
        if isinstance(output, View):
            output.buffer.touch(output.buffer.in_address_order(output.held, written), True, op)
            made.append(output)
        else:
            made.append(first.result(result, op, mask=written) if output is None else result)
    return type(found)(made) if several else made[0]


def _as_view(result: Any, operands: list[View]) -> View | None:
    for operand in operands:
        if isinstance(result, np.ndarray) and np.may_share_memory(result, operand.buffer.data):
            return operand.like(result)
    return None


def scatter(ufunc: np.ufunc, array: Any, key: Any, *values: Any) -> None:
    """`ufunc.at`: reads the selected elements and the values, and writes the selected elements."""
    one_recorder([*views_in((array, key, *values))])
    selected = array.buffer.positions(array.held)[plain(key)].ravel() if isinstance(array, View) else range(0)
    ufunc.at(plain(array), plain(key), *map(plain, values))
    for part in views_in(key):
        part.read_elements(ufunc.__name__)
    if isinstance(array, View):
        array.read_elements(ufunc.__name__, selected)
    for value in views_in(values):
        value.read_elements(ufunc.__name__)
    if isinstance(array, View):
        array.buffer.touch(selected, True, ufunc.__name__)


def _where(condition: Any, *branches: Any) -> Any:
    """`np.where`: reads the condition, then of each branch only the elements that are chosen."""
    if not branches:
        return np.nonzero(condition)
    first = one_recorder([*views_in((condition, *branches))])
    result = np.where(plain(condition), *map(plain, branches))
    mask = np.asarray(plain(condition), dtype=np.bool_)
    for array in views_in((condition,)):
        array.read_elements("where")
    for branch, chosen in zip(branches, (mask, ~mask), strict=True):
        if isinstance(branch, View):
            branch.read_elements("where", branch.buffer.in_address_order(branch.held, chosen))
    return first.result(result, "where")


def _take(array: Any, indices: Any, axis: int | None = None, out: None = None, mode: Any = "raise") -> Any:
    """`np.take`: a gather, in the order of the indices."""
    if out is not None:
        raise InputError("np.take of tracked arrays has no out; assign the result instead")
    if not isinstance(array, View):
        return np.take(array, np.asarray(indices), axis, mode=mode)
    result = np.take(array.held, plain(indices), axis, mode=mode)
    key = array.plain_index(indices)
    array.read_elements("take", np.take(array.buffer.positions(array.held), key, axis, mode=mode).ravel())
    return array.result(result, "take")


def _trace(array: View, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """`np.trace`: reads the diagonal only."""
    return np.sum(np.diagonal(array, offset, axis1, axis2), axis=-1)  # type: ignore[call-overload]


def _copyto(target: Any, source: Any, casting: Any = "same_kind", where: Any = True) -> None:
    """`np.copyto`: an assignment, masked or not."""
    operate(np.positive, "copyto", (source,), {"casting": casting, "where": where}, (target,), elementwise=True)


SPECIAL: dict[Callable[..., Any], Callable[..., Any]] = {
    np.where: _where,
    np.take: _take,
    np.trace: _trace,
    np.copyto: _copyto,
    np.shape: lambda array: array.shape,
    np.ndim: lambda array: array.ndim,
    np.size: lambda array: array.size,
}
"""Functions that touch a part of their operands, or nothing."""
