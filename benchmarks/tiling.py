"""Tiling: energy against time for the MLP, a batch, a deep MLP and an attention block.

`python -m benchmarks.tiling [SECONDS]`: each line gives program order, the energy after 1, 3, 10, 30, ... seconds, the bound
and the gap. Every figure is the referee's.
"""

from __future__ import annotations

import sys

from pebbler import machine, workloads
from pebbler.run.numbers import verify
from pebbler.solver.problem import Problem, Search
from pebbler.solver.program_order import program_order_energy
from pebbler.solver.tiling import solve_tiled

CASES = [
    ("mlp:n=20,hidden=1000", "notes"),
    ("mlp:n=20,hidden=1000", "notes-explicit"),
    ("mlp:n=20,hidden=1000,batch=32", "notes"),
    ("mlp:n=20,hidden=1000,batch=32", "notes-explicit"),
    ("deep-mlp:n=20,hidden=1000,layers=8", "notes"),
    ("attention:tokens=64,width=64,heads=4", "cortex-m"),
    ("attention:tokens=1024,width=1024,heads=16", "h200"),
]
_MARKS = (1, 3, 10, 30, 100, 300)
_MOST_NUMBERS = 2e7  # larger steps take long to run in numpy


def measure(spec: str, name: str, seconds: float) -> None:
    """Print what the search has found by when."""
    graph = workloads.get(spec)
    problem = Problem.of(graph, machine(name))
    history: list[tuple[float, float]] = []
    search = Search(problem, seconds, lambda s: history.append((s.elapsed, s.energy)))
    solve_tiled(search)
    base = program_order_energy(search)
    print(f"{spec} on {name}: program order {_micro(base)}", flush=True)
    for mark in (mark for mark in _MARKS if mark <= seconds):
        found = min((energy for when, energy in history if when <= mark), default=None)
        print(f"  {mark:4} s  {_micro(found)}")
    gap = "-" if search.gap is None else f"{search.gap:.1%}"
    print(f"  {search.elapsed:4.0f} s  {_micro(search.energy)}, bound {_micro(search.bound)}, gap {gap}")
    if search.best is not None:
        print(f"  {search.best.graph.name}: {len(search.best.moves):,} moves")
        if sum(tensor.size for tensor in graph.tensors) <= _MOST_NUMBERS:
            print(f"  largest difference to program order on numbers: {verify(search.best).largest_difference:.1e}")


def _micro(energy: float | None) -> str:
    return "-" if energy is None or energy == float("inf") else f"{energy / 1e6:,.3f} µJ"


if __name__ == "__main__":
    limit = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    for workload, target in CASES:
        measure(workload, target, limit)
