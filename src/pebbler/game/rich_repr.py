"""Notebook representations of graphs, plans and judgements, as HTML from `pebbler.show`.

These classes may not import `pebbler.show`, which is a lower layer. `pebbler/__init__.py` connects the two.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["RichRepr", "show_with"]

_painters: list[Callable[[object], str | None]] = []


class RichRepr:
    """Something that a notebook shows as HTML."""

    def _repr_html_(self) -> str | None:
        return _painters[-1](self) if _painters else None


def show_with(painter: Callable[[object], str | None]) -> None:
    """Let a function make the HTML of everything that is shown from now on."""
    _painters[:] = [painter]
