"""The output files of a command: paths are tested before the computation, and results are printed even if writing fails."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from pebbler.cli.output import tell
from pebbler.errors import InputError
from pebbler.files import STANDARD_STREAM, is_file, require_writable

__all__ = ["WrittenFiles", "goes_to_stdout", "require_apart", "require_json", "require_page", "require_plot"]


def goes_to_stdout(path: Path | None) -> bool:
    """Return whether a file is the standard output, which is then for nothing else."""
    return str(path) == STANDARD_STREAM


def require_json(path: Path | None, json: bool, *suffixes: str, what: str = "") -> None:
    """Raise what writing a plan or a graph there would raise after the work; `json` is whether stdout is taken."""
    if goes_to_stdout(path) and json:
        raise InputError("-o - and --json both write to the standard output: leave one of them out")
    require_writable(path, *suffixes, what=what)


def require_plot(path: Path | None) -> None:
    """Raise what drawing a plot there would raise after the work."""
    require_writable(path, ".png", ".svg", ".pdf", what="a plot")


def require_page(path: Path | None) -> None:
    """Raise what writing a page there would raise after the work."""
    require_writable(path, ".html", ".htm", what="a page")


def require_apart(read: str | Path | None, *written: Path | None) -> None:
    """Raise if a file would be written over by another, or over what the command reads."""
    seen = {} if read is None or not is_file(read) else {os.path.realpath(read): "is what is read"}
    for path in written:
        if path is None or goes_to_stdout(path):
            continue
        place = os.path.realpath(path)  # unlike `Path.resolve`, it takes a link to itself as it is
        if place in seen:
            raise InputError(f"{path} {seen[place]}: name another file")
        seen[place] = "is written already"


class WrittenFiles:
    """Files as they are written; what went wrong is raised at the end, when the command has printed its answer."""

    def __init__(self) -> None:
        self._written: list[Path] = []
        self._failures: list[InputError] = []

    def write(self, path: Path | None, save: Callable[[Path], object]) -> None:
        """Write a file; None is for an option that was not given."""
        if path is None:
            return
        try:
            save(path)
        except InputError as error:
            self._failures.append(error)
        else:
            self._written.append(path)

    def name(self) -> None:
        """Name every file written, and raise for the first that could not be."""
        for path in self._written:
            if not goes_to_stdout(path):
                tell(f"wrote {path}")
        if self._failures:
            raise self._failures[0]

    def name_kept(self, what: str, *others: Path | None) -> bool:
        """Do the same after Ctrl-C: say that this is `what`, and which other files there are not; return True."""
        tell(f"interrupted: this is {what}")
        for path in others:
            if path is not None and path not in self._written:
                tell(f"not written: {path}")
        self.name()
        return True
