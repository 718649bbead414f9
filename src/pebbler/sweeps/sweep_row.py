"""The columns of a sweep's rows. Row files with other columns or types are ignored, since anybody with access can write them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

__all__ = ["PARAMETER", "SweepRow", "is_sweep_row"]

PARAMETER = "graph_"  # before the names of a workload's parameters, which are columns too
_Text = Annotated[str, msgspec.Meta(max_length=100_000)]
_Hash = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{4,64}$")]
_Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class SweepRow(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of a row as they stand in a file, apart from parameters of workloads."""

    key: _Hash
    run: _Hash
    graph: _Text
    machine: _Text
    status: Literal["optimal", "bounded", "heuristic", "impossible", "failed"]
    pebbler: _Text
    versions: _Text
    finished: _Text
    unit: _Text | None = None
    level: _Text | None = None
    capacity: _Whole | None = None
    share: float | None = None
    capacities: _Text | None = None
    objective: _Text | None = None
    tile: _Text | None = None
    seed: _Whole | None = None
    time_limit: float | None = None
    energy: float | None = None
    bound: float | None = None
    bound_for: _Text | None = None
    gap: float | None = None
    energy_unit: _Text | None = None
    program_order: float | None = None
    moves: _Whole | None = None
    cut_off: bool | None = None
    peak: _Whole | None = None
    step_seconds: float | None = None
    step_joules: float | None = None
    proof: _Text | None = None
    error: _Text | None = None
    family: _Hash | None = None
    attempts: _Whole | None = None
    host: _Text | None = None
    seconds: float | None = None
    memory: _Whole | None = None


def is_sweep_row(row: dict[str, Any]) -> bool:
    """Return whether a row has the columns and types of a sweep's.

    >>> row = {"key": "ab12", "run": "cd34", "graph": "chain", "machine": "red-blue", "status": "optimal", "energy": 3,
    ...        "pebbler": "1", "versions": "", "finished": "", "graph_length": 9}
    >>> is_sweep_row(row), is_sweep_row(row | {"key": "../x"}), is_sweep_row(row | {"energy": "3"})
    (True, False, False)
    """
    try:
        msgspec.convert(row, SweepRow)
    except (msgspec.ValidationError, ValueError, OverflowError):
        return False
    more = row.keys() - set(SweepRow.__struct_fields__)
    return all(name.startswith(PARAMETER) and type(row[name]) is int and abs(row[name]) < 2**63 for name in more)
