"""Comparing two recordings of the same step, operand by operand; what differs and does not follow from known numbers is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from pebbler.errors import InputError
from pebbler.run.torch.capture.calls import Call, Constant, Record, Scalar, TensorRef, shown
from pebbler.run.torch.capture.python_state import same_value, shown_value
from pebbler.run.torch.capture.scalars import Scalars

__all__ = ["find_scalars"]


def find_scalars(record: Record, scalars: Scalars, again: Record, others: Scalars) -> Record:
    """Return a recording with the numbers that change from step to step as expressions, found by comparing it with another.

    Everything else must be the same in both: operators, tensors and their views, constants, results, branches on numbers.
    """
    comparison = _RecordingPair(record, scalars, again, others)
    calls = [comparison.compared(call, twin) for call, twin in zip(record.calls, again.calls, strict=False)]
    if len(record.calls) != len(again.calls):
        call = max(record.calls, again.calls, key=len)[len(calls)]
        raise InputError(
            f"{call.where}: the step runs {call.func} in one step and not in the next; a plan needs the same ones"
        )
    comparison.compare_results()
    if record.guards != again.guards:
        raise InputError(
            "the step branches on a number, and takes another branch each time; a plan needs the same ones"
        )
    if [q.likeness for q in record.questions] != [q.likeness for q in again.questions]:
        raise InputError("the step branches on values, and takes another branch each time; a plan needs the same ones")
    return replace(record, calls=calls)


class _RecordingPair:
    """Compares two recordings; tensors that are found to be the same once are not looked at again."""

    def __init__(self, record: Record, scalars: Scalars, again: Record, others: Scalars) -> None:
        self.record, self.scalars, self.again, self.others = record, scalars, again, others
        self._same: set[tuple[int, int]] = set()

    def compared(self, call: Call, twin: Call) -> Call:
        """Return a call with numbers that follow from settings as expressions; refuse whatever else differs."""
        if (call.func is not twin.func and str(call.func) != str(twin.func)) or (call.grad, call.unless) != (
            twin.grad,
            twin.unless,
        ):
            raise InputError(
                f"{call.where}: the step runs {call.func}, and in the next step {twin.func}; a plan needs the same ones"
            )
        args, kwargs, outputs = (
            self._merged(call, old, new)
            for old, new in ((call.args, twin.args), (call.kwargs, twin.kwargs), (call.outputs, twin.outputs))
        )
        if args is call.args and kwargs is call.kwargs and outputs is call.outputs:
            return call
        return replace(call, args=args, kwargs=kwargs, outputs=outputs)

    def _merged(self, call: Call, old: Any, new: Any) -> Any:
        """Return operands with expressions in place of numbers that change; the same object where nothing does."""
        kind = type(old)
        if kind is TensorRef and type(new) is TensorRef:
            self._require_same_tensor(call, old.number, new.number)
            return old
        if old is new:
            return old
        if kind is tuple or kind is list or kind is dict:
            if type(new) is not kind or len(old) != len(new) or (kind is dict and list(old) != list(new)):
                raise InputError(f"{call.where}: {call.func} gets other operands each time")
            if kind is dict:
                parts = {key: self._merged(call, value, new[key]) for key, value in old.items()}
                return old if all(parts[key] is value for key, value in old.items()) else parts
            row = [self._merged(call, a, b) for a, b in zip(old, new, strict=True)]
            return old if all(a is b for a, b in zip(row, old, strict=True)) else kind(row)
        if isinstance(old, float) and isinstance(new, float):
            return self._number(call, old, new)
        self._require_same(call, old, new)
        return old

    def _number(self, call: Call, leaf: float, twin: float) -> Any:
        """Return a number, as an expression if it is computed anew in every step."""
        if same_value(float(leaf), float(twin)):
            return leaf if type(leaf) is float else float(leaf)
        expression = self.scalars.expressions.get(leaf)
        if expression is None or self.others.expressions.get(twin) != expression:
            raise InputError(
                f"{call.where}: {call.func} gets a number that changes from step to step ({leaf}, then {twin}), and how it "
                "follows from the optimizer's settings is not known; keep it in a tensor, or pass it as an argument in a tensor"
            )
        return Scalar(expression)

    def _require_same(self, call: Call, leaf: Any, other: Any) -> None:
        if isinstance(leaf, Constant) and isinstance(other, Constant):
            old, new = self.record.constants[leaf.number], self.again.constants[other.number]
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

    def _require_same_tensor(self, call: Call, number: int, other: int) -> None:
        if (number, other) in self._same:
            return
        old, new = self.record.tensors[number], self.again.tensors[other]
        places = self.record.storages[old.storage].place, self.again.storages[new.storage].place
        if old.storage != new.storage or places[0] != places[1]:
            raise InputError(
                f"{call.where}: {call.func} gets another tensor in the next step; pass it to the step as an argument"
            )
        if old != new:
            raise InputError(
                f"{call.where}: {call.func} gets another part of a tensor in the next step ({shown(old)} from {old.offset}, then "
                f"{shown(new)} from {new.offset}); a plan needs the same one"
            )
        self._same.add((number, other))

    def compare_results(self) -> None:
        """Refuse results, and tensors left behind, that differ."""
        record, again = self.record, self.again
        leaves, spec = tree_flatten(record.result)
        twins, other_spec = tree_flatten(again.result)
        end = Call(None, (), {}, None, (), (), (), where="the end of the step")
        if spec != other_spec:
            raise InputError(f"the step returns another structure each time: {spec}, then {other_spec}")
        for leaf, other in zip(leaves, twins, strict=True):
            if isinstance(leaf, TensorRef) and isinstance(other, TensorRef):
                self._require_same_tensor(end, leaf.number, other.number)
            elif isinstance(leaf, Scalar) and leaf == other:
                continue  # read from the same tensor
            elif not same_value(leaf, other):
                raise InputError(f"the step returns {shown_value(leaf)}, and then {shown_value(other)}; return tensors")
        if record.binds.keys() != again.binds.keys():
            changed = sorted(map(str, record.binds.keys() ^ again.binds.keys()))[0]
            raise InputError(f"the step leaves other tensors behind each time: {changed}")
        for place, number in record.binds.items():
            self._require_same_tensor(end, number, again.binds[place])


def _same_constant(old: Any, new: Any) -> bool:
    if not isinstance(old, torch.Tensor) or not isinstance(new, torch.Tensor):
        return old is new
    if (old.shape, old.stride(), old.dtype, old.device) != (new.shape, new.stride(), new.dtype, new.device):
        return False
    return bool(torch.equal(old.contiguous().view(-1).view(torch.uint8), new.contiguous().view(-1).view(torch.uint8)))


def _values(constant: Any) -> str:
    return str(constant.tolist())[:60] if isinstance(constant, torch.Tensor) else f"a {type(constant).__name__}"
