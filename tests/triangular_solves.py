"""Sparse triangular solves: one op per unknown, which reads its row of the matrix, its right side and the unknowns next to it."""

from __future__ import annotations

from pebbler.game.graph import Graph
from pebbler.game.machine import Level, Machine

__all__ = ["narrow_machine", "triangular_solve"]


def triangular_solve(side: int) -> Graph:
    """Return the solve on a square grid, each unknown with its neighbours before it: to the left, above, and above to the right."""
    graph = Graph(f"trisolve-{side}x{side}", "pebble")
    for number in range(side * side):
        row, column = divmod(number, side)
        before = [number - 1] if column else []
        before += [number - side] if row else []
        before += [number - side + 1] if row and column < side - 1 else []
        graph.tensor(f"L{number}", 1 + len(before), "input").tensor(f"b{number}", 1, "input")
        graph.tensor(f"x{number}", 1, "output")
        reads = [f"L{number}", f"b{number}", *(f"x{other}" for other in before)]
        graph.op(f"o_x{number}", reads, [f"x{number}"], cost=1 + len(before))
    return graph


def narrow_machine() -> Machine:
    """Return a machine that holds little more than an op needs."""
    return Machine("two", "pebble", (Level("fast", 0, 0, capacity=11), Level("slow", 10, 15)))
