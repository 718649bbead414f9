"""Parsing and formatting of byte counts, such as `64KiB` and `50%`."""

from __future__ import annotations

import re

from pebbler.errors import InputError, quoted

__all__ = [
    "LARGE_UNITS",
    "budget_of",
    "bytes_down",
    "bytes_of",
    "bytes_up",
    "bytes_within",
    "named_bytes",
    "shown_bytes",
]

LARGE_UNITS = (("GiB", 2**30), ("MiB", 2**20))
_UNITS = {"": 1, "b": 1}
for _power, _prefix in enumerate("kmgt", start=1):
    _UNITS |= {f"{_prefix}b": 1000**_power, f"{_prefix}ib": 1024**_power}


def budget_of(budget: str | int | float) -> int | str:
    """Return a budget in bytes, or as a share such as `50%` of what the step holds without a limit.

    >>> budget_of("6GiB"), budget_of(" 50 % ")
    (6442450944, '50%')
    >>> budget_of("150%")
    Traceback (most recent call last):
    ...
    pebbler.errors.InputError: budget: expected a share above 0% and up to 100%, got 150%
    """
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*%\s*", str(budget))
    if match is None:
        return bytes_of(budget)
    if not 0 < float(match[1]) <= 100:
        raise InputError(f"budget: expected a share above 0% and up to 100%, got {quoted(budget)}")
    return f"{match[1]}%"


def bytes_within(budget: int | str, whole: int) -> int:
    """Return a result of `budget_of` in bytes. Shares refer to `whole`.

    >>> bytes_within("25%", 1000), bytes_within(7, 1000)
    (250, 7)
    """
    return int(float(budget.removesuffix("%")) / 100 * whole) if isinstance(budget, str) else budget


def bytes_of(budget: str | int | float) -> int:
    """Return a budget in bytes.

    >>> bytes_of("6GiB"), bytes_of("1.5 MB"), bytes_of(512)
    (6442450944, 1500000, 512)
    """
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", str(budget).lower())
    if match is None or match[2] not in _UNITS or not float(match[1]) > 0:
        raise InputError(
            f"budget: expected bytes such as 6GiB, 500MB or 1048576, or a share such as 50%, got {quoted(budget)}"
        )
    if not match[2] and not float(match[1]).is_integer():
        raise InputError(f"budget: expected whole bytes, or a unit such as in 1.5GiB, got {quoted(budget)}")
    return int(float(match[1]) * _UNITS[match[2]])


def shown_bytes(count: float) -> str:
    """Return bytes as people read them.

    >>> shown_bytes(6442450944), shown_bytes(1000)
    ('6.00 GiB', '1,000 bytes')
    """
    for name, unit in LARGE_UNITS:
        if count >= unit:
            return f"{count / unit:,.2f} {name}"
    return f"{count:,.0f} bytes"


def named_bytes(count: int) -> str:
    """Return bytes to be asked for: exact, and where they are many also in a larger unit, rounded up.

    >>> named_bytes(1000), named_bytes(6442450945)
    ('1,000 bytes', '6,442,450,945 bytes (6.01 GiB)')
    """
    rounded = bytes_up(count)
    return rounded if rounded.endswith("bytes") else f"{count:,} bytes ({rounded})"


def bytes_up(count: int) -> str:
    """Return bytes to be asked for, rounded up, so that what is read is enough.

    >>> bytes_up(1000), bytes_up(6442450945), bytes_of(bytes_up(6442450945)) >= 6442450945
    ('1,000 bytes', '6.01 GiB', True)
    """
    return _rounded(count, up=True)


def bytes_down(count: int) -> str:
    """Return bytes below which something holds, rounded down, so that it holds of what is read.

    >>> bytes_down(1000), bytes_down(2**31 - 1)
    ('1,000 bytes', '1.99 GiB')
    """
    return _rounded(count, up=False)


def _rounded(count: int, *, up: bool) -> str:
    for name, unit in LARGE_UNITS:
        if count >= unit:
            return f"{(100 * count + (unit - 1) * up) // unit / 100:,.2f} {name}"
    return f"{count:,} bytes"
