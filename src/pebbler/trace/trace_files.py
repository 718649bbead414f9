"""Trace files as columns, a chunk at a time: NPZ both ways, plain address lists (NPY, CSV) in."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import struct
import tempfile
import warnings
import zipfile
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy

from pebbler.arrays import Array, Bools, Int32s, Ints
from pebbler.errors import InputError, near_matches, quoted
from pebbler.files import whole_file
from pebbler.limits import beyond, limits

__all__ = ["SEVERAL", "UNNAMED", "Columns", "NameTable", "common_bytes", "read_chunks", "write_chunks"]

UNNAMED = "-"  # the tensor or op of an access that has none
_DTYPES: dict[str, type[np.generic]] = {"address": np.int64, "write": np.bool_, "tensor": np.int32, "op": np.int32}
_NAMES = ("tensor_names", "op_names")
_UNIT = "unit_bytes"  # optional: files of earlier versions do not have it
SEVERAL = 0  # bytes of a unit, where addresses are those of elements of several sizes
_LARGEST = 2**63 - 1
_NAME_BYTES = 64  # that a name takes at least, once it is read


class Columns(NamedTuple):
    """The columns of a run of accesses; `tensor` and `op` index the name tables."""

    address: Ints
    write: Bools
    tensor: Int32s
    op: Int32s
    tensor_names: tuple[str, ...]
    op_names: tuple[str, ...]
    unit_bytes: int | None = None  # of what has an address; None: nobody says


def common_bytes(found: Iterable[int | None]) -> int | None:
    """Return the bytes of a unit that all agree on, `SEVERAL` where they do not.

    >>> common_bytes([8, 8]), common_bytes([None]), common_bytes([8, None])
    (8, None, 0)
    """
    sizes = set(found)
    return sizes.pop() if len(sizes) == 1 else SEVERAL


class NameTable:
    """A name table that grows as names turn up.

    >>> names = NameTable()
    >>> names.remap(("W1", "x"), np.array([1, 0, 1])).tolist(), names.remap(("x", "W1"), np.array([1, 0])).tolist()
    ([1, 0, 1], [0, 1])
    """

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def __getitem__(self, name: str) -> int:
        return self._ids.setdefault(name, len(self._ids))

    def remap(self, names: tuple[str, ...], indices: Array) -> Int32s:
        """Return indices into this table for indices into another, which is taken in."""
        ids = np.array([self[name] for name in names], dtype=np.int32)
        result: Int32s = ids[indices]
        return result

    def table(self) -> tuple[str, ...]:
        """Return the names so far."""
        return tuple(self._ids)


def read_chunks(path: str | Path, size: int) -> Iterator[Columns]:
    """Yield the accesses of a trace file, at most `size` at a time: .csv or .txt, .npy, and NPZ under any other name."""
    readers = {".csv": _read_csv, ".txt": _read_csv, ".npy": _read_npy}
    return readers.get(Path(path).suffix.lower(), _read_npz)(Path(path), size)


def write_chunks(path: str | Path, chunks: Iterable[Columns]) -> None:
    """Write chunks as one NPZ file, whole or not at all, with no more than a chunk in memory."""
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(whole_file(path))
        # The length stands before the data in every column, so columns gather aside until it is known.
        folder = str(Path(path).parent)
        spools = {key: stack.enter_context(tempfile.SpooledTemporaryFile(2**24, dir=folder)) for key in _DTYPES}
        tables = {"tensor": NameTable(), "op": NameTable()}
        length, units = 0, set()
        for chunk in chunks:
            length += len(chunk.address)
            units.add(chunk.unit_bytes)
            for key, spool in spools.items():
                column = getattr(chunk, key)
                if key in tables:
                    column = tables[key].remap(getattr(chunk, f"{key}_names"), column)
                spool.write(np.ascontiguousarray(column, dtype=_DTYPES[key]).tobytes())
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for key, spool in spools.items():
                spool.seek(0)
                _write_member(archive, key, np.dtype(_DTYPES[key]), length, spool)
            for key, names in tables.items():
                column = np.array(names.table(), dtype=np.str_)
                _write_member(archive, f"{key}_names", column.dtype, len(column), None, column.tobytes())
            if (unit := common_bytes(units)) is not None:
                column = np.array([unit], np.int64)
                _write_member(archive, _UNIT, column.dtype, 1, None, column.tobytes())


def _write_member(
    archive: zipfile.ZipFile, key: str, dtype: np.dtype[Any], length: int, body: IO[bytes] | None, data: bytes = b""
) -> None:
    # A fixed date: the same trace gives the same bytes.
    with archive.open(zipfile.ZipInfo(f"{key}.npy", (1980, 1, 1, 0, 0, 0)), "w", force_zip64=True) as member:
        header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": (length,)}
        npy.write_array_header_1_0(member, header)
        member.write(data)
        while body is not None and (data := body.read(2**22)):
            member.write(data)


def _read_npz(path: Path, size: int) -> Iterator[Columns]:
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(ArchiveFile(io.FileIO(path)))
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
        try:
            archive = stack.enter_context(zipfile.ZipFile(file))
        except Exception as error:  # as in `blaming`
            raise InputError(f"{path}: not an NPZ trace: {str(error) or type(error).__name__}") from None
        file.listed = True
        found = [name.removesuffix(".npy") for name in archive.namelist()]
        expected = (*_DTYPES, *_NAMES)
        for key in expected:
            if found.count(key) != 1:
                raise InputError(f"{path}: has {found.count(key) or 'no'} {key}; a trace holds {', '.join(expected)}")
        for key in found:
            if key not in (*expected, _UNIT) or found.count(key) > 1:
                raise InputError(f"{path}: unknown key {quoted(key)}{near_matches(key, (*expected, _UNIT))}")
        columns: dict[str, NpyColumn] = {}
        for key in (*expected, *(_UNIT for name in found if name == _UNIT)):
            where = f"{path}: {key}"
            with blaming(where):
                member = archive.getinfo(f"{key}.npy")
                if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise ValueError("expected a member that is stored or deflated")  # others unpack without a limit
                opened = stack.enter_context(archive.open(member))
            kind = np.dtype(np.int64 if key == _UNIT else _DTYPES.get(key, np.str_))
            columns[key] = NpyColumn(opened, where, kind)
        length = columns["address"].length
        for key in _DTYPES:
            if columns[key].length != length:
                raise InputError(f"{path}: {key} has {columns[key].length} elements, but address has {length}")
        require_backed(columns.values(), file, path)
        tables = {key: _names(columns[key]) for key in _NAMES}
        unit = _unit_bytes(columns[_UNIT]) if _UNIT in columns else None
        for start in range(0, length, size):
            count = min(size, length - start)
            address, write, tensor, op = (columns[key].read(count) for key in _DTYPES)
            yield Columns(address, write, tensor, op, **tables, unit_bytes=unit)
        for column in columns.values():
            column.finish()


def _names(column: NpyColumn) -> tuple[str, ...]:
    if column.length * max(column.dtype.itemsize, _NAME_BYTES) > limits.file:
        raise beyond("file", f"{column.where}: {column.length:,} names of up to {column.dtype.itemsize:,} bytes")
    with blaming(column.where):
        return tuple(column.read(column.length).tolist())


def _unit_bytes(column: NpyColumn) -> int:
    if column.length != 1:
        raise InputError(f"{column.where}: has {column.length} elements; expected 1")
    return int(column.read(1)[0])


def _read_npy(path: Path, size: int) -> Iterator[Columns]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    with file:
        column = NpyColumn(file, str(path), None)
        if column.dtype.kind not in "iu":
            raise InputError(f"{path}: addresses have dtype {column.dtype}; expected integers")
        require_backed([column], file, path)
        for start in range(0, column.length, size):
            addresses = column.read(min(size, column.length - start))
            if addresses.dtype.kind == "u" and addresses.max() > _LARGEST:
                raise InputError(f"{path}: an address is beyond {_LARGEST}")
            nothing = np.zeros(len(addresses), dtype=np.int32)
            yield Columns(
                addresses.astype(np.int64), nothing.astype(np.bool_), nothing, nothing, (UNNAMED,), (UNNAMED,)
            )
        column.finish()


def _read_csv(path: Path, size: int) -> Iterator[Columns]:
    names = {"tensor": NameTable(), "op": NameTable()}
    columns = {"address": array("q"), "write": array("b"), "tensor": array("i"), "op": array("i")}

    def chunk() -> Columns:
        address, write, tensor, op = (np.array(columns[key], dtype=dtype) for key, dtype in _DTYPES.items())
        for column in columns.values():
            del column[:]
        return Columns(address, write, tensor, op, names["tensor"].table(), names["op"].table())

    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(_lines(file, path))
            header: list[str] = []
            for row in rows:
                if not row:
                    continue
                cells = [cell.strip() for cell in row]
                where = f"{path}: line {rows.line_num}"
                if not header:
                    header, named = _header(cells, where)
                    if named:
                        continue
                if len(cells) != len(header):
                    raise InputError(f"{where}: {len(cells)} columns; expected {len(header)}: {','.join(header)}")
                cell_of = dict(zip(header, cells, strict=True))
                columns["address"].append(_address(cell_of["address"], where))
                columns["write"].append(_is_write(cell_of.get("write", "0"), where))
                for key, table in names.items():
                    columns[key].append(table[cell_of.get(key) or UNNAMED])
                if len(columns["address"]) == size:
                    yield chunk()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not a CSV file: {error}") from None
    if columns["address"]:
        yield chunk()


def _lines(file: IO[str], path: Path) -> Iterator[str]:
    """Yield the lines of a file, none of them longer than a line may be."""
    number = 0
    while line := file.readline(limits.line + 1):
        number += 1
        if len(line) > limits.line:
            raise beyond("line", f"{path}: line {number} has more than {limits.line:,} characters")
        yield line


def _header(cells: list[str], where: str) -> tuple[list[str], bool]:
    """Return the columns of a CSV file from its first row, and whether that row only names them."""
    known = list(_DTYPES)
    lower = [cell.lower() for cell in cells]
    if "address" in lower:
        for cell in lower:
            if cell not in known or lower.count(cell) > 1:
                raise InputError(f"{where}: column {quoted(cell)}; expected each of {', '.join(known)} at most once")
        return lower, True
    if len(cells) > len(known):
        raise InputError(f"{where}: {len(cells)} columns; expected address[,write[,tensor[,op]]]")
    return known[: len(cells)], False


def _address(text: str, where: str) -> int:
    digits = text[2:] if text[:2] in ("0x", "0X") else text
    try:
        value = int(digits, 16 if digits is not text else 10)
    except ValueError:
        value = -1
    if not digits.isascii() or not digits.isalnum() or not 0 <= value <= _LARGEST:
        raise InputError(f"{where}: address {quoted(text)}; expected a whole number, 0 to {_LARGEST}")
    return value


def _is_write(text: str, where: str) -> bool:
    words = {"0": False, "r": False, "read": False, "false": False, "1": True, "w": True, "write": True, "true": True}
    if text.lower() not in words:
        raise InputError(f"{where}: write {quoted(text)}; expected 0 or 1 (or r or w)")
    return words[text.lower()]


# Sequential reading of arrays from NPY and NPZ files of any origin ----------------------------------------------------
# Sizes stated in a file are compared with the size on disk before they are used.


_MOST_HEADER = 10_000  # bytes of an NPY header; numpy's own limit
_MOST_DIRECTORY = 2**20  # bytes of an archive's list of members; a trace has six
_COMPRESSION = 4  # columns may be so many times as long as what is on the disk, whatever that is


class NpyColumn:
    """One array of an NPZ or NPY file, read from front to back."""

    def __init__(self, file: IO[bytes], where: str, dtype: np.dtype[Any] | None) -> None:
        self.file, self.where = file, where
        with blaming(where):
            shape, self.dtype = _read_header(file)
        if self.dtype.hasobject:
            raise InputError(
                f"{where}: holds pickled Python objects, which are never loaded; expected {dtype or 'int64'}"
            )
        if len(shape) != 1 or shape[0] < 0:
            raise InputError(f"{where}: has shape {shape}; expected one dimension")
        if dtype is not None and self.dtype != dtype and not (dtype.kind == self.dtype.kind == "U"):
            raise InputError(f"{where}: has dtype {self.dtype}; expected {dtype}")
        self.length = int(shape[0])

    @property
    def bytes(self) -> int:
        """The size of the elements in bytes, according to the header."""
        return self.length * self.dtype.itemsize

    def read(self, count: int) -> Array:
        """Return the next so many elements."""
        with blaming(self.where):
            data = self.file.read(count * self.dtype.itemsize)
        if len(data) < count * self.dtype.itemsize:
            raise InputError(f"{self.where}: ends before its {self.length} elements")
        if self.dtype == np.bool_ and count and np.frombuffer(data, np.uint8).max() > 1:
            raise InputError(f"{self.where}: holds bytes that are neither false (0) nor true (1)")
        return np.frombuffer(data, self.dtype)

    def finish(self) -> None:
        """Make sure nothing follows; reaching the end is also what checks a zip member's checksum."""
        with blaming(self.where):
            if self.file.read(1):
                raise InputError(f"{self.where}: goes on after its {self.length} elements")


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and dtype of an array, of which nothing is read beyond a header of ordinary length."""
    lengths = {(1, 0): "<H", (2, 0): "<I"}
    version = npy.read_magic(file)
    if version not in lengths:
        raise ValueError(f"version {version} of the NPY format; expected 1.0 or 2.0")
    length = file.read(struct.calcsize(lengths[version]))
    (size,) = struct.unpack(lengths[version], length)
    if size > _MOST_HEADER:
        raise ValueError(f"a header of {size:,} bytes; at most {_MOST_HEADER:,} are read")
    header = io.BytesIO(length + file.read(size))
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about headers that Python 2 wrote
        shape, _, dtype = read(header)
    if not all(isinstance(extent, int) for extent in shape):
        raise ValueError(f"its shape is {shape}")
    return shape, dtype


@contextlib.contextmanager
def blaming(where: str) -> Iterator[None]:
    """Say that a file is corrupt, whatever zipfile and numpy raise: on damaged files that is nearly anything."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{where}: is corrupt: {str(error) or type(error).__name__}") from None


def require_backed(columns: Iterable[NpyColumn], file: IO[bytes], path: Path) -> None:
    """Refuse columns that are far longer than what the disk holds of them: a few bytes must not become gigabytes."""
    claimed = sum(column.bytes for column in columns)
    about = os.fstat(file.fileno())
    held = min(about.st_size, 512 * getattr(about, "st_blocks", about.st_size))
    if claimed > max(limits.unpacked, _COMPRESSION * held):
        problem = (
            f"{path}: its columns take {claimed / 2**20:,.0f} MiB, and on the disk they are {held / 2**20:,.1f} MiB"
        )
        raise beyond("unpacked", problem)


class ArchiveFile(io.BufferedReader):
    """The file of an archive, which begins by reading the list of its members: one longer than any trace's is refused."""

    listed = False

    def read(self, size: int | None = -1, /) -> bytes:
        """Return so many bytes."""
        if not self.listed and (size or 0) > _MOST_DIRECTORY:
            raise ValueError(f"a list of members of {size:,} bytes; at most {_MOST_DIRECTORY:,} are read")
        return super().read(size)
