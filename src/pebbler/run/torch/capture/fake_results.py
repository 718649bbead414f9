"""A cache of operator results on fake tensors, by operator and operand metadata.

Torch finds it out anew in every call, in a tenth of a millisecond or more; a step has few kinds of calls, and every step is
recorded several times. Remembered is what depends on nothing but the key: shapes, strides, dtypes, devices, and which operand a
result is or shares its memory with. Everything else (results that are numbers, operators of other libraries, shapes that depend
on values) is asked of torch every time.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager
from torch.utils.weak import WeakTensorKeyDictionary

from pebbler.run.torch.capture.operators import CTC

__all__ = ["FakeResults", "Look", "results_depend_on_numbers"]

aten = torch.ops.aten
_META = torch.device("meta")
_ELEM = "_pebbler_elem"  # where a stand-in that was made here keeps what is behind it
_UNKNOWN_TAGS = (torch.Tag.data_dependent_output, torch.Tag.inplace_view)


class Look(NamedTuple):
    """The features of a tensor that a shape function can see."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: torch.device
    bytes: int  # of its storage
    conj: bool
    neg: bool

    @classmethod
    def of(cls, fake: torch.Tensor) -> Look:
        """Return the look of a tensor."""
        return cls(
            tuple(fake.shape), fake.stride(), int(fake.storage_offset()), fake.dtype, fake.device,
            fake.untyped_storage().nbytes(), fake.is_conj(), fake.is_neg(),
        )  # fmt: skip


class _Output(NamedTuple):
    """One result: an operand itself (no look), a view of an operand, or a tensor of its own (no operand); neither is None."""

    operand: int | None
    look: Look | None


class _Outputs(NamedTuple):
    kind: type | None  # list or tuple; None is one tensor by itself
    parts: tuple[_Output, ...]


class FakeResults:
    """Remembers results; a key is made by whoever asks, and holds all that results depend on."""

    def __init__(self, fakes: FakeTensorMode) -> None:
        self.fakes = fakes
        self._known: dict[Any, _Outputs] = {}
        self._looks: dict[Look, int] = {}
        self._plain = WeakTensorKeyDictionary()  # the plain tensors of stand-ins that were made elsewhere

    def look_number(self, fake: torch.Tensor) -> int | None:
        """Return a number that tensors share which look alike; None for those with a value that torch may look at."""
        if not isinstance(fake, FakeTensor) or fake.fake_mode is not self.fakes or fake.constant is not None:
            return None
        return self._looks.setdefault(Look.of(fake), len(self._looks))

    def stand_in(self, tensor: torch.Tensor, base: torch.Tensor | None) -> torch.Tensor | None:
        """Return a tensor without memory that looks as a real one does, None where torch must make it.

        `base` is the stand-in of another tensor in the same memory, if there is one.
        """
        if tensor.is_conj() or tensor.is_neg() or tensor.is_quantized or tensor.device.type == "meta":
            return None
        look = Look.of(tensor)
        with torch._C._DisableTorchDispatch():  # a recorder may be listening
            fake = self._make(_Output(None if base is None else 0, look), [base] if base is not None else [])
        return fake if Look.of(fake) == look else None

    def get(self, key: Any, operands: Sequence[torch.Tensor]) -> tuple[bool, Any]:
        """Return whether the result of a call is known, and the result; `operands` are the tensors in it, in order."""
        outputs = None if key is None else self._known.get(key)
        if outputs is None:
            return False, None
        made = [self._make(part, operands) for part in outputs.parts]
        return True, made[0] if outputs.kind is None else outputs.kind(made)

    def keep(self, key: Any, func: Any, operands: Sequence[torch.Tensor], result: Any) -> None:
        """Remember the result of a call, if it follows from the key alone."""
        if key is None or not _is_known_kind(func):
            return
        several = type(result) in (list, tuple)
        parts = []
        for value in result if several else [result]:
            part = self._describe(value, operands)
            if part is None:
                return
            parts.append(part)
        fresh = [_storage(v) for v, p in zip(result if several else [result], parts, strict=True) if _is_new(p)]
        if len(set(fresh)) == len(fresh):
            self._known[key] = _Outputs(type(result) if several else None, tuple(parts))

    def _describe(self, value: Any, operands: Sequence[torch.Tensor]) -> _Output | None:
        if value is None:
            return _Output(None, None)
        for i, operand in enumerate(operands):
            if operand is value:
                return _Output(i, None)
        if type(value) is not FakeTensor or value.fake_mode is not self.fakes or value.layout != torch.strided:
            return None
        if value.constant is not None or value.requires_grad:
            return None
        look = Look.of(value)
        sources = [i for i, operand in enumerate(operands) if _storage(operand) == _storage(value)]
        if sources and operands[sources[0]].dtype != value.dtype:
            return None  # complex numbers as pairs of real ones, and the like
        part = _Output(sources[0] if sources else None, look)
        # What will be made from the description must be what torch made.
        twin = self._make(part, operands)
        if Look.of(twin) != look or torch._C._dispatch_key_set(twin) != torch._C._dispatch_key_set(value):
            return None
        return part

    def _make(self, part: _Output, operands: Sequence[torch.Tensor]) -> Any:
        operand, look = part
        if look is None:
            return None if operand is None else operands[operand]
        if operand is None:
            elem = torch.empty_strided(look.shape, look.stride, dtype=look.dtype, device=_META)
        else:
            elem = aten.as_strided.default(
                self._without_memory(operands[operand]), look.shape, look.stride, look.offset
            )
        fake = FakeTensor(self.fakes, elem, look.device)
        fake.__dict__[_ELEM] = elem
        return fake

    def _without_memory(self, fake: torch.Tensor) -> torch.Tensor:
        """Return the plain tensor on the device "meta" behind a stand-in, or a view of all of it."""
        elem: torch.Tensor | None = fake.__dict__.get(_ELEM)
        if elem is None:
            elem = self._plain.get(fake)  # a stand-in made elsewhere may be the user's own: nothing is left in it
        if elem is None:
            # As a view it would hold the stand-in that holds it, where the garbage collector does not look.
            with in_kernel_invocation_manager(self.fakes), torch._C._AutoDispatchBelowADInplaceOrView():
                elem = self._plain[fake] = aten.alias.default(fake)
        return elem


def _is_new(part: _Output) -> bool:
    return part.operand is None and part.look is not None


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


@functools.cache
def _is_known_kind(func: Any) -> bool:
    """Whether an operator's results follow from what its operands look like."""
    if func.namespace not in ("aten", "prims") or func in CTC or any(tag in func.tags for tag in _UNKNOWN_TAGS):
        return False
    # An index of whole numbers has a fixed shape; with booleans torch raises, and nothing is kept.
    return torch.Tag.dynamic_output_shape not in func.tags or func is aten.index.Tensor


@functools.cache
def results_depend_on_numbers(func: Any) -> bool:
    """Whether the floats among the operands may decide what the results look like, as those of `arange` do.

    >>> results_depend_on_numbers(aten.mul_.Tensor), results_depend_on_numbers(aten.arange.start_step)
    (False, True)
    """
    returns = func._schema.returns
    in_place = all(value.alias_info is not None and value.alias_info.is_write for value in returns)
    return torch.Tag.pointwise not in func.tags and not (in_place and returns)
