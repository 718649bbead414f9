"""Seeing optimizers step, whoever calls them: what they hold belongs to the peak of a training step."""

from __future__ import annotations

import weakref
from functools import cache
from typing import Any, Protocol

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

__all__ = ["watch_optimizers"]


class _Watcher(Protocol):
    """Who is told of optimizers' steps."""

    def optimizer_begins(self, optimizer: Optimizer) -> None: ...

    def optimizer_ends(self) -> None: ...


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
