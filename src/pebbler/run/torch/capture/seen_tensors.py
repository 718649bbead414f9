"""The tensors that a recording has seen: a number for each, the storage that it is a view of, and a stand-in without memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor

from pebbler.errors import InputError
from pebbler.run.torch.capture.calls import Place, Record, Storage, TensorInfo, TensorRef, reference
from pebbler.run.torch.capture.fake_results import FakeResults
from pebbler.run.torch.capture.forgotten_gradients import ForgottenGradient, GradientsForgotten
from pebbler.run.torch.capture.source_lines import user_line

__all__ = ["Entry", "SeenTensors"]

_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter, FakeTensor)


class Entry(NamedTuple):
    """A tensor that was seen."""

    fake: torch.Tensor
    reference: TensorRef
    storage: int
    look: int | None  # equal for tensors that look alike to shape functions; None where that is not known


class SeenTensors:
    """Tells tensors apart by identity, and views of the same memory by their storages."""

    def __init__(self, record: Record, results: FakeResults, locate: Callable[[torch.Tensor], Place]) -> None:
        self.record, self.results, self.fakes, self.locate = record, results, results.fakes, locate
        self._entries: dict[int, Entry] = {}
        self._storages: dict[int, int] = {}
        self._bases: dict[int, torch.Tensor | None] = {}  # by the storages of real tensors, a stand-in for all of it
        self._kept: list[Any] = []  # keeps ids of objects from being used again

    def entry(self, tensor: torch.Tensor) -> Entry:
        """Return the record of a tensor; a tensor that exists before the step gets one."""
        entry = self._entries.get(id(tensor))
        if entry is None:
            self.enter(tensor)
            entry = self._entries[id(tensor)]
        return entry

    def number_of(self, tensor: torch.Tensor) -> int | None:
        """Return the number of a tensor already seen, or of a view of something already seen."""
        entry = self._entries.get(id(tensor))
        if entry is not None:
            return entry.reference.number
        if not isinstance(tensor, FakeTensor):
            return None
        storage = self._storages.get(_key(tensor))
        return None if storage is None else self._add(tensor, storage)

    def enter(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the fake of a tensor that exists before the step, and note where it is found."""
        entry = self._entries.get(id(tensor))
        if entry is not None:
            return entry.fake
        _require_plain(tensor)
        fake = tensor if isinstance(tensor, FakeTensor) else self._fake_of(tensor)
        if self.number_of(fake) is None:
            self.new(fake, None, self.locate(tensor))
        self._stand_in(tensor, fake)
        return fake

    def _fake_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a stand-in for a real tensor, in the same memory as those of others that share its memory."""
        memory = _key(tensor)
        if memory not in self._bases:
            self._bases[memory] = self.results.stand_in(tensor, None)
        base = self._bases[memory]
        if base is None:  # the first one was a part of its memory: torch knows how much that is
            return self.fakes.from_tensor(tensor.detach())
        if base.dtype != tensor.dtype:
            raise InputError(f"{user_line()}: viewing a tensor as another dtype ({tensor.dtype}) is not supported")
        fake = self.results.stand_in(tensor, base)
        if fake is None:
            raise InputError(f"{user_line()}: lazily conjugated or negated tensors are not supported")
        return fake

    def enter_apart(self, tensor: torch.Tensor) -> None:
        """Note an argument of the step, as memory of its own: the next one may be a slice of something else."""
        if id(tensor) not in self._entries:
            _require_plain(tensor)
            with self.fakes:
                fake = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
            self.new(fake, None, self.locate(tensor))
            self._stand_in(tensor, fake)

    def _stand_in(self, tensor: torch.Tensor, fake: torch.Tensor) -> None:
        self._entries[id(tensor)] = self._entries[id(fake)]
        self._kept.append(tensor)

    def new(self, fake: torch.Tensor, maker: int | None, place: Place | None = None) -> int:
        """Note a tensor on a storage of its own, and return its number."""
        if fake.is_conj() or fake.is_neg():
            raise InputError(
                f"{user_line()}: a lazily conjugated tensor from outside cannot be planned; pass x.resolve_conj()"
            )
        storage = len(self.record.storages)
        size = fake.untyped_storage().nbytes()
        self.record.storages.append(Storage(size, str(fake.device), len(self.record.tensors), maker, place))
        self._storages[_key(fake)] = storage
        return self._add(fake, storage)

    def _add(self, fake: torch.Tensor, storage: int) -> int:
        number = len(self.record.tensors)
        offset, flags = int(fake.storage_offset()), (fake.is_conj(), fake.is_neg())
        info = TensorInfo(storage, tuple(fake.shape), fake.stride(), offset, fake.dtype, *flags)
        self.record.tensors.append(info)
        self._entries[id(fake)] = Entry(fake, reference(number), storage, self.results.look_number(fake))
        self._kept.append(fake)
        return number

    def clear(self) -> None:
        """Let go of all tensors."""
        self._entries, self._storages, self._bases, self._kept = {}, {}, {}, []

    def look_again(self, tensor: torch.Tensor) -> None:
        """Note that an operator may have changed the shape of a tensor."""
        entry = self.entry(tensor)
        self._entries[id(entry.fake)] = entry._replace(look=self.results.look_number(entry.fake))
        self._entries[id(tensor)] = self._entries[id(entry.fake)]


def _require_plain(tensor: torch.Tensor) -> None:
    if type(tensor) is ForgottenGradient:
        raise GradientsForgotten(f"{user_line()}: ")
    if type(tensor) not in _PLAIN_TENSORS:
        raise InputError(
            f"{user_line()}: tensors of the subclass {type(tensor).__name__} cannot be planned; only torch.Tensor and Parameter can"
        )


def _key(tensor: torch.Tensor) -> int:
    if tensor.layout != torch.strided:
        raise InputError(f"{user_line()}: only plain strided tensors are supported, got layout {tensor.layout}")
    return int(tensor.untyped_storage()._cdata)
