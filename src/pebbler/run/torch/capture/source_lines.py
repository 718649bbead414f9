"""The current line of the user's code, for messages."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import traceback
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

import torch

__all__ = ["in_optimizer", "line_of", "line_of_error", "running_optimizer", "user_line"]

_TORCH = os.path.dirname(torch.__file__) + os.sep
_OPTIMIZERS = os.path.join(_TORCH, "optim") + os.sep
_DISTRIBUTION = os.path.join(_TORCH, "distributions", "distribution.py")
_OURS = (_TORCH, os.path.dirname(os.path.dirname(__file__)) + os.sep)  # torch, and all stages of this package


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def in_optimizer() -> bool:
    """Whether one of torch's optimizers is running."""
    return any(frame.f_code.co_filename.startswith(_OPTIMIZERS) for frame in _frames())


def in_validation() -> str | None:
    """Return the place where the user's code uses a distribution of torch's that is checking values now; None elsewhere."""
    frame: FrameType | None = sys._getframe(1)
    while (
        frame is not None and frame.f_code.co_filename.startswith(_OURS) and frame.f_code.co_filename != _DISTRIBUTION
    ):
        frame = frame.f_back
    if frame is None or frame.f_code.co_filename != _DISTRIBUTION:
        return None
    return user_line() if frame.f_code.co_name in ("__init__", "_validate_sample") else None


def user_line() -> str:
    """Return the current place in the user's code: the innermost frame outside torch and pebbler."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = _user_file(frame.f_code)
        if name is not None:
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return "step"


@functools.lru_cache(maxsize=4096)
def _user_file(code: CodeType) -> str | None:
    """Return the name of the file of code outside torch and pebbler, None for theirs."""
    file = code.co_filename
    return None if file.startswith(_OURS) or file.startswith("<") else os.path.basename(file)


def running_optimizer() -> str | None:
    """Return the name of the optimizer whose code is running, None if there is none."""
    for frame in _frames():
        owner = frame.f_locals.get("self")
        if isinstance(owner, torch.optim.Optimizer):
            return type(owner).__name__
    return None


def line_of(function: Any) -> str:
    """Return the place where a function is defined.

    >>> line_of(line_of).split(":")[0]
    'source_lines.py'
    """
    function = inspect.unwrap(getattr(function, "__func__", function))
    code = getattr(function, "__code__", None)
    return "step" if code is None else f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"


def line_of_error(error: BaseException) -> str:
    """Return the innermost line of the user's code that an error came through."""
    found = "step"
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if not file.startswith(_OURS) and not file.startswith("<"):
            found = f"{os.path.basename(file)}:{line}"
    return found
