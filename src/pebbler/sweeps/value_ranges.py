"""Amounts and ranges in a sweep's specification: `1024..65536x2`, `100..500+100`, `64KiB`, `25%`, and lists of these."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, TypeVar

from pebbler.errors import InputError, quoted
from pebbler.game.machine import UNIT_BYTES
from pebbler.limits import beyond, limits

__all__ = ["Amount", "amounts_of", "whole_numbers_of"]

_BYTES = {"": 1, "b": 1} | {
    f"{prefix}{kind}b": (1024 if kind else 1000) ** power
    for power, prefix in enumerate("kmgt", start=1)
    for kind in ("", "i")
}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?\s*(?:%|[kmgt]?i?b?)"
_RANGE = re.compile(
    rf"(?P<low>{_NUMBER})\s*\.\.\s*(?P<high>{_NUMBER})\s*"
    rf"(?:x\s*(?P<factor>[0-9]+(?:\.[0-9]+)?)|\+\s*(?P<step>{_NUMBER}))?",
    re.IGNORECASE,
)
T = TypeVar("T")
_LARGEST = 2**63  # no memory has more units
_MOST = 10_000  # values of one range; more is a typing error
_EXPECTED = "expected a number, 64KiB, 25%, or a range such as 1024..65536x2 or 10%..100%+10%"


@dataclass(frozen=True)
class Amount:
    """So many units, so many bytes, or a share of what program order holds at its peak."""

    value: float
    kind: str  # "units", "bytes" or "share"

    @property
    def share(self) -> float | None:
        """The share of program order's peak; None for an absolute amount."""
        return self.value if self.kind == "share" else None

    def units(self, unit: str, peak: int) -> int:
        """Return the amount in units of a graph whose program order needs `peak` of them.

        >>> Amount(4096, "bytes").units("float32", 100), Amount(0.25, "share").units("float32", 100)
        (1024, 25)
        """
        if self.kind == "share":
            return max(1, ceil(self.value * peak - 1e-9))
        if self.kind == "units":
            return int(self.value)
        if unit not in UNIT_BYTES:
            raise InputError(f"{self.value:,.0f} bytes: the graph is in {quoted(unit)}, so capacities have no bytes")
        return int(self.value) // UNIT_BYTES[unit]


def amounts_of(given: Any, what: str) -> list[Amount]:
    """Return the amounts in a number, a text or a list of them; `what` names them in errors.

    >>> [amount.value for amount in amounts_of("1..8x2", "capacity")]
    [1.0, 2.0, 4.0, 8.0]
    >>> amounts_of(["50%", 64], "capacity")
    [Amount(value=0.5, kind='share'), Amount(value=64.0, kind='units')]
    """
    if isinstance(given, Sequence) and not isinstance(given, str) and given:
        return _joined((amounts_of(item, what) for item in given), what)
    if isinstance(given, int) and not isinstance(given, bool) and 0 < given <= _LARGEST:
        return [Amount(float(given), "units")]
    found = _listed(given, what) if isinstance(given, str) else []
    if not found or any(amount.value <= 0 for amount in found):
        raise InputError(f"{what}: {_EXPECTED}, got {quoted(given)}")
    return found


def _listed(text: str, what: str) -> list[Amount]:
    parts = ((part, _RANGE.fullmatch(part.strip())) for part in text.split(","))
    return _joined((_range(match, part, what) if match else [_amount(part, what)] for part, match in parts), what)


def _joined(lists: Iterable[list[T]], what: str) -> list[T]:
    """Return the different values of lists, in order, no more of them than a sweep has runs."""
    found: list[T] = []
    for values in lists:
        found += values
        if len(found) > limits.runs:
            raise beyond("runs", f"{what}: has more values than a sweep has runs")
    return list(dict.fromkeys(found))


def _range(match: re.Match[str], text: str, what: str) -> list[Amount]:
    """Return the amounts from the first to the last: times a factor, or plus a step of the same kind (1 for plain numbers)."""
    low, high = _amount(match["low"], what), _amount(match["high"], what)
    factor = float(match["factor"] or 1)
    step = _amount(match["step"] or "1", what) if match["factor"] is None else Amount(0, low.kind)
    if not low.kind == high.kind == step.kind or low.value > high.value or not (factor > 1 or step.value > 0):
        raise InputError(f"{what}: {quoted(text)} is no range; {_EXPECTED}")
    found, value = [], low.value
    while value <= high.value * (1 + 1e-9):
        found.append(Amount(round(value, 9) if low.kind == "share" else float(round(value)), low.kind))
        value = value * factor + step.value
        if len(found) > _MOST:
            raise InputError(f"{what}: {quoted(text)} has more than {_MOST:,} values")
    return list(dict.fromkeys(found))


def _amount(text: str, what: str) -> Amount:
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(%|[a-zA-Z]*)\s*", text)
    unit = match[2].lower() if match else ""
    if match is None or (unit != "%" and unit not in _BYTES):
        raise InputError(f"{what}: {_EXPECTED}, got {quoted(text)}")
    number = float(match[1])
    if unit == "%":
        return Amount(number / 100, "share")
    if not (number * _BYTES[unit]).is_integer():
        raise InputError(f"{what}: expected a whole number, got {quoted(text)}")
    return Amount(number * _BYTES[unit], "bytes" if unit else "units")


def whole_numbers_of(given: Any, what: str) -> list[int]:
    """Return whole numbers from a number, `10|20`, `10..40x2`, or a list.

    >>> whole_numbers_of("1..4x2|7", "n")
    [1, 2, 4, 7]
    """
    if isinstance(given, Sequence) and not isinstance(given, str):
        return _joined((whole_numbers_of(item, what) for item in given), what)
    if isinstance(given, int) and not isinstance(given, bool):
        return [given]
    found = _listed(str(given).replace("|", ","), what)
    if not found or any(amount.kind != "units" for amount in found):
        raise InputError(f"{what}: expected whole numbers, got {quoted(given)}")
    return [int(amount.value) for amount in found]
