"""Hooks on backward passes and optimizer steps. Autograd's own hooks run inside the engine, in the middle of a step."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import cache, wraps
from typing import Any, Protocol

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

__all__ = ["TrainedLeaves", "watch_steps"]

_NO_TASK = -1


class _StepWatcher(Protocol):
    """An object that is told of backward passes and of optimizers' steps."""

    def backward_begins(self, roots: Sequence[Any]) -> None: ...

    def backward_ends(self) -> None: ...

    def backward_fails(self) -> None: ...

    def optimizer_begins(self, optimizer: Optimizer) -> None: ...

    def optimizer_ends(self) -> None: ...


_WATCHERS: weakref.WeakSet[Any] = weakref.WeakSet()


def watch_steps(watcher: _StepWatcher) -> None:
    """Notify a watcher before and after every backward pass and optimizer step while it exists; they raise its exceptions."""
    _listen()
    _WATCHERS.add(watcher)


def _tell(event: str, *about: Any) -> None:
    for watcher in list(_WATCHERS):
        getattr(watcher, event)(*about)


@cache
def _listen() -> None:
    """Have autograd run its engine through here, and torch tell of optimizers, once per process and for all threads."""
    run = torch.autograd._engine_run_backward

    @wraps(run)
    def run_and_tell(roots: Sequence[Any], *args: Any, **more: Any) -> Any:
        if torch._C._current_graph_task_id() != _NO_TASK:
            return run(roots, *args, **more)  # within another backward pass, such as that of a checkpoint
        _tell("backward_begins", roots)
        try:
            result = run(roots, *args, **more)
        except BaseException:
            _tell("backward_fails")
            raise
        _tell("backward_ends")
        return result

    torch.autograd._engine_run_backward = run_and_tell
    register_optimizer_step_pre_hook(lambda optimizer, *_: _tell("optimizer_begins", optimizer))
    register_optimizer_step_post_hook(lambda *_: _tell("optimizer_ends"))


class TrainedLeaves:
    """Parameters that graphs were given, held weakly."""

    def __init__(self) -> None:
        self._known: dict[int, weakref.ref[Any]] = {}

    def clear(self) -> None:
        """Forget them."""
        self._known.clear()

    def add(self, args: Sequence[Any]) -> None:
        """Note those among the arguments of a graph."""
        leaves = (x for x in args if isinstance(x, torch.Tensor) and x.is_leaf and x.requires_grad)
        self._known.update((id(x), weakref.ref(x)) for x in leaves)

    def are_changed_by(self, optimizer: Optimizer) -> bool:
        """Return whether an optimizer changes any of them; others are none of our business."""
        return any(
            p is known()
            for group in optimizer.param_groups
            for p in group["params"]
            if (known := self._known.get(id(p))) is not None
        )
