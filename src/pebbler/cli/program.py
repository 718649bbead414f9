"""`pebbler check FILE.ir`: a program on numbered cells."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import typer

__all__ = ["check_program"]

_MOST_INSTRUCTIONS = 4_000  # whose cells are bounded; more take longer than a few seconds


def check_program(path: Path, size: str | None, json: bool) -> None:
    """Say whether a program computes a matrix product, and what it costs."""
    from pebbler.cli.output import emit_json, number, say, table, tell
    from pebbler.errors import InputError
    from pebbler.extras.cells.cell_addresses import least_for_instructions
    from pebbler.extras.cells.cell_program import CellProgram, WrongProgram, distance
    from pebbler.referee.programs.product_reads import product_bound
    from pebbler.solver.problem import Problem
    from pebbler.workloads.element_products import MOST_POINTS, matmul

    program = CellProgram.load(path)
    sizes = None if size is None else _sizes(size)
    try:
        m, n, k = program.matching_sizes(sizes)
    except WrongProgram as error:
        if json:
            emit_json({"legal": False, "energy": None, "error": str(error), "line": error.line})
        else:
            tell(f"wrong: {path}: {error}")
        raise typer.Exit(1) from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    cost = program.cost()
    reads = Counter(map(distance, program.reads()))
    copies = sum(one.kind == "copy" for one in program.instructions)
    # Bounds are for the classical way: other ones multiply less often.
    classical = sum(one.kind == "mul" for one in program.instructions) >= m * n * k
    bounded = classical and m * n * k <= MOST_POINTS
    bound = math.ceil(product_bound(Problem.of(matmul(m, n, k), "grid"))) if bounded else None
    least = least_for_instructions(program) if len(program.instructions) <= _MOST_INSTRUCTIONS else None
    if json:
        emit_json(
            {
                "legal": True,
                "energy": cost,
                "m": m,
                "n": n,
                "k": k,
                "instructions": len(program.instructions),
                "copies": copies,
                "reads": sum(reads.values()),
                "distances": {str(far): reads[far] for far in sorted(reads)},
                "bound": bound,
                "gap": None if bound is None else cost / bound - 1,
                "least_for_instructions": least,
            }
        )
        return
    rows = [[number(far), number(reads[far]), number(far * reads[far])] for far in sorted(reads)]
    title = f"a product of {m} x {k} and {k} x {n}: {number(cost)} units in {number(len(program.instructions))} instructions"
    table(f"{title}, {number(copies)} of them copies", ["distance", "reads", "energy"], rows)
    if least is not None:
        say(
            f"these instructions, in this order, cost {number(least)} in any cells at least"
            + (": this program's cells are the best" if least == cost else "")
        )
    if bound is not None:
        say(
            f"no program that multiplies and adds the classical way costs less than {number(bound)}: "
            f"this one is at most {100 * (cost / bound - 1):.1f} % above"
        )


def _sizes(text: str) -> tuple[int, int, int]:
    from pebbler.errors import InputError, quoted

    words = text.split(",")
    if len(words) != 3 or not all(word.strip().isascii() and word.strip().isdigit() and int(word) for word in words):
        raise InputError(f"--size: expected three whole numbers m,n,k, such as 4,4,4; got {quoted(text)}")
    m, n, k = map(int, words)
    return m, n, k
