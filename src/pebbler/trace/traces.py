"""Traces: which addresses a program touches, in order, and for which tensor and op.

An address is a unit of memory: a float of a float32 graph, a line after `lines`, a whole tensor after `tensors`. Traces
are flat arrays, saved as NPZ files that can be read a chunk at a time, so that one larger than memory can be analysed.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from pebbler.arrays import Array, Bools, Int32s, Ints
from pebbler.errors import InputError
from pebbler.trace.trace_files import UNNAMED, Columns, NameTable, common_bytes, read_chunks, write_chunks

__all__ = ["CHUNK", "UNNAMED", "Trace"]

CHUNK = 2**22  # accesses; 17 bytes each in the file and in memory


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """Accesses in program order; `tensor` and `op` index the name tables.

    >>> trace = Trace.of_addresses([7, 8, 8, 7])
    >>> len(trace), trace.distinct, trace.lines(4).address.tolist()
    (4, 2, [1, 2, 2, 1])
    """

    address: Ints
    write: Bools
    tensor: Int32s
    op: Int32s
    tensor_names: tuple[str, ...]
    op_names: tuple[str, ...]
    unit_bytes: int | None = None  # of what has an address; None: nobody says; 0: elements of several sizes

    def __post_init__(self) -> None:
        if self.unit_bytes is not None and operator.index(self.unit_bytes) < 0:
            raise InputError(f"unit_bytes is {self.unit_bytes}; expected 1 or more, or 0 for elements of several sizes")
        columns: dict[str, Array] = {"address": _addresses(self.address)}
        length = len(columns["address"])
        for key, dtype in (("write", np.bool_), ("tensor", np.int32), ("op", np.int32)):
            columns[key] = _column(key, getattr(self, key), dtype, length)
        for key in ("tensor", "op"):
            names = tuple(getattr(self, f"{key}_names"))
            _check_names(f"{key}_names", names)
            wrong = (columns[key] < 0) | (columns[key] >= len(names))
            if wrong.any():
                at = int(wrong.argmax())
                raise InputError(f"{key}[{at}] is {columns[key][at]}; {key}_names has {len(names)} names, from index 0")
            object.__setattr__(self, f"{key}_names", names)
        for key, column in columns.items():
            column = column.view()
            column.flags.writeable = False
            object.__setattr__(self, key, column)

    def __len__(self) -> int:
        return len(self.address)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trace):
            return NotImplemented
        mine, theirs = self.columns(), other.columns()
        return mine[4:] == theirs[4:] and all(map(np.array_equal, mine[:4], theirs[:4]))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Trace: {len(self)} accesses, {len(self.tensor_names)} tensors, {len(self.op_names)} ops>"

    @property
    def distinct(self) -> int:
        """The number of different addresses."""
        return len(np.unique(self.address))

    def columns(self) -> Columns:
        """Return the arrays and name tables as a plain tuple."""
        names = self.tensor_names, self.op_names
        return Columns(self.address, self.write, self.tensor, self.op, *names, self.unit_bytes)

    @classmethod
    def of_addresses(cls, addresses: ArrayLike, write: ArrayLike | None = None, unit_bytes: int | None = None) -> Trace:
        """Return the trace of a plain list of addresses, all of them reads unless `write` says which are not.

        >>> Trace.of_addresses([3, 1, 3], write=[True, False, False]).write.tolist()
        [True, False, False]
        """
        address = _addresses(addresses)
        nothing = np.zeros(len(address), dtype=np.int32)
        writes = nothing.astype(np.bool_) if write is None else _column("write", write, np.bool_, len(address))
        return cls(address, writes, nothing, nothing, (UNNAMED,), (UNNAMED,), unit_bytes)

    @classmethod
    def joined(cls, traces: Iterable[Trace]) -> Trace:
        """Return traces one after another; tensors and ops of the same name are the same.

        >>> Trace.joined([Trace.of_addresses([1, 2]), Trace.of_addresses([2])]).address.tolist()
        [1, 2, 2]
        """
        tensors, ops, pieces, units = NameTable(), NameTable(), [], set()
        for trace in traces:
            units.add(trace.unit_bytes)
            tensor, op = tensors.remap(trace.tensor_names, trace.tensor), ops.remap(trace.op_names, trace.op)
            pieces.append((trace.address, trace.write, tensor, op))
        if not pieces:
            raise InputError("no traces to join; a trace holds at least one access")
        address, write, tensor, op = (np.concatenate(column) for column in zip(*pieces, strict=True))
        return cls(address, write, tensor, op, tensors.table(), ops.table(), common_bytes(units))

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Return the trace in a file: NPZ, or a plain address list as .npy, .csv or .txt.

        The columns of a CSV file are address[,write[,tensor[,op]]], or in any order under a header line of these names.
        """
        return cls.joined(cls.chunks(path))

    @classmethod
    def chunks(cls, path: str | Path, size: int = CHUNK) -> Iterator[Trace]:
        """Yield the trace in a file piece by piece, at most `size` accesses each, without ever holding all of it.

        Indices mean the same in every piece, but the name tables of a CSV file grow as names turn up.
        """
        if operator.index(size) < 1:
            raise InputError(f"chunks of {size} accesses; expected at least 1")
        number = 0
        for columns in read_chunks(path, size):
            try:
                trace = cls(*columns)
            except InputError as error:
                raise InputError(f"{path}: in the accesses from {number} on: {error}") from None
            number += len(trace)
            yield trace
        if not number:
            raise InputError(f"{path}: an empty trace; a trace holds at least one access")

    def save(self, path: str | Path) -> None:
        """Write the trace as an NPZ file, whole or not at all."""
        write_chunks(path, [self.columns()])

    @staticmethod
    def save_chunks(path: str | Path, traces: Iterable[Trace]) -> None:
        """Write traces one after another as one NPZ file, with no more than one of them in memory."""
        count = 0

        def columns() -> Iterator[Columns]:
            nonlocal count
            for trace in traces:
                count += len(trace)
                yield trace.columns()
            if not count:
                raise InputError(f"{path}: no accesses to write; a trace holds at least one")

        write_chunks(path, columns())

    def lines(self, line: int, *, merge: bool = False) -> Trace:
        """Return the trace at the granularity of lines of `line` units.

        Every access stays one access, because each unit is priced; `merge` makes one of those that follow one another
        on the same line for the same tensor and op, as a machine with line-wide loads would see them.

        >>> Trace.of_addresses([0, 1, 2, 3, 0]).lines(2, merge=True).address.tolist()
        [0, 1, 0]
        """
        if operator.index(line) < 1:
            raise InputError(f"lines of {line} units; expected at least 1")
        unit = None if self.unit_bytes is None else line * self.unit_bytes
        result = replace(self, address=self.address // line, unit_bytes=unit)
        return result._merged() if merge else result

    def tensors(self) -> Trace:
        """Return the trace of whole tensors: the address is the tensor, and an op touches it once per run of accesses.

        >>> trace = Trace(np.arange(4), np.zeros(4, bool), np.array([0, 0, 1, 1]), np.zeros(4, int), ("W", "x"), ("f",))
        >>> trace.tensors().address.tolist()
        [0, 1]
        """
        return replace(self, address=self.tensor.astype(np.int64), unit_bytes=None)._merged()

    def _merged(self) -> Trace:
        starts = np.ones(len(self), dtype=np.bool_)
        starts[1:] = False
        for column in self.columns()[:4]:
            starts[1:] |= column[1:] != column[:-1]
        address, write, tensor, op = self.address[starts], self.write[starts], self.tensor[starts], self.op[starts]
        return replace(self, address=address, write=write, tensor=tensor, op=op)


def _addresses(values: ArrayLike) -> Ints:
    array = np.asarray(values)
    if array.ndim != 1:
        raise InputError(f"addresses have shape {array.shape}; expected one dimension")
    if not len(array):
        raise InputError("an empty trace; a trace holds at least one access")
    if array.dtype.kind not in "iu":
        raise InputError(f"addresses have dtype {array.dtype}, the first is {array[0]!r}; expected integers")
    result = array.astype(np.int64, copy=False)
    if result.min() < 0:  # also what an unsigned address beyond 63 bits becomes
        at = int((result < 0).argmax())
        raise InputError(f"address[{at}] is {array[at]}; expected 0 to {2**63 - 1}")
    return result


def _column(key: str, values: ArrayLike, dtype: type[np.generic], length: int) -> Array:
    array = np.asarray(values)
    if array.shape != (length,):
        raise InputError(f"{key} has shape {array.shape}; expected {length} elements, one per address")
    if array.dtype.kind not in ("b" if dtype is np.bool_ else "iu"):
        raise InputError(f"{key} has dtype {array.dtype}; expected {np.dtype(dtype)}")
    if array.dtype.itemsize > 4 and dtype is np.int32 and np.any(array != array.astype(np.int32)):
        raise InputError(f"{key} holds indices beyond 32 bits")
    return array.astype(dtype, copy=False)


def _check_names(key: str, names: tuple[object, ...]) -> None:
    seen: set[str] = set()
    for at, name in enumerate(names):
        if not isinstance(name, str) or not name:
            raise InputError(f"{key}[{at}] is {name!r}; expected a non-empty string")
        if name in seen:
            raise InputError(f"{key}[{at}] is {name!r} a second time; names are distinct")
        seen.add(name)
