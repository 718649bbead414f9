"""The folder of compiled kernels. It holds machine code that is loaded and run, so no other user may be able to write there.

A folder is used only if it and all folders above it belong to this user or to root, and nobody else can write to them. It is
reached from the root step by step. Every step is opened relative to the folder before and judged once it is open, so nothing can
be put between the look and the use. Files are opened relative to the folder that was judged. A symbolic link is followed if this
user or root made it. A folder with the sticky bit, as the system's temporary one, may lie on the way: there only the owner of an
entry can move it away or replace it. Where a system has no such calls or no owners, names are used as they are.

Without such a folder, kernels are kept in a private temporary one that is removed at the end, and one line says so.
"""

from __future__ import annotations

import atexit
import errno
import hashlib
import os
import shutil
import stat
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

__all__ = ["KernelFolder", "cache_folder", "child_variables"]

_PACKAGE = __name__.partition(".")[0]
_CHECKED = {os.open, os.mkdir, os.stat, os.readlink, os.access, os.rename} <= os.supports_dir_fd and hasattr(
    os, "geteuid"
)
# A folder that may be passed through need not be readable.
_STEP = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_FILE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS = 40  # as Linux
_choosing = threading.Lock()  # of several threads that begin at once, one chooses the folder


class _Unsafe(PermissionError):
    """A folder or file that somebody else can change."""


