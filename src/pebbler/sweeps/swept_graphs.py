"""The graphs that a sweep names: files, built-in workloads with lists of parameters, PyTorch steps, graphs made in Python."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from pebbler.errors import InputError, quoted
from pebbler.game.graph import Graph
from pebbler.sweeps.sweep_spec import SweepSpec
from pebbler.sweeps.value_ranges import whole_numbers_of
from pebbler.workloads import get, load

__all__ = ["SweptGraph", "find_graphs"]

_STEP = re.compile(
    r"[^:=,]+:[A-Za-z_]\w*"
)  # module:function or file.py:function; a workload's parameters have an equals sign
_EXPECTED = "expected a file, a built-in workload, a PyTorch step module:function, or {workload = NAME, ...}"


@dataclass(frozen=True)
class SweptGraph:
    """A graph by name, with the parameters it was made with; for a PyTorch step, where that is."""

    name: str
    graph: Graph | None
    parameters: Mapping[str, int] = field(default_factory=dict)  # as columns
    step: str | None = None


def find_graphs(spec: SweepSpec, folder: Path) -> Iterator[SweptGraph]:
    """Yield the graphs of a spec; files are looked for in `folder`, with `*` for any name.

    >>> [one.name for one in find_graphs(SweepSpec(graphs="chain:length=2..4"), Path("."))]
    ['chain:length=2', 'chain:length=3', 'chain:length=4']
    """
    given = spec.graphs if isinstance(spec.graphs, list | tuple) else [spec.graphs]
    for i, one in enumerate(given):
        try:
            yield from _find(one, folder)
        except InputError as error:
            raise InputError(f"graphs[{i}]: {error}") from None


def _find(one: Any, folder: Path) -> Iterator[SweptGraph]:
    if isinstance(one, Graph):
        yield SweptGraph(one.name, one)
    elif isinstance(one, Mapping):
        yield from _from_table(dict(one))
    elif isinstance(one, Path) or (isinstance(one, str) and one.endswith(".json")):
        yield from _files(str(one), folder)
    elif isinstance(one, str) and _STEP.fullmatch(one):
        yield SweptGraph(one, None, step=one)
    elif isinstance(one, str):
        name, _, rest = one.partition(":")
        yield from _workloads(name, _axes(rest, one))
    else:
        raise InputError(f"{_EXPECTED}, got {quoted(one)}")


def _from_table(table: dict[str, Any]) -> Iterator[SweptGraph]:
    name = table.pop("workload", None)
    if not isinstance(name, str):
        raise InputError(f"{_EXPECTED}, got {quoted(table)}")
    return _workloads(name, {key: whole_numbers_of(value, key) for key, value in table.items()})


def _axes(rest: str, spec: str) -> dict[str, list[int]]:
    axes: dict[str, list[int]] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not equals or key in axes:
            raise InputError(f"workload {quoted(spec)}: {quoted(part)} is no parameter, or is given twice")
        axes[key] = whole_numbers_of(value, key)
    return axes


def _workloads(name: str, axes: Mapping[str, list[int]]) -> Iterator[SweptGraph]:
    if not axes:
        yield SweptGraph(name, load(name))
        return
    for values in product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        spec = f"{name}:{','.join(f'{key}={value}' for key, value in chosen.items())}"
        yield SweptGraph(spec, get(spec), {f"graph_{key}": value for key, value in chosen.items()})


def _files(pattern: str, folder: Path) -> Iterator[SweptGraph]:
    paths = sorted(folder.glob(pattern)) if "*" in pattern and not Path(pattern).is_absolute() else [folder / pattern]
    if not paths:
        raise InputError(f"{quoted(pattern)}: there are no such files in {folder}")
    for path in paths:
        graph = Graph.load(path)
        yield SweptGraph(graph.name, graph)
