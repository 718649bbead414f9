"""Public task graphs against simple orders: `python -m benchmarks.public_dags [--seconds S] [--times K ...] FILE ...`.

The files are not part of this repository: `.hdag` (HyperdagDB: a hyperedge per value, the maker first) as in the instance sets of
OneStopParallel, and `.mtx` (Matrix Market), of which the lower triangle is solved, an op per row. Nodes without predecessors
are inputs in slow memory, those without successors are outputs; work weights are costs, a unit moved costs 1. The fast level holds
`K` times what the largest op needs. Every row compares with the cheapest of program order, depth first and breadth first, each with
Belady's rule and judged by the referee; the exit status is 1 where a plan is worse. `--cpu` counts CPU seconds.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from benchmarks.field_games import red_blue
from benchmarks.structured_graphs import Shape
from benchmarks.textbook import textbook
from pebbler import solve
from pebbler.game.graph import Graph

__all__ = ["hyperdag", "triangle"]


def hyperdag(text: str, name: str) -> Shape:
    """Return the graph of a HyperdagDB file.

    >>> text = "%% header" + chr(10) + "2 3 4" + chr(10) + chr(10).join(["0 1 1", "1 1 1", "0 1 0", "1 2 0", "2 1 0"])
    >>> text += chr(10) + chr(10).join(["0 0", "0 1", "1 1", "1 2"])
    >>> [(op.name, op.cost) for op in hyperdag(text, "two").graph.ops]
    [('o1', 2.0), ('o2', 1.0)]
    """
    rows = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("%")]
    edges, nodes, pins = map(int, rows[0])
    size = {int(row[0]): int(row[2]) for row in rows[1 : 1 + edges]}
    work = {int(row[0]): int(row[1]) for row in rows[1 + edges : 1 + edges + nodes]}
    makes: dict[int, int] = {}
    reads: dict[int, list[int]] = {node: [] for node in work}
    for row in rows[1 + edges + nodes : 1 + edges + nodes + pins]:
        edge, node = int(row[0]), int(row[1])
        if edge not in makes:
            makes[edge] = node
        else:
            reads[node].append(makes[edge])
    sizes = {node: size[edge] for edge, node in makes.items()}
    shape = Shape(Graph(name, unit="pebble"))
    for node in _in_order(reads):
        kind = "input" if not reads[node] else "temp" if node in sizes else "output"
        shape.graph.tensor(f"v{node}", sizes.get(node, 1), kind)
        if reads[node]:
            shape.graph.op(f"o{node}", [f"v{other}" for other in dict.fromkeys(reads[node])], [f"v{node}"], work[node])
            shape.places.append((node,))
    return shape


def _in_order(reads: dict[int, list[int]]) -> list[int]:
    """Return nodes by number, each after those that it reads."""
    order: list[int] = []
    done: set[int] = set()
    for first in sorted(reads):
        stack = [first]
        while stack:
            node = stack[-1]
            waits = [] if node in done else [other for other in reads[node] if other not in done]
            if waits:
                stack.extend(reversed(waits))
                continue
            stack.pop()
            if node not in done:
                done.add(node)
                order.append(node)
    return order


def triangle(text: str, name: str) -> Shape:
    """Return the triangular solve of a Matrix Market file.

    >>> text = chr(10).join(["%%MatrixMarket", "2 2 3", "1 1 1.0", "2 1 1.0", "2 2 1.0"])
    >>> [list(op.reads) for op in triangle(text, "two").graph.ops]
    [['L0', 'b0'], ['L1', 'b1', 'v0']]
    """
    rows = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("%")]
    below: list[list[int]] = [[] for _ in range(int(rows[0][0]))]
    for row in rows[1:]:
        i, j = int(row[0]) - 1, int(row[1]) - 1
        if i != j:
            below[max(i, j)].append(min(i, j))
    shape = Shape(Graph(name, unit="pebble"))
    for i, columns in enumerate(below):
        given = [shape.given(f"L{i}", 1 + len(columns)), shape.given(f"b{i}")]
        reads = [f"v{j}" for j in sorted(set(columns))]
        shape.run((i,), given + reads, kind="output", cost=1 + len(reads))
    return shape


def main() -> int:
    """Print a row for each file; return 1 where a plan is worse than a simple order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--times", type=int, action="append")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("files", nargs="+", type=Path)
    given = parser.parse_args()
    if given.cpu:
        time.monotonic = time.process_time
    print(
        f"{'graph':32} {'ops':>5} {'room':>5} {'pebbler':>10} {'simple':>10} {'order':8} {'ratio':>6} {'gap':>7} {'CPU s':>6}"
    )
    worse = 0
    for file in given.files:
        read = hyperdag if file.suffix == ".hdag" else triangle
        shape = read(file.read_text(), file.stem.removeprefix("instance_"))
        for times in given.times or [3]:
            machine = red_blue(shape.graph, times)
            began = time.process_time()
            plan = solve(shape.graph, machine, steady=False, tile="none", time_limit=given.seconds, threads=1)
            took = time.process_time() - began
            other, order = textbook(shape, machine)
            worse += plan.energy > other
            print(
                f"{shape.graph.name:32} {len(shape.graph.ops):5} {machine.level[0].capacity:5} {plan.energy:10,} "
                f"{other:10,.0f} {order:8} {plan.energy / other:6.3f} {plan.energy / plan.bound - 1:7.1%} {took:6.1f}",
                flush=True,
            )
    return int(worse > 0)


if __name__ == "__main__":
    sys.exit(main())
