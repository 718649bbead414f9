"""How large a game may get: a graph of 100,000 ops to load, a plan of 1,000,000 moves to judge, and games on large graphs to solve.

Run `python -m benchmarks.scale`; it prints one JSON object and exits with status 1 when a limit is missed. Each part runs in
a process of its own, so that its peak memory is its own too. `python -m benchmarks.scale --games [--cpu] [MACHINE ...] [OPS ...]`
solves training graphs of about so many ops on explicit machines and caches, 60 s each, and prints a table; `--cpu` counts the
seconds of the process itself, for busy machines.
"""

from __future__ import annotations

import contextlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.scale_graphs import KINDS, MACHINES, make_graph, make_machine
from pebbler import solve
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.plan import Move, Plan
from pebbler.referee.judgement import check
from pebbler.solver.paging.demand_paging import demand_plan
from pebbler.solver.problem import Impossible, Problem, Search
from pebbler.workloads import chain

__all__ = ["LIMITS", "long_plan", "main", "play_games", "wide_graph"]

# What the foundation promises; seconds are wall time, after one warm-up of the compiled kernel.
LIMITS = {"load_graph": {"seconds": 2.0}, "judge_plan": {"seconds": 5.0, "gib": 2.0}}


def wide_graph(ops: int = 100_000, width: int = 500) -> Graph:
    """Return a training-like graph: layers of `width` ops, each reading a param and two results of the layer below."""
    graph = Graph("wide", unit="float32")
    graph.tensor("x", 1000, kind="input")
    for i in range(width):
        graph.tensor(f"W{i}", 1000, kind="param")
    for i in range(ops):
        below = [f"t{i - width}", f"t{i - width - i % 7}"] if i >= width + 7 else ["x"]
        graph.tensor(f"t{i}", 100, kind="output" if i >= ops - width else "temp")
        graph.op(f"op{i}", reads=[f"W{i % width}", *below], writes=[f"t{i}"], cost=1)
    return graph


def long_plan(moves: int = 1_000_000, length: int = 10_000) -> Plan:
    """Return a legal plan of a chain with at least `moves` moves: compute, copy away, drop, compute again."""
    graph = chain(length)
    machine = Machine("roomy", "pebble", (Level("fast", 0, 0, capacity=2 * length + 2), Level("slow", 100, 100)))
    todo: list[Move] = [("copy", "N0", "slow", "fast")]
    todo += [("compute", f"c{i}") for i in range(1, length + 1)]
    tail: list[Move] = [("compute", f"b{i}") for i in range(length, -1, -1)]
    i = 1
    while len(todo) + len(tail) < moves:
        todo += [("copy", f"N{i}", "fast", "slow"), ("drop", f"N{i}", "fast"), ("compute", f"c{i}")]
        todo += [("drop", f"N{i}", "slow")]
        i = i % length + 1
    return Plan(graph, machine, [*todo, *tail], steady=False)


def _load_graph(path: str) -> dict[str, float]:
    graph = Graph.load(path)
    return {"ops": len(graph.ops), "hazards": len(graph.dataflow.value_readers.items)}


def _judge_plan(path: str) -> dict[str, float]:
    began = time.perf_counter()
    plan = Plan.load(path)
    loaded = time.perf_counter()
    judgement = check(plan)
    if not judgement.legal:
        raise SystemExit(f"the plan should be legal: {judgement.error}")
    ended = time.perf_counter()
    return {"moves": len(plan.moves), "energy": judgement.energy, "load_s": loaded - began, "check_s": ended - loaded}


_PARTS: dict[str, Callable[[str], dict[str, float]]] = {"load_graph": _load_graph, "judge_plan": _judge_plan}


