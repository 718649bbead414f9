"""How far plans may be from the optimum: energy, lower bound and gap of every built-in workload on every built-in machine.

Run `python -m benchmarks.gaps [--seconds 30] [--quick] [--cpu] [--folder DIR] [NAME ...]`. It is a sweep of one run at a time, each
problem in a process of its own, so that its peak memory is its own too; names choose those whose name contains one. `--quick`
gives each 5 s and leaves the largest out; with `--cpu` all is solved in one process by its own time, so that versions can be
compared on a busy machine; `--folder` keeps results, and a second start goes on from there.
Beside the built-in ones stand the problems whose gaps were found too large in 0.1.0, with the gap they had then ("before").
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from benchmarks.recompute_graphs import layered
from pebbler import machine, workloads
from pebbler.errors import InputError
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.jobs.engine import open_engine
from pebbler.solver.capacity import op_requirement
from pebbler.solver.problem import Problem
from pebbler.solver.recompute.recompute_problem import program_order_peak
from pebbler.sweeps.result_folder import ResultFolder, Row
from pebbler.sweeps.solve_task import SolveTask, TaskResult, solve_task
from pebbler.sweeps.sweep import SweepRunner
from pebbler.sweeps.swept_run import SweptRun

__all__ = ["Case", "cases", "main", "matmul"]

WORKLOADS = [
    "note-mlp",
    "mlp",
    "mlp:batch=32",
    "deep-mlp",
    "attention",
    "attention:tokens=1024,width=1024,heads=16",
    "chain",
]
MACHINES = ["notes", "notes-explicit", "notes-recency", "horowitz-45nm", "laptop", "cortex-m", "h200", "red-blue"]
# Gaps of 0.1.0, in percent.
BEFORE = {
    "mlp:batch=32 on notes": "208",
    "attention on notes": "533",
    "attention on notes-explicit": "162",
    "attention:tokens=1024,width=1024,heads=16 on h200": "35",
    "matmul of elements, 4 x 4 x 4": "120",
    "paging of 8 layers": "70-143",
    "free recomputation with paging": "4-90",
    "layered 500 at 0.7": "187",
    "layered 1000 at 0.7": "525",
}
HEADER = f"{'problem':<62} {'energy':>18} {'bound':>18} {'gap %':>7} {'before':>7} {'s':>6} {'MiB':>6}  status"
LARGE = ("deep-mlp", "tokens=1024", "layered 1000", "100 layers")


@dataclass(frozen=True)
class Case:
    """A problem by name: what is solved on what, and whether it may be tiled."""

    name: str
    make: Callable[[], tuple[Graph, Machine]]
    tile: str = "auto"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Gaps between plans and bounds.")
    parser.add_argument("names", nargs="*", help="only problems whose name contains one of these")
    parser.add_argument("--seconds", type=float, default=30.0, help="time limit per problem")
    parser.add_argument("--quick", action="store_true", help="5 s per problem, without the largest")
    parser.add_argument("--cpu", action="store_true", help="seconds of the process's own time instead of the clock's")
    parser.add_argument("--folder", help="keep the results there, and go on from what is there")
    options = parser.parse_args()
    seconds = 5.0 if options.quick else options.seconds
    print(HEADER)
    runs: dict[str, SweptRun] = {}
    for case in cases():
        wanted = not options.names or any(name in case.name for name in options.names)
        if wanted and not (options.quick and any(word in case.name for word in LARGE)):
            try:
                runs[case.name] = _run(case, seconds)
            except InputError as error:
                print(f"{case.name:<62} {error}", flush=True)
    if options.cpu:
        _solve_by_cpu(runs)
        return
    with tempfile.TemporaryDirectory() as place:
        folder = ResultFolder(options.folder or place)
        shown: set[str] = set()

        def show(_: object = None) -> None:
            for name, run in runs.items():
                row = None if name in shown else folder.row(run.key)
                if row is not None:
                    shown.add(name)
                    print(_line(name, row), flush=True)

        # One at a time, each in a process of its own, so that time and memory are its own too.
        SweepRunner(list(runs.values()), folder).run(open_engine("local", workers=1, fresh=True), report=show)
        show()


def _run(case: Case, seconds: float) -> SweptRun:
    graph, levels = case.make()
    sized, threads = levels.in_unit(graph.unit), os.cpu_count() or 1
    task = SolveTask(graph.to_json(), msgspec.json.encode(sized), case.tile, 0, seconds, False, None, threads)
    columns = {"graph": case.name, "unit": graph.unit, "machine": levels.name, "time_limit": seconds}
    return SweptRun(columns, "pebbler.sweeps.solve_task:solve_task", task, seconds)


def _solve_by_cpu(runs: dict[str, SweptRun]) -> None:
    """Print a line for every run, solved here by the process's own time; the peak memory is that of all so far."""
    time.monotonic = time.process_time
    for name, run in runs.items():
        result = msgspec.msgpack.decode(solve_task(run.payload()), type=TaskResult)
        print(_line(name, result.figures), flush=True)


