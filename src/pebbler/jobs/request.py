"""Requests to workers and their replies: plain bytes, never code."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Literal

import msgspec

from pebbler.version import VERSION

__all__ = ["JobReply", "JobRequest", "current_versions", "difference"]

_LIBRARIES = ("numpy", "numba", "ortools", "msgspec")  # results may differ with these
_PACKAGE = Path(__file__).parents[1]


class JobRequest(msgspec.Struct, frozen=True):
    """A function of this package, by name, and what it is given; `versions` are those of whoever asks."""

    function: str  # module:function
    payload: bytes
    versions: dict[str, str]
    seconds: float | None = None  # after which its process is ended
    memory: int | None = None  # bytes of data that its process may hold


class JobReply(msgspec.Struct, frozen=True):
    """The reply to a request.

    `done`: `body` is the answer. `error`: it failed, and would again. `lost`: its process died, hung or was out of memory.
    `refused`: the worker has other versions.
    """

    status: Literal["done", "error", "lost", "refused"]
    body: bytes = b""
    reason: str = ""
    host: str = ""
    wrong_input: bool = False  # whether an error is the fault of what was given


@cache
def current_versions() -> dict[str, str]:
    """Return the versions that a result depends on: this package down to its sources, Python, and the libraries that compute.

    >>> sorted(current_versions())
    ['msgspec', 'numba', 'numpy', 'ortools', 'pebbler', 'python', 'sources']
    """
    digest = hashlib.sha256()
    for path in sorted(path for path in _PACKAGE.rglob("*") if path.suffix in (".py", ".toml")):
        digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    found = {"pebbler": VERSION, "sources": digest.hexdigest()[:12]}
    found["python"] = ".".join(platform.python_version_tuple()[:2])
    return found | {name: metadata.version(name) for name in _LIBRARIES}


def difference(asked: dict[str, str], here: dict[str, str]) -> str:
    """Return in what a worker's versions differ from those asked for, in words; nothing when they agree.

    >>> difference({"pebbler": "0.1.0", "numba": "0.61"}, {"pebbler": "0.2.0", "numba": "0.61"})
    'pebbler is 0.2.0 there and 0.1.0 here'
    """
    names = sorted(asked.keys() | here.keys())
    return ", ".join(
        f"{'the source of pebbler' if name == 'sources' else name} is {here.get(name, 'missing')} there "
        f"and {asked.get(name, 'missing')} here"
        for name in names
        if asked.get(name) != here.get(name)
    )
