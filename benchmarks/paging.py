"""Placement and paging: energy against program order and against farthest-next-use, and how soon, in one run.

`python -m benchmarks.paging [SECONDS] [GRAPH.json ...]`: built-in workloads, and any graph files given. A graph file of temps
gets a two-level machine: fast memory of 0.8 x the peak of program order, slow memory priced so that a load costs about one
typical op. Every figure is the referee's.
"""

from __future__ import annotations

import statistics
import sys

from pebbler import machine, workloads
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.game.moves import COPY
from pebbler.game.plan import Plan
from pebbler.game.transform import tile
from pebbler.referee.judgement import check
from pebbler.solver.paging import program_order_plan, solve_paging
from pebbler.solver.paging.demand_paging import demand_plan
from pebbler.solver.problem import Impossible, Problem, Search


def two_levels(graph: Graph, fraction: float = 0.8) -> Machine:
    """Return a machine on which a load of a typical value costs about one typical op."""
    endless = Machine("endless", graph.unit, (Level("only", 0, 0),))
    moves: list[tuple[str, ...]] = []
    last = {name: i for i, op in enumerate(graph.ops) for name in (*op.reads, *op.writes)}
    for i, op in enumerate(graph.ops):
        moves.append(("compute", op.name))
        kept = ("param", "output")
        moves += [
            ("drop", name, "only")
            for name in dict.fromkeys((*op.reads, *op.writes))
            if last[name] == i and graph.tensor_named(name).kind not in kept
        ]
    peak = check(Plan(graph, endless, moves)).peak["only"]
    price = statistics.median(op.cost for op in graph.ops) / max(1, statistics.median(t.size for t in graph.tensors))
    return Machine("two", graph.unit, (Level("fast", 0, 0, capacity=int(fraction * peak)), Level("slow", price, price)))


def measure(name: str, problem: Problem, seconds: float) -> None:
    """Print one line: energies as ratios, and the times to the first plan, to within 1 % and to the end."""
    history: list[tuple[float, float]] = []
    search = Search(problem, seconds, lambda s: history.append((s.elapsed, s.energy)))
    try:
        solve_paging(search)
    except Impossible as reason:
        print(f"{name:28} {reason}", flush=True)
        return
    order = range(len(problem.graph.ops))
    plans = (program_order_plan(problem), demand_plan(problem, order, "farthest"))
    base, farthest = (None if plan is None else check(plan).energy for plan in plans)
    ratios = ["-" if other is None else f"{search.energy / other:.4f}" for other in (base, farthest)]
    near = next((when for when, energy in history if energy <= 1.01 * search.energy), float("nan"))
    runs = 0 if search.best is None else len(search.best.moves.order) - len(problem.graph.ops)
    copies = 0 if search.best is None else int((search.best.moves.kind == COPY).sum())
    print(
        f"{name:28} {len(problem.graph.ops):6} {search.energy:14.6g} {ratios[0]:>9} {ratios[1]:>9} {runs:6} {copies:6} "
        f"{history[0][0] if history else float('nan'):7.2f} {near:7.2f} {search.elapsed:7.2f}",
        flush=True,
    )


def main(arguments: list[str]) -> None:
    """Run the benchmark."""
    seconds = float(arguments[0]) if arguments else 20.0
    # Compiled kernels are cached on disk; without this the first line would time the compiler.
    solve_paging(Search(Problem.of(workloads.chain(5), machine("red-blue")), 60.0))
    solve_paging(Search(Problem.of(workloads.mlp(n=4, hidden=10), machine("notes-explicit")), 60.0))
    print(
        f"{'problem':28} {'ops':>6} {'energy':>14} {'/program':>9} {'/farthest':>9} {'again':>6} {'copies':>6} "
        f"{'first s':>7} {'1 % s':>7} {'end s':>7}"
    )
    notes = machine("notes-explicit")
    measure("mlp", Problem.of(workloads.mlp(), notes), seconds)
    measure("deep-mlp", Problem.of(workloads.deep_mlp(), notes), seconds)
    measure("chain 100, red-blue", Problem.of(workloads.chain(100), machine("red-blue")), seconds)
    measure("mlp, tiles of 10", Problem.of(tile(workloads.mlp(), "hidden", 10), notes), seconds)
    for path in arguments[1:]:
        graph = Graph.load(path)
        measure(graph.name, Problem.of(graph, two_levels(graph)), seconds)


if __name__ == "__main__":
    main(sys.argv[1:])
