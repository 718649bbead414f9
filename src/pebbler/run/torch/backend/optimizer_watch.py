"""Hooks on optimizer steps. The memory of optimizers belongs to the peak of a training step."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

__all__ = ["TrainedLeaves", "watch_optimizers"]


class _Watcher(Protocol):
    """A listener to optimizers' steps."""

    def optimizer_begins(self, optimizer: Optimizer) -> None: ...

    def optimizer_ends(self) -> None: ...


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


_WATCHERS: weakref.WeakSet[Any] = weakref.WeakSet()


def watch_optimizers(watcher: _Watcher) -> None:
    """Tell someone before and after every step of any optimizer of torch's, as long as they are there."""
    _listen()
    _WATCHERS.add(watcher)


@cache
def _listen() -> None:
    """Ask torch, once per process."""
    register_optimizer_step_pre_hook(_begins)
    register_optimizer_step_post_hook(_ends)


def _begins(optimizer: Optimizer, *_: Any) -> None:
    for watcher in list(_WATCHERS):
        watcher.optimizer_begins(optimizer)


def _ends(*_: Any) -> None:
    for watcher in list(_WATCHERS):
        watcher.optimizer_ends()
