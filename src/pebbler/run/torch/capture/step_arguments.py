"""The arguments of a step, flat: tensors are found in any pytree, in dataclasses, mappings and objects that hold tensors."""

from __future__ import annotations

import dataclasses
import dis
import types
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

__all__ = ["fields_of", "flatten_arguments", "unread_parameters"]

_ALL_BY_NAME = {"locals", "vars", "eval", "exec", "dir", "_getframe", "currentframe", "stack"}


def flatten_arguments(value: Any) -> tuple[list[Any], tuple[Any, ...]]:
    """Return the leaves of a structure, and the structure: equal for two values of the same form.

    >>> flatten_arguments({"x": 1, "y": (2, 3)})[0]
    [1, 2, 3]
    """
    leaves, spec = tree_flatten(value)
    flat: list[Any] = []
    inner = []
    for i, leaf in enumerate(leaves):
        fields = fields_of(leaf)
        if fields is None:
            flat.append(leaf)
        else:
            more, form = flatten_arguments(fields)
            flat += more
            inner.append((i, type(leaf), form))
    return flat, (spec, *inner)


def fields_of(leaf: Any) -> dict[str, Any] | None:
    """Return the parts of an object that holds tensors, None for anything else."""
    if isinstance(leaf, torch.Tensor | type | torch.nn.Module | torch.optim.Optimizer):
        return None
    if isinstance(leaf, Mapping):
        return dict(leaf)
    if dataclasses.is_dataclass(leaf):
        parts = {field.name: getattr(leaf, field.name) for field in dataclasses.fields(leaf)}
    else:
        parts = dict(getattr(leaf, "__dict__", {}))
    return parts if any(_has_tensor(part) for part in parts.values()) else None


def unread_parameters(function: Any) -> set[int | str]:
    """Return the parameters that a function never reads, by position and by name.

    >>> sorted(map(str, unread_parameters(lambda x, index: x + 1)))
    ['1', 'index']
    """
    kind: Any = type(function)
    plain = function if kind is types.FunctionType else getattr(function, "__func__", getattr(kind, "__call__"))  # noqa: B004,B009
    if not isinstance(plain, types.FunctionType):
        return set()
    code, bound = plain.__code__, plain is not function
    read = {name for line in dis.get_instructions(code) for name in _names_in(line.argval)}
    if read & _ALL_BY_NAME:
        return set()
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    unread = [(i - bound, name) for i, name in enumerate(names) if name not in read and not (bound and i == 0)]
    by_position = {i for i, name in unread if i + bound < code.co_argcount}
    return by_position | {name for i, name in unread if i + bound >= code.co_posonlyargcount}


def _names_in(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,) if isinstance(value, str) else ()


def _has_tensor(value: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) for leaf in tree_flatten(value)[0])
