"""The arguments of a step taken apart: its tensors in a list, and all the rest as a structure that can be put together again."""

from __future__ import annotations

import copy
import dataclasses
from collections import UserDict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

__all__ = ["BatchStructure", "take_apart"]


@dataclasses.dataclass(frozen=True)
class BatchStructure:
    """Arguments without their tensors; two calls with equal `key` can run the same plan.

    >>> structure, tensors = take_apart(((torch.ones(2), 3), {"scale": torch.ones(2, 4)}))
    >>> [t.shape for t in tensors]
    [torch.Size([2]), torch.Size([2, 4])]
    >>> args, kwargs = structure.put_together(tensors)
    >>> args[1], list(kwargs)
    (3, ['scale'])
    """

    key: tuple[Any, ...]
    put_together: Callable[[Sequence[torch.Tensor]], Any] = dataclasses.field(compare=False, repr=False)


def take_apart(value: Any) -> tuple[BatchStructure, list[torch.Tensor]]:
    """Return the structure of a value and its tensors, each once; looks into torch's containers, dict-likes and dataclasses."""
    tensors: list[torch.Tensor] = []
    slots: dict[int, int] = {}
    key: list[Any] = []
    build = _take(value, tensors, slots, key)
    key += [(t.shape, t.stride(), t.dtype, t.device, t.requires_grad) for t in tensors]
    return BatchStructure(tuple(key), build), tensors


_Build = Callable[[Sequence[torch.Tensor]], Any]


def _take(value: Any, tensors: list[torch.Tensor], slots: dict[int, int], key: list[Any]) -> _Build:
    if isinstance(value, torch.Tensor):
        slot = slots.setdefault(id(value), len(tensors))
        if slot == len(tensors):
            tensors.append(value)
        key.append(slot)
        return lambda given: given[slot]
    if isinstance(value, UserDict):
        inside = _take(dict(value), tensors, slots, _of_type(value, key))
        empty = _with_attributes(value, {"data": {}})  # the structure must not keep the tensors
        return lambda given: _with_attributes(empty, {"data": inside(given)})
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        inside = _take(fields, tensors, slots, _of_type(value, key))
        bare = _with_attributes(value, dict.fromkeys(fields))
        return lambda given: _with_attributes(bare, inside(given))
    leaves, spec = tree_flatten(value)
    if len(leaves) == 1 and leaves[0] is value:
        key.append(_constant_key(value))
        return lambda given: value
    key.append(str(spec))
    return _container([_take(leaf, tensors, slots, key) for leaf in leaves], spec)


def _container(parts: list[_Build], spec: TreeSpec) -> _Build:
    return lambda given: tree_unflatten([part(given) for part in parts], spec)


def _of_type(value: Any, key: list[Any]) -> list[Any]:
    key.append(type(value))
    return key


def _with_attributes(value: Any, attributes: dict[str, Any]) -> Any:
    made = copy.copy(value)
    for name, new in attributes.items():
        object.__setattr__(made, name, new)
    return made


def _constant_key(value: Any) -> Any:
    """Return what two constants must share: type and value, for objects of other kinds that they are the same one."""
    plain = value is None or isinstance(value, bool | int | float | complex | str | bytes | torch.dtype | torch.device)
    return (type(value), repr(value)) if plain else (type(value), id(value))
