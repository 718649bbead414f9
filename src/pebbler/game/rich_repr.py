"""How notebooks show graphs, plans and judgements: by HTML that `pebbler.show` makes.

The classes that are shown stand above the room that draws them, so they do not know it: the front door introduces the two.
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
