"""An extension of griffe: shows the worked examples of docstrings as code.

They are plain doctests, whose `>>>` Markdown would take for quotations.
"""

from __future__ import annotations

from typing import Any

import griffe

__all__ = ["Doctests", "fenced"]


def fenced(text: str) -> str:
    """Return a docstring with each of its doctests, up to the next empty line, between fences."""
    lines: list[str] = []
    inside = False
    for line in [*text.splitlines(), ""]:
        if not inside and line.lstrip().startswith(">>>"):
            lines += ["", "```pycon"]
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line.lstrip() if inside and line.lstrip().startswith((">>>", "...")) else line)
    return "\n".join(lines).strip()


class Doctests(griffe.Extension):
    """Fences the doctests of everything that has a docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
