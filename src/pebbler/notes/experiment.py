"""The results of an experiment: rows of figures, verdicts on the note's claims, answers to its open questions, and plots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

__all__ = [
    "ClaimVerdict",
    "Experiment",
    "NoteFigure",
    "NoteTable",
    "Plot",
    "Question",
    "Series",
    "Value",
    "compare",
    "show",
    "table",
]

Scalar = int | float | str | bool | None
Value = Scalar | tuple[int | float | str, ...]


class NoteFigure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of a note beside ours.

    `published` is what the note prints, `reference` what its own program gives in full, `measured` is ours. `match` holds
    when the measured figure rounds to the published one and equals the reference. A `wrong` row is one where the note's
    figure is known not to come out of its own method; `corrected` is what it should have given, and `why` says why.
    """

    name: str
    published: Value
    measured: Value
    match: bool
    corrected: Value = None
    reference: Value = None
    unit: str = ""
    decimals: int = 0
    wrong: bool = False
    why: str = ""

    @property
    def ok(self) -> bool:
        """Whether the figure came out as it should: it matches, or the note is known to be wrong there."""
        return self.match or self.wrong

    def summary(self) -> dict[str, Value]:
        """Return the row as `reproduce --json` prints it."""
        row = {"name": self.name, "published": self.published, "measured": self.measured, "match": self.match}
        return row if self.corrected is None else row | {"corrected": self.corrected}


class NoteTable(msgspec.Struct, frozen=True, kw_only=True):
    """A computed table: column names and rows of values."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """An open question of a note, with the tables that answer it and what they say in a sentence or two."""

    question: str
    answer: str
    tables: tuple[NoteTable, ...] = ()


class ClaimVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A claim of a note, the corrected statement, and the evidence."""

    claim: str
    truth: str
    evidence: str


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One line or group of bars of a plot; for a histogram, `y` holds the values and `x` is empty."""

    label: str
    x: tuple[int | float | str, ...] = ()  # whole numbers stay whole, through files and processes
    y: tuple[int | float, ...]


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """A plot as data; `marks` are vertical lines with a label. A heat map has a series per row; what is infinite there is never."""

    name: str
    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    kind: Literal["line", "bar", "histogram", "heat"] = "line"
    log_x: bool = False
    log_y: bool = False
    marks: tuple[tuple[str, int | float], ...] = ()


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one note's experiment found."""

    name: str
    note: str
    question: str
    config: dict[str, Any]
    seeds: tuple[int, ...]
    rows: tuple[NoteFigure, ...]
    verdicts: tuple[ClaimVerdict, ...]
    questions: tuple[Question, ...]
    plots: tuple[Plot, ...]

    @property
    def ok(self) -> bool:
        """Whether every published figure that can reproduce does."""
        return all(row.ok for row in self.rows)


def compare(
    name: str,
    measured: Value,
    published: str | None = None,
    *,
    reference: Value = None,
    corrected: Value = None,
    unit: str = "",
    wrong: bool = False,
    why: str = "",
) -> NoteFigure:
    """Return the row of a figure; `published` is written as the note prints it, and decides how far it was rounded.

    >>> compare("ARD", 17976.4028, "17,976").match
    True
    >>> compare("ARD", 17976.4028, "17,976.5").match
    False
    """
    text = None if published is None else published.replace(",", "")
    decimals = len(text.partition(".")[2]) if text is not None else _decimals(measured)
    printed: Value = None if text is None else float(text) if "." in text else int(text)
    rounds = printed is None or (
        isinstance(printed, int | float)
        and isinstance(measured, int | float)
        # Half a unit of the last printed digit, and a hair for the decimal fraction that binary cannot hold.
        and abs(measured - printed) <= 0.5 * 10.0**-decimals * (1 + 1e-9)
    )
    return NoteFigure(
        name=name,
        published=printed,
        measured=measured,
        match=rounds and (reference is None or measured == reference),
        corrected=corrected,
        reference=reference,
        unit=unit,
        decimals=decimals,
        wrong=wrong,
        why=why,
    )


def _decimals(value: Value) -> int:
    return 2 if isinstance(value, float) and not value.is_integer() else 0


def show(value: Value, decimals: int | None = None) -> str:
    """Return a value for a person: thousands separated, no more decimals than are worth reading.

    >>> show(17976.4028), show(17976.4028, 0), show(0.98), show((11042, 28070)), show(None), show(True)
    ('17,976.40', '17,976', '0.98', '11,042 28,070', '-', 'yes')
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " ".join(show(item, decimals) for item in value)
    if isinstance(value, str):
        return value
    if not math.isfinite(value):
        return str(value)
    return f"{value:,.{_decimals(value) if decimals is None else decimals}f}"


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Value]]) -> NoteTable:
    """Return a table from plain sequences.

    >>> table("Squares", ["x", "x^2"], [[2, 4]]).rows
    ((2, 4),)
    """
    return NoteTable(title=title, columns=tuple(columns), rows=tuple(tuple(row) for row in rows))
