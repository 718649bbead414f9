"""Recognition of pebbler's JSON files. A file given to the wrong command is answered with the name of the right command."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from pebbler.errors import InputError
from pebbler.files import decode_json, read_bytes

__all__ = ["read_kind"]

T = TypeVar("T")

# What each format is called, and the commands that take it.
_KINDS = {
    "pebbler-graph-1": ("a graph", "pebbler solve, graph and trace take it"),
    "pebbler-plan-1": ("a plan", "pebbler check, report, export and trace take it"),
    "pebbler-results-1": ("the results of an experiment", "no command takes it"),
}


class _AnyFile(msgspec.Struct):
    """Any JSON object that names its format."""

    format: str


def read_kind(path: str | Path, type_: type[T], expected: str) -> T:
    """Return the JSON file at `path` as a value of `type_`; a file of another kind is named, with what takes it."""
    data = read_bytes(path)
    try:
        return decode_json(data, type_, str(path))
    except InputError:
        kind = _kind(data)
        if kind is None or kind == expected or kind not in _KINDS:
            raise
    what, takers = _KINDS[kind]
    raise InputError(f"{path}: this file is {what} ({kind}), not {_KINDS[expected][0]}; {takers}")


def _kind(data: bytes) -> str | None:
    try:
        return msgspec.json.decode(data, type=_AnyFile).format
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
