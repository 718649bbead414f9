"""The graphs of a sweep: files, built-in workloads with lists of parameters, PyTorch steps, and graphs made in Python."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from pebbler.errors import InputError, blamed_on, quoted
from pebbler.files import STANDARD_STREAM, require_no_pipe
from pebbler.game.graph import Graph
from pebbler.sweeps.sweep_row import PARAMETER
from pebbler.sweeps.sweep_spec import SweepSpec
from pebbler.sweeps.value_ranges import whole_numbers_of
from pebbler.workloads import get, load

__all__ = ["SweptGraph", "count_graphs", "find_graphs"]

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
    for _, graphs in _find_all(spec, folder):
        yield from graphs


def count_graphs(spec: SweepSpec, folder: Path) -> int:
    """Return the number of graphs in a specification, without making any.

    >>> count_graphs(SweepSpec(graphs=["chain:length=2..4", {"workload": "mlp", "n": "1..9000", "hidden": "1..9000"}]), Path("."))
    81000003
    """
    return sum(count for count, _ in _find_all(spec, folder))


def _find_all(spec: SweepSpec, folder: Path) -> Iterator[tuple[int, Iterator[SweptGraph]]]:
    """Yield, for each entry of a spec, how many graphs it stands for, and these."""
    given = spec.graphs if isinstance(spec.graphs, list | tuple) else [spec.graphs]
    for i, one in enumerate(given):
        place = f"graphs[{i}]"
        with blamed_on(place):
            count, graphs = _find(one, folder)
        yield count, _blamed(graphs, place)


def _blamed(graphs: Iterator[SweptGraph], place: str) -> Iterator[SweptGraph]:
    with blamed_on(place):
        yield from graphs


def _find(one: Any, folder: Path) -> tuple[int, Iterator[SweptGraph]]:
    if isinstance(one, Graph):
        return 1, iter([SweptGraph(one.name, one)])
    if isinstance(one, Mapping):
        return _from_table(dict(one))
    if one == STANDARD_STREAM:
        raise InputError(f"{_EXPECTED}; the standard input can be read only once")
    if isinstance(one, Path) or (isinstance(one, str) and one.endswith(".json")):
        paths = _paths(str(one), folder)
        return len(paths), map(_load, paths)
    if isinstance(one, str) and _STEP.fullmatch(one):
        return 1, iter([SweptGraph(one, None, step=one)])
    if isinstance(one, str):
        name, _, rest = one.partition(":")
        return _workloads(name, _axes(rest, one))
    raise InputError(f"{_EXPECTED}, got {quoted(one)}")


def _from_table(table: dict[str, Any]) -> tuple[int, Iterator[SweptGraph]]:
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


def _workloads(name: str, axes: Mapping[str, list[int]]) -> tuple[int, Iterator[SweptGraph]]:
    return prod(map(len, axes.values())), _made(name, axes)


def _made(name: str, axes: Mapping[str, list[int]]) -> Iterator[SweptGraph]:
    if not axes:
        yield SweptGraph(name, load(name))
        return
    for values in product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        spec = f"{name}:{','.join(f'{key}={value}' for key, value in chosen.items())}"
        yield SweptGraph(spec, get(spec), {f"{PARAMETER}{key}": value for key, value in chosen.items()})


def _paths(pattern: str, folder: Path) -> list[Path]:
    if "*" not in pattern or Path(pattern).is_absolute():
        return [folder / pattern]
    if {"..", "**"} & set(Path(pattern).parts):
        raise InputError(
            f"{quoted(pattern)}: `*` stands for names, not for whole trees of folders or the folders above"
        )
    paths = sorted(folder.glob(pattern))
    if not paths:
        raise InputError(f"{quoted(pattern)}: there are no such files in {folder}")
    return paths


def _load(path: Path) -> SweptGraph:
    require_no_pipe(path)
    graph = Graph.load(path)
    return SweptGraph(graph.name, graph)
