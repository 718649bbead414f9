"""`pebbler solve`: the best plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pebbler.solver.problem import Search

__all__ = ["solve"]


def solve(
    graph: Annotated[str, typer.Argument(help="A graph file (JSON) or a built-in workload.", show_default=False)],
    machine: Annotated[
        str | None,
        typer.Option(help="A built-in machine or a TOML file; notes, or red-blue for pebbles.", show_default=False),
    ] = None,
    steady: Annotated[
        bool | None,
        typer.Option(
            "--steady/--no-steady",
            help="One step of an endless loop; the default where params are updated.",
            show_default=False,
        ),
    ] = None,
    tile: Annotated[str, typer.Option(help="auto: tile and fuse where it pays; none: whole tensors.")] = "auto",
    time_limit: Annotated[float, typer.Option(help="Seconds; 0 returns program order.")] = 30.0,
    threads: Annotated[int | None, typer.Option(help="Cores to use; all by default.", show_default=False)] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same plan, unless time cuts it off.")] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the plan (JSON).", show_default=False)
    ] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Show what each kind of optimisation brings.")] = False,
    least_capacity: Annotated[
        bool, typer.Option("--least-capacity", help="Find the least fast memory that works instead.")
    ] = False,
    report: Annotated[Path | None, typer.Option(help="Write a page about the plan (HTML).", show_default=False)] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw the energies, with --compare step by step (.png, .svg, .pdf).", show_default=False),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Find the cheapest plan of a graph on a machine, and say how good it is.

    Exit status 0: a plan was found; 1: there is none, and the message says why; 2: wrong input. Ctrl-C keeps the best so far.

    Example: pebbler solve mlp:n=20,hidden=1000 --machine notes --time-limit 60 -o plan.json
    """
    from pebbler.cli.output import emit_json, energy, number, progress, say, table, tell
    from pebbler.game.machine import energy_unit
    from pebbler.game.machine import machine as find_machine
    from pebbler.solver import find_least_capacity, finish, solve_search
    from pebbler.solver.methods import program_order_energy
    from pebbler.solver.problem import Impossible
    from pebbler.workloads import load

    loaded = load(graph)
    chosen = find_machine(machine or ("red-blue" if loaded.unit == "pebble" else "notes"))
    unit = energy_unit(loaded.unit)
    if least_capacity:
        with progress("looking for the least fast memory"):
            least = find_least_capacity(loaded, chosen, steady=steady, time_limit=time_limit)
        if json:
            emit_json(least)
        else:
            proven = "" if least.least == least.bound else f"; less than {number(least.bound)} is proven impossible"
            say(f"least fast memory that works: {number(least.least)} {loaded.unit}{proven}")
            say(least.reason)
        return
    with progress(f"solving {loaded.name}") as update:

        def show(search: Search) -> None:
            best = "no plan yet" if search.best is None else f"best {energy(search.energy, unit)}"
            update(f"{best}, bound {energy(search.bound, unit)}, gap {_percent(search.gap)}", search.fraction)

        try:
            search = solve_search(loaded, chosen, steady, None, tile, time_limit, threads, seed, show)  # type: ignore[arg-type]
            plan, seconds = finish(search), search.elapsed
        except Impossible as error:
            if json:
                emit_json({"status": "impossible", "error": str(error)})
            raise
    base = program_order_energy(search.problem)
    rows = []
    if compare:
        from pebbler.solver.comparison import compare as compare_steps

        with progress("comparing") as update:
            rows = compare_steps(search, tile, lambda name: update(f"comparing: {name}", None))
    if output is not None:
        plan.save(output)
    if report is not None:
        from pebbler.show.report import report as write_report

        with progress("gathering what the page shows"):
            write_report(plan, report)
    if plot is not None:
        from pebbler.show.plots import draw_steps

        steps = [(row.name, row.energy) for row in rows[:-1]] or [("program order", base), ("pebbler", plan.energy)]
        scale, scaled = (1e6, "uJ") if unit == "pJ" else (1.0, unit)
        bars = [(name, amount / scale) for name, amount in steps if amount is not None]
        draw_steps(bars, (plan.bound or 0) / scale, scaled, plot, title=f"{loaded.name} on {plan.machine.name}")
    if json:
        emit_json(
            {
                "energy": plan.energy,
                "bound": plan.bound,
                "gap": plan.gap,
                "status": plan.status,
                "program_order_energy": base,
                "seconds": round(seconds, 3),
                "moves": len(plan.moves),
                "proof": plan.proof,
                "graph": plan.graph.name,
            }
            | ({"compare": rows} if compare else {})
        )
    else:
        if compare:
            cells = [[row.name, energy(row.energy, unit), _share(row.energy, base), row.note] for row in rows]
            table("What each step brings", ["schedule", "energy", "of program order", "note"], cells)
        table(
            f"{loaded.name} on {plan.machine.name}: {plan.status}",
            ["figure", "value"],
            [
                ["energy", energy(plan.energy, unit)],
                ["lower bound", energy(plan.bound, unit)],
                ["gap", _percent(plan.gap)],
                ["program order", energy(base, unit) if base is not None else "does not fit"],
                ["times less", f"{base / plan.energy:.2f}" if base and plan.energy else "-"],
                ["moves", number(len(plan.moves))],
                ["graph", plan.graph.name],
                ["bound from", plan.proof],
                ["seconds", f"{seconds:.1f}"],
            ],
        )
    for file in (output, report, plot):
        if file is not None:
            tell(f"wrote {file}")


def _share(amount: float | None, base: float | None) -> str:
    return "-" if amount is None or not base else f"{amount / base:.1%}"


def _percent(fraction: float | None) -> str:
    return "-" if fraction is None or fraction == float("inf") else f"{fraction:.2%}"
