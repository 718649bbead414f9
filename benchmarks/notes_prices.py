"""What the notes' conclusions are worth on measured prices: the ladder of README for one training step, on several machines.

Every row is what the best schedule found costs when it may do no more than the row says, on each machine by itself. The last row
takes the plan made for the first machine and prices it on the others.

    python -m benchmarks.notes_prices
    python -m benchmarks.notes_prices notes mine.toml --time-limit 60
"""

from __future__ import annotations

import argparse

from pebbler.game.amounts import energy_text
from pebbler.game.machine import machine
from pebbler.game.moves import Moves
from pebbler.game.plan import Plan
from pebbler.notes.reference_orders import compared_orders
from pebbler.referee.judgement import check
from pebbler.solver import solve_search
from pebbler.solver.ablation import AblationRow, compare
from pebbler.workloads import mlp

__all__ = ["carried_over", "ladder", "markdown"]

MACHINES = ("notes", "notes-h200", "h200-measured")


def ladder(name: str, seconds: float, n: int = 20, hidden: int = 1000) -> tuple[list[AblationRow], Plan]:
    """Return the rows for one machine, and the best plan."""
    search = solve_search(mlp(n=n, hidden=hidden), machine(name), time_limit=seconds / 2)
    rows = compare(search, references=compared_orders(), seconds=seconds / 2)
    assert search.best is not None
    return rows, search.best


def carried_over(plan: Plan, name: str) -> float:
    """Return the energy of a plan's order and tiles on another machine."""
    target = machine(name).in_unit(plan.graph.unit)
    moves = Moves.computes(plan.graph, target, plan.moves.order)
    return float(check(Plan(plan.graph, target, moves, steady=plan.steady)).energy)


def markdown(found: dict[str, tuple[list[AblationRow], Plan]]) -> str:
    """Return the table: a row of the ladder by machine, each with its share of that machine's program order."""
    names = list(found)
    lines = ["| schedule | " + " | ".join(f"`{name}`" for name in names) + " |", "|---" * (len(names) + 1) + "|"]
    titles = list(dict.fromkeys(row.name for rows, _ in found.values() for row in rows))
    first = found[names[0]][1]
    costs = {name: {row.name: row.energy for row in rows} for name, (rows, _) in found.items()}
    costs_of_first = {name: carried_over(first, name) for name in names}
    for title in [*titles, "the plan made for the first machine"]:
        cells = []
        for name in names:
            energy = costs_of_first[name] if title.startswith("the plan") else costs[name].get(title)
            base = costs[name]["program order"]
            cells.append(
                "refused" if energy is None or base is None else f"{energy_text(energy, 'pJ')}, {energy / base:.1%}"
            )
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("machines", nargs="*", default=list(MACHINES), help="built-in machines or files")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for each machine")
    options = parser.parse_args()
    print(markdown({name: ladder(name, options.time_limit) for name in options.machines}))


if __name__ == "__main__":
    main()
