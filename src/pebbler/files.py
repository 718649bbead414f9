"""Reading and writing files: whole or not at all, and errors that say which file and where in it."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import math
import os
import re
import stat
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar, overload

import msgspec
import msgspec.inspect

from pebbler.errors import InputError, one_line, quoted
from pebbler.limits import beyond, limits

__all__ = [
    "STANDARD_STREAM",
    "convert_fields",
    "csv_text",
    "decode_json",
    "int_if_whole",
    "is_file",
    "read_bytes",
    "read_json",
    "read_toml",
    "remove_unfinished",
    "require_no_pipe",
    "require_writable",
    "validation_words",
    "whole_file",
    "write_bytes",
    "write_json",
    "write_text",
]

T = TypeVar("T")

STANDARD_STREAM = "-"  # as a path: the standard input or output

_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?", re.I)

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


def require_no_pipe(path: Path) -> None:
    """Raise for a file that another file names and whose end might never come: a pipe or a device."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return  # whoever reads it says that it is not there
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise InputError(f"{path}: cannot be read: it is not an ordinary file")


def read_bytes(path: str | Path, limit: str = "file", *, regular: bool = False) -> bytes:
    """Return a file's bytes, or say why it cannot be read. The path `-` is the standard input.

    `limit` names how long it may be (`pebbler.limits`). With `regular` it must be an ordinary file: nobody waits for a pipe.
    """
    most: int = getattr(limits, limit)
    try:
        with _opened(path, regular) as file:
            # A pipe or a device says size 0, so there what was read decides.
            size = os.fstat(file.fileno()).st_size
            data = file.read(most + 1) if size <= most else b""
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if max(size, len(data)) > most:
        raise beyond(limit, f"{path}: is too large")
    return data


def _opened(path: str | Path, regular: bool) -> contextlib.AbstractContextManager[IO[bytes]]:
    if str(path) == STANDARD_STREAM:
        return contextlib.nullcontext(sys.stdin.buffer)  # not ours to close
    if not regular:
        return open(path, "rb")
    file = os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError("it is not an ordinary file")
    return file


def decode_json(data: bytes, type_: type[T], where: str) -> T:
    """Return `data` as a value of `type_`; `where` names its origin in the error.

    >>> decode_json(b'[1, 2]', list[int], "numbers.json")
    [1, 2]
    """
    try:
        return msgspec.json.decode(data, type=type_)
    except msgspec.ValidationError as error:
        broken = _broken_json(data)  # a file cut short is called so, whatever else is wrong with its beginning
        raise InputError(f"{where}: {broken or validation_words(error, type_)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{where}: {_broken_json(data) or f'not valid JSON: {error}'}") from None


def _broken_json(data: bytes) -> str | None:
    """Return in plain words why data is no JSON at all: empty, binary or truncated; None where it is something else."""
    if not data.strip():
        return "empty; expected JSON"
    if b"\0" in data:
        return "binary data; expected JSON"
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return "truncated: the JSON ends in the middle" if "truncated" in str(error) else None
    return None


def convert_fields(fields: dict[str, Any], type_: type[T], where: str) -> T:
    """Return the keys and values of a file as a value of `type_`. `where` names the file in error messages."""
    try:
        return msgspec.convert(fields, type=type_)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {validation_words(error, type_)}") from None


def validation_words(error: msgspec.ValidationError, type_: Any) -> str:
    """Return the place where data was refused and the reason; where a few words are allowed, with these words.

    >>> from typing import Literal
    >>> for data in ({"a": "z"}, {"a": 1}):
    ...     try:
    ...         msgspec.convert(data, type=dict[str, Literal["x", "y"]])
    ...     except msgspec.ValidationError as error:
    ...         print(validation_words(error, dict[str, Literal["x", "y"]]))
    [...]: z is not one of x, y
    [...]: expected text, got a whole number
    """
    text = one_line(str(error))
    reason, place = re.fullmatch(r"(.*?)(?: - at `\$\.?(.*)`)?", text).groups()  # type: ignore[union-attr]
    if refused := re.fullmatch(r"Invalid enum value '?(.*?)'?", reason):
        words = ", ".join(map(str, _words_at(place or "", msgspec.inspect.type_info(type_))))
        reason = f"{refused[1]} is not one of {words}" if words else reason
    elif reason.startswith("Expected"):
        reason = re.sub(r"`([^`]*)`", lambda kinds: " or ".join(map(_kind_words, kinds[1].split(" | "))), reason)
        reason = reason[0].lower() + reason[1:]
    return f"{place}: {reason}" if place else reason


