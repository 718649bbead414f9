"""Output of commands: tables that fit 80 columns, JSON alone on stdout, messages on stderr."""

from __future__ import annotations

import json
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

from pebbler.errors import one_line
from pebbler.game.amounts import energy_text as energy
from pebbler.game.amounts import number_text as number

__all__ = ["emit_json", "end_progress", "energy", "number", "progress", "say", "table", "tell"]

_LONGEST_NUMBER, _LONGEST_NAME = 20, 44  # letters that stay on one line of a table of 80 columns
_bars: list[Progress] = []  # those that show now


def emit_json(value: Any) -> None:
    """Print one JSON object on stdout.

    What a terminal would obey, and what stdout has no letters for, stands there as JSON's own escapes.
    """
    try:
        text = msgspec.json.encode(value).decode()
    except UnicodeEncodeError:  # the name of a file that is no text
        text = json.dumps(msgspec.to_builtins(value, str_keys=True))
    foreign = not _can_write(text, sys.stdout.encoding)
    escaped = (
        json.dumps(c)[1:-1] if c == "\x7f" or (c > "\x7f" and (foreign or not c.isprintable())) else c for c in text
    )
    sys.stdout.write((text if text.isascii() and text.isprintable() else "".join(escaped)) + "\n")


def say(*lines: str) -> None:
    """Print lines of plain text on stdout."""
    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        console.print(_text(line, console))


def tell(line: str) -> None:
    """Print a message on stderr."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(_text(line, console))


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, stderr: bool = False) -> None:
    """Print a table on stdout, or on stderr; cells that are numbers, or end a row of words, align right."""
    console = Console(highlight=False, stderr=stderr)
    if title:
        console.print(_text(title, console, style="bold"))
    grid = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for i, column in enumerate(columns):
        numeric = bool(rows) and all(_is_numeric(row[i]) for row in rows)
        # No number is cut in two, nor a name at the head of a row, while there is something else to fold.
        longest = max((len(str(row[i])) for row in rows), default=0)
        whole = (numeric and longest <= _LONGEST_NUMBER) or (i == 0 and longest <= _LONGEST_NAME)
        grid.add_column(_text(column, console), justify="right" if numeric else "left", overflow="fold", no_wrap=whole)
    for row in rows:
        cells = (number(cell) if isinstance(cell, int | float) else str(cell) for cell in row)
        grid.add_row(*(_text(cell, console) for cell in cells))
    console.print(grid)


def _text(words: str, console: Console, style: str = "") -> Text:
    """Return words as one line that a terminal shows and does not obey, whoever named the things in it.

    Where the encoding has no µ, micro is u; other letters that it does not have stand there escaped.
    """
    words = one_line(words)
    if not _can_write(words, console.encoding):
        words = words.replace("µ", "u").encode("ascii", "backslashreplace").decode()
    return Text(words, style=style)


def _can_write(words: str, encoding: str | None) -> bool:
    try:
        words.encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _is_numeric(cell: Any) -> bool:
    if isinstance(cell, int | float):
        return True
    first = str(cell).lstrip("+-~<>= ")[:1]
    return first.isdigit() or str(cell) in ("-", "")


@contextmanager
def progress(description: str) -> Iterator[Callable[[str, float | None], None]]:
    """Show a bar on stderr during some work; yields a function that takes a text and a fraction done."""
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        _bars.append(bar)
        task = bar.add_task(one_line(description), total=None)

        def update(text: str, fraction: float | None = None) -> None:
            bar.update(
                task, description=one_line(text), total=None if fraction is None else 1.0, completed=fraction or 0.0
            )

        try:
            yield update
        finally:
            _bars.remove(bar)


def end_progress() -> None:
    """Take every bar off the terminal, for a command that ends in the middle of its work."""
    for bar in tuple(_bars):
        bar.stop()
