"""The specification of a sweep, from a TOML file, the command line or Python."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Literal

import msgspec

from pebbler.errors import InputError, near_matches, one_line, quoted
from pebbler.files import read_toml

__all__ = ["RunOptions", "SweepSpec", "is_spec_file", "read_spec"]

Axis = Any  # one value, or a list of them


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one run apart from its graph and machine."""

    tile: Literal["auto", "none"] = "auto"
    seed: int = 0
    time_limit: float | None = 30.0
    quick: bool = False
    threads: int = 1
    steady: bool | None = None
    objective: Literal["time", "energy"] = "time"  # of PyTorch steps


class SweepSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Graphs x machines x capacities x options. Wherever one value can stand, a list of them can too.

    `graphs` are files, built-in workloads (`mlp:n=10|20,hidden=100..800x2`, or `{workload = "mlp", n = [10, 20]}`), PyTorch steps
    (`module:function`) and, from Python, graphs. `capacity` gives capacities by level (`fastest`: each machine's first), in units
    of the graph, as bytes, or as shares of what program order holds at its peak. `budget` is the same for PyTorch steps, in bytes.
    """

    graphs: Axis
    machines: Axis = None
    capacity: dict[str, Axis] = {}
    budget: Axis = None
    device: str | None = None  # that prices the ops of PyTorch steps; h200 and the like
    offload: bool | None = None
    tile: Axis = "auto"
    seed: Axis = 0
    time_limit: Axis = 30.0
    quick: bool = False
    threads: int = 1  # of each run; runs beside one another use the cores better
    steady: bool | None = None
    objective: Axis = "time"

    def options(self) -> list[RunOptions]:
        """Return every combination of options.

        >>> len(SweepSpec(graphs="chain", seed=[0, 1], tile=["auto", "none"]).options())
        4
        """
        found = []
        for objective, tile, limit, seed in product(*self._option_axes()):
            fields = {
                "tile": tile, "seed": seed, "time_limit": None if self.quick else limit, "quick": self.quick,
                "threads": self.threads, "steady": self.steady, "objective": objective,
            }  # fmt: skip
            found.append(_convert(fields))
        return list(dict.fromkeys(found))

    def option_count(self) -> int:
        """Return the number of combinations of options, including duplicates."""
        return prod(map(len, self._option_axes()))

    def _option_axes(self) -> list[list[Any]]:
        return [_listed(axis) for axis in (self.objective, self.tile, self.time_limit, self.seed)]


def _listed(given: Axis) -> list[Any]:
    return list(given) if isinstance(given, list | tuple) else [given]


def _convert(fields: dict[str, Any]) -> RunOptions:
    try:
        made = msgspec.convert(fields, RunOptions)
    except msgspec.ValidationError as error:
        raise InputError(f"a sweep's options: {one_line(str(error))}") from None
    if made.time_limit is not None and not 0 <= made.time_limit < float("inf"):
        raise InputError(f"a sweep's options: time_limit must be a number of seconds from 0, got {made.time_limit}")
    if made.threads < 1:
        raise InputError(f"a sweep's options: threads must be at least 1, got {made.threads}")
    if not -(2**31) <= made.seed < 2**31:
        raise InputError(f"a sweep's options: seed must be a number of 32 bits, got {made.seed}")
    return made


def is_spec_file(given: object) -> bool:
    """Return whether a sweep is described by a file, which may be somebody else's.

    >>> is_spec_file("sweep.toml"), is_spec_file("train.py:training"), is_spec_file(SweepSpec(graphs="chain"))
    (True, False, False)
    """
    return isinstance(given, str | Path) and str(given).endswith(".toml")


def read_spec(given: str | Path | SweepSpec | None, axes: Mapping[str, Any]) -> tuple[SweepSpec, Path]:
    """Return a sweep's spec and the folder that its files are relative to: a TOML file's own, or the present one.

    >>> read_spec("chain:length=5", {"machines": "red-blue"})[0].graphs
    'chain:length=5'
    """
    known = SweepSpec.__struct_fields__
    for name in axes:
        if name not in known:
            raise InputError(f"a sweep has no {quoted(name)}{near_matches(name, known)}")
    if isinstance(given, str | Path) and is_spec_file(given):
        if axes:
            raise InputError(f"{given} says what is swept: leave out {', '.join(axes)}, or write it there")
        return read_toml(given, SweepSpec), Path(given).absolute().parent
    if isinstance(given, SweepSpec):
        return msgspec.structs.replace(given, **axes), Path.cwd()
    graphs = {} if given is None else {"graphs": given}
    if given is not None and "graphs" in axes:
        raise InputError("graphs are given twice")
    if not graphs and "graphs" not in axes:
        raise InputError("a sweep needs graphs: files, built-in workloads or PyTorch steps")
    return SweepSpec(**(graphs | dict(axes))), Path.cwd()
