"""A folder of results: one row and one plan per run, each written atomically, also with concurrent writers.

The plan of a run is written before its row, so an existing row means a completed run. Rows and plans are named by the key of the
run, so two sweeps with the same run write the same files. Runs in progress are marked by locks on bytes of one file; a lock ends
with the process that holds it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from pebbler.errors import InputError, quoted
from pebbler.files import decode_json, read_bytes, whole_file

try:
    import fcntl
except ImportError:  # where there are no such locks, two sweeps may do a run twice; nothing else changes
    fcntl = None  # type: ignore[assignment]

__all__ = ["FORMAT", "ResultFolder", "Row"]

FORMAT = "pebbler-sweep-row-1"
Row = dict[str, Any]
_KEY = re.compile("[0-9a-f]{4,64}")  # hashes: no name of a file is anything else
_LEFT_BEHIND = 3600.0  # seconds after which a file that is still being written aside belongs to nobody


class _RowFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON form of a row; digests tell whether it, or its plan, is damaged."""

    format: str
    key: str
    digest: str
    plan: str | None  # the digest of its plan
    row: Row


class ResultFolder:
    """The results in a folder.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     folder = ResultFolder(place)
    ...     folder.put("ab12", {"energy": 3}, b"{}")
    ...     folder.row("ab12"), folder.row("cd34")
    ({'energy': 3}, None)
    """

    def __init__(
        self, path: str | Path, *, create: bool = True, is_row: Callable[[Row], bool] = lambda row: True
    ) -> None:
        """Open a folder; `is_row` says whether what stands in a file is a row, whoever wrote it."""
        self.path = Path(path)
        self._is_row = is_row
        self._locks: int | None = None
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{path}: a sweep's results go to a folder, and this is a file")
        if not create and not (self.path / "rows").is_dir():
            raise InputError(f"{path}: there is no sweep in this folder")

    def row_path(self, key: str) -> Path:
        """Return the path of a run's row."""
        return self._place("rows", key)

    def plan_path(self, key: str) -> Path:
        """Return the path of a run's plan."""
        return self._place("plans", key)

    def _place(self, kind: str, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise InputError(f"{self.path}: {quoted(key)} is no key of a run; keys are hashes")
        return self.path / kind / key[:2] / f"{key}.json"

    def put(self, key: str, row: Row, plan: bytes | None) -> None:
        """Keep a result: when this returns, it is on the disk."""
        if plan is not None:
            _write(self.plan_path(key), plan)
        file = _RowFile(FORMAT, key, _digest(key, row), None if plan is None else _plan_digest(plan), row)
        _write(self.row_path(key), msgspec.json.format(msgspec.json.encode(file), indent=1) + b"\n")

    def row(self, key: str, *, whole: bool = False) -> Row | None:
        """Return a run's row; None when there is none, or it is damaged, or (with `whole`) its plan is."""
        try:
            file = decode_json(read_bytes(self.row_path(key), regular=True), _RowFile, key)
            if whole and file.plan is not None and _plan_digest(self.plan(key)) != file.plan:
                return None
            known = file.format == FORMAT and file.key == key and file.digest == _digest(key, file.row)
            return file.row if known and file.row.get("key", key) == key and self._is_row(file.row) else None
        except InputError:
            return None

    def plan(self, key: str) -> bytes:
        """Return a run's plan, as its file holds it."""
        return read_bytes(self.plan_path(key), regular=True)

    def rows(self) -> Iterator[Row]:
        """Yield every row that is whole, in the order of their keys."""
        for key in sorted(self._keys()):
            row = self.row(key)
            if row is not None:
                yield row

    def _keys(self) -> set[str]:
        """Return the keys of all rows, damaged ones too."""
        return {path.stem for path in (self.path / "rows").glob("*/*.json") if _KEY.fullmatch(path.stem)}

    def done(self) -> set[str]:
        """Return the keys of runs that need not be done again: row and plan are there, and undamaged."""
        return {key for key in self._keys() if self.row(key, whole=True) is not None}

    # Who works on what ------------------------------------------------------------------------------------------------

    def claim(self, key: str) -> bool:
        """Say that this process works on a run; False when another does."""
        if fcntl is None:
            return True
        if self._locks is None:
            flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                self._locks = os.open(self.path / "claims", flags, 0o666)
            except OSError as error:
                raise InputError(f"{self.path / 'claims'}: cannot be written: {error.strerror}") from None
        try:
            fcntl.lockf(self._locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(key))
        except OSError as error:
            # Anything but "taken" means that there are no locks here: then a run may be done twice, and no harm is done.
            return error.errno not in (errno.EACCES, errno.EAGAIN)
        return True

    def release(self, key: str) -> None:
        """Say that this process has ended its work on a run."""
        if fcntl is not None and self._locks is not None:
            with suppress(OSError):
                fcntl.lockf(self._locks, fcntl.LOCK_UN, 1, _place(key))

    def close(self) -> None:
        """Give up all claims."""
        if self._locks is not None:
            os.close(self._locks)
            self._locks = None

    def remove_left_behind(self) -> None:
        """Remove what processes that were killed in the middle of a write have left."""
        for part in self.path.rglob(".pebbler.*.part"):
            with suppress(OSError):
                if time.time() - part.stat().st_mtime > _LEFT_BEHIND:
                    part.unlink()


def _write(path: Path, data: bytes) -> None:
    with whole_file(path, durable=True) as file:
        file.write(data)


def _place(key: str) -> int:
    return int(key[:15], 16)  # of 60 bits: no two runs of any sweep will meet there


def _digest(key: str, row: Row) -> str:
    return hashlib.sha256(key.encode() + b"\0" + msgspec.json.encode(row)).hexdigest()


def _plan_digest(plan: bytes) -> str:
    return hashlib.sha256(plan).hexdigest()
