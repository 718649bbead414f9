"""Formatting of numbers and energies, shared by the terminal, the pages and notebooks."""

from __future__ import annotations

import math
import re
from fractions import Fraction

__all__ = ["byte_count", "cost_word", "energy_text", "memory_text", "number_text"]

_SCALES = {
    "pJ": ((1e12, "J"), (1e9, "mJ"), (1e6, "µJ"), (1e3, "nJ"), (1.0, "pJ")),
    "ns": ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")),
}


def cost_word(unit: str) -> str:
    """Return the word for costs in a unit: `time` or `energy`.

    >>> cost_word("pJ"), cost_word("units"), cost_word("ns")
    ('energy', 'energy', 'time')
    """
    return "time" if unit == "ns" else "energy"


def number_text(value: float | None) -> str:
    """Return a number as people read it.

    >>> number_text(1234567), number_text(0.123456), number_text(None), number_text(2**80)
    ('1,234,567', '0.1235', '-', '1.21 x 10^24')
    """
    if value is None:
        return "-"
    if isinstance(value, int) and abs(value) >= 10**15:
        exponent = int(math.log10(abs(value)))
        unit = 10 ** (exponent - 2)
        return f"{(value + unit // 2) // unit / 100:.2f} x 10^{exponent}"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.1f}"


def energy_text(value: float | None, unit: str) -> str:
    """Return an energy (or a time, where a plan's costs are that) with its unit, scaled where the unit has prefixes.

    >>> energy_text(10764315, "pJ"), energy_text(336, "units"), energy_text(1691684.2, "ns")
    ('10.764 µJ', '336 units', '1.692 ms')
    """
    if value is None:
        return "-"
    if unit not in _SCALES:
        return f"{number_text(value)} {unit}"
    for factor, name in _SCALES[unit]:
        if abs(value) >= factor:
            scaled = value / factor
            return f"{scaled:,.0f} {unit}" if name == unit and float(scaled).is_integer() else f"{scaled:,.3f} {name}"
    return f"{value:g} {unit}"


_BYTES = {"": 1, "b": 1}
for _power, _prefix in enumerate("kmgt", start=1):
    _BYTES |= {f"{_prefix}b": 1000**_power, f"{_prefix}ib": 1024**_power}


def byte_count(text: str) -> int | None:
    """Return an amount in bytes, or None if the text is not a whole number of bytes; KB is 1,000 bytes, KiB 1,024.

    >>> byte_count("256KiB"), byte_count("1.5 MB"), byte_count("12XB")
    (262144, 1500000, None)
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*", text.lower())
    if match is None or match[2] not in _BYTES:
        return None
    count = Fraction(match[1]) * _BYTES[match[2]]
    return int(count) if count.denominator == 1 else None


def memory_text(amount: int, unit: str) -> str:
    """Return an amount of memory in its unit, bytes in KiB or MiB as well.

    >>> memory_text(160_000, "byte"), memory_text(16, "byte"), memory_text(40_000, "float32"), memory_text(1, "pebble")
    ('160,000 bytes (156.25 KiB)', '16 bytes', '40,000 float32', '1 pebble')
    """
    if unit == "byte":
        scaled = next(
            ((amount / size, name) for size, name in ((2**20, "MiB"), (2**10, "KiB")) if amount >= size), None
        )
        return f"{amount:,} bytes" + ("" if scaled is None else f" ({scaled[0]:,.2f} {scaled[1]})")
    return f"{amount:,} {unit}"
