"""In which order kernels lay out their results, where torch's shape functions may be wrong about it.

A shape function sometimes keeps the strides of its operand where the kernel makes a row-major result (layer norm of a permuted
tensor), or the other way round. An operator that is recorded with an operand or a result that is not row-major is therefore run
once, on zeros of the same layout.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from pebbler.run.torch.capture.operand_trees import leaves_of, map_leaves
from pebbler.run.torch.capture.operators import CTC, is_random

__all__ = ["laid_out_as_made"]


def laid_out_as_made(fakes: FakeTensorMode, func: Any, args: Any, kwargs: Any, result: Any) -> Any:
    """Return a fake result laid out as the kernel lays it out."""
    operands, results = _tensors((args, kwargs)), _tensors(result)
    if not _is_in_doubt(func, args, kwargs, operands, results):
        return result
    strides = _strides_made(func, args, kwargs, [x.shape for x in results])
    if strides is None or strides == [x.stride() for x in results]:
        return result
    remaining = iter(strides)

    def laid_out(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return torch.empty_strided(leaf.shape, next(remaining), dtype=leaf.dtype, device=leaf.device)

    with fakes:
        return map_leaves(laid_out, result)


def _is_in_doubt(func: Any, args: Any, kwargs: Any, operands: list[Any], results: list[Any]) -> bool:
    """Return whether a kernel makes new tensors, may lay them out in another way, and can be tried on zeros."""
    if func.namespace != "aten" or func in CTC or func._schema.is_mutable or torch.Tag.pointwise in func.tags:
        return False
    if any(x.layout != torch.strided for x in (*operands, *results)) or all(
        x.is_contiguous() for x in (*operands, *results)
    ):
        return False
    if is_random(func, func._schema.name.split("::")[-1], args, kwargs):
        return False
    if any(x.dtype == torch.uint8 for x in operands):  # a workspace, which its maker must have filled
        return False
    if any(x.device.type == "cuda" and not torch.cuda.is_available() for x in (*operands, *results)):
        return False
    memory = {x.untyped_storage()._cdata for x in operands}
    return not any(x.untyped_storage()._cdata in memory for x in results)  # a view is as its operand is


def _strides_made(func: Any, args: Any, kwargs: Any, shapes: list[Any]) -> list[Any] | None:
    """Return the strides of what an operator really makes, or None where it cannot be tried."""
    try:
        with _disable_current_modes(), torch.no_grad():
            real_args, real_kwargs = map_leaves(_zeros, (tuple(args), kwargs))
            made = _tensors(func(*real_args, **real_kwargs))
    except RuntimeError:  # not enough memory, or a kernel that has no result for zeros: the run itself will check
        return None
    return [x.stride() for x in made] if [x.shape for x in made] == shapes else None


def _zeros(fake: Any) -> Any:
    if not isinstance(fake, FakeTensor):
        return fake
    return torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device).zero_()


def _tensors(tree: Any) -> list[Any]:
    return [leaf for leaf in leaves_of(tree) if isinstance(leaf, torch.Tensor)]