def cases() -> list[Case]:
    """Return all problems."""
    found = []
    for workload in WORKLOADS:
        for name in MACHINES:
            if (name == "red-blue") == (workload == "chain"):  # a game of pebbles, the others are of floats
                found.append(Case(f"{workload} on {name}", lambda w=workload, m=name: _built_in(w, m)))  # type: ignore[misc]
    for n, room in ((2, 6), (4, 10), (8, 20), (12, 30)):
        name = f"matmul of elements, {n} x {n} x {n}, {room} pebbles"
        found.append(Case(name, lambda n=n, room=room: (matmul(n), _red_blue(room))))  # type: ignore[misc]
    for layers, batch in ((8, 4), (8, 32), (100, 32)):
        name = f"paging of {layers} layers, batch {batch}"
        found.append(Case(name, lambda deep=layers, b=batch: _paged_layers(b, deep), "none"))  # type: ignore[misc]
    for size in (20, 60):
        found.append(Case(f"free recomputation with paging, {size} nodes", lambda s=size: _free_layers(s)))  # type: ignore[misc]
    for ops in (500, 1000):
        found.append(Case(f"layered {ops} at 0.7", lambda o=ops: _one_level(layered(o, 1), 0.7)))  # type: ignore[misc]
    return found


def matmul(n: int) -> Graph:
    """Return the product of two n x n matrices with an op for every multiplication and every addition.

    >>> len(matmul(2).ops)
    12
    """
    graph = Graph(f"matmul {n}", unit="pebble")
    for name in "AB":
        for i in range(n * n):
            graph.tensor(f"{name}{i}", 1, "input")
    for i in range(n):
        for j in range(n):
            total = ""
            for k in range(n):
                term = f"t{i}.{j}.{k}"
                graph.tensor(term, 1, "temp" if n > 1 else "output")
                graph.op(f"times{i}.{j}.{k}", [f"A{i * n + k}", f"B{k * n + j}"], [term])
                if total:
                    name = f"c{i}.{j}.{k}"
                    graph.tensor(name, 1, "output" if k == n - 1 else "temp")
                    graph.op(f"plus{i}.{j}.{k}", [total, term], [name])
                    term = name
                total = term
    return graph


def _line(name: str, row: Row) -> str:
    if row.get("energy") is None:
        return f"{name:<62} {row['error']}"
    energy, bound = float(row["energy"]), float(row["bound"])
    gap = f"{100 * (energy / bound - 1):.1f}" if bound else "-"
    before = next((text for key, text in BEFORE.items() if name == key or name.startswith((f"{key},", f"{key} "))), "")
    took = f"{row['seconds']:>6.1f} {(row['memory'] or 0) / 2**20:>6.0f}"
    return f"{name:<62} {energy:>18,.0f} {bound:>18,.0f} {gap:>7} {before:>7} {took}  {row['status']}"


def _built_in(workload: str, name: str) -> tuple[Graph, Machine]:
    return workloads.load(workload), machine(name)


def _red_blue(pebbles: int) -> Machine:
    return Machine(
        "red-blue", "pebble", (Level("fast", 0, 0, capacity=pebbles), Level("slow", 1, 1)), "explicit", "fastest"
    )


def _paged_layers(batch: int, layers: int) -> tuple[Graph, Machine]:
    """Return a training step that pages: the fast level holds one and a half times what its largest op needs."""
    graph = workloads.get(f"deep-mlp:n=20,hidden=100,layers={layers},batch={batch}")
    return graph, _tight(graph, 1.5)


def _free_layers(nodes: int) -> tuple[Graph, Machine]:
    """Return a layered graph whose ops cost nothing, so that making a value again competes with loading it."""
    graph = layered(nodes, 1)
    free = Graph(graph.name, graph.unit, graph.tensors, [])
    free.tensor("x", 1, "input")
    for op in graph.ops:
        free.op(op.name, op.reads or ["x"], op.writes)
    return free, _tight(free, 1.5)


def _tight(graph: Graph, factor: float) -> Machine:
    """Return two levels of which the fast one holds `factor` times what the largest op needs."""
    need = op_requirement(Problem.of(graph, Machine("two", graph.unit, _levels(1), "explicit", "fastest")))
    assert need is not None
    return Machine("two", graph.unit, _levels(int(need.units * factor)), "explicit", "fastest")


def _levels(room: int) -> tuple[Level, Level]:
    return Level("fast", 0, 0, capacity=room), Level("slow", 1, 1)


def _one_level(graph: Graph, fraction: float) -> tuple[Graph, Machine]:
    """Return a graph with the given part of what program order needs."""
    room = int(fraction * program_order_peak(graph))
    return graph, Machine("memory", graph.unit, (Level("memory", 0, 0, capacity=room),))


if __name__ == "__main__":
    main()
