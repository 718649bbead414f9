"""Bytes as people write and read them."""

from __future__ import annotations

import re

from pebbler.errors import InputError, quoted

__all__ = ["bytes_of", "named_bytes", "shown_bytes"]

_UNITS = {"": 1, "b": 1}
for _power, _prefix in enumerate("kmgt", start=1):
    _UNITS |= {f"{_prefix}b": 1000**_power, f"{_prefix}ib": 1024**_power}


def bytes_of(budget: str | int | float) -> int:
    """Return a budget in bytes.

    >>> bytes_of("6GiB"), bytes_of("1.5 MB"), bytes_of(512)
    (6442450944, 1500000, 512)
    """
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", str(budget).lower())
    if match is None or match[2] not in _UNITS or not float(match[1]) > 0:
        raise InputError(f"budget: expected bytes such as 6GiB, 500MB or 1048576, got {quoted(budget)}")
    if not match[2] and not float(match[1]).is_integer():
        raise InputError(f"budget: expected whole bytes, or a unit such as in 1.5GiB, got {quoted(budget)}")
    return int(float(match[1]) * _UNITS[match[2]])


def shown_bytes(count: float) -> str:
    """Return bytes as people read them.

    >>> shown_bytes(6442450944), shown_bytes(1000)
    ('6.00 GiB', '1,000 bytes')
    """
    for name, unit in (("GiB", 2**30), ("MiB", 2**20)):
        if count >= unit:
            return f"{count / unit:,.2f} {name}"
    return f"{count:,.0f} bytes"


def named_bytes(count: int) -> str:
    """Return bytes to be asked for: exact, and where they are many also in a larger unit, rounded up.

    >>> named_bytes(1000), named_bytes(6442450945)
    ('1,000 bytes', '6,442,450,945 bytes (6.01 GiB)')
    """
    for name, unit in (("GiB", 2**30), ("MiB", 2**20)):
        if count >= unit:
            return f"{count:,} bytes ({-(-100 * count // unit) / 100:,.2f} {name})"
    return f"{count:,} bytes"
