"""How commands print: tables that fit 80 columns, JSON alone on stdout, everything else on stderr."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

__all__ = ["emit_json", "energy", "number", "progress", "say", "table", "tell"]

_SCALES = {
    "pJ": ((1e12, "J"), (1e9, "mJ"), (1e6, "uJ"), (1e3, "nJ"), (1.0, "pJ")),
    "ns": ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")),
}


def emit_json(value: Any) -> None:
    """Print one JSON object on stdout."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def say(text: str) -> None:
    """Print a line of plain text on stdout."""
    Console(highlight=False, soft_wrap=True).print(Text(text))


def tell(text: str) -> None:
    """Print a message on stderr."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(Text(text))


def number(value: float | None) -> str:
    """Return a number as people read it.

    >>> number(1234567), number(0.123456), number(None), number(2**80)
    ('1,234,567', '0.1235', '-', '1.21 x 10^24')
    """
    if value is None:
        return "-"
    if isinstance(value, int) and abs(value) >= 10**15:
        exponent = int(math.log10(abs(value)))
        unit = 10 ** (exponent - 2)
        return f"{(value + unit // 2) // unit / 100:.2f} x 10^{exponent}"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.1f}"


def energy(value: float | None, unit: str) -> str:
    """Return an energy (or a time, where a plan's costs are that) with its unit, scaled where the unit has prefixes.

    >>> energy(10764315, "pJ"), energy(336, "units"), energy(1691684.2, "ns")
    ('10.764 uJ', '336 units', '1.692 ms')
    """
    if value is None:
        return "-"
    if unit not in _SCALES:
        return f"{number(value)} {unit}"
    for factor, name in _SCALES[unit]:
        if abs(value) >= factor:
            scaled = value / factor
            return f"{scaled:,.0f} {unit}" if name == unit and float(scaled).is_integer() else f"{scaled:,.3f} {name}"
    return f"{value:g} {unit}"


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table on stdout; cells that are numbers, or end a row of words, align right."""
    console = Console(highlight=False)
    if title:
        console.print(Text(title, style="bold"))
    grid = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for i, column in enumerate(columns):
        numeric = bool(rows) and all(_is_numeric(row[i]) for row in rows)
        grid.add_column(Text(column), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(number(cell) if isinstance(cell, int | float) else str(cell)) for cell in row))
    console.print(grid)


def _is_numeric(cell: Any) -> bool:
    if isinstance(cell, int | float):
        return True
    first = str(cell).lstrip("+-~<>= ")[:1]
    return first.isdigit() or str(cell) in ("-", "")


@contextmanager
def progress(description: str) -> Iterator[Callable[[str, float | None], None]]:
    """Show a bar on stderr while work goes on; yields a function that takes a text and a fraction done."""
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(description, total=None)

        def update(text: str, fraction: float | None = None) -> None:
            bar.update(task, description=text, total=None if fraction is None else 1.0, completed=fraction or 0.0)

        yield update
