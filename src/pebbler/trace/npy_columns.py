"""Sequential reading of arrays from NPY and NPZ files of any origin.

Sizes stated in a file are compared with the size on disk before they are used.
"""

from __future__ import annotations

import contextlib
import io
import os
import struct
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from pebbler.arrays import Array
from pebbler.errors import InputError
from pebbler.limits import beyond, limits

__all__ = ["ArchiveFile", "NpyColumn", "blaming", "require_backed"]

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
