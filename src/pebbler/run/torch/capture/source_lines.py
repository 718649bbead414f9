"""Whose code a file is, and the current line of the user's code, for messages."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch

__all__ = [
    "OURS", "TORCH", "in_optimizer", "in_validation", "is_library", "is_optimizers", "line_of", "line_of_error", "package_of",
    "running_optimizer", "user_file", "user_line",
]  # fmt: skip

TORCH = os.path.dirname(torch.__file__) + os.sep
OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep  # all stages of this package
_OPTIMIZERS = os.path.join(TORCH, "optim") + os.sep
_DISTRIBUTION = os.path.join(TORCH, "distributions", "distribution.py")
_SITE = tuple({sysconfig.get_paths()[key] + os.sep for key in ("purelib", "platlib")})
_STDLIB = tuple({sysconfig.get_paths()[key] + os.sep for key in ("stdlib", "platstdlib")})
# Their Python code keeps no state that a step could depend on.
_OTHERS = ("numpy", "scipy", "pandas", "pyarrow", "pytest", "_pytest", "pluggy", "hypothesis", "coverage", "debugpy", "sympy",
           "mpmath", "typing_extensions", "networkx", "triton")  # fmt: skip
_GENERATED = (
    "<frozen ",
    "<builtin>",
    "<eval_with_key>",
    "<__array_function__",
)  # other code without a file was typed or made by users


def package_of(file: str) -> str:
    """Return whose code a file is: "torch", "stdlib", the name of an installed package, or "" for the user's own.

    >>> package_of(torch.nn.__file__), package_of(os.__file__), package_of("train.py")
    ('torch', 'stdlib', '')
    """
    if file.startswith((TORCH, OURS)):
        return "torch"
    for folder in _SITE:
        if file.startswith(folder):
            return file[len(folder) :].split(os.sep)[0].removesuffix(".py")
    return "stdlib" if file.startswith((*_STDLIB, *_GENERATED)) else ""


def is_library(package: str) -> bool:
    """Whether nothing that a step depends on is looked for in the globals of this package."""
    return package in ("torch", "stdlib", *_OTHERS)


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def in_optimizer() -> bool:
    """Whether one of torch's optimizers is running."""
    return any(is_optimizers(frame.f_code.co_filename) for frame in _frames())


def is_optimizers(file: str) -> bool:
    """Whether a file is one of torch's optimizers."""
    return file.startswith(_OPTIMIZERS)


def in_validation() -> str | None:
    """Return the place where the user's code uses a distribution of torch's that is checking values now; None elsewhere."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((TORCH, OURS)):
        if frame.f_code.co_filename == _DISTRIBUTION:
            break
        frame = frame.f_back
    if frame is None or frame.f_code.co_filename != _DISTRIBUTION:
        return None
    return user_line() if frame.f_code.co_name in ("__init__", "_validate_sample") else None


def user_line() -> str:
    """Return the current place in the user's code: the innermost frame outside torch and pebbler."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = user_file(frame.f_code.co_filename)
        if name is not None:
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return "step"


@functools.cache
def user_file(file: str) -> str | None:
    """Return the short name of a file outside torch and pebbler, None for theirs and for code without a file."""
    return None if file.startswith((TORCH, OURS, "<")) else os.path.basename(file)


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
        name = user_file(frame.f_code.co_filename)
        found = found if name is None else f"{name}:{line}"
    return found
