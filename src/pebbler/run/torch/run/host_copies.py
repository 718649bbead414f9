"""Copying values to the host's memory and back while a program runs.

On CUDA the host's memory is pinned, and one stream copies out and one in, beside the stream that computes. Memory is handed from
stream to stream by events alone: a value's memory is given up only after the computing stream has been told to wait for the copy
of it, and memory for a value that comes back is taken on the computing stream, which the copying stream waits for first. So the
caching allocator sees one stream only. On a CPU the host is a file that is mapped into memory and has no name any more, so that
what goes there is not held by torch's allocator, and copies take their turn.

Buffers are kept from step to step, by size: a step asks for the same sizes in the same order each time, so after the first one
nothing is allocated.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

__all__ = ["HostCopy", "PendingLoad", "Transfers", "arrive", "begin_load", "begin_store", "end_store"]


class Transfers:
    """The buffers and the streams of one program.

    >>> transfers = Transfers("cpu")
    >>> value = torch.arange(6.0).reshape(2, 3).t()
    >>> copy = begin_store(transfers, value)
    >>> end_store(copy, value)
    >>> back = arrive(begin_load(transfers, copy))
    >>> torch.equal(back, value), back.stride() == value.stride(), transfers.bytes
    (True, True, 24)
    """

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self.bytes = 0  # of all buffers
        self._free: dict[int, list[_HostBuffer]] = {}
        self._streams: tuple[Any, Any] | None = None

    @property
    def streams(self) -> tuple[Any, Any]:
        """The streams that copy out and in."""
        if self._streams is None:
            self._streams = torch.cuda.Stream(self.device), torch.cuda.Stream(self.device)
        return self._streams

    def take(self, size: int) -> _HostBuffer:
        """Return a free buffer of exactly this size, made if there is none."""
        free = self._free.setdefault(size, [])
        if free:
            return free.pop()
        self.bytes += size
        if self.device.type == "cuda":
            return _HostBuffer(torch.empty(size, dtype=torch.uint8, pin_memory=True))
        return _HostBuffer(_mapped(size))

    def synchronize(self) -> None:
        """Wait for all copies: when a step fails, the memory that they use is about to go."""
        for stream in self._streams or ():
            stream.synchronize()

    def give_back(self, buffer: _HostBuffer) -> None:
        """Take a buffer back; whoever gets it next waits for its last copy."""
        self._free[buffer.memory.numel()].append(buffer)


@dataclass(eq=False)
class _HostBuffer:
    """A piece of the host's memory, and the event after which it may be written again."""

    memory: torch.Tensor
    last: Any = None


class HostCopy:
    """A storage's bytes on the host, and what the tensor on them looked like; the buffer goes back when this is forgotten."""

    def __init__(self, transfers: Transfers, buffer: _HostBuffer, tensor: torch.Tensor) -> None:
        self.transfers, self.buffer = transfers, buffer
        self.form = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
        self.dtype = tensor.dtype
        self.done: Any = None  # the event after which the bytes are here

    def __del__(self) -> None:
        self.transfers.give_back(self.buffer)


@dataclass(frozen=True, eq=False)
class PendingLoad:
    """A tensor that is on its way, and the event after which it is there."""

    tensor: torch.Tensor
    done: Any


def begin_store(transfers: Transfers, tensor: torch.Tensor) -> HostCopy:
    """Begin to copy a tensor's whole storage to the host."""
    raw = _raw(tensor)
    copy = HostCopy(transfers, transfers.take(raw.numel()), tensor)
    buffer = copy.buffer
    if transfers.device.type != "cuda":
        buffer.memory.copy_(raw)
        return copy
    out, _ = transfers.streams
    out.wait_stream(torch.cuda.current_stream(transfers.device))
    if buffer.last is not None:
        out.wait_event(buffer.last)
    with torch.cuda.stream(out):
        buffer.memory.copy_(raw, non_blocking=True)
    copy.done = buffer.last = out.record_event()
    return copy


def end_store(copy: HostCopy, tensor: torch.Tensor) -> None:
    """Make the computing stream wait for a store: from here on the tensor may change or go.

    The tensor is an operand only so that whoever holds it does so until here.
    """
    if copy.done is not None:
        torch.cuda.current_stream(tensor.device).wait_event(copy.done)


def begin_load(transfers: Transfers, copy: HostCopy) -> PendingLoad:
    """Begin to copy a storage back into memory of its own, as a tensor of the same form."""
    raw = torch.empty(copy.buffer.memory.numel(), dtype=torch.uint8, device=transfers.device)
    tensor = torch.empty(0, dtype=copy.dtype, device=transfers.device).set_(raw.untyped_storage(), *copy.form)
    if copy.done is None:
        raw.copy_(copy.buffer.memory)
        return PendingLoad(tensor, None)
    _, into = transfers.streams
    into.wait_stream(torch.cuda.current_stream(transfers.device))
    into.wait_event(copy.done)
    with torch.cuda.stream(into):
        raw.copy_(copy.buffer.memory, non_blocking=True)
    copy.buffer.last = into.record_event()
    return PendingLoad(tensor, copy.buffer.last)


def arrive(loading: PendingLoad) -> torch.Tensor:
    """Return the tensor after making the computing stream wait for it."""
    if loading.done is not None:
        torch.cuda.current_stream(loading.tensor.device).wait_event(loading.done)
    return loading.tensor


def _raw(tensor: torch.Tensor) -> torch.Tensor:
    """Return all bytes of a tensor's storage."""
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage, 0, (storage.nbytes(),), (1,))


def _mapped(size: int) -> torch.Tensor:
    """Return bytes in a file without a name; its room is taken now, not when the disk is full in the middle of a step."""
    with tempfile.NamedTemporaryFile(prefix="pebbler-") as file:
        os.posix_fallocate(file.fileno(), 0, size)
        # Through numpy, for torch would count a mapped file as memory.
        return torch.from_numpy(np.memmap(file.file, np.uint8, "r+", shape=(size,)))
