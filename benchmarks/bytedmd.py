"""ByteDMD of N x N x N matrix products: pebbler beside a plain list stack, on the same instructions.

Run `python -m benchmarks.bytedmd` from the repository root. The list stack follows the definition, with liveness worked out
beforehand; it is timed up to N = 32, beyond which it takes minutes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from tests.naive_bytedmd import naive_cost, naive_depths

from pebbler.trace.scalar_program import ScalarProgram, trace_scalars

NAIVE_UP_TO = 32
REPEATS = 3


def matrix_product(a: list[list[Any]], b: list[list[Any]]) -> list[list[Any]]:
    """The i-j-k product, each sum started by its first term."""
    columns = list(zip(*b, strict=True))
    result = []
    for row in a:
        line = []
        for column in columns:
            total = row[0] * column[0]
            for x, y in zip(row[1:], column[1:], strict=True):
                total = total + x * y
            line.append(total)
        result.append(line)
    return result


def best(function: Callable[[], Any], repeats: int = REPEATS) -> tuple[float, Any]:
    """The shortest of a few runs in seconds, and what it returned."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        value = function()
        times.append(time.perf_counter() - start)
    return min(times), value


def plain_stack(program: ScalarProgram) -> int:
    """The cost of the program by the list stack."""
    instructions = [
        (tuple(value for value in pair if value >= 0), program.arguments + i)
        for i, pair in enumerate(zip(program.left, program.right, strict=True))
    ]
    return naive_cost(naive_depths(list(range(program.arguments)), instructions, set(program.returned)))


def measure(n: int) -> dict[str, Any]:
    """Recording and pricing one product; the list stack too where it is quick enough."""
    matrix = [[1.0] * n for _ in range(n)]
    recording, program = best(lambda: trace_scalars(matrix_product, matrix, matrix))
    pricing, cost = best(program.cost)
    row = {"n": n, "reads": len(program.depths()), "cost": cost, "record_s": recording, "price_s": pricing}
    if n <= NAIVE_UP_TO:
        naive, naive_found = best(lambda: plain_stack(program), repeats=1)
        if naive_found != cost:
            raise SystemExit(f"N = {n}: the list stack says {naive_found}, pebbler {cost}")
        row |= {"naive_s": naive, "ratio": naive / pricing}
    return row


def main() -> None:
    """Print one JSON line per size, the first with what compiling or loading the kernels took."""
    start = time.perf_counter()
    trace_scalars(lambda a: a + a, 1.0).cost()
    print(json.dumps({"first_call_s": round(time.perf_counter() - start, 4)}))
    for n in (8, 16, 32, 64):
        row = measure(n)
        print(json.dumps({key: round(value, 5) if isinstance(value, float) else value for key, value in row.items()}))


if __name__ == "__main__":
    main()
