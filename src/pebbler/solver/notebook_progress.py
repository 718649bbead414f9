"""Progress of a search in a notebook: one line under the cell that says how good the best plan is by now."""

from __future__ import annotations

import sys
import time
from importlib import import_module
from typing import Any

from pebbler.game.amounts import energy_text
from pebbler.game.machine import energy_unit
from pebbler.solver.problem import Search

__all__ = ["NotebookLine", "progress_line"]

_SECONDS = 0.3  # between two changes of the line


def progress_line(search: Search) -> str:
    """Return the progress of a search in a line.

    >>> from pebbler.solver.problem import Problem
    >>> progress_line(Search(Problem.of("chain:length=3")))
    'chain:length=3 on red-blue: no plan yet'
    """
    unit = energy_unit(search.problem.graph.unit, search.problem.machine)
    line = f"{search.problem.graph.name} on {search.problem.machine.name}: "
    if search.best is None:
        return f"{line}no plan yet"
    line += energy_text(search.energy, unit)
    if search.done:
        return f"{line}, proven optimal"
    if search.gap is None:
        return line
    return f"{line}, at most {100 * search.gap:.1f} % above the bound of {energy_text(search.bound, unit)}"


class NotebookLine:
    """A line under a notebook's cell, kept up to date while a search runs: a `report` for `solve`."""

    def __init__(self) -> None:
        self._shown: Any = None
        self._last = -_SECONDS

    @classmethod
    def wanted(cls) -> NotebookLine | None:
        """Return a line if this is a notebook, None anywhere else.

        >>> NotebookLine.wanted() is None
        True
        """
        return cls() if _in_notebook() else None

    def __call__(self, search: Search) -> None:
        """Show how far a search is, unless the line has just changed."""
        if time.monotonic() - self._last >= _SECONDS:
            self.show(search)

    def show(self, search: Search) -> None:
        """Show how far a search is."""
        self._last = time.monotonic()
        content = {"text/plain": progress_line(search)}
        if self._shown is None:
            self._shown = import_module("IPython.display").display(content, raw=True, display_id=True)
        else:
            self._shown.update(content, raw=True)


def _in_notebook() -> bool:
    """Whether a kernel runs this, not a terminal: nothing is imported to find out."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return shell is not None and "IPKernelApp" in getattr(shell, "config", {})
