"""Capturing a training step as a graph in bytes.

A step is recorded several times: what it does may depend on what an earlier step left behind (the first step of an optimizer
makes its state), and two recordings with different learning rates show which operands follow from it. Each kind of step is a
`Phase` with a graph of its own. With them come guards: what the step read, and must find again in every step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode_stack

from pebbler.game.graph import Graph
from pebbler.run.torch.capture.calls import Record
from pebbler.run.torch.capture.guards import Guards
from pebbler.run.torch.capture.one_at_a_time import one_at_a_time
from pebbler.run.torch.capture.phases import Phase, build_phase
from pebbler.run.torch.capture.recordings import record_phases, without_finalizers
from pebbler.run.torch.capture.step_state import StepState

__all__ = ["Captured", "capture"]


@dataclass
class Captured:
    """A captured step: its phases, the last of which is the one that repeats.

    >>> import torch
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
    guards: Guards = field(repr=False)

    @property
    def keep_grads(self) -> bool:
        """Whether the gradients that the step leaves stay."""
        return self.state.keep_grads

    @property
    def graph(self) -> Graph:
        """The graph of the step that repeats."""
        return self.phases[-1].graph

    @property
    def fingerprint(self) -> str:
        """The fingerprint that two captures of the same step with the same shapes share."""
        return "-".join(phase.fingerprint[:16] for phase in self.phases)


def capture(
    step: Callable[..., Any],
    *args: Any,
    device: str | None = None,
    keywords: Mapping[str, Any] | None = None,
    keep_grads: bool = False,
) -> Captured:
    """Record a training step on fake tensors and return it as graphs in bytes; nothing is computed or changed.

    `step(*args, **keywords)` is an ordinary function: forward, loss, backward, optimizer step. Memory is counted on `device`, by
    default where the tensors are. With `keep_grads` the gradients that the step leaves stay. Raises `InputError` for what no plan
    can promise to repeat: branches on values, shapes that depend on values, Python state that the step changes.

    >>> import torch
    >>> model = torch.nn.Linear(4, 2)
    >>> captured = capture(lambda x: model(x).square().mean(), torch.ones(8, 4))
    >>> len(captured.phases), captured.graph.ops[-1].name, captured.device
    (1, 'mean_2', 'cpu')
    """
    with one_at_a_time(), without_finalizers(), _without_fake_mode():
        return _capture(StepState(step, args, keywords, keep_grads), device)


def _capture(state: StepState, device: str | None) -> Captured:
    recordings, guards = record_phases(state)
    device = device or _main_device(recording.record for recording in recordings)
    read_grads = {place for recording in recordings for place in recording.entry if place[0] == "grad"}
    if state.keep_grads:
        read_grads |= {place for recording in recordings for place in recording.record.binds if place[0] == "grad"}
    phases = [build_phase(recording.record, recording.entry, read_grads, device) for recording in recordings]
    return Captured(state, phases, device, guards)


def _without_fake_mode() -> AbstractContextManager[Any]:
    """Set the caller's modes aside where they make tensors without memory: recordings have a mode of their own for that."""
    modes = _get_current_dispatch_mode_stack()
    return _disable_current_modes() if any(isinstance(mode, FakeTensorMode) for mode in modes) else nullcontext()


def _main_device(records: Iterable[Record]) -> str:
    """Return the device where most of the memory is."""
    total: dict[str, int] = {}
    for record in records:
        for storage in record.storages:
            total[storage.device] = total.get(storage.device, 0) + storage.bytes
    return max(total, key=lambda name: (total[name], name)) if total else "cpu"
