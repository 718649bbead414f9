"""Capturing a training step as a graph in bytes.

A step is recorded at least twice: what it does may depend on what an earlier step left behind (the first step of an optimizer
makes its state), and two recordings with different learning rates show which operands follow from it. Each kind of step is a
`Phase` with a graph of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from pebbler.errors import InputError
from pebbler.game.graph import Graph
from pebbler.run.torch.capture.calls import Call, Place, Record, Scalar
from pebbler.run.torch.capture.phases import Phase, build_phase
from pebbler.run.torch.capture.scalars import Scalars
from pebbler.run.torch.capture.step_state import StepState

__all__ = ["Captured", "capture"]

_MOST_PHASES = 4


@dataclass
class Captured:
    """A captured step: its phases, the last of which is the one that repeats.

    >>> weight = torch.ones(3, requires_grad=True)
    >>> def step(x):
    ...     loss = (weight * x).sum()
    ...     loss.backward()
    ...     with torch.no_grad():
    ...         weight.sub_(weight.grad)
    ...     weight.grad = None
    ...     return loss
    >>> captured = capture(step, torch.ones(3))
    >>> [op.name for op in captured.graph.ops][-1], captured.graph.unit, weight.tolist()
    ('sub__4', 'byte', [1.0, 1.0, 1.0])
    """

    state: StepState = field(repr=False)
    phases: list[Phase] = field(repr=False)
    device: str

    @property
    def graph(self) -> Graph:
        """The graph of the step that repeats."""
        return self.phases[-1].graph

    @property
    def fingerprint(self) -> str:
        """What two captures of the same step with the same shapes share."""
        return "-".join(phase.fingerprint[:16] for phase in self.phases)


def capture(step: Callable[..., Any], *args: Any, device: str | None = None, keep_grads: bool = False) -> Captured:
    """Record a training step on fake tensors and return it as graphs in bytes; nothing is computed or changed.

    `step(*args)` is an ordinary function: forward, loss, backward, optimizer step. Memory is counted on `device`, by default where
    the tensors are. With `keep_grads` the gradients that the step leaves stay. Raises `InputError` for what no plan can promise to
    repeat: branches on values, shapes that depend on values.

    >>> model = torch.nn.Linear(4, 2)
    >>> captured = capture(lambda x: model(x).square().mean(), torch.ones(8, 4))
    >>> len(captured.phases), captured.graph.ops[-1].name, captured.device
    (1, 'mean_2', 'cpu')
    """
    state = StepState(step, args)
    try:
        recordings = _record_until_it_repeats(state)
    finally:
        state.restore()
    device = device or _main_device(recording.record for recording in recordings)
    *first, last, again = recordings
    records = [_find_scalars(recording, None) for recording in first] + [_find_scalars(last, again)]
    entries = [recording.entry for recording in recordings[:-1]]
    read_grads = {place for entry in entries for place in entry if place[0] == "grad"}
    if keep_grads:
        read_grads |= {place for record in records for place in record.binds if place[0] == "grad"}
    phases = [build_phase(record, entry, read_grads, device) for record, entry in zip(records, entries, strict=True)]
    return Captured(state, phases, device)


class _Recording(NamedTuple):
    record: Record
    scalars: Scalars
    entry: frozenset[Place]  # optimizer state and gradients that it reads


def _record_until_it_repeats(state: StepState) -> list[_Recording]:
    recordings: list[_Recording] = []
    for seed in range(_MOST_PHASES + 1):
        record, scalars = state.record(seed)
        recordings.append(_Recording(record, scalars, _entry(record)))
        if seed and recordings[-2].entry == recordings[-1].entry:
            return recordings
    raise InputError(
        f"the step still makes new state after {_MOST_PHASES} steps; only state of a fixed number can be planned"
    )


def _entry(record: Record) -> frozenset[Place]:
    places = [storage.place for storage in record.storages if storage.place is not None]
    return frozenset(place for place in places if place[0] in ("state", "grad"))


def _find_scalars(recording: _Recording, again: _Recording | None) -> Record:
    """Return a recording with the numbers that change from step to step as expressions, found by comparing it with another.

    Only one recording exists of a phase that happens once; there every operand whose value is that of an expression is one.
    """
    record = recording.record
    if again is not None and [str(c.func) for c in again.record.calls] != [str(c.func) for c in record.calls]:
        raise InputError("the step runs other operators each time; a plan needs the same ones")
    calls: list[Call] = []
    for i, call in enumerate(record.calls):
        leaves, spec = tree_flatten((call.args, call.kwargs))
        twins = leaves if again is None else list(record.leaves(again.record.calls[i]))
        if len(twins) != len(leaves):
            raise InputError(f"{call.where}: {call.func} gets other operands each time")
        operands = [
            _operand(call, leaf, twin, recording.scalars, None if again is None else again.scalars)
            for leaf, twin in zip(leaves, twins, strict=True)
        ]
        args, kwargs = tree_unflatten(operands, spec)
        calls.append(replace(call, args=args, kwargs=kwargs))
    return replace(record, calls=calls)


def _operand(call: Call, leaf: Any, twin: Any, scalars: Scalars, others: Scalars | None) -> Any:
    """Return an operand, as an expression if it is a number that is computed anew in every step."""
    if not isinstance(leaf, float):
        if isinstance(leaf, int | str | bool | torch.dtype) and leaf != twin:
            raise InputError(f"{call.where}: {call.func} gets {leaf} and then {twin}; a plan needs the same operands")
        return leaf
    expression = scalars.expressions.get(leaf)
    if leaf == twin if others is not None else expression is None or leaf in (0.0, 1.0):
        return leaf
    if expression is None or (others is not None and others.expressions.get(twin) != expression):
        raise InputError(
            f"{call.where}: {call.func} gets a number that changes from step to step ({leaf}, then {twin}), and how it "
            "follows from the learning rate is not known; keep the learning rate in a tensor"
        )
    return Scalar(expression)


def _main_device(records: Iterable[Record]) -> str:
    """Return the device where most of the memory is."""
    total: dict[str, int] = {}
    for record in records:
        for storage in record.storages:
            total[storage.device] = total.get(storage.device, 0) + storage.bytes
    return max(total, key=lambda name: (total[name], name)) if total else "cpu"
