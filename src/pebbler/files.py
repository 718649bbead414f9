"""Reading and writing files: whole or not at all, and errors that say which file and where in it."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, TypeVar, overload

import msgspec

from pebbler.errors import InputError, one_line, quoted

__all__ = [
    "MAX_BYTES",
    "decode_json",
    "int_if_whole",
    "is_file",
    "read_bytes",
    "read_json",
    "read_toml",
    "whole_file",
    "write_bytes",
    "write_json",
    "write_text",
]

T = TypeVar("T")

# A plan of a million moves takes some 30 MB. Beyond this a file is far more likely the wrong one.
MAX_BYTES = 128 * 2**20


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
    """Return a file's bytes, or say why it cannot be read."""
    try:
        with open(path, "rb") as file:
            # A pipe or a device says size 0, so there what was read decides.
            size = os.fstat(file.fileno()).st_size
            data = file.read(limit + 1) if size <= limit else b""
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if max(size, len(data)) > limit:
        raise InputError(f"{path}: is too large; files of this kind are at most {limit / 2**20:.0f} MiB")
    return data


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


@contextlib.contextmanager
def whole_file(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file to be written whole or not at all: aside first, then renamed into place."""
    path = Path(path)
    aside = None
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            with path.open("wb") as file:  # a pipe or a device, /dev/null say, is written to and never replaced
                yield file
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(dir=path.parent, prefix=".pebbler.", suffix=".part")
        with os.fdopen(handle, "wb") as file:
            yield file
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(aside, 0o666 & ~umask)  # mkstemp makes private files; ours are ordinary ones
        os.replace(aside, path)
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be written: {getattr(error, 'strerror', None) or error}") from None
    finally:
        if aside is not None:
            with contextlib.suppress(OSError):
                os.unlink(aside)


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a file whole or not at all."""
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
