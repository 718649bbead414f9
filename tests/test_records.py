"""The programs in examples/records: run by an interpreter that shares nothing with the package, and held to docs/records.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from naive_cells import product_cost
from pebbler.extras.cells.cell_program import CellProgram
from pebbler.referee.programs.product_reads import product_bound
from pebbler.solver.problem import Problem
from pebbler.workloads import matmul

ROOT = Path(__file__).parents[1]
PROGRAMS = sorted((ROOT / "examples" / "records").glob("*.ir"))
MOST = {"3x3x3": 247, "4x4x4": 664, "4x16x4": 3_035, "8x8x8": 6_692, "16x16x16": 63_001}


def rows() -> dict[str, list[str]]:
    """Return the rows of the table, by the name of the program."""
    table = [
        line.strip("| ").split(" | ")
        for line in (ROOT / "docs" / "records.md").read_text().splitlines()
        if "`examples/" in line
    ]
    found = {}
    for row in table:
        name = re.search(r"examples/records/([\dx]+)\.ir", " ".join(row))
        assert name is not None
        found[name[1]] = row
    return found


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_every_program_is_in_the_table() -> None:
    assert sorted(rows()) == sorted(path.stem for path in PROGRAMS)
    assert {"2x2x2", "3x3x3", "4x4x4", "8x8x8", "4x16x4", "16x16x16"} <= set(rows())


@pytest.mark.parametrize("path", PROGRAMS, ids=[path.stem for path in PROGRAMS])
def test_a_program_costs_what_the_table_says(path: Path) -> None:
    m, n, k = map(int, path.stem.split("x"))
    text = path.read_text()
    cost = product_cost(text, m, n, k)
    row = rows()[path.stem]
    assert cost == number(row[2]) == CellProgram.parse(text).cost()
    assert cost <= MOST.get(path.stem, cost)
    bound = product_bound(Problem.of(matmul(m, n, k), "grid"))
    assert number(row[3]) == bound <= cost
