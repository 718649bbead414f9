"""A recorder for instrumented Python: reads and writes of named buffers, as buffer events and as an element trace."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Iterator
from contextvars import ContextVar, Token
from types import TracebackType

import numpy as np
from numpy.typing import ArrayLike

from pebbler.arrays import Ints
from pebbler.errors import InputError, quoted
from pebbler.trace.buffer_events import Events, whole_size
from pebbler.trace.trace_files import common_bytes
from pebbler.trace.traces import CHUNK, UNNAMED, Trace

__all__ = ["Part", "Recorder", "current_recorder", "record"]

Part = slice | range | ArrayLike
"""Some elements of a buffer: a slice or range, or their indices in the order they are touched."""

_CURRENT: ContextVar[Recorder | None] = ContextVar("pebbler_recorder", default=None)


class Recorder(Events):
    """Events of named buffers that also know which elements were touched, and under which op.

    As `Events` it has the clock-based figures of whole buffers; `trace` gives every element an address of its own.

    >>> with record() as t:
    ...     with t.op("init"):
    ...         t.write("W1", 4)
    ...     with t.op("fwd"):
    ...         t.read("W1", at=slice(1, 3))
    >>> trace = t.trace()
    >>> trace.address.tolist(), trace.write.tolist(), [trace.op_names[i] for i in trace.op]
    ([0, 1, 2, 3, 1, 2], [True, True, True, True, False, False], ['init', 'init', 'init', 'init', 'fwd', 'fwd'])
    >>> t.distances("W1")
    [4]
    """

    def __init__(self) -> None:
        super().__init__()
        self.recording = True
        self._elements: list[range | Ints] = []
        self._extent: list[int] = []  # by buffer: its elements, touched or declared
        self._item_bytes: dict[str, int] = {}  # by buffer, of those that are arrays
        self._op_ids: dict[str, int] = {}
        self._op_of = array("q")
        self._ops: list[str] = []
        self._claimed: set[str] = set()  # names of tracked arrays
        self._unnamed = 0
        self._tokens: list[Token[Recorder | None]] = []

    def __enter__(self) -> Recorder:
        self._tokens.append(_CURRENT.set(self))
        self.recording = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _CURRENT.reset(self._tokens.pop())
        self.recording = bool(self._tokens)

    @contextlib.contextmanager
    def op(self, name: str) -> Iterator[None]:
        """Label what is recorded inside the `with` block; an inner label hides the outer one."""
        if not isinstance(name, str) or not name:
            raise InputError(f"an op's name must be a non-empty string, not {name!r}")
        self._ops.append(name)
        try:
            yield
        finally:
            self._ops.pop()

    def write(self, name: str, size: int | None = None, *, at: Part | None = None, op: str | None = None) -> None:
        """Write a buffer of `size` elements, or only those `at`.

        `size` may be left out when the buffer was written before. The clock counts the elements written; `op` labels
        the event when no `with t.op(...)` does.
        """
        size = self._buffer_size(name, size, "write")
        elements = range(size) if at is None else _elements(at, size, name)
        buffer = self._intern(name)
        self._size_of[buffer] = size
        self._touch(buffer, elements, size, True, op)

    def read(self, name: str, size: int | None = None, *, at: Part | None = None, op: str | None = None) -> None:
        """Read a buffer: as much as was last written there, unless `size` says otherwise, or only the elements `at`."""
        size = self._buffer_size(name, size, "read")
        elements = range(size) if at is None else _elements(at, size, name)
        self._touch(self._intern(name), elements, size, False, op)

    def trace(self) -> Trace:
        """Return every element touched, in order: an event's elements from first to last.

        Buffers have address ranges of their own, one after another in the order of their first event.
        """
        return Trace.joined(self.chunks())

    def chunks(self, size: int = CHUNK) -> Iterator[Trace]:
        """Yield the trace in pieces of whole events, of `size` accesses or the least more than that."""
        if not len(self):
            raise InputError("nothing was recorded; a trace holds at least one access")
        bases = np.concatenate([[0], np.cumsum(self._extent)])
        names, ops = self.names, tuple(self._op_ids)
        unit = common_bytes(map(self._item_bytes.get, names))
        buffers, sizes, writes = self.buffers(), self.sizes(), self.is_write()
        op_of = np.array(self._op_of, dtype=np.int32)
        piece = np.cumsum(sizes) // size  # events of the same piece end in the same multiple of size
        for events in np.split(np.arange(len(self)), np.flatnonzero(np.diff(piece)) + 1):
            counts = sizes[events]
            touched = np.concatenate([np.asarray(self._elements[event], dtype=np.int64) for event in events.tolist()])
            tensor = np.repeat(buffers[events], counts)
            write, op = np.repeat(writes[events], counts), np.repeat(op_of[events], counts)
            yield Trace(touched + bases[tensor], write, tensor.astype(np.int32), op, names, ops, unit)

    def claim(self, name: str | None, prefix: str = "temp", item_bytes: int | None = None) -> str:
        """Return a buffer name that no other array of this recorder has: `name`, or the next free one with the prefix.

        `item_bytes` are those of one of its elements.

        >>> t = Recorder()
        >>> t.claim("W1"), t.claim(None), t.claim(None)
        ('W1', 'temp0', 'temp1')
        """
        if name is None:
            while f"{prefix}{self._unnamed}" in self._claimed:
                self._unnamed += 1
            name = f"{prefix}{self._unnamed}"
        elif name in self._claimed:
            raise InputError(f"two tracked arrays are named {quoted(name)}; their elements could not be told apart")
        self._claimed.add(name)
        if item_bytes is not None:
            self._item_bytes[name] = item_bytes
        return name

    def _buffer_size(self, name: str, size: int | None, kind: str) -> int:
        if size is not None:
            return whole_size(size, f"{kind} {quoted(name)}")
        known = self._size_of[self._ids[name]] if name in self._ids else 0
        return known or self._refuse(name, kind)

    def _touch(self, buffer: int, elements: range | Ints, size: int, write: bool, op: str | None) -> None:
        self._append(buffer, len(elements), write)
        if buffer == len(self._extent):
            self._extent.append(0)
        self._extent[buffer] = max(self._extent[buffer], size)
        self._elements.append(elements)
        label = self._ops[-1] if self._ops else op or UNNAMED
        self._op_of.append(self._op_ids.setdefault(label, len(self._op_ids)))


def record() -> Recorder:
    """Return a recorder for a `with` block; `tracked` arrays made inside record into it until the block ends.

    >>> with record() as t:
    ...     t.write("W1", 20000)
    ...     t.read("W1")
    >>> t.weighted_ard(), len(t.trace())
    (20000.0, 40000)
    """
    return Recorder()


def current_recorder() -> Recorder | None:
    """Return the recorder of the innermost `with record()` block around the caller, if any.

    >>> current_recorder() is None
    True
    """
    return _CURRENT.get()


def _elements(at: Part, size: int, name: str) -> range | Ints:
    if isinstance(at, slice):
        at = range(size)[at]
    if isinstance(at, range):
        low, high, count = (min(at), max(at), len(at)) if at else (0, 0, 0)
        elements: range | Ints = at
    else:
        indices = np.asarray(at)
        if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
            raise InputError(f"elements of {quoted(name)}: expected a slice, a range or a list of indices, not {at!r}")
        elements = indices.astype(np.int64)
        low, high, count = (int(elements.min()), int(elements.max()), len(elements)) if len(elements) else (0, 0, 0)
    if not count:
        raise InputError(f"no elements of {quoted(name)} to touch")
    if low < 0 or high >= size:
        raise InputError(f"element {low if low < 0 else high} of {quoted(name)}, which has {size}, numbered from 0")
    return elements
