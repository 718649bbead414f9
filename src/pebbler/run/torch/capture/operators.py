"""Facts about operators that are missing from their schemas: hidden updates, random draws, and wrong shape functions."""

from __future__ import annotations

import functools
from typing import Any

import torch

from pebbler.run.torch.capture.calls import operator_name, unique_refs
from pebbler.run.torch.capture.operand_trees import leaves_of

__all__ = [
    "COLLECTIVES",
    "CTC",
    "FILLED_LIKE",
    "RESIZING",
    "is_random",
    "norm_dtypes",
    "statistics_updated",
    "tensors_read",
    "tensors_written",
    "values_written",
]

# These change the running statistics without saying so in their schema: positions of (mean, variance, training).
_STATISTICS = {
    "native_batch_norm": (3, 4, 5),
    "cudnn_batch_norm": (3, 4, 5),
    "miopen_batch_norm": (3, 4, 5),
    "_native_batch_norm_legit": (3, 4, 5),
    "_batch_norm_with_update": (3, 4, None),
}
# Normalizations and their gradients: positions of the input and of the weights.
_NORMS = {
    "native_batch_norm": (0, 1), "native_batch_norm_backward": (1, 2), "native_group_norm": (0, 1),
    "native_group_norm_backward": (1, 4), "native_layer_norm": (0, 2), "native_layer_norm_backward": (1, 5),
}  # fmt: skip
# Made from the shape of their operand alone, and what they are filled with.
FILLED_LIKE = {"empty_like": None, "zeros_like": 0, "ones_like": 1, "full_like": "value", "new_empty": None, "new_zeros": 0,
               "new_ones": 1, "new_full": "value", "new_empty_strided": None}  # fmt: skip
COLLECTIVES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "symm_mem", "_dtensor")
# The shape of a result follows from lengths, and operands must fit together: they cannot be tried on others.
_CTC = (torch.ops.aten._ctc_loss, torch.ops.aten._ctc_loss_backward)
CTC = tuple(getattr(packet, name) for packet in _CTC for name in ("default", "Tensor"))
RESIZING = {"set_", "resize_", "resize_as_", "resize_output_"}


def is_random(func: Any, name: str, args: Any, kwargs: Any) -> bool:
    """Whether a call draws random numbers; attention and dropout draw none when nothing is to be left out."""
    if not _is_seeded(func):
        return False
    for i, argument in enumerate(func._schema.arguments):
        value = args[i] if i < len(args) else kwargs.get(argument.name, argument.default_value)
        if argument.name == "dropout_p" and value == 0:
            return False
        if name == "native_dropout" and argument.name == "train" and value is False:
            return False
    return True


@functools.cache
def _is_seeded(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags


@functools.cache
def _written_arguments(func: Any) -> tuple[tuple[int, str], ...]:
    """Return the arguments that an operator changes, by position and name."""
    arguments = enumerate(func._schema.arguments)
    return tuple((i, a.name) for i, a in arguments if a.alias_info is not None and a.alias_info.is_write)


def tensors_written(func: Any, args: Any, kwargs: Any) -> list[int]:
    """Return the numbers of the tensors that an operator changes in place, by its schema."""
    written = []
    for i, name in _written_arguments(func):
        written += unique_refs(args[i] if i < len(args) else kwargs.get(name))
    return written


def values_written(func: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """Return the tensors among real operands that an operator changes, running statistics included.

    >>> x = torch.ones(2)
    >>> [t is x for t in values_written(torch.ops.aten.add_.Tensor, (x, torch.ones(2)), {})]
    [True]
    """
    written = [args[i] if i < len(args) else kwargs.get(name) for i, name in _written_arguments(func)]
    positions = _STATISTICS.get(operator_name(func))
    if positions is not None and (positions[2] is None or args[positions[2]]):
        written += [args[positions[0]], args[positions[1]]]
    return [value for value in leaves_of(written) if isinstance(value, torch.Tensor)]


def statistics_updated(name: str, args: Any) -> list[int]:
    """Return the numbers of the running statistics that a normalization updates."""
    if name not in _STATISTICS:
        return []
    mean, variance, training = _STATISTICS[name]
    if training is not None and not args[training]:
        return []
    return unique_refs((args[mean], args[variance]))


def tensors_read(name: str, args: Any, kwargs: Any) -> list[int]:
    """Return the numbers of the tensors that a call reads: a batch norm's gradient in training, not the running statistics."""
    if name in ("native_batch_norm_backward", "cudnn_batch_norm_backward", "miopen_batch_norm_backward"):
        training = name != "native_batch_norm_backward" or args[7]
        args = (*args[:3], *args[5:]) if training else args
    return unique_refs((args, kwargs))


def norm_dtypes(name: str, args: Any) -> tuple[torch.dtype, ...] | None:
    """Return the dtypes of a normalization's results where torch's shape function is wrong about them.

    On a CPU the statistics and the gradients of the weights have the weights' dtype, and the first result has the input's.
    """
    if name not in _NORMS:
        return None
    like, weight = (args[i] for i in _NORMS[name])
    if like.device.type != "cpu" or weight is None or weight.dtype == like.dtype:
        return None
    return like.dtype, weight.dtype, weight.dtype
