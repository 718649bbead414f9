"""Reading what is found at the places of a plan's inputs: before every call, and for hundreds of tensors.

So which kind of place each is gets decided once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pebbler.run.torch.capture.calls import Place
from pebbler.run.torch.capture.step_state import StepState

__all__ = ["PlaceReader"]


class PlaceReader:
    """Reads what `StepState.resolve` returns for each of some places, in their order.

    Which parameters optimizers have is guarded, so their state is looked up by the parameters that they had.
    """

    def __init__(self, state: StepState, places: Sequence[Place]) -> None:
        self._state = state
        self._values: list[Any] = [None] * len(places)  # tensors that are always the same ones
        self._arguments: list[tuple[int, int]] = []
        self._grads: list[tuple[int, Any]] = []
        self._settings: list[tuple[int, Place]] = []
        self._states: dict[int, list[tuple[int, Any, Any]]] = {}  # by optimizer: position, parameter, key
        for i, place in enumerate(places):
            match place[0]:
                case "arg":
                    self._arguments.append((i, place[1]))
                case "tensor":
                    self._values[i] = state.tensors[place[1]]
                case "grad":
                    self._grads.append((i, state.tensors[place[1]]))
                case "state":
                    _, number, group, position, key = place
                    param = state.optimizers[number].param_groups[group]["params"][position]
                    self._states.setdefault(number, []).append((i, param, key))
                case _:
                    self._settings.append((i, place))

    def read(self, leaves: Sequence[Any] = ()) -> list[Any]:
        """Return what is there now, None for nothing; `leaves` are the arguments of the step, flat."""
        values = self._values.copy()
        for i, argument in self._arguments:
            values[i] = leaves[argument]
        for i, tensor in self._grads:
            values[i] = tensor.grad
        for i, place in self._settings:
            values[i] = self._state.resolve(place, leaves)
        for number, rows in self._states.items():
            states = self._state.optimizers[number].state
            for i, param, key in rows:
                kept = states.get(param)
                if kept is not None:
                    values[i] = kept.get(key)
        return values
