"""Finding a training step by name, for the command line."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from pebbler.errors import InputError, quoted

__all__ = ["load_step"]


def load_step(name: str) -> tuple[Callable[..., Any], Sequence[Any]]:
    """Return the step and its arguments that `module:function` makes; the module is looked for here first.

    >>> load_step("nowhere")
    Traceback (most recent call last):
    pebbler.errors.InputError: expected module:function, got nowhere
    """
    module_name, colon, function_name = name.partition(":")
    if not colon or not module_name or not function_name:
        raise InputError(f"expected module:function, got {quoted(name)}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise InputError(f"{quoted(module_name)} cannot be imported: {error}") from None
    function = getattr(module, function_name, None)
    if not callable(function):
        raise InputError(f"{quoted(module_name)} has no function {quoted(function_name)}")
    made = function()
    if not (isinstance(made, tuple) and len(made) == 2 and callable(made[0]) and isinstance(made[1], list | tuple)):
        raise InputError(f"{quoted(name)} must return (step, args): a function, and a tuple of its arguments")
    return made
