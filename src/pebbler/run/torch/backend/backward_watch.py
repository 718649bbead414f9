"""Hooks on the begin and end of backward passes. Autograd's own hooks run inside the engine, in the middle of a step."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import cache, wraps
from typing import Any, Protocol

import torch

__all__ = ["watch_backward"]

_NO_TASK = -1


class _BackwardWatcher(Protocol):
    """An object that is told of backward passes."""

    def backward_begins(self, roots: Sequence[Any]) -> None: ...

    def backward_ends(self) -> None: ...

    def backward_fails(self) -> None: ...


_WATCHERS: weakref.WeakSet[Any] = weakref.WeakSet()


def watch_backward(watcher: _BackwardWatcher) -> None:
    """Notify a watcher before and after every backward pass while it exists; `backward` raises its exceptions."""
    _listen()
    _WATCHERS.add(watcher)


@cache
def _listen() -> None:
    """Have `torch.autograd.backward` and `grad` run the engine through here, once per process and for all threads."""
    run = torch.autograd._engine_run_backward

    @wraps(run)
    def run_and_tell(roots: Sequence[Any], *args: Any, **more: Any) -> Any:
        if torch._C._current_graph_task_id() != _NO_TASK:
            return run(roots, *args, **more)  # within another backward pass, such as that of a checkpoint
        for watcher in list(_WATCHERS):
            watcher.backward_begins(roots)
        try:
            result = run(roots, *args, **more)
        except BaseException:
            for watcher in list(_WATCHERS):
                watcher.backward_fails()
            raise
        for watcher in list(_WATCHERS):
            watcher.backward_ends()
        return result

    torch.autograd._engine_run_backward = run_and_tell