@dataclass(frozen=True)
class KernelFolder:
    """A folder of compiled kernels. Whatever is wrong with it is an `OSError`; nothing is read from or written to it then."""

    path: Path
    temporary: bool = False

    def make(self) -> None:
        """Make the folder, for this user alone, unless it is there; `OSError` if it cannot be used."""
        with _opened(self.path, make=True) as place:
            if not place.writable():
                raise PermissionError(errno.EACCES, "it cannot be written to", str(self.path))

    def read(self, part: str, name: str) -> bytes:
        """Return the complete contents of a file in a sub-folder."""
        with _opened(self.path) as place, place.inner(part) as inner:
            return inner.read(name)

    def write(self, part: str, name: str, data: bytes) -> None:
        """Write a file of a sub-folder whole, or not at all."""
        with _opened(self.path) as place, place.inner(part, make=True) as inner:
            inner.write(name, data)

    def has(self, name: str) -> bool:
        """Return whether a mark is there."""
        with suppress(OSError), _opened(self.path) as place:
            os.close(place.open(name, os.O_RDONLY))
            return True
        return False

    def mark(self, name: str) -> None:
        """Leave a mark, where there is room for it."""
        with suppress(OSError), _opened(self.path) as place:
            os.close(place.open(name, os.O_WRONLY | os.O_CREAT))

    @contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Let one process at a time into this block, where there are locks; the lock is given back however the process ends."""
        lock = None
        with suppress(ImportError, OSError), _opened(self.path) as place:
            import fcntl

            lock = place.open(name, os.O_WRONLY | os.O_CREAT)
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            if lock is not None:
                os.close(lock)

    def set_aside(self) -> Path:
        """Move everything out of the way, if that can be done, and begin anew; return where it is."""
        aside = self.path.with_name(f"{self.path.name}-wrong-{uuid.uuid4().hex[:8]}")
        try:
            with _opened(self.path.parent, passing=True) as place:
                place.rename(self.path.name, aside.name)
            self.make()
        except OSError:
            return self.path
        return aside


class _Place(NamedTuple):
    """An open folder that nobody else can change; without a descriptor, its path."""

    descriptor: int | None
    path: Path

    def _at(self, name: str) -> str:
        return name if self.descriptor is not None else str(self.path / name)

    def open(self, name: str, flags: int) -> int:
        descriptor = os.open(self._at(name), flags | _FILE, 0o600, dir_fd=self.descriptor)
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or (_CHECKED and _fault(about)):
            os.close(descriptor)
            raise _Unsafe(errno.EPERM, _fault(about) or "it is no file", str(self.path / name))
        return descriptor

    def read(self, name: str) -> bytes:
        with open(self.open(name, os.O_RDONLY), "rb") as file:
            digest, data = file.read(32), file.read()
        if hashlib.sha256(data).digest() != digest:
            raise OSError(errno.EIO, "it is damaged", str(self.path / name))
        return data

    def write(self, name: str, data: bytes) -> None:
        aside = f"{name}.tmp.{uuid.uuid4().hex[:16]}"
        try:
            with open(self.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
                file.write(hashlib.sha256(data).digest() + data)
            self.rename(aside, name)
        except BaseException:
            with suppress(OSError):
                os.unlink(self._at(aside), dir_fd=self.descriptor)
            raise

    def rename(self, name: str, to: str) -> None:
        os.replace(self._at(name), self._at(to), src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def writable(self) -> bool:
        effective = os.access in os.supports_effective_ids
        return os.access(self._at("."), os.W_OK | os.X_OK, dir_fd=self.descriptor, effective_ids=effective)

    @contextmanager
    def inner(self, name: str, *, make: bool = False) -> Iterator[_Place]:
        """Open a folder in this one; with `make`, a new one is as narrow as can be, whatever the umask."""
        if make:
            with suppress(FileExistsError):
                os.mkdir(self._at(name), 0o700, dir_fd=self.descriptor)
        if self.descriptor is None:
            yield _Place(None, self.path / name)
            return
        descriptor = os.open(name, _STEP, dir_fd=self.descriptor)
        try:
            _require_safe(descriptor, self.path / name, passing=False)
            yield _Place(descriptor, self.path / name)
        finally:
            os.close(descriptor)


@contextmanager
def _opened(path: Path, *, make: bool = False, passing: bool = False) -> Iterator[_Place]:
    """Open a folder that nobody else can change; with `make`, it and those above are made where they are missing.

    With `passing`, it may be open to all if it has the sticky bit.
    """
    if not _CHECKED:
        if make:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield _Place(None, path)
        return
    descriptor = _walk(path.absolute(), make=make, passing=passing)
    try:
        yield _Place(descriptor, path)
    finally:
        os.close(descriptor)


def _walk(path: Path, *, make: bool, passing: bool) -> int:
    """Return a descriptor of a folder, reached from the root through folders that nobody else can change."""
    here, pending, links = Path("/"), list(reversed(path.parts[1:])), 0
    descriptor = os.open(here, _STEP)
    try:
        while True:
            _require_safe(descriptor, here, passing=passing or bool(pending))
            if not pending:
                return descriptor
            name = pending.pop()
            try:
                about = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except FileNotFoundError:
                if not make:
                    raise
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=descriptor)
                about = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            step = name
            if stat.S_ISLNK(about.st_mode):
                # Nobody else can replace it: the folder it is in was judged, and so is its owner.
                links += 1
                if _owned_by_another(about) or links > _MOST_LINKS:
                    raise _Unsafe(errno.ELOOP, "it is a link that another user made", str(here / name))
                target = Path(os.readlink(name, dir_fd=descriptor))
                pending += reversed(target.parts[1:] if target.is_absolute() else target.parts)
                if not target.is_absolute():
                    continue
                here, step = Path("/"), "/"
            else:
                here /= name
            inner = os.open(step, _STEP, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
    except BaseException:
        os.close(descriptor)
        raise


def _require_safe(descriptor: int, path: Path, *, passing: bool) -> None:
    """Refuse a folder that somebody else can change. One to pass through may be open to all if it has the sticky bit."""
    about = os.fstat(descriptor)
    fault = _fault(about)
    if fault and not (passing and about.st_mode & stat.S_ISVTX and not _owned_by_another(about)):
        raise _Unsafe(errno.EPERM, fault, str(path))


def _fault(about: os.stat_result) -> str:
    """Return the reason why something can be changed by somebody else; nothing if it cannot."""
    if _owned_by_another(about):
        return "it belongs to another user"
    return "others can write to it" if about.st_mode & _OTHERS_WRITE else ""


def _owned_by_another(about: os.stat_result) -> bool:
    return about.st_uid not in (0, os.geteuid())


def cache_folder() -> KernelFolder:
    """Return the folder of compiled kernels: in `NUMBA_CACHE_DIR`, in the user's cache folder, or a temporary one.

    It is chosen once per process.
    """
    with _choosing:
        return _choose()


@cache
def _choose() -> KernelFolder:
    refused = []
    for home in _homes():
        try:
            folder = KernelFolder((home / "kernels").absolute())
            folder.make()
        except _Unsafe as error:
            refused.append(f"{error.filename!r} is passed over: {error.strerror}")
        except (OSError, ValueError):  # nothing to write to, or no path at all
            pass
        else:
            _tell([*refused, f"compiled kernels are kept in {str(folder.path)!r}"] if refused else [])
            return folder
    for place in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp")):
        with suppress(OSError):
            private = Path(tempfile.mkdtemp(prefix=f"{_PACKAGE}-", dir=place))
            atexit.register(_remove, private, os.getpid())
            folder = KernelFolder(private / "kernels", temporary=True)
            folder.make()
            _tell(
                [*refused, "compiled kernels are kept for this run only; NUMBA_CACHE_DIR can name a folder of your own"]
            )
            return folder
    _tell([*refused, "compiled kernels are not kept, and other processes compile their own"])
    return KernelFolder(Path(os.devnull))


def child_variables() -> dict[str, str]:
    """Return the environment variables with which a child process shares this process's kernels."""
    folder = cache_folder()
    return {"NUMBA_CACHE_DIR": str(folder.path.parent)} if folder.temporary else {}


def _homes() -> Iterator[Path]:
    if named := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(named)
    if named := os.environ.get("XDG_CACHE_HOME"):
        yield Path(named) / _PACKAGE
    with suppress(RuntimeError):  # there may be no home folder
        yield Path.home() / ".cache" / _PACKAGE


def _remove(private: Path, process: int) -> None:
    """Remove a temporary folder at the end of the process that made it, not of one that was forked from it."""
    if os.getpid() == process:
        shutil.rmtree(private, ignore_errors=True)


def _tell(parts: list[str]) -> None:
    if parts:
        print(f"{_PACKAGE}: {'; '.join(parts)}", file=sys.stderr, flush=True)
