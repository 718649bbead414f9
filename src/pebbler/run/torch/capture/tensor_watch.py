"""Detection of changed tensors: shape, strides, dtype, device, requires_grad, hooks, and shared memory.

Torch's own guards, those of `torch.compile`, look at hundreds of tensors in microseconds. What they see as changed is looked at
again in Python, which says what it is.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import repeat
from typing import Any

import torch
from torch._C._dynamo.guards import TensorGuards

__all__ = ["TensorWatch", "is_leaf", "same_memory", "storages_of_tensors"]

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_LOOKS = ("shape", "strides", "dtype", "device", "requires_grad", "hooks", "hooks after accumulating")
_storage_of, _identity = torch.Tensor.untyped_storage, operator.attrgetter("_cdata")
_hooks, _later_hooks = operator.attrgetter("_backward_hooks"), operator.attrgetter("_post_accumulate_grad_hooks")


def storages_of_tensors(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Return the identity of every tensor's storage.

    >>> x = torch.ones(4)
    >>> first, second, other = storages_of_tensors([x, x[2:], x.clone()])
    >>> first == second, first == other
    (True, False)
    """
    return list(map(_identity, map(_storage_of, tensors)))


def same_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors are the same numbers: in the same memory, of the same form.

    >>> x = torch.ones(4)
    >>> same_memory(x, x.detach()), same_memory(x, x[:2])
    (True, False)
    """
    first, second = storages_of_tensors([one, other])
    return first == second and _form(one) == _form(other)


def is_leaf(tensor: torch.Tensor) -> bool:
    """Return whether autograd adds gradients to a tensor itself.

    Torch refuses to say for a view that was made without gradients and whose base has become a result; it is no leaf.

    >>> base = torch.ones(2)
    >>> with torch.no_grad():
    ...     view = base[:1]
    >>> _ = base.mul_(torch.ones(2, requires_grad=True))
    >>> is_leaf(torch.ones(2)), is_leaf(base), is_leaf(view)
    (True, False, False)
    """
    try:
        return bool(tensor.is_leaf)
    except RuntimeError:
        return False


def _form(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.device


class TensorWatch:
    """Compares tensors with their appearance when the watch was made.

    >>> weight = torch.ones(3, 2)
    >>> watch = TensorWatch([weight], ["weight"])
    >>> watch.change()
    >>> weight.data = torch.ones(2, 3).t()
    >>> watch.change()
    ('strides of weight', ' ((2, 1), now (1, 3))')
    """

    def __init__(self, tensors: Sequence[torch.Tensor], names: Sequence[str]) -> None:
        self._all, self._names = list(tensors), names
        self._looks = [_look(tensor) for tensor in tensors]
        self._sharing = _sharing(storages_of_tensors(tensors))
        # Hooks can change inside, and torch's guards are for plain tensors; both are rare enough to be looked at in Python.
        hooked = any(look[-2] or look[-1] for look in self._looks)
        self._quick = bool(tensors) and not hooked and all(type(tensor) in _PLAIN for tensor in tensors)
        self._guards: Any = self._made_guards() if self._quick else None
        self.storages = storages_of_tensors(tensors)  # at the last look

    def _made_guards(self) -> Any:
        return TensorGuards(*self._all, dynamic_dims_sizes=None, dynamic_dims_strides=None)

    def change(self) -> tuple[str, str] | None:
        """Return the first change, in words; None if there is none."""
        if not self._looks_alike():
            for name, tensor, old in zip(self._names, self._all, self._looks, strict=True):
                for what, before, after in zip(_LOOKS, old, _look(tensor), strict=True):
                    if before != after:
                        return f"{what} of {name}", f" ({before}, now {after})"
            if self._quick:  # they are the same under another mode of torch, such as autocast
                self._guards = self._made_guards()
        storages = storages_of_tensors(self._all)
        if storages != self.storages:
            if _sharing(storages) != self._sharing:
                return "which parameters and buffers share memory", ""
            self.storages = storages
        return None

    def _looks_alike(self) -> bool:
        if not self._quick:
            return False
        nothing: Any = repeat(None)
        if not all(map(operator.is_, map(_hooks, self._all), nothing)):
            return False
        if not all(map(operator.is_, map(_later_hooks, self._all), nothing)):
            return False
        return bool(self._guards.check(*self._all))


def _look(tensor: torch.Tensor) -> tuple[Any, ...]:
    hooks = tensor._backward_hooks
    after = tensor._post_accumulate_grad_hooks
    return (
        tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad, hooks and tuple(hooks),
        after and tuple(after),
    )  # fmt: skip


def _sharing(storages: Sequence[int]) -> list[int]:
    """Return for every tensor the first one that is in the same memory."""
    first: dict[int, int] = {}
    return [first.setdefault(storage, i) for i, storage in enumerate(storages)]
