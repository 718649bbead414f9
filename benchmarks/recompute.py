"""The recomputation game on real and made-up training graphs: cost, bound, and time to each.

Run `python -m benchmarks.recompute [--instances FOLDER] [--seconds 60]` from the repository root. FOLDER (or the environment
variable PEBBLER_INSTANCES) holds `vgg16.json`, `fcn8.json`, `segnet.json` and `layered-100.json`, the graphs that Moccasin
(Bartan et al., "Moccasin: Efficient Tensor Rematerialization for Neural Networks", ICML 2023) redistributes from Checkmate (Jain et
al., MLSys 2020); without it only the made-up graphs run. Moccasin's column was measured by running its CP-SAT model (ortools
9.6) on a machine of two cores; "proven" there holds for the input order and at most two runs of an op, ours for every legal plan.

The capacity is the given fraction of the peak of program order. Times are seconds on the wall, compiled kernels loaded before:
to the first legal plan, to within 1 % of the final cost, to the proof (or the end, when there is none).
"""

from __future__ import annotations

import argparse
import os
import resource
from collections.abc import Iterator
from pathlib import Path

from benchmarks.recompute_graphs import layered, resnet, unet
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.solver.problem import Impossible, Problem, Search
from pebbler.solver.recompute import solve_recompute
from pebbler.solver.recompute.recompute_problem import RecomputeProblem

# (graph, fraction): cost (None: no plan found) and seconds, of Moccasin.
MOCCASIN: dict[tuple[str, float], tuple[float | None, float | None]] = {
    ("vgg16", 0.9): (15805, 1.5),
    ("vgg16", 0.8): (None, None),
    ("fcn8", 0.9): (10275337746048 * 1.00029, 5.9),
    ("fcn8", 0.8): (10275337746048 * 1.00136, 6.7),
    ("fcn8", 0.7): (10366945290880, 6.6),
    ("segnet", 0.9): (4938210, 7.7),
    ("segnet", 0.8): (4943330, 7.9),
    ("layered-100", 0.9): (48146, 21.0),
    ("layered-100", 0.8): (48866, 22.5),
}
HEADER = f"{'graph':<18}{'ops':>6} {'fraction':>8} {'extra':>10} {'bound':>10} {'Moccasin':>10}"
HEADER += f" {'first':>7} {'1 %':>7} {'end':>7} {'theirs':>7}  status"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="The recomputation game, ours and Moccasin's.")
    parser.add_argument("--instances", default=os.environ.get("PEBBLER_INSTANCES"), help="folder of the real graphs")
    parser.add_argument("--seconds", type=float, default=60.0, help="time limit per problem")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--large", action="store_true", help="graphs of 10,000 ops as well")
    options = parser.parse_args()
    _solve(unet(1, 32, 4), 0.8, 5.0, options.threads)  # compiles
    print("extra and bound: above the cost of every op once; first, 1 %, end: seconds")
    print(HEADER)
    for graph, fractions in _graphs(options.instances, options.large):
        for fraction in fractions:
            print(_line(graph, fraction, options.seconds, options.threads), flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory of the process {peak:.2f} GiB")


def _graphs(folder: str | None, large: bool) -> Iterator[tuple[Graph, list[float]]]:
    if folder:
        for name in ("vgg16", "fcn8", "segnet", "layered-100"):
            graph = Graph.load(Path(folder) / f"{name}.json")
            graph.name = name
            yield graph, [fraction for other, fraction in MOCCASIN if other == name]
    for graph in (unet(), resnet(), layered(100, 4), layered(170, 5, backward=True), resnet((8, 12, 20, 8))):
        yield graph, [0.9, 0.8]
    yield layered(500, 1, backward=True), [0.9, 0.8]
    if large:
        for graph in (resnet((90, 120, 180, 90)), layered(5000, 3, backward=True)):
            yield graph, [0.9, 0.8]


def _solve(graph: Graph, fraction: float, seconds: float, threads: int) -> tuple[Search, list[tuple[float, float]]]:
    """Return the finished search and when it had plans of which cost."""
    found: list[tuple[float, float]] = []

    def note(search: Search) -> None:
        if search.best is not None and (not found or search.energy < found[-1][1]):
            found.append((search.elapsed, search.energy))

    search = Search(_problem(graph, int(fraction * _peak(graph)), threads), seconds, note)
    solve_recompute(search)
    return search, found


def _line(graph: Graph, fraction: float, seconds: float, threads: int) -> str:
    base = sum(op.cost for op in graph.ops)
    theirs, took = MOCCASIN.get((graph.name, fraction), (None, None))
    line = f"{graph.name:<18}{len(graph.ops):>6} {fraction:>8}"
    published = _percent(theirs, base, 3)  # some are published to three digits only
    try:
        search, found = _solve(graph, fraction, seconds, threads)
    except Impossible as reason:
        return f"{line} {'-':>10} {'-':>10} {published:>10} {'':>31}  proven impossible: {reason}"
    near = next((at for at, energy in found if energy <= 1.01 * search.energy), None)
    times = [found[0][0] if found else None, near, search.elapsed, took]
    columns = " ".join(f"{'-' if at is None else format(at, '.2f'):>7}" for at in times)
    status = "optimal" if search.done else "no plan" if search.best is None else "bounded"
    return f"{line} {_percent(search.energy, base):>10} {_percent(search.bound, base):>10} {published:>10} {columns}  {status}"


def _percent(cost: float | None, base: float, digits: int = 4) -> str:
    return "-" if cost is None or cost == float("inf") else f"{100 * (cost / base - 1):.{digits}f} %"


def _problem(graph: Graph, capacity: int, threads: int = 1) -> Problem:
    return Problem.of(graph, Machine("one", graph.unit, (Level("fast", 0, 0, capacity=capacity),)), threads=threads)


def _peak(graph: Graph) -> int:
    game = RecomputeProblem.of(_problem(graph, 2**50))
    return int(game.measure(game.program).memory.max())


if __name__ == "__main__":
    main()
