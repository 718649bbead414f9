"""A folder of plans: a job that is started again finds what it planned before, in one file for each key.

A key is a hash of all that a plan was made for. What cannot be read is left aside with a warning, and so is a folder that cannot
be written: training never fails because of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pebbler.errors import InputError

__all__ = ["PlanFolder"]

_T = TypeVar("_T")


class PlanFolder:
    """A folder of plans; the caller says how one is read from a file and written to it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     plans = PlanFolder(name + "/new")
    ...     plans.write("a" * 64, lambda path: path.write_text("the plan"))
    ...     plans.read("a" * 64, Path.read_text), plans.read("b" * 64, Path.read_text)
    ('the plan', None)
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser()

    def _file(self, key: str) -> Path:
        return self.folder / f"{key[:32]}.json"

    def read(self, key: str, load: Callable[[Path], _T]) -> _T | None:
        """Return the plan of a key, or None where there is none that can be used."""
        if not self._file(key).is_file():
            return None
        try:
            return load(self._file(key))
        except (InputError, OSError) as error:
            warnings.warn(f"a plan on disk is left aside: {error}", stacklevel=3)
            return None

    def write(self, key: str, save: Callable[[Path], object]) -> None:
        """Write the plan of a key."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            save(self._file(key))
        except (InputError, OSError) as error:
            warnings.warn(f"a plan could not be kept on disk: {error}", stacklevel=3)