def _kind_words(kind: str) -> str:
    """Return the words for a kind of value that msgspec names."""
    words = {
        "int": "a whole number", "float": "a number", "str": "text", "bool": "true or false", "array": "a list",
        "object": "an object",
    }  # fmt: skip
    return words.get(kind, kind)


def _words_at(place: str, found: msgspec.inspect.Type) -> list[Any]:
    """Return the words that a type allows at a place, such as `tensors[0].kind`."""
    for part in re.findall(r"[^.\[]+|\[[^\]]*\]", place):
        inside = found.types if isinstance(found, msgspec.inspect.UnionType) else (found,)
        for one in inside:
            if isinstance(one, msgspec.inspect.StructType) and part[0] != "[":
                found = next((field.type for field in one.fields if field.encode_name == part), found)
            elif isinstance(one, msgspec.inspect.DictType):
                found = one.value_type
            elif isinstance(one, msgspec.inspect.VarTupleType | msgspec.inspect.ListType):
                found = one.item_type
    kinds = found.types if isinstance(found, msgspec.inspect.UnionType) else (found,)
    return [word for one in kinds if isinstance(one, msgspec.inspect.LiteralType) for word in one.values]


def read_json(path: str | Path, type_: type[T]) -> T:
    """Return the JSON file at `path` as a value of `type_`."""
    return decode_json(read_bytes(path), type_, str(path))


# Where a key can begin, and more parts with dots between them than any file of ours has. tomllib takes a time that grows with their
# square.
_KEY_PART = r"""(?:[\w-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')[ \t]*"""
_LONG_KEY = re.compile(rf"(?:^|[\[{{,])[ \t]*(?:{_KEY_PART}\.[ \t]*){{16}}", re.M)


def read_toml(path: str | Path, type_: type[T]) -> T:
    """Return the TOML file at `path` as a value of `type_`."""
    data = read_bytes(path, "toml")
    try:
        text = data.decode()
        if found := _LONG_KEY.search(text):
            line = text.count("\n", 0, found.start()) + 1
            raise InputError(f"{path}: line {line}: a key of more than 16 parts; no file of pebbler's has such")
        return convert_fields(tomllib.loads(text), type_, str(path))
    except InputError:
        raise
    # Numbers of thousands of digits are a plain ValueError.
    except (ValueError, OverflowError, RecursionError) as error:
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


def csv_text(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table as CSV. None is an empty cell; a text that a spreadsheet would take for a formula is marked as text.

    >>> csv_text(["name", "energy"], [("=HYPERLINK(1)", -3), ("-5e3", None)])
    "name,energy\\n'=HYPERLINK(1),-3\\n-5e3,\\n"
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(map(_plain_cell, header))
    writer.writerows(map(_plain_cell, row) for row in rows)
    return buffer.getvalue()


def _plain_cell(value: Any) -> Any:
    """Return a cell as it is read as a text or number; the report page's `csvText` says the same of its own."""
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@", "\t", "\r", "\n")):
        return value
    return value if _NUMBER.fullmatch(value) else f"'{value}"


def write_json(path: str | Path, value: Any) -> None:
    """Write a value as indented JSON, whole or not at all."""
    try:
        data = msgspec.json.format(msgspec.json.encode(value), indent=1)
    except (TypeError, UnicodeEncodeError) as error:
        raise InputError(f"{quoted(path)}: cannot be written as JSON: {error}") from None
    write_bytes(path, data + b"\n")
