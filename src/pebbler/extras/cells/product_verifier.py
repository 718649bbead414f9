"""Checks a program on numbered cells: its SHA-256, that it computes a matrix product for all matrices, and what its reads cost.

Needs nothing but Python's standard library; run it as a script beside the program: python3 -S FILE.py
"""

from __future__ import annotations

import hashlib
import math
import sys
from pathlib import Path

PROGRAM = ""  # the file beside this one
SHA256 = ""  # of that file
SIZES = (0, 0, 0)  # m, n, k: an m x k matrix times a k x n one
COSTS: dict[str, int] = {}  # of the reads, by what reads

Polynomial = dict[tuple[int, ...], int]  # monomials as sorted numbers of inputs, and their factors


def verify(text: str, sizes: tuple[int, int, int]) -> dict[str, int]:
    """Return the cost of a program's reads by kind; raise ValueError unless it computes the product for all matrices."""
    m, n, k = sizes
    lines = [line.strip() for line in text.replace(";", "\n").splitlines() if line.strip()]
    if len(lines) < 2:
        raise ValueError("no program")
    inputs, outputs = cells(lines[0]), cells(lines[-1])
    if len(inputs) != m * k + k * n or len(set(inputs)) != len(inputs) or len(outputs) != m * n:
        raise ValueError("wrong numbers of inputs or outputs")
    held: dict[int, Polynomial] = {cell: {(number,): 1} for number, cell in enumerate(inputs)}
    costs = {"mul": 0, "add": 0, "sub": 0, "copy": 0}
    for line in lines[1:-1]:
        kind, _, rest = line.partition(" ")
        goal, *sources = cells(rest)
        if kind != "copy" and len(sources) == 1:
            sources = [goal, *sources]
        if kind not in costs or len(sources) != (1 if kind == "copy" else 2):
            raise ValueError(f"no instruction: {line}")
        if not all(cell in held for cell in sources):
            raise ValueError(f"reads a cell that holds nothing: {line}")
        costs[kind] += sum(distance(cell) for cell in sources)
        held[goal] = result(kind, [held[cell] for cell in sources])
    costs["output"] = sum(distance(cell) for cell in outputs)
    for place, cell in enumerate(outputs):
        i, j = divmod(place, n)
        if held.get(cell) != {(i * k + step, m * k + step * n + j): 1 for step in range(k)}:
            raise ValueError(f"output {place} is not element [{i}, {j}] of the product")
    return costs


def result(kind: str, operands: list[Polynomial]) -> Polynomial:
    """Return the result of an instruction on polynomials; raises ValueError for a product above degree two."""
    if kind == "copy":
        return operands[0]
    found: Polynomial = {}
    left, right = operands
    if kind == "mul":
        for one, factor in left.items():
            for other, times in right.items():
                if len(one) + len(other) > 2:
                    raise ValueError("a product of degree above two")
                term = tuple(sorted((*one, *other)))
                found[term] = found.get(term, 0) + factor * times
    else:
        found.update(left)
        for term, factor in right.items():
            found[term] = found.get(term, 0) + (factor if kind == "add" else -factor)
    return {term: factor for term, factor in found.items() if factor}


def cells(text: str) -> list[int]:
    """Return the cells in a list of numbers from 1 on."""
    found = [int(word) for word in text.split(",")]
    if min(found) < 1:
        raise ValueError(f"no cell: {min(found)}")
    return found


def distance(cell: int) -> int:
    """Return the cost of reading a cell: the square root of its number, rounded up."""
    return math.isqrt(cell - 1) + 1


def main() -> int:
    """Check the program beside this file against the figures at its top."""
    data = Path(__file__).with_name(PROGRAM).read_bytes()
    try:
        if hashlib.sha256(data).hexdigest() != SHA256:
            raise ValueError("another SHA-256")
        costs = verify(data.decode(), SIZES)
        if {kind: cost for kind, cost in costs.items() if cost} != COSTS:
            raise ValueError(f"other costs: {costs}")
    except ValueError as error:
        sys.stdout.write(f"wrong: {PROGRAM}: {error}\n")
        return 1
    sys.stdout.write(f"right: {PROGRAM} computes the product for all matrices, cost {sum(costs.values())}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
