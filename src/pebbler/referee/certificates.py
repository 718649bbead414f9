"""The notation of certificates (fractions as text), and the messages for certificates that prove nothing."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from pebbler.errors import PebblerError

__all__ = [
    "VERSION",
    "NotProven",
    "common_denominator",
    "in_time",
    "other_version",
    "read_fraction",
    "read_weights",
    "short",
]

# Of rows and formulas: raised whenever some row or formula says something else. Before certificates had versions it was 1.
VERSION = 4
MOST_BITS = 1 << 17  # of a number that all weights of a leaf are multiples of one over
_FRACTION = re.compile(r"\d{1,60}(/\d{1,60})?", re.ASCII)


class NotProven(PebblerError):
    """A certificate does not prove its claim; the message names the place."""


def other_version(certificate: Mapping[str, Any]) -> str:
    """Return in words that other rows and formulas than today's have made a certificate; empty where these have.

    >>> other_version({"version": VERSION}), other_version({"version": 1})
    ('', 'it was made by rows of version 1, these are of version 4: solve again')
    """
    version = certificate.get("version", 1)
    if version == VERSION:
        return ""
    return f"it was made by rows of version {short(version)}, these are of version {VERSION}: solve again"


def short(found: object) -> str:
    """Return a piece of a file in few words."""
    words = repr(found)
    return words if len(words) <= 60 else f"{words[:57]}..."


def read_fraction(text: object) -> Fraction:
    """Return a fraction that is not negative; powers of ten could fill the memory, so there are none.

    >>> read_fraction("7/3")
    Fraction(7, 3)
    """
    if not isinstance(text, str) or not _FRACTION.fullmatch(text):
        raise ValueError
    return Fraction(text)


def read_weights(rows: object) -> dict[tuple[Any, ...], Fraction]:
    """Return the weights of rows: each entry has the row's name, its arguments, and a weight as text."""
    if not isinstance(rows, Sequence):
        raise NotProven("a leaf has no list of weights")
    found: dict[tuple[Any, ...], Fraction] = {}
    for row in rows:
        try:
            *key, weight = row
            found[tuple(key)] = read_fraction(weight)
        except (TypeError, ValueError, ZeroDivisionError) as error:
            raise NotProven(f"{short(row)} is not a row with its weight") from error
    return found


def common_denominator(weights: Mapping[Any, Fraction]) -> int:
    """Return a number that all weights are multiples of one over: whole numbers add up faster than fractions."""
    over = 1
    for weight in weights.values():
        over = math.lcm(over, weight.denominator)
        if over.bit_length() > MOST_BITS:
            raise NotProven("its weights have too many different denominators")
    return over


def in_time(ends: float, done: int, what: str) -> None:
    """Refuse a certificate that takes longer than there is time, on the monotonic clock."""
    if time.monotonic() > ends:
        raise NotProven(f"it was not verified to its end: {done:,} {what} took all the time there was")
