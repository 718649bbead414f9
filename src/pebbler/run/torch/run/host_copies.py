"""Copying values to the host's memory and back while a program runs.

On CUDA the host's memory is pinned, and one stream copies out and one in, beside the stream that computes. Memory is handed from
stream to stream by events alone: a value's memory is given up only after the computing stream has been told to wait for the copy
of it, and memory for a value that comes back is taken on the computing stream, which the copying stream waits for first. So the
caching allocator sees one stream only. On a CPU the host is a file that is mapped into memory and has no name any more, so that
what goes there is not held by torch's allocator, and copies take their turn.

Work that is recorded to be replayed (`Transfers.begin_recording`) may only wait for what was recorded with it: at the end of a
recording the computing stream waits for all copies, and events from before mean that nothing is left to wait for.

Buffers are kept from step to step, by size: a step asks for the same sizes in the same order each time, so after the first one
nothing is allocated. A limit on their bytes is kept by letting go of those that nobody uses; where that is not enough, `NoRoom`
says so.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

__all__ = [
    "CopyEnd",
    "HostBytes",
    "HostCopy",
    "NoRoom",
    "PendingLoad",
    "Transfers",
    "arrive",
    "begin_load",
    "begin_store",
    "end_store",
]


class NoRoom(RuntimeError):
    """The host's memory has no room for a buffer."""


@dataclass(eq=False)
class CopyEnd:
    """The end of a copy: an event of the stream that copies. It is `over` once the computing stream has been told to wait for it.

    That is noted here and nowhere else: in torch 2.11 weak references to CUDA events are not cleared when the events go, so that
    a later event in the same place would pass for one that is over.
    """

    event: Any
    over: bool = False

    @property
    def reached(self) -> bool:
        """Whether nobody has to wait any more."""
        return self.over or bool(self.event.query())

    def hold(self, stream: Any) -> None:
        """Make a stream wait for the copy, unless it is over."""
        if not self.over:
            stream.wait_event(self.event)


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

    def __init__(self, device: str, limit: int | None = None, spare: float | None = None) -> None:
        self.device = torch.device(device)
        self.limit = limit  # of `bytes`
        self.spare = spare  # idle buffers are kept up to so many times what was in use at once; None: all
        self.bytes = 0  # of all buffers
        self.most = 0  # that `bytes` ever was
        self._used = self._most_used = 0  # of buffers that are in use
        self._free: dict[int, list[_HostBuffer]] = {}
        self._streams: tuple[Any, Any] | None = None
        # While a recording is made: streams that copy, and the ends of copies.
        self._begun: list[tuple[Any, CopyEnd]] = []
        self._recording = False

    @property
    def streams(self) -> tuple[Any, Any]:
        """The streams that copy out and in."""
        if self._streams is None:
            self._streams = torch.cuda.Stream(self.device), torch.cuda.Stream(self.device)
        return self._streams

    def held_for(self, size: int) -> int:
        """Return the bytes that a buffer of a size really takes: torch rounds pinned memory up to powers of two."""
        return 1 << (size - 1).bit_length() if self.device.type == "cuda" else size

    def take(self, size: int) -> _HostBuffer:
        """Return a free buffer of exactly this size, made if there is none; where there is no room, refuse with `NoRoom`."""
        free, room = self._free.setdefault(size, []), self.held_for(size)
        buffer = free.pop() if free else self._made(size, room)
        self._used += room
        self._most_used = max(self._most_used, self._used)
        return buffer

    def _made(self, size: int, room: int) -> _HostBuffer:
        if self.limit is not None and self._used + room > self.limit:
            raise NoRoom(f"{self._used:,} bytes are in use, {room:,} more are wanted, the limit is {self.limit:,}")
        kept = self.limit
        if self.spare is not None:  # sizes may change from step to step
            wanted = int((1 + self.spare) * max(self._most_used, self._used + room))
            kept = wanted if kept is None else min(kept, wanted)
        if kept is not None and self.bytes + room > kept:
            self._let_go(self.bytes + room - kept)
        try:
            memory = _pinned(size) if self.device.type == "cuda" else _mapped(size)
        except (OSError, RuntimeError) as error:
            raise NoRoom(str(error)) from error
        self.bytes += room
        self.most = max(self.most, self.bytes)
        return _HostBuffer(memory)

    def _let_go(self, excess: int) -> None:
        """Free a number of bytes of unused buffers, as far as there are any."""
        idle = [(size, buffer) for size, free in self._free.items() for buffer in free]
        for size, buffer in idle:
            if excess <= 0:
                break
            if buffer.last is not None and not buffer.last.over:
                buffer.last.event.synchronize()
            self._free[size].remove(buffer)
            self.bytes -= self.held_for(size)
            excess -= self.held_for(size)
        idle.clear()
        if self.device.type == "cuda":
            torch._C._host_emptyCache()  # torch would keep them pinned

    def begin_recording(self) -> None:
        """Record copies from here on together with the computing stream; all buffers must exist already."""
        self.synchronize()
        for free in self._free.values():
            for buffer in free:
                buffer.last = None
        self._recording = True

    def end_recording(self) -> None:
        """Let the computing stream wait for all copies, so that later work need not."""
        for stream in {id(stream): stream for stream, _ in self._begun}.values():
            torch.cuda.current_stream(self.device).wait_stream(stream)
        self.forget_recording()

    def forget_recording(self) -> None:
        """Record nothing more, whatever the state of the recording."""
        for _, end in self._begun:
            end.over = True
        self._begun, self._recording = [], False

    def note(self, stream: Any, end: CopyEnd) -> None:
        """Remember a copy that is being recorded."""
        if self._recording:
            self._begun.append((stream, end))

    def synchronize(self) -> None:
        """Wait for all copies: when a step fails, the memory that they use is about to go."""
        for stream in self._streams or ():
            stream.synchronize()

    def give_back(self, buffer: _HostBuffer) -> None:
        """Take a buffer back; whoever gets it next waits for its last copy."""
        size = buffer.memory.numel()
        self._used -= self.held_for(size)
        self._free[size].append(buffer)


