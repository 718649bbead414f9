"""What each kind of optimisation is worth, row by row: the table of `pebbler solve --compare`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pebbler.solver.methods import can_tile, program_order_energy
from pebbler.solver.paging import paging_gains
from pebbler.solver.problem import Search
from pebbler.solver.tiling.compare import Row, compare_tiled

__all__ = ["Row", "compare"]


def compare(
    search: Search,
    tile: str = "auto",
    references: Mapping[str, Sequence[str]] | None = None,
    report: Callable[[str], None] | None = None,
) -> list[Row]:
    """Return the rows for a finished search: from program order, adding one freedom at a time, to its plan and its bound.

    `references` are orders of op names to compare with; those of other graphs are left out.

    >>> from pebbler.solver import solve_search
    >>> rows = compare(solve_search("chain:length=4", "red-blue"))
    >>> rows[0].name, rows[-1].name
    ('program order', 'bound')
    """
    problem = search.problem
    limit = 30.0 if search.time_limit is None else search.time_limit
    if can_tile(problem, tile) or problem.machine.management != "explicit":
        rows = compare_tiled(problem, limit, report, references)[:-1]
    elif len(problem.machine.level) > 1:
        rows = [Row(*row) for row in paging_gains(problem, limit)[:-1]]
    else:
        base = program_order_energy(problem)
        rows = [
            Row("program order", base, "" if base is not None else "does not fit"),
            Row("+ recomputation", search.energy),
        ]
    if search.energy < (rows[-1].energy or float("inf")):
        name = "" if search.best is None else search.best.graph.name
        rows[-1] = Row(rows[-1].name, search.energy, name)
    return [*rows, Row("bound", min(search.bound, search.energy), search.proof)]
