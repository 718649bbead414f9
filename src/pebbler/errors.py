"""Exceptions that the caller can act on."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

__all__ = [
    "IllegalPlan",
    "InputError",
    "PebblerError",
    "RefutedBound",
    "blamed_on",
    "near_matches",
    "one_line",
    "quoted",
]

_LONGEST = 200  # characters of a name in a message
_LONGEST_LINE = 2000  # characters
_LISTED = 12  # names in a message; beyond these it is no help any more


class PebblerError(Exception):
    """Anything pebbler reports to a person without a traceback."""


class InputError(PebblerError, ValueError):
    """Wrong input: the message says where it is and what was expected. Commands exit with status 2."""


class IllegalPlan(PebblerError):
    """A plan breaks a rule of the game. Commands exit with status 1."""


class RefutedBound(UserWarning):
    """A legal plan costs less than a bound that was stated for it: a fault in pebbler. The bound is dropped, the plan is kept."""


@contextmanager
def blamed_on(where: str) -> Iterator[None]:
    """Put the place that wrong input is in before what is said of it.

    >>> with blamed_on("plan.json"):
    ...     raise InputError("move 3: no op f")
    Traceback (most recent call last):
    pebbler.errors.InputError: plan.json: move 3: no op f
    """
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def quoted(name: object) -> str:
    """Return a name as one line that is safe to print, whatever is in it.

    >>> print(quoted("W1"), quoted("two\\nlines"))
    W1 'two\\nlines'
    """
    text = str(name)
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}..."
    plain = text.isprintable() and text != "" and not any(c in text for c in " '\"")
    return text if plain else repr(text)


def one_line(text: str) -> str:
    """Return a text with everything escaped that would break the line or the terminal; of one of pages the middle is left out.

    >>> print(one_line("unknown field `si\\nze`"))
    unknown field `si\\nze`
    """
    half = _LONGEST_LINE // 2
    shown = text if len(text) <= 2 * half else f"{text[:half]}...{text[-half:]}"
    return shown if shown.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in shown)


def near_matches(name: str, known: Iterable[str]) -> str:
    """Return " (did you mean ...?)" for a misspelt name, or the known names when none is near.

    >>> near_matches("note", ["notes", "red-blue"])
    ' (did you mean notes?)'
    """
    names = sorted(known)
    # Comparing is slow, so in a large graph only names of about the same length that begin alike are looked at.
    alike = names if len(names) <= 1000 else [n for n in names if n[:1] == name[:1] and abs(len(n) - len(name)) <= 2]
    spelt = {other.lower(): other for other in alike[:1000]}  # a wrong case is the nearest miss of all
    near = difflib.get_close_matches(name[:_LONGEST].lower(), spelt, n=3, cutoff=0.6)
    if near:
        return f" (did you mean {' or '.join(quoted(spelt[other]) for other in near)}?)"
    more = f", and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    return f" (known: {', '.join(map(quoted, names[:_LISTED]))}{more})" if names else ""
