"""One capture at a time, and everything that it replaces in torch meanwhile, for the thread that records alone.

Functions and hooks of torch are shared by all threads. So captures wait for one another, and what a capture puts in the place of
something of torch's asks first who calls: another thread gets what was there before.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

__all__ = ["is_listening", "is_under_way", "one_at_a_time", "replaced"]

_LOCK = threading.RLock()
_here = threading.local()


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Wait for the captures and verified steps of other threads; one inside another of the same thread does not wait.

    >>> with one_at_a_time(), one_at_a_time():
    ...     print("planned")
    planned
    """
    with _LOCK:
        _here.depth = getattr(_here, "depth", 0) + 1
        try:
            yield
        finally:
            _here.depth -= 1


def is_under_way() -> bool:
    """Whether this thread captures or verifies a step: a planned step inside of it is a part of it, and runs as it is.

    >>> with one_at_a_time():
    ...     is_under_way()
    True
    >>> is_under_way()
    False
    """
    return getattr(_here, "depth", 0) > 0


def is_listening(recorder: TorchDispatchMode) -> bool:
    """Whether a recorder is told of what runs here: in its own thread, and in those where its backward pass runs."""
    return any(mode is recorder for mode in _get_current_dispatch_mode_stack())


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Let an attribute be another one, and put it back whatever happens.

    >>> class Box: lid = "shut"
    >>> with replaced(Box, "lid", "open"):
    ...     print(Box.lid)
    open
    >>> Box.lid
    'shut'
    """
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
