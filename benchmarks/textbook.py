"""Plans of graphs with structure against what a textbook does: `python -m benchmarks.textbook [--seconds S] [NAME ...]`.

Every row is a shape of `benchmarks.structured_graphs` on a machine. The textbook's column is the cheapest of program order, depth
first, breadth first and the shape's own orders (blocks, by expert, layer by layer, branches sorted), each with Belady's rule where
a plan says what is where, judged by the referee. A row is late where the solver takes 10 % and a second more than its limit, in
CPU seconds; the exit status is 1 where a row is late or its ratio is above 1.05. Each row runs in a process of its own, after a
small one that loads the kernels. `--cpu` lets the clock of the solver count CPU seconds, for busy machines. `--others` has
shapes that no order was made for, at about 3,000 ops or as `--ops` says; `--machine` puts all rows on another machine.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import time

from benchmarks.other_shapes import OTHERS, make_shape
from benchmarks.scale_graphs import make_machine
from benchmarks.structured_graphs import Shape
from pebbler import solve
from pebbler.game.machine import Level, Machine
from pebbler.game.plan import Plan
from pebbler.referee.judgement import check
from pebbler.solver.capacity import op_requirement
from pebbler.solver.paging.demand_paging import demand_plan
from pebbler.solver.problem import Impossible, Problem

__all__ = ["ROWS", "machine_for", "textbook"]

# Name of the shape, ops, machine as in `benchmarks.scale`, seconds.
ROWS = (
    ("tree", 32_767, "two-0.1", 60),
    ("tree", 131_071, "two-0.1", 60),
    ("fft", 106_496, "two-0.1", 60),
    ("fft", 10_000, "two-0.1", 12),
    ("wavefront", 10_000, "two-0.1", 12),
    ("stencil", 10_000, "two-0.1", 12),
    ("bitonic", 10_000, "two-0.1", 12),
    ("cholesky", 10_000, "two-0.1", 12),
    ("trisolve", 10_000, "two-0.1", 12),
    ("lstm", 10_000, "two-0.1", 12),
    ("experts", 99_840, "lru-0.2", 60),
    ("shared", 9_610, "one-0.85", 15),
    ("series-parallel", 10_007, "one-0.8", 10),
    ("cg", 600, "two-0.1", 12),
    ("powers", 600, "two-0.1", 12),
)
_WORST = 1.05


def machine_for(name: str, shape: Shape) -> Machine:
    """Return a machine of `benchmarks.scale` on which every op fits with two units to spare.

    On one level the share is of the way from the least peak of the shape's orders to that of program order.
    """
    machine = make_machine(name, shape.graph)
    problem = Problem.of(shape.graph, machine, steady=False)
    if name.startswith("one"):
        return machine
    need = op_requirement(problem)
    room = machine.level[0].capacity
    if need is None or room is None or room >= need.units + 2:
        return machine
    return Machine(machine.name, machine.unit, (Level("fast", 0, 0, capacity=need.units + 2), *machine.level[1:]))


def textbook(shape: Shape, machine: Machine) -> tuple[float, str]:
    """Return the least energy of the shape's orders, as the referee says, and the order's name; infinite where none fits."""
    problem, found = Problem.of(shape.graph, machine, steady=False), {}
    names = shape.graph.dataflow.op_names
    for name, order in shape.orders().items():
        plan = Plan.in_order(shape.graph, machine, [names[op] for op in order], steady=False)
        if machine.management == "explicit":
            paged = demand_plan(problem, order, "farthest")
            if paged is None:
                continue
            plan = paged
        judged = check(plan)
        assert judged.legal, judged.error
        found[name] = judged.energy
    best = min(found, key=lambda name: found[name], default="none fits")
    return found.get(best, float("inf")), best


def _row(name: str, ops: int, machine_name: str, seconds: float) -> int:
    for count in (2_500, ops):
        shape = make_shape(name, count)
        machine = machine_for(machine_name, shape)
        if count != ops:
            with contextlib.suppress(Impossible):
                solve(shape.graph, machine, steady=False, tile="none", time_limit=1.0)
            continue
        shape.graph.dataflow.after  # noqa: B018 - what is derived from the graph once is not the solver's
        began, wall = time.process_time(), time.perf_counter()
        try:
            plan = solve(shape.graph, machine, steady=False, tile="none", time_limit=seconds, threads=1)
            energy, bound = plan.energy, plan.bound
        except Impossible:
            energy, bound = float("inf"), 0.0
        cpu, wall = time.process_time() - began, time.perf_counter() - wall
        other, order = textbook(shape, machine)
        ratio = 1.0 if energy == other else energy / other
        late = cpu > 1.1 * seconds + 1
        gap = energy / bound - 1 if bound else float("inf")
        words = [f"{name:16} {len(shape.graph.ops):7} {machine_name:9} {machine.level[0].capacity:6} {energy:14,.0f}"]
        words += [f"{other:14,.0f} {order:16} {ratio:6.3f} {gap:7.1%} {wall:6.1f} {cpu:6.1f}"]
        words += ["late"] * late + ["worse"] * (ratio > _WORST)
        print(*words, flush=True)
        return int(late or ratio > _WORST)
    return 0


def main() -> int:
    """Print the table; return 1 where a row is worse than the textbook or late."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, help="instead of each row's own")
    parser.add_argument("--others", action="store_true")
    parser.add_argument("--ops", type=int, help="instead of each row's own")
    parser.add_argument("--machine", help="instead of each row's own, as in benchmarks.scale")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    rows = [(name, 3_000, "two-0.1", 12) for name in OTHERS] if given.others else ROWS
    print(
        "shape                ops machine     room        pebbler       textbook order             ratio     gap      s  CPU s"
    )
    failed = 0
    for name, ops, machine, seconds in rows:
        if given.names and name not in given.names:
            continue
        words = [name, str(given.ops or ops), given.machine or machine, str(given.seconds or seconds)]
        words.append("cpu" if given.cpu else "wall")
        failed += subprocess.run([sys.executable, "-m", "benchmarks.textbook", "row", *words], check=False).returncode
    return int(failed > 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["row"]:
        if sys.argv[6] == "cpu":
            time.monotonic = time.process_time
        sys.exit(_row(sys.argv[2], int(sys.argv[3]), sys.argv[4], float(sys.argv[5])))
    sys.exit(main())
