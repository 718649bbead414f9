"""The table of a sweep: rows in a fixed order, as CSV, JSON, Parquet or a data frame."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from pebbler.files import csv_text, write_bytes, write_json
from pebbler.jobs.request import current_versions
from pebbler.sweeps.known_elsewhere import with_best_known
from pebbler.sweeps.result_folder import ResultFolder, Row
from pebbler.sweeps.sweep_row import is_sweep_row
from pebbler.version import VERSION

__all__ = ["TABLE", "TIMES", "SweepTable", "in_order", "load_table", "write_tables"]

FORMAT = "pebbler-sweep-1"
TABLE = "table.csv"
# Columns that every table has, in this order; parameters of workloads come after the graph.
_FIRST = ("graph", "unit")
_MIDDLE = (
    "machine", "level", "capacity", "share", "capacities", "objective", "tile", "seed", "time_limit", "status", "energy",
    "bound", "bound_for", "gap", "energy_unit", "program_order", "best_energy", "best_bound", "best_key",
    "moves", "cut_off", "peak", "step_seconds", "step_joules", "proof", "error",
    "pebbler", "versions", "key", "run", "family", "attempts",
)  # fmt: skip
TIMES = ("host", "seconds", "memory", "finished")  # what differs from one time to the next; the last columns
_ORDER = ("graph", "machine", "level", "objective", "tile", "time_limit", "seed", "capacity", "capacities", "key")


@dataclass(frozen=True)
class SweepTable:
    """Rows of a sweep, and the same in other forms."""

    rows: list[Row]

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        known = {*_FIRST, *_MIDDLE, *TIMES}
        parameters = sorted({name for row in self.rows for name in row if name not in known})
        return [*_FIRST, *parameters, *_MIDDLE, *TIMES]

    def to_csv(self) -> bytes:
        """Return the table as CSV; what a row does not have is empty.

        >>> SweepTable([{"graph": "g", "energy": 3}]).to_csv().decode().splitlines()[1][:9]
        'g,,,,,,,,'
        """
        columns = self.columns
        return csv_text(columns, ([row.get(name) for name in columns] for row in self.rows)).encode()

    def filled(self) -> list[Row]:
        """Return the rows with all columns, None where there is nothing."""
        return [{name: row.get(name) for name in self.columns} for row in self.rows]

    def frame(self) -> Any:
        """Return a data frame of polars, or of pandas, whichever is installed; else the rows."""
        for name in ("polars", "pandas"):
            with suppress(ImportError):
                library: Any = import_module(name)
                filled = self.filled()
                return library.DataFrame(
                    {column: _one_type([row[column] for row in filled]) for column in self.columns}
                )
        return self.filled()

    def to_parquet(self) -> bytes | None:
        """Return the table as Parquet; None without pyarrow."""
        try:
            import pyarrow
            import pyarrow.parquet as parquet
        except ImportError:
            return None
        sink = pyarrow.BufferOutputStream()
        filled = self.filled()
        columns = {name: _one_type([row[name] for row in filled]) for name in self.columns}
        parquet.write_table(pyarrow.table(columns), sink)
        return bytes(sink.getvalue())


def _one_type(values: list[Any]) -> list[Any]:
    """Return a column of numbers as floats if any is one, or too large for 64 bits; others as they are."""
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if not any(isinstance(value, float) or abs(value) >= 2**63 for value in numbers):
        return values
    return [None if value is None else float(value) for value in values]


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Return rows in the order of what they are about, however they came.

    >>> [row["capacity"] for row in in_order([{"capacity": 10}, {"capacity": None}, {"capacity": 9}])]
    [None, 9, 10]
    >>> [row["graph"] for row in in_order([{"graph": "chain:length=12"}, {"graph": "chain:length=9"}])]
    ['chain:length=9', 'chain:length=12']
    """

    def rank(value: Any) -> tuple[Any, ...]:
        if isinstance(value, str):  # texts and numbers by turns
            parts = re.split(r"([0-9]+)", value)
            digits = (part.lstrip("0") for part in parts)  # compared by length first: no number is too long for that
            return (2, [(len(d), d) if i % 2 else part for i, (part, d) in enumerate(zip(parts, digits, strict=True))])
        return (0,) if value is None else (1, value)

    return sorted(rows, key=lambda row: [rank(row.get(name)) for name in _ORDER])


def load_table(folder: str | Path) -> SweepTable:
    """Return every run in a folder once: as this version found it, or else as it was found last."""
    mine = " ".join(f"{name}={version}" for name, version in sorted(current_versions().items()) if name != "pebbler")
    best: dict[str, Row] = {}
    for row in ResultFolder(folder, create=False, is_row=is_sweep_row).rows():
        other = best.get(row["run"])
        if other is None or _merit(row, mine) > _merit(other, mine):
            best[row["run"]] = row
    return SweepTable(with_best_known(in_order(best.values())))


def _merit(row: Row, mine: str) -> tuple[bool, str]:
    return row["versions"] == mine and row["pebbler"] == VERSION, str(row["finished"])


def write_tables(folder: ResultFolder) -> list[Path]:
    """Write the table of a folder as CSV and JSON, and as Parquet if pyarrow is installed; return the files."""
    if not (folder.path / "rows").is_dir():
        return []
    table = load_table(folder.path)
    csv_path = folder.path / TABLE
    json_path, parquet_path = csv_path.with_suffix(".json"), csv_path.with_suffix(".parquet")
    write_bytes(csv_path, table.to_csv())
    write_json(json_path, {"format": FORMAT, "columns": table.columns, "rows": table.filled()})
    data = table.to_parquet()
    if data is None:
        return [csv_path, json_path]
    write_bytes(parquet_path, data)
    return [csv_path, json_path, parquet_path]
