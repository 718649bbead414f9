"""Bounds on the cells of fixed instructions, against every choice of cells that there is."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path

import pytest

from naive_cells import run
from pebbler.extras.cells.cell_addresses import least_for_instructions
from pebbler.extras.cells.cell_program import CellProgram

RECORDS = Path(__file__).parents[3] / "examples" / "records"


def random_program(rng: random.Random) -> tuple[list[tuple[str, tuple[int, ...]]], list[int]]:
    """Return instructions on values numbered from 0: two inputs, then the results; and which of them are put out."""
    made: list[tuple[str, tuple[int, ...]]] = []
    for result in range(2, 5):
        kind = rng.choice(["add", "mul", "copy"])
        made.append((kind, tuple(rng.randrange(result) for _ in range(1 if kind == "copy" else 2))))
    return made, [4, rng.randrange(5)]


def text_of(made: list[tuple[str, tuple[int, ...]]], outputs: list[int], cell: tuple[int, ...]) -> str | None:
    """Return the program with the values in these cells, None where one is overwritten before it is read."""
    held: dict[int, int] = {}
    for value in (0, 1):
        if cell[value] in held:
            return None
        held[cell[value]] = value
    for result, (_, sources) in enumerate(made, 2):
        if any(held.get(cell[source]) != source for source in sources):
            return None
        held[cell[result]] = result
    if any(held.get(cell[value]) != value for value in outputs):
        return None
    lines = [
        f"{kind} {','.join(str(cell[v]) for v in (result, *sources))}" for result, (kind, sources) in enumerate(made, 2)
    ]
    return "\n".join([f"{cell[0]},{cell[1]}", *lines, ",".join(str(cell[value]) for value in outputs)])


@pytest.mark.parametrize("seed", range(12))
def test_no_cells_cost_less_than_the_bound(seed: int) -> None:
    made, outputs = random_program(random.Random(seed))
    found: list[tuple[int, str]] = []
    for cell in product((1, 2, 3, 4, 5, 6), repeat=5):
        text = text_of(made, outputs, cell)
        if text is not None:
            found.append((run(text, [3, 5])[1], text))
    least, text = min(found)
    assert {least_for_instructions(CellProgram.parse(other)) for _, other in found[:: len(found) // 5]} == {
        least_for_instructions(CellProgram.parse(text))
    }
    assert least - 1 <= least_for_instructions(CellProgram.parse(text)) <= least


@pytest.mark.parametrize("name", ["2x2x2", "3x3x3", "4x4x4"])
def test_cells_of_records_are_the_best_for_their_instructions(name: str) -> None:
    program = CellProgram.load(RECORDS / f"{name}.ir")
    assert least_for_instructions(program) == program.cost()
