"""The memory behind an array and its views: the elements of each view, and the recorder of accesses to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from pebbler.arrays import Array, Bools, Ints
from pebbler.errors import InputError, quoted
from pebbler.trace.recording import Recorder

__all__ = ["Buffer", "Elements", "View", "one_recorder", "plain", "views_in"]

Elements = range | Ints


class Buffer:
    """The memory behind an array and all its views."""

    def __init__(self, data: Array, recorder: Recorder, name: str | None, prefix: str) -> None:
        self.data, self.recorder = data, recorder
        self.name = recorder.claim(name, prefix, data.itemsize)
        self.start = data.__array_interface__["data"][0]

    def touch(self, elements: Elements, write: bool, op: str) -> None:
        """Tell the recorder, while it is recording, that elements are read or written."""
        if self.recorder.recording and len(elements):
            touch = self.recorder.write if write else self.recorder.read
            touch(self.name, self.data.size, at=elements, op=op)

    def positions(self, view: Array) -> Ints:
        """Return the element number of each element of a view."""
        # From the view's own pointer and strides, so numpy alone decides what a view of a view holds.
        item = self.data.itemsize
        positions = np.full(
            (1,) * view.ndim, (view.__array_interface__["data"][0] - self.start) // item, dtype=np.int64
        )
        for axis, (length, stride) in enumerate(zip(view.shape, view.strides, strict=True)):
            steps = np.arange(length, dtype=np.int64) * (stride // item)
            positions = positions + steps.reshape([-1 if a == axis else 1 for a in range(view.ndim)])
        return positions

    def in_address_order(self, view: Array, mask: Bools | None = None) -> Elements:
        """Return the elements of a view once each, only where the mask is true if there is one."""
        if not view.size:
            return range(0)
        if mask is not None:
            shape = np.broadcast_shapes(view.shape, mask.shape)
            positions = np.broadcast_to(self.positions(view), shape)
            return np.unique(positions[np.broadcast_to(mask, shape)])
        if view.flags.c_contiguous:
            first = (view.__array_interface__["data"][0] - self.start) // self.data.itemsize
            return range(first, first + view.size)
        return np.unique(self.positions(view))


class View:
    """Some elements of a buffer as a plain array, and what recording their use takes."""

    __slots__ = ("buffer", "held")

    def __init__(self, held: Array, buffer: Buffer) -> None:
        self.held = held
        self.buffer = buffer

    def like(self, held: Array, buffer: Buffer | None = None) -> Self:
        """Return another array of this kind: a view of the same buffer, or of another."""
        return type(self)(held, buffer or self.buffer)

    def read_elements(self, op: str, elements: Elements | int | None = None) -> None:
        """Record a read of some elements of the buffer, by default of those this view holds."""
        if elements is None:
            elements = self.buffer.in_address_order(self.held)
        elif isinstance(elements, int):
            elements = range(elements, elements + 1)
        self.buffer.touch(elements, False, op)

    def result(self, value: Any, op: str, written: bool = True, mask: Bools | None = None) -> Any:
        """Return an operation's result as a tracked array in a buffer of its own; scalars as they are."""
        if not isinstance(value, np.ndarray):
            return value
        data = np.ascontiguousarray(value).reshape(value.shape)
        result = self.like(data, Buffer(data, self.buffer.recorder, None, "temp"))
        if written:
            result.buffer.touch(result.buffer.in_address_order(data, mask), True, op)
        return result

    def plain_index(self, key: Any) -> Any:
        """Return an index without tracked arrays; those are read, for an index is data."""
        for part in views_in(key):
            part.read_elements("index")
        return tuple(map(plain, key)) if isinstance(key, tuple) else plain(key)


def plain(value: Any) -> Any:
    """Return a value without tracked arrays, as deep as numpy functions look."""
    if isinstance(value, View):
        return value.held
    if isinstance(value, (list, tuple)) and any(True for _ in views_in(value)):
        return type(value)(map(plain, value))
    return value


def views_in(value: Any) -> Iterator[View]:
    """Yield the tracked arrays among arguments, in order."""
    if isinstance(value, View):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from views_in(part)


def one_recorder(arrays: list[View]) -> View:
    """Return the first array, having made sure that all of them record into the same recorder."""
    for other in arrays:
        if other.buffer.recorder is not arrays[0].buffer.recorder:
            names = f"{quoted(arrays[0].buffer.name)} and {quoted(other.buffer.name)}"
            raise InputError(f"{names} record into different recorders; make both inside one `with record()` block")
    return arrays[0]
