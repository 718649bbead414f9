"""Reading and writing files: whole or not at all, and errors that say which file and where in it."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, TypeVar, overload

import msgspec

from pebbler.errors import InputError, one_line, quoted

__all__ = [
    "MAX_BYTES",
    "STANDARD_STREAM",
    "decode_json",
    "int_if_whole",
    "is_file",
    "read_bytes",
    "read_json",
    "read_toml",
    "remove_unfinished",
    "require_writable",
    "whole_file",
    "write_bytes",
    "write_json",
    "write_text",
]

T = TypeVar("T")

# A plan of a million moves takes some 30 MB. Beyond this a file is far more likely the wrong one.
MAX_BYTES = 128 * 2**20
STANDARD_STREAM = "-"  # as a path: the standard input or output

_unfinished: set[str] = set()  # files that are being written aside just now


@overload
def int_if_whole(number: float) -> float: ...
@overload
def int_if_whole(number: float | None) -> float | None: ...
def int_if_whole(number: float | None) -> float | None:
    """Return a whole number as an int, so that files and tables say 336, not 336.0.

    >>> int_if_whole(336.0), int_if_whole(0.5), int_if_whole(float("inf")), int_if_whole(None)
    (336, 0.5, inf, None)
    """
    return int(number) if number is not None and math.isfinite(number) and number == int(number) else number


def is_file(path: str | Path) -> bool:
    """Return whether there is such a file; a text that could be no path at all is just no file.

    >>> is_file("x" * 10_000)
    False
    """
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False


def read_bytes(path: str | Path, limit: int = MAX_BYTES) -> bytes:
    """Return a file's bytes, or say why it cannot be read. The path `-` is the standard input."""
    try:
        with _opened(path) as file:
            # A pipe or a device says size 0, so there what was read decides.
            size = os.fstat(file.fileno()).st_size
            data = file.read(limit + 1) if size <= limit else b""
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if max(size, len(data)) > limit:
        raise InputError(f"{path}: is too large; files of this kind are at most {limit / 2**20:.0f} MiB")
    return data


def _opened(path: str | Path) -> contextlib.AbstractContextManager[IO[bytes]]:
    if str(path) == STANDARD_STREAM:
        return contextlib.nullcontext(sys.stdin.buffer)  # not ours to close
    return open(path, "rb")


def decode_json(data: bytes, type_: type[T], where: str) -> T:
    """Return `data` as a value of `type_`; `where` names its origin in the error.

    >>> decode_json(b'[1, 2]', list[int], "numbers.json")
    [1, 2]
    """
    try:
        return msgspec.json.decode(data, type=type_)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {one_line(str(error))}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{where}: not valid JSON: {error}") from None


def read_json(path: str | Path, type_: type[T]) -> T:
    """Return the JSON file at `path` as a value of `type_`."""
    return decode_json(read_bytes(path), type_, str(path))


def read_toml(path: str | Path, type_: type[T]) -> T:
    """Return the TOML file at `path` as a value of `type_`."""
    data = read_bytes(path, limit=2**20)
    try:
        return msgspec.convert(tomllib.loads(data.decode()), type=type_)
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: {one_line(str(error))}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not valid TOML: {error}") from None


def require_writable(path: str | Path | None, *suffixes: str, what: str = "a file of this kind") -> None:
    """Raise now what writing a file would raise later: it is a folder, its place is read-only, no such format.

    Nothing is left behind. `suffixes` are the endings that the file may have; no path, and the standard output, are fine.

    >>> require_writable("plot.bmp", ".png", ".svg", what="a plot")
    Traceback (most recent call last):
    pebbler.errors.InputError: plot.bmp: a plot is written as .png or .svg
    """
    if path is None or str(path) == STANDARD_STREAM:
        return
    path = Path(path)
    if suffixes and path.suffix.lower() not in suffixes:
        known = " or ".join(part for part in (", ".join(suffixes[:-1]), suffixes[-1]) if part)
        raise InputError(f"{path}: {what} is written as {known}")
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if path.exists() and not path.is_file():
            return  # a pipe or a device
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.lstat(path)  # a name may be too long
        folder = next(place for place in path.absolute().parents if os.path.lexists(place))
        tempfile.TemporaryFile(dir=folder).close()
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from None


@contextlib.contextmanager
def whole_file(path: str | Path, *, durable: bool = False) -> Iterator[IO[bytes]]:
    """Open a file to be written whole or not at all: aside first, then renamed into place.

    With `durable` its bytes are on the disk before its name is there, so that not even a power cut leaves half of it.
    """
    path = Path(path)
    aside = None
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            with path.open("wb") as file:  # a pipe or a device, /dev/null say, is written to and never replaced
                yield file
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(dir=path.parent, prefix=".pebbler.", suffix=".part")
        _unfinished.add(aside)
        with os.fdopen(handle, "wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(aside, 0o666 & ~umask)  # mkstemp makes private files; ours are ordinary ones
        os.replace(aside, path)
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from None
    finally:
        if aside is not None:
            with contextlib.suppress(OSError):
                os.unlink(aside)
            _unfinished.discard(aside)


def _unwritable(path: Path, error: Exception) -> InputError:
    return InputError(f"{path}: cannot be written: {getattr(error, 'strerror', None) or error}")


def remove_unfinished() -> None:
    """Remove what is being written aside just now: for a program that must end in the middle of it."""
    for aside in tuple(_unfinished):
        with contextlib.suppress(OSError):
            os.unlink(aside)


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a file whole or not at all. The path `-` is the standard output."""
    if str(path) == STANDARD_STREAM:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        return
    with whole_file(path) as file:
        file.write(data)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file whole or not at all."""
    write_bytes(path, text.encode())


def write_json(path: str | Path, value: Any) -> None:
    """Write a value as indented JSON, whole or not at all."""
    try:
        data = msgspec.json.format(msgspec.json.encode(value), indent=1)
    except (TypeError, UnicodeEncodeError) as error:
        raise InputError(f"{quoted(path)}: cannot be written as JSON: {error}") from None
    write_bytes(path, data + b"\n")
