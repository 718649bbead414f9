"""A log for undoing a step: bytes of tensors, gradients, optimizer state and random generators."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from pebbler.run.torch.capture.holders import HeldState
from pebbler.run.torch.capture.operators import values_written
from pebbler.run.torch.capture.random_state import random_state, set_random_state
from pebbler.run.torch.capture.step_state import StepState
from pebbler.run.torch.capture.tensor_watch import is_leaf

__all__ = ["StepBindings", "UndoLog"]


class UndoLog(TorchDispatchMode):  # type: ignore[misc]
    """Keeps the bytes of everything that was there before and that an operator inside it writes, from right before the write.

    >>> weight = torch.ones(2)
    >>> with UndoLog() as log:
    ...     _ = weight.mul_(3).add(1).zero_()
    >>> len(log.changed), weight.tolist()
    (1, [3.0, 3.0])
    >>> log.undo()
    >>> weight.tolist()
    [1.0, 1.0]
    """

    def __init__(self) -> None:
        super().__init__()
        self.changed: dict[int, tuple[torch.Tensor, torch.UntypedStorage]] = {}  # a tensor on it, and its old bytes
        self.collectives: list[str] = []
        self._made: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if "c10d" in func.namespace:
            self.collectives.append(str(func))
        if func is torch.ops.aten.lift_fresh.default:
            self._made.add(_key(args[0]))  # made from Python values right now
        for tensor in values_written(func, args, kwargs):
            self.keep(tensor)
        result = func(*args, **kwargs)
        operands = {_key(x) for x in tree_flatten((args, kwargs))[0] if _has_storage(x)}
        self._made |= {_key(x) for x in tree_flatten(result)[0] if _has_storage(x)} - operands
        return result

    def keep(self, tensor: torch.Tensor) -> None:
        """Keep the bytes of a tensor's storage, unless it was made meanwhile or is kept already."""
        if _has_storage(tensor) and _key(tensor) not in self._made and _key(tensor) not in self.changed:
            self.changed[_key(tensor)] = tensor.detach(), _host_bytes(tensor)

    def undo(self) -> None:
        """Restore everything; the log keeps its entries."""
        for tensor, kept in self.changed.values():
            tensor.untyped_storage().copy_(kept)


class StepBindings:
    """The existing gradients and optimizer state, and the state of the random generators."""

    def __init__(self, state: StepState, device: str) -> None:
        self.device = device
        params = [param for optimizer in state.optimizers for _, _, param in state.params(optimizer)]
        leaves = {id(t): t for t in (*state.tensors, *params) if is_leaf(t)}
        self.grads = [(tensor, tensor.grad) for tensor in leaves.values()]
        self.states = [HeldState(optimizer) for optimizer in state.optimizers]
        self.random = random_state(device)
        self.generators = [(generator, generator.get_state()) for generator in state.generators]

    def restore(self) -> None:
        """Restore everything."""
        for tensor, grad in self.grads:
            tensor.grad = grad
        for held in self.states:
            held.restore()
        set_random_state(self.random, self.device)
        for generator, drawn in self.generators:
            generator.set_state(drawn)


def _has_storage(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.layout == torch.strided


def _key(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _host_bytes(tensor: torch.Tensor) -> torch.UntypedStorage:
    """Return a copy of a tensor's storage in the host's memory."""
    storage = tensor.untyped_storage()
    return storage.clone() if storage.device.type == "cpu" else storage.cpu()
