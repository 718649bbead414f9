"""Comparing two recordings of the same step, operand by operand; what differs and does not follow from known numbers is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from pebbler.errors import InputError
from pebbler.run.torch.capture.calls import Call, Constant, Record, Scalar, TensorRef, shown
from pebbler.run.torch.capture.python_state import same_value, shown_value
from pebbler.run.torch.capture.scalars import Scalars

__all__ = ["find_scalars"]


def find_scalars(record: Record, scalars: Scalars, again: Record, others: Scalars) -> Record:
    """Return a recording with the numbers that change from step to step as expressions, found by comparing it with another.

    Everything else must be the same in both: operators, tensors and their views, constants, results, branches on numbers.
    """
    calls: list[Call] = []
    for call, twin in zip(record.calls, again.calls, strict=False):
        calls.append(_compared(record, scalars, call, again, others, twin))
    if len(record.calls) != len(again.calls):
        call = max(record.calls, again.calls, key=len)[len(calls)]
        raise InputError(
            f"{call.where}: the step runs {call.func} in one step and not in the next; a plan needs the same ones"
        )
    _compare_results(record, again)
    if record.guards != again.guards:
        raise InputError(
            "the step branches on a number, and takes another branch each time; a plan needs the same ones"
        )
    if [(q.number, q.answer) for q in record.questions] != [(q.number, q.answer) for q in again.questions]:
        raise InputError("the step branches on values, and takes another branch each time; a plan needs the same ones")
    return replace(record, calls=calls)


def _compared(record: Record, scalars: Scalars, call: Call, again: Record, others: Scalars, twin: Call) -> Call:
    if (str(call.func), call.grad, call.unless) != (str(twin.func), twin.grad, twin.unless):
        raise InputError(
            f"{call.where}: the step runs {call.func}, and in the next step {twin.func}; a plan needs the same ones"
        )
    leaves, spec = tree_flatten((call.args, call.kwargs, call.outputs))
    twins, other_spec = tree_flatten((twin.args, twin.kwargs, twin.outputs))
    if spec != other_spec:
        raise InputError(f"{call.where}: {call.func} gets other operands each time")
    operands = []
    for leaf, other in zip(leaves, twins, strict=True):
        if isinstance(leaf, float) and isinstance(other, float):
            operands.append(_number(call, leaf, other, scalars, others))
        else:
            _require_same(call, record, leaf, again, other)
            operands.append(leaf)
    args, kwargs, outputs = tree_unflatten(operands, spec)
    return replace(call, args=args, kwargs=kwargs, outputs=outputs)


def _number(call: Call, leaf: float, twin: float, scalars: Scalars, others: Scalars) -> Any:
    """Return a number, as an expression if it is computed anew in every step."""
    if same_value(float(leaf), float(twin)):
        return float(leaf)
    expression = scalars.expressions.get(leaf)
    if expression is None or others.expressions.get(twin) != expression:
        raise InputError(
            f"{call.where}: {call.func} gets a number that changes from step to step ({leaf}, then {twin}), and how it "
            "follows from the optimizer's settings is not known; keep it in a tensor, or pass it as an argument in a tensor"
        )
    return Scalar(expression)


def _require_same(call: Call, record: Record, leaf: Any, again: Record, other: Any) -> None:
    if isinstance(leaf, TensorRef) and isinstance(other, TensorRef):
        _require_same_tensor(call, record, leaf.number, again, other.number)
    elif isinstance(leaf, Constant) and isinstance(other, Constant):
        old, new = record.constants[leaf.number], again.constants[other.number]
        if not isinstance(old, torch.Tensor) and old is not new:
            raise InputError(
                f"{call.where}: the step draws from another random generator each time; make it outside of the step"
            )
        if not _same_constant(old, new):
            raise InputError(
                f"{call.where}: the step makes a tensor from Python values that are others in the next step "
                f"({_values(old)}, then {_values(new)}); make it outside and pass it as an argument"
            )
    elif not same_value(leaf, other):
        raise InputError(
            f"{call.where}: {call.func} gets {shown_value(leaf)} and then {shown_value(other)}; a plan needs the same operands"
        )


def _require_same_tensor(call: Call, record: Record, number: int, again: Record, other: int) -> None:
    old, new = record.tensors[number], again.tensors[other]
    places = record.storages[old.storage].place, again.storages[new.storage].place
    if old.storage != new.storage or places[0] != places[1]:
        raise InputError(
            f"{call.where}: {call.func} gets another tensor in the next step; pass it to the step as an argument"
        )
    if old != new:
        raise InputError(
            f"{call.where}: {call.func} gets another part of a tensor in the next step ({shown(old)} from {old.offset}, then "
            f"{shown(new)} from {new.offset}); a plan needs the same one"
        )


def _same_constant(old: Any, new: Any) -> bool:
    if not isinstance(old, torch.Tensor) or not isinstance(new, torch.Tensor):
        return old is new
    if (old.shape, old.stride(), old.dtype, old.device) != (new.shape, new.stride(), new.dtype, new.device):
        return False
    return bool(torch.equal(old.contiguous().view(-1).view(torch.uint8), new.contiguous().view(-1).view(torch.uint8)))


def _values(constant: Any) -> str:
    return str(constant.tolist())[:60] if isinstance(constant, torch.Tensor) else f"a {type(constant).__name__}"


def _compare_results(record: Record, again: Record) -> None:
    leaves, spec = tree_flatten(record.result)
    twins, other_spec = tree_flatten(again.result)
    end = Call(None, (), {}, None, (), (), (), where="the end of the step")
    if spec != other_spec:
        raise InputError(f"the step returns another structure each time: {spec}, then {other_spec}")
    for leaf, other in zip(leaves, twins, strict=True):
        if isinstance(leaf, TensorRef) and isinstance(other, TensorRef):
            _require_same_tensor(end, record, leaf.number, again, other.number)
        elif not same_value(leaf, other):
            raise InputError(f"the step returns {shown_value(leaf)}, and then {shown_value(other)}; return tensors")
    if record.binds.keys() != again.binds.keys():
        changed = sorted(map(str, record.binds.keys() ^ again.binds.keys()))[0]
        raise InputError(f"the step leaves other tensors behind each time: {changed}")
    for place, number in record.binds.items():
        _require_same_tensor(end, record, number, again, again.binds[place])