@dataclass(eq=False)
class _HostBuffer:
    """A piece of the host's memory, and the copy after which it may be written again."""

    memory: torch.Tensor
    last: CopyEnd | None = None


class HostBytes:
    """Some memory's bytes on the host, once the copy is `done`; the buffer goes back when this is forgotten.

    Copying begins with its making. As an array (`np.asarray`) it lives as long as whoever looks at its bytes.
    """

    def __init__(self, transfers: Transfers, raw: torch.Tensor) -> None:
        buffer = transfers.take(raw.numel())
        self.transfers, self.buffer = transfers, buffer
        self.done: CopyEnd | None = None
        if transfers.device.type != "cuda":
            buffer.memory.copy_(raw)
            return
        self.done = buffer.last = _copied(
            transfers.streams[0], transfers, buffer.last, lambda: buffer.memory.copy_(raw, True)
        )

    def fetch(self, raw: torch.Tensor) -> CopyEnd | None:
        """Begin to copy the bytes to the device; return the end of the copy, if it is asynchronous."""
        memory = self.buffer.memory
        if self.done is None:
            raw.copy_(memory)
            return None
        self.buffer.last = _copied(
            self.transfers.streams[1], self.transfers, self.done, lambda: raw.copy_(memory, True)
        )
        return self.buffer.last

    @property
    def __array_interface__(self) -> dict[str, Any]:
        memory = self.buffer.memory
        return {"shape": (memory.numel(),), "typestr": "|u1", "data": (memory.data_ptr(), False), "version": 3}

    def __del__(self) -> None:
        if hasattr(self, "buffer"):
            self.transfers.give_back(self.buffer)


class HostCopy(HostBytes):
    """A storage's bytes on the host, and the layout of the tensor on them."""

    def __init__(self, transfers: Transfers, tensor: torch.Tensor) -> None:
        super().__init__(transfers, _raw(tensor))
        self.form = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
        self.dtype = tensor.dtype


@dataclass(frozen=True, eq=False)
class PendingLoad:
    """A tensor that is being copied, and the end of the copy."""

    tensor: torch.Tensor
    done: CopyEnd | None


def begin_store(transfers: Transfers, tensor: torch.Tensor) -> HostCopy:
    """Begin to copy a tensor's whole storage to the host."""
    return HostCopy(transfers, tensor)


def end_store(copy: HostBytes, tensor: torch.Tensor) -> None:
    """Make the computing stream wait for a store: from here on the tensor may change or go.

    The tensor is an operand only so that whoever holds it does so until here.
    """
    _wait(tensor.device, copy.done)


def begin_load(transfers: Transfers, copy: HostCopy) -> PendingLoad:
    """Begin to copy a storage back into memory of its own, as a tensor of the same form."""
    raw = torch.empty(copy.buffer.memory.numel(), dtype=torch.uint8, device=transfers.device)
    tensor = torch.empty(0, dtype=copy.dtype, device=transfers.device).set_(raw.untyped_storage(), *copy.form)
    return PendingLoad(tensor, copy.fetch(raw))


def arrive(loading: PendingLoad) -> torch.Tensor:
    """Return the tensor after making the computing stream wait for it."""
    _wait(loading.tensor.device, loading.done)
    return loading.tensor


def _wait(device: Any, end: CopyEnd | None) -> None:
    """Make the computing stream wait for the end of a copy."""
    if end is not None:
        end.hold(torch.cuda.current_stream(device))


def _copied(stream: Any, transfers: Transfers, after: CopyEnd | None, copy: Callable[[], Any]) -> CopyEnd:
    """Copy on a stream, after what computes now and after another copy; return the end."""
    stream.wait_stream(torch.cuda.current_stream(transfers.device))
    if after is not None:
        after.hold(stream)
    with torch.cuda.stream(stream):
        copy()
    end = CopyEnd(stream.record_event())
    transfers.note(stream, end)
    return end


def _raw(tensor: torch.Tensor) -> torch.Tensor:
    """Return all bytes of a tensor's storage."""
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage, 0, (storage.nbytes(),), (1,))


def _pinned(size: int) -> torch.Tensor:
    """Return bytes that a GPU reads and writes while others compute."""
    return torch.empty(size, dtype=torch.uint8, pin_memory=True)


def _mapped(size: int) -> torch.Tensor:
    """Return bytes in a file without a name; its room is taken now, not when the disk is full in the middle of a step."""
    with tempfile.NamedTemporaryFile(prefix="pebbler-") as file:
        os.posix_fallocate(file.fileno(), 0, size)
        # Through numpy, for torch would count a mapped file as memory.
        return torch.from_numpy(np.memmap(file.file, np.uint8, "r+", shape=(size,)))
