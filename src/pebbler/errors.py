"""What pebbler raises when the person who called it can do something about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["IllegalPlan", "InputError", "PebblerError", "near_matches", "quoted"]


class PebblerError(Exception):
    """Anything pebbler reports to a person without a traceback."""


class InputError(PebblerError, ValueError):
    """Wrong input: the message says where it is and what was expected. Commands exit with status 2."""


class IllegalPlan(PebblerError):
    """A plan breaks a rule of the game. Commands exit with status 1."""


def quoted(name: object) -> str:
    """Return a name as one line that is safe to print, whatever is in it.

    >>> print(quoted("W1"), quoted("two\\nlines"))
    W1 'two\\nlines'
    """
    text = str(name)
    plain = text.isprintable() and text != "" and not any(c in text for c in " '\"")
    return text if plain else repr(text)


def near_matches(name: str, known: Iterable[str]) -> str:
    """Return " (did you mean ...?)" for a misspelt name, or all the known names when none is near.

    >>> near_matches("note", ["notes", "red-blue"])
    ' (did you mean notes?)'
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if near:
        return f" (did you mean {' or '.join(near)}?)"
    return f" (known: {', '.join(names)})" if names else ""
