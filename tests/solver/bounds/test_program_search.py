"""The search over splits of a program of facts: whatever its leaves prove, they have an order."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations
from typing import Any

from pebbler.solver.bounds.program_search import FactProgram, ProgramSearch


class Uncounted(ProgramSearch):
    """Solves nothing anew, as where halves are plainly impossible."""

    def _node(self, *args: Any) -> Any:
        found = super()._node(*args)
        self.solved = 0
        return found


def test_leaves_of_equal_bounds_and_numbers_have_an_order() -> None:
    program = FactProgram()
    x = [program.variable((name,), 1) for name in "abcdefg"]
    for i, j in combinations(range(7), 2):
        program.row(("pair", i, j), [(x[i], 1), (x[j], 1)], 1)
    search = Uncounted(program, Fraction(1))
    search.run(math.inf)
    assert search.bound == 6  # all but one