def _measure(part: str, path: str) -> None:
    check(Plan.in_order(chain(2), Machine("warm", "pebble", (Level("all", 0, 0),))))
    began, cpu = time.perf_counter(), time.process_time()
    result = _PARTS[part](path)
    result["seconds"] = time.perf_counter() - began
    result["cpu_seconds"] = time.process_time() - cpu
    result["gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps(result))


def _solve_game(kind: str, machine: Machine, graph: Graph, seconds: float) -> None:
    """Solve one game and print a row: the first plan's seconds, all seconds, MiB, energy, its ratio to program order's, bound, gap.

    Program order is paged by Belady's rule where a plan says what is where.
    """
    first: list[float] = []
    began = time.monotonic()

    def report(search: Search) -> None:
        if search.best is not None and not first:
            first.append(time.monotonic() - began)

    try:
        plan = solve(graph, machine, steady=False, time_limit=seconds, report=report)
    except Impossible as why:
        print(
            f"{kind:12} {len(graph.ops):7} {machine.name:11} {'':7} {time.monotonic() - began:7.1f} {why}",
            flush=True,
        )
        return
    took, mib = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    problem = Problem.of(graph, machine, steady=False)
    plain = Plan.in_order(graph, machine, steady=False)
    if machine.management == "explicit":
        plain = demand_plan(problem, range(len(graph.ops)), "farthest")
    ratio = "-" if plain is None else f"{plan.energy / check(plain).energy:.3f}"
    gap = f"{plan.energy / plan.bound - 1:.1%}"
    print(
        f"{kind:12} {len(graph.ops):7} {machine.name:11} {first[0]:7.1f} {took:7.1f} {mib:7.0f} {plan.energy:12} {ratio:>7} "
        f"{plan.bound:12} {gap:>7}",
        flush=True,
    )


def play_games(machines: list[str], sizes: list[int], seconds: float = 60.0, clock: str = "wall") -> int:
    """Print the table of games; each runs in a process of its own, after one small game that loads the kernels."""
    print(
        "graph            ops machine     first s      s     MiB       energy /program        bound     gap", flush=True
    )
    failed = 0
    for ops in sizes:
        for kind in KINDS:
            for machine in machines:
                command = [
                    sys.executable,
                    "-m",
                    "benchmarks.scale",
                    "game",
                    kind,
                    str(ops),
                    machine,
                    str(seconds),
                    clock,
                ]
                failed += subprocess.run(command, check=False).returncode != 0
    return failed


def _game(kind: str, ops: int, machine: str, seconds: float) -> None:
    for count in (5000, ops):
        graph = make_graph(kind, count)
        if count == ops:
            _solve_game(kind, make_machine(machine, graph), make_graph(kind, count), seconds)
        else:
            with contextlib.suppress(Impossible):
                solve(graph, make_machine(machine, graph), steady=False, time_limit=0.5)


def main() -> int:
    """Measure both parts, print them with their limits, and return 0 when all are met."""
    report, missed = {}, False
    with tempfile.TemporaryDirectory() as folder:
        paths = {part: str(Path(folder) / f"{part}.json") for part in _PARTS}
        wide_graph().save(paths["load_graph"])
        long_plan().save(paths["judge_plan"])
        for part, path in paths.items():
            command = [sys.executable, "-m", "benchmarks.scale", part, path]
            result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            met = all(result[name] <= limit for name, limit in LIMITS[part].items())
            report[part] = {name: round(value, 3) for name, value in result.items()} | {
                "file_mib": round(Path(path).stat().st_size / 2**20, 1),
                "limits": LIMITS[part],
                "met": met,
            }
            missed |= not met
    print(json.dumps(report, indent=1))
    return 1 if missed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--games"]:
        wanted = [name for name in sys.argv[2:] if name in MACHINES]
        given = [int(ops) for ops in sys.argv[2:] if ops not in (*MACHINES, "--cpu")]
        clock = "cpu" if "--cpu" in sys.argv else "wall"
        sizes = given or [1000, 3000, 10_000, 25_000, 100_000]
        sys.exit(play_games(wanted or list(MACHINES), sizes, clock=clock))
    elif sys.argv[1:2] == ["game"]:
        if sys.argv[6] == "cpu":
            time.monotonic = time.process_time
        _game(sys.argv[2], int(sys.argv[3]), sys.argv[4], float(sys.argv[5]))
    elif len(sys.argv) == 3:
        _measure(sys.argv[1], sys.argv[2])
    else:
        sys.exit(main())
