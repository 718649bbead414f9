"""Taking a tensor out of the storage that it is a view of, as a recording saw it: another part, another dtype, conjugated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pebbler.run.torch.capture.calls import Record

__all__ = ["take_part", "take_view", "view_call", "view_of"]


def take_view(root: torch.Tensor, shape: Sequence[int], stride: Sequence[int], distance: int) -> torch.Tensor:
    """Return a view that starts `distance` elements after the root does.

    >>> take_view(torch.arange(6), [2], [3], 1).tolist()
    [1, 4]
    """
    return torch.as_strided(root, shape, stride, root.storage_offset() + distance)


def take_part(
    root: torch.Tensor,
    shape: Sequence[int],
    stride: Sequence[int],
    distance: int,
    dtype: torch.dtype,
    conjugated: bool = False,
    negated: bool = False,
) -> torch.Tensor:
    """Return a view of any dtype that starts `distance` bytes after the root does.

    >>> take_part(torch.tensor([1 + 2j, 3 + 4j]), [2], [2], 4, torch.float32).tolist()
    [2.0, 4.0]
    """
    start = (root.storage_offset() * root.element_size() + distance) // dtype.itemsize
    view = torch.empty(0, dtype=dtype, device=root.device).set_(root.untyped_storage(), start, shape, stride)
    if conjugated:
        view = torch._conj(view)
    return torch._neg_view(view) if negated else view


def view_call(record: Record, number: int) -> tuple[Callable[..., torch.Tensor], tuple[Any, ...]] | None:
    """Return the call that makes a tensor from the first tensor on its storage, with its operands; None if they are the same."""
    info = record.tensors[number]
    first = record.root(info.storage)
    if info.layout == first.layout:
        return None
    shape, stride = list(info.shape), list(info.stride)
    if info.dtype != first.dtype or info.conjugated or info.negated:
        distance = info.offset * info.dtype.itemsize - first.offset * first.dtype.itemsize
        return take_part, (shape, stride, distance, info.dtype, info.conjugated, info.negated)
    return take_view, (shape, stride, info.offset - first.offset)


def view_of(record: Record, root: torch.Tensor, number: int) -> torch.Tensor:
    """Return a tensor of a recording, given the first one on its storage."""
    call = view_call(record, number)
    return root if call is None else call[0](root, *call[1])
