"""Matrix products element by element: every multiplication and every addition is a separate op."""

from __future__ import annotations

from pebbler.errors import InputError
from pebbler.game.graph import Graph
from pebbler.workloads.arguments import require_whole

__all__ = ["MOST_POINTS", "matmul"]

MOST_POINTS = 100_000  # multiplications; the graph of one takes about a kilobyte


def matmul(m: int = 4, n: int = 4, k: int = 4) -> Graph:
    """The product of an `m` x `k` and a `k` x `n` matrix, element by element; every result is read once at the end.

    `mul_i_j_l` makes the product `P_i_j_l` of `A_i_l` and `B_l_j`; `add_i_j_l` adds it to the sum `C_i_j`, which begins in
    the room of the first product. The matrices start where the plan says. `pebbler.game.sums` adds up in another order.

    >>> graph = matmul(1, 1, 3)
    >>> [op.name for op in graph.ops]
    ['mul_0_0_0', 'mul_0_0_1', 'add_0_0_1', 'mul_0_0_2', 'add_0_0_2', 'exit']
    >>> graph.op_named("add_0_0_1").reads, graph.op_named("add_0_0_2").reads
    (('P_0_0_0', 'P_0_0_1'), ('C_0_0', 'P_0_0_2'))
    """
    require_whole("matmul", MOST_POINTS, m=m, n=n, k=k)
    if m * n * k > MOST_POINTS:
        raise InputError(f"workload matmul: m * n * k must be at most {MOST_POINTS:,}, got {m * n * k:,}")
    graph = Graph(f"matmul:m={m},n={n},k={k}", unit="element")
    for i in range(m):
        for inner in range(k):
            graph.tensor(f"A_{i}_{inner}", 1, "input", axes=(), start="free")
    for inner in range(k):
        for j in range(n):
            graph.tensor(f"B_{inner}_{j}", 1, "input", axes=(), start="free")
    sums = [(i, j) for i in range(m) for j in range(n)]
    for i, j in sums:
        for inner in range(k) if k > 1 else ():
            graph.tensor(f"P_{i}_{j}_{inner}", 1, axes=())
        graph.tensor(f"C_{i}_{j}", 1, "output", axes=(), overwrites=f"P_{i}_{j}_0" if k > 1 else None)
    for i, j in sums:
        for inner in range(k):
            made, total = f"P_{i}_{j}_{inner}" if k > 1 else f"C_{i}_{j}", f"C_{i}_{j}"
            factors = [f"A_{i}_{inner}", f"B_{inner}_{j}"]
            graph.op(f"mul_{i}_{j}_{inner}", factors, [made], meta={"kernel": "product"})
            if inner:
                before = total if inner > 1 else f"P_{i}_{j}_0"
                graph.op(f"add_{i}_{j}_{inner}", [before, made], [total], meta={"kernel": "add"})
    graph.op("exit", [f"C_{i}_{j}" for i, j in sums], meta={"kernel": "sum"})
    return graph
