"""What each file of rows is worth: by how many percent the bound of a tiling falls without its rows.

Run `python -m benchmarks.row_gains [NAME ...]`; names choose the cases whose name contains one. For each case the bound of one
tiling is worked out with all rows, at the moment and with the assumption where it is best, and again without those of each file.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pebbler import machine, workloads
from pebbler.referee.rows.family import Family
from pebbler.referee.rows.leaf import FEW, Leaf, Near
from pebbler.referee.rows.near_twice import paired
from pebbler.referee.rows.table import Facts, facts_of
from pebbler.referee.rows.task import Task
from pebbler.referee.rows.tile_range import TileRange
from pebbler.solver.bounds.row_program import RowProgram

__all__ = ["main", "tiling_bound"]

CASES: list[tuple[str, str, dict[str, int]]] = [
    ("mlp", "notes", {"hidden": 32}),
    ("mlp:batch=32", "notes", {"hidden": 40}),
    ("mlp:batch=32", "notes", {"hidden": 5, "n": 4, "batch": 5}),
    ("attention", "notes", {"tokens": 16, "keys": 16}),
    ("attention:tokens=1024,width=1024,heads=16", "laptop", {"tokens": 64, "keys": 64, "heads": 1}),
    ("mlp", "notes-explicit", {"hidden": 32}),
    ("mlp:batch=32", "notes-explicit", {"hidden": 48}),
    ("mlp:batch=32", "notes-explicit", {"hidden": 31, "n": 4, "batch": 5}),
    ("attention", "notes-explicit", {"tokens": 16, "keys": 16}),
]


def main() -> None:
    """Print a table: files down, cases across."""
    parser = argparse.ArgumentParser(description="What each file of rows is worth.")
    parser.add_argument("names", nargs="*", help="only cases whose name contains one of these")
    names = parser.parse_args().names
    columns: list[dict[str, float]] = []
    heads: list[str] = []
    for workload, levels, sizes in CASES:
        head = f"{workload} on {levels}, {', '.join(f'{axis}={size}' for axis, size in sizes.items())}"
        if names and not any(name in head for name in names):
            continue
        graph = workloads.load(workload)
        task = Task(graph, machine(levels).in_unit(graph.unit), steady=True)
        tiles = TileRange.of_sizes(graph, sizes)
        every = tiling_bound(task, tiles, facts_of(task))
        files = dict.fromkeys(_file(one) for one in facts_of(task))
        found = {
            file: 100 * (1 - tiling_bound(task, tiles, [one for one in facts_of(task) if _file(one) != file]) / every)
            for file in files
        }
        print(f"{head}: {every:,.0f}; " + ", ".join(f"{file} {fall:.1f}" for file, fall in found.items()), flush=True)
        columns.append(found)
        heads.append(head)
    print(f"\n| file | {' | '.join(heads)} |\n|{'---|' * (len(heads) + 1)}")
    for file in dict.fromkeys(file for found in columns for file in found):
        cells = ["" if file not in found else "." if found[file] < 0.05 else f"{found[file]:.2g}" for found in columns]
        print(f"| `{file}` | {' | '.join(cells)} |")


def _file(facts: Facts) -> str:
    return str(getattr(facts, "__module__", "")).rpartition(".")[2]


def tiling_bound(task: Task, tiles: TileRange, facts: Sequence[Facts]) -> float:
    """Return the bound of one tiling by some facts, at its best moment and with the best assumption about a level.

    >>> from pebbler.workloads import mlp
    >>> task = Task(mlp(), machine("notes").in_unit("float32"), steady=True)
    >>> tiling_bound(task, TileRange.of_sizes(task.graph, {"hidden": 32}), facts_of(task)) > 3.8e6
    True
    """
    family = Family(task, tiles.open, tiles.cut)
    best = RowProgram(Leaf(family, tiles), facts=facts).bound
    for moment in family.moments():
        leaf = Leaf(family, tiles, moment)
        best = max(best, RowProgram(leaf, facts=facts).bound)
        total = sum(int(family.flow.value_size[start.first]) for start in paired(leaf)) if task.caches else 0
        for level, reach in enumerate(task.reach if total else ()):
            if reach < total:
                ways = [Leaf(family, tiles, moment, (Near(level, few),)) for few in FEW]
                best = max(best, min(RowProgram(way, facts=facts).bound for way in ways))
    return best


if __name__ == "__main__":
    main()
