"""Two-level games of 40 to 80 nodes from other fields: linear solvers, products with sparse matrices, iterations on graphs.

Every scalar (or small block) is a value of its own, as in fine-grained task graphs; compute weights are the number of operands, and
a unit moved costs as much as a unit of compute. `python -m benchmarks.field_games [SECONDS [FIELD ...]]` solves each with the least
fast memory that any op needs, and with three times that, and prints what is proven.
"""

from __future__ import annotations

import random
import resource
import sys
import time
from itertools import product

from pebbler import solve
from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine
from pebbler.solver.capacity import op_requirement
from pebbler.solver.problem import Problem

__all__ = ["FIELDS", "field_graph", "red_blue"]


class _Scalars:
    """A graph of scalars, built value by value."""

    def __init__(self, name: str) -> None:
        self.graph = Graph(name, unit="pebble")
        self.count = 0
        self.read: set[str] = set()

    def given(self, size: int = 1) -> str:
        name = f"in{self.count}"
        self.count += 1
        self.graph.tensor(name, size, kind="input")
        return name

    def make(self, *reads: str) -> str:
        name = f"v{self.count}"
        self.count += 1
        reads = tuple(dict.fromkeys(reads))
        self.read.update(reads)
        self.graph.tensor(name, 1)
        self.graph.op(f"op_{name}", list(reads), [name], len(reads))
        return name

    def finish(self) -> Graph:
        """Return the graph; what nothing reads is an output."""
        done = Graph(self.graph.name, unit="pebble")
        for tensor in self.graph.tensors:
            loose = tensor.kind == "temp" and tensor.name not in self.read
            done.tensor(tensor.name, tensor.size, kind="output" if loose else tensor.kind)
        for op in self.graph.ops:
            done.op(op.name, list(op.reads), list(op.writes), op.cost)
        return done


def _sparse(rng: random.Random, n: int, extra: int) -> list[list[int]]:
    """Return the columns of each row of a sparse matrix: the diagonal, and some more."""
    rows = [{i} for i in range(n)]
    for _ in range(extra):
        rows[rng.randrange(n)].add(rng.randrange(n))
    return [sorted(row) for row in rows]


def _times(net: _Scalars, rows: list[list[int]], vector: list[str], matrix: list[str]) -> list[str]:
    return [net.make(matrix[i], *(vector[j] for j in row)) for i, row in enumerate(rows)]


def _dot(net: _Scalars, a: list[str], b: list[str]) -> str:
    return net.make(*a, *b)


def _spmv(net: _Scalars, rng: random.Random) -> None:
    rows, n = _sparse(rng, 22, 40), 22
    _times(net, rows, [net.given() for _ in range(n)], [net.given() for _ in range(n)])


def _power(net: _Scalars, rng: random.Random) -> None:
    n = 9
    rows, matrix = _sparse(rng, n, 14), [net.given() for _ in range(n)]
    vector = [net.given() for _ in range(n)]
    for _ in range(4):
        vector = _times(net, rows, vector, matrix)


def _knn(net: _Scalars, rng: random.Random) -> None:
    n = 10
    rows, near = _sparse(rng, n, 12), [net.given() for _ in range(n)]
    for _ in range(4):
        near = [net.make(*(near[j] for j in row)) for row in rows]
    net.make(*near)


def _pagerank(net: _Scalars, rng: random.Random) -> None:
    n = 10
    rows, rank = _sparse(rng, n, 14), [net.given() for _ in range(n)]
    for _ in range(3):
        shares = [net.make(one) for one in rank]
        rank = [net.make(*(shares[j] for j in row)) for row in rows]


def _cg(net: _Scalars, rng: random.Random) -> None:
    n = 5
    rows, matrix = _sparse(rng, n, 6), [net.given() for _ in range(n)]
    x, r = [net.given() for _ in range(n)], [net.given() for _ in range(n)]
    p, rho = r, _dot(net, r, r)
    for _ in range(2):
        q = _times(net, rows, p, matrix)
        alpha = net.make(rho, _dot(net, p, q))
        x = [net.make(x[i], alpha, p[i]) for i in range(n)]
        r = [net.make(r[i], alpha, q[i]) for i in range(n)]
        new = _dot(net, r, r)
        beta = net.make(new, rho)
        p, rho = [net.make(r[i], beta, p[i]) for i in range(n)], new


def _bicgstab(net: _Scalars, rng: random.Random) -> None:
    n = 5
    rows, matrix = _sparse(rng, n, 6), [net.given() for _ in range(n)]
    x, r, shadow = ([net.given() for _ in range(n)] for _ in range(3))
    p, rho = r, _dot(net, shadow, r)
    for _ in range(1):
        v = _times(net, rows, p, matrix)
        alpha = net.make(rho, _dot(net, shadow, v))
        s = [net.make(r[i], alpha, v[i]) for i in range(n)]
        t = _times(net, rows, s, matrix)
        omega = net.make(_dot(net, t, s), _dot(net, t, t))
        x = [net.make(x[i], alpha, p[i], omega, s[i]) for i in range(n)]
        r = [net.make(s[i], omega, t[i]) for i in range(n)]
        beta = net.make(_dot(net, shadow, r), rho, alpha, omega)
        p = [net.make(r[i], beta, p[i], omega, v[i]) for i in range(n)]


FIELDS = {"spmv": _spmv, "power": _power, "knn": _knn, "pagerank": _pagerank, "cg": _cg, "bicgstab": _bicgstab}


def field_graph(field: str, seed: int = 0) -> Graph:
    """Return a task graph of 40 to 80 nodes, inputs included.

    >>> graph = field_graph("cg")
    >>> 40 <= len(graph.tensors) <= 80
    True
    """
    net = _Scalars(f"{field}-{seed}")
    FIELDS[field](net, random.Random(seed))
    return net.finish()


def red_blue(graph: Graph, times: int) -> Machine:
    """Return a machine of two levels whose fast one holds `times` what the largest op needs; moving a unit costs 1."""
    endless = Machine("endless", "pebble", (Level("fast", 0, 0, capacity=10**9), Level("slow", 1, 1)))
    need = op_requirement(Problem.of(graph, endless, steady=False))
    assert need is not None
    levels = (Level("fast", 0, 0, capacity=times * need.units), Level("slow", 1, 1))
    return Machine(f"{times}xr0", "pebble", levels)


def main(seconds: float, fields: list[str]) -> None:
    """Solve every game and print a row each: what is proven, wall and processor time, and the most memory used until then."""
    print(
        f"{'graph':14} {'nodes':>5} {'ops':>4} {'memory':>7} {'energy':>7} {'bound':>7} {'gap':>7} "
        f"{'status':>8} {'s':>6} {'cpu s':>6} {'MiB':>6}",
        flush=True,
    )
    proven = played = 0
    for field, seed, times in product(fields, range(2), (1, 3)):
        graph = field_graph(field, seed)
        machine = red_blue(graph, times)
        began, worked = time.perf_counter(), time.process_time()
        plan = solve(graph, machine, steady=False, time_limit=seconds)
        took, work, played = time.perf_counter() - began, time.process_time() - worked, played + 1
        proven += plan.status == "optimal"
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(
            f"{graph.name:14} {len(graph.tensors):5} {len(graph.ops):4} {machine.level[0].capacity:7} {plan.energy:7} "
            f"{plan.bound:7} {plan.energy / plan.bound - 1:7.1%} {plan.status:>8} {took:6.1f} {work:6.1f} {peak:6}",
            flush=True,
        )
    print(f"{proven} of {played} proven optimal")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0, sys.argv[2:] or list(FIELDS))
