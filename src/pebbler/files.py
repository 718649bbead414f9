"""Reading and writing files: whole or not at all, and errors that say which file and where in it."""

from __future__ import annotations

import contextlib
import os
import tempfile
import tomllib
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pebbler.errors import InputError, quoted

__all__ = [
    "MAX_BYTES",
    "decode_json",
    "read_bytes",
    "read_json",
    "read_toml",
    "write_bytes",
    "write_json",
    "write_text",
]

T = TypeVar("T")

# A plan of a million moves takes some 30 MB. Beyond this a file is far more likely the wrong one.
MAX_BYTES = 128 * 2**20


def read_bytes(path: str | Path, limit: int = MAX_BYTES) -> bytes:
    """Return a file's bytes, or say why it cannot be read."""
    path = Path(path)
    try:
        size = path.stat().st_size
        if size > limit:
            raise InputError(
                f"{path}: {size / 2**20:.0f} MiB is too large; files of this kind are at most {limit / 2**20:.0f} MiB"
            )
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def decode_json(data: bytes, type_: type[T], where: str) -> T:
    """Return `data` as a value of `type_`; `where` names its origin in the error.

    >>> decode_json(b'[1, 2]', list[int], "numbers.json")
    [1, 2]
    """
    try:
        return msgspec.json.decode(data, type=type_)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {error}") from None
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
        raise InputError(f"{path}: {error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not valid TOML: {error}") from None


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a file whole or not at all: aside first, then renamed into place."""
    path = Path(path)
    aside = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:80]}.", suffix=".part")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(aside, 0o666 & ~umask)  # mkstemp makes private files; ours are ordinary ones
        os.replace(aside, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        if aside is not None:
            with contextlib.suppress(OSError):
                os.unlink(aside)


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
