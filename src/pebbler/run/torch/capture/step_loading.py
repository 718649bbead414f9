"""Finding a training step by name, for the command line."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from pebbler.errors import InputError, quoted

__all__ = ["load_step"]


def load_step(name: str) -> tuple[Callable[..., Any], Sequence[Any]]:
    """Return the step and its arguments that `module:function` or `file.py:function` makes; modules are looked for here first.

    >>> load_step("nowhere")
    Traceback (most recent call last):
    pebbler.errors.InputError: expected module:function or file.py:function, got nowhere
    """
    module_name, colon, function_name = name.rpartition(":")
    if not colon or not module_name or not function_name:
        raise InputError(f"expected module:function or file.py:function, got {quoted(name)}")
    try:
        module = _module_of_file(Path(module_name)) if module_name.endswith(".py") else _module_of_name(module_name)
    except (ImportError, OSError) as error:
        raise InputError(f"{quoted(module_name)} cannot be imported: {error}") from None
    function = getattr(module, function_name, None)
    if not callable(function):
        raise InputError(f"{quoted(module_name)} has no function {quoted(function_name)}")
    made = function()
    if not (isinstance(made, tuple) and len(made) == 2 and callable(made[0]) and isinstance(made[1], list | tuple)):
        raise InputError(f"{quoted(name)} must return (step, args): a function, and a tuple of its arguments")
    return made


def _module_of_name(name: str) -> ModuleType:
    _put_first(os.getcwd())
    return importlib.import_module(name)


def _module_of_file(path: Path) -> ModuleType:
    """Import a file as a script would be: what lies beside it can be imported from it."""
    _put_first(str(path.absolute().parent))
    name = f"{path.stem} in {path.parent}" if path.stem in sys.modules else path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # classes of the step look their module up
    spec.loader.exec_module(module)
    return module


def _put_first(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)
