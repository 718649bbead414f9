"""`pebbler solve`: the best plan."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pebbler.cli.options import GraphName, Json, PlanOutput, grouped

if TYPE_CHECKING:
    from pebbler.game.plan import Plan
    from pebbler.solver.ablation import AblationRow
    from pebbler.solver.problem import Search

__all__ = ["solve"]


@dataclass(frozen=True)
class SolveOptions:
    """What is to be solved and for how long: arguments of `pebbler.solve` by the same names."""

    machine: Annotated[
        str | None,
        typer.Option(help="A built-in machine or a TOML file; notes, or red-blue for pebbles.", show_default=False),
    ] = None
    steady: Annotated[
        bool | None,
        typer.Option(
            "--steady/--no-steady",
            help="One step of an endless loop; the default where params are updated.",
            show_default=False,
        ),
    ] = None
    tile: Annotated[str, typer.Option(help="auto: tile and fuse where it pays; none: whole tensors.")] = "auto"
    time_limit: Annotated[float, typer.Option(help="Seconds; 0 returns program order.")] = 30.0
    threads: Annotated[int | None, typer.Option(help="Cores to use; all by default.", show_default=False)] = None
    seed: Annotated[int, typer.Option(help="The same seed gives the same plan, unless time cuts it off.")] = 0


@grouped
def solve(
    graph: GraphName,
    options: SolveOptions,
    output: PlanOutput = None,
    compare: Annotated[bool, typer.Option("--compare", help="Show what each kind of optimisation brings.")] = False,
    least_capacity: Annotated[
        bool, typer.Option("--least-capacity", help="Find the least fast memory that works instead.")
    ] = False,
    report: Annotated[Path | None, typer.Option(help="Write a page about the plan (HTML).", show_default=False)] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw the energies, with --compare step by step (.png, .svg, .pdf).", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Find the cheapest plan of a graph on a machine, and say how good it is.

    Exit status 0: a plan was found; 1: there is none, and the message says why; 2: wrong input. Ctrl-C keeps the best so far.

    Example: pebbler solve mlp:n=20,hidden=1000 --machine notes --time-limit 60 -o plan.json
    """
    from pebbler.cli.output import progress, tell
    from pebbler.notes.reference_orders import compared_orders, marked_orders
    from pebbler.solver.ablation import compare as compare_steps
    from pebbler.solver.methods import program_order_energy

    if least_capacity:
        _show_least_capacity(graph, options, json)
        return
    search, plan = _search(graph, options, json)
    seconds = search.elapsed
    base = program_order_energy(search.problem)
    rows: list[AblationRow] = []
    if compare:
        with progress("comparing") as update:
            rows = compare_steps(
                search, options.tile, compared_orders(), lambda name: update(f"comparing: {name}", None)
            )
    if output is not None:
        plan.save(output)
    if report is not None:
        from pebbler.show.report import report as write_report

        with progress("gathering what the page shows"):
            write_report(plan, report, references=marked_orders())
    if plot is not None:
        from pebbler.show.plots import draw_steps

        steps = [(row.name, row.energy) for row in rows[:-1]]
        draw_steps(plan, steps or [("program order", base), ("pebbler", plan.energy)], plot)
    (_print_json if json else _print_tables)(plan, base, rows, seconds)
    for file in (output, report, plot):
        if file is not None:
            tell(f"wrote {file}")


def _show_least_capacity(graph: str, options: SolveOptions, json: bool) -> None:
    from pebbler.cli.output import emit_json, number, progress, say
    from pebbler.solver import find_least_capacity
    from pebbler.workloads import load

    loaded = load(graph)
    with progress("looking for the least fast memory"):
        least = find_least_capacity(loaded, options.machine, steady=options.steady, time_limit=options.time_limit)
    if json:
        emit_json(least)
        return
    proven = "" if least.least == least.bound else f"; less than {number(least.bound)} is proven impossible"
    say(f"least fast memory that works: {number(least.least)} {loaded.unit}{proven}")
    say(least.reason)


def _search(graph: str, options: SolveOptions, json: bool) -> tuple[Search, Plan]:
    """Return the finished search and its plan, having shown how it goes."""
    from pebbler.cli.output import emit_json, energy, progress
    from pebbler.game.machine import energy_unit
    from pebbler.solver import finish, solve_search
    from pebbler.solver.problem import Impossible

    with progress(f"solving {graph}") as update:

        def show(search: Search) -> None:
            unit = energy_unit(search.problem.graph.unit)
            best = "no plan yet" if search.best is None else f"best {energy(search.energy, unit)}"
            update(f"{best}, bound {energy(search.bound, unit)}, gap {_percent(search.gap)}", search.fraction)

        try:
            search = solve_search(graph, **asdict(options), report=show)
            return search, finish(search)
        except Impossible as error:
            if json:
                emit_json({"status": "impossible", "error": str(error)})
            raise


def _print_json(plan: Plan, base: float | None, rows: list[AblationRow], seconds: float) -> None:
    from pebbler.cli.output import emit_json

    figures = {
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
    emit_json(figures | ({"compare": rows} if rows else {}))


def _print_tables(plan: Plan, base: float | None, rows: list[AblationRow], seconds: float) -> None:
    from pebbler.cli.output import energy, number, table

    unit = plan.energy_unit
    if rows:
        cells = [[row.name, energy(row.energy, unit), _share(row.energy, base), row.note] for row in rows]
        table("What each step brings", ["schedule", "energy", "of program order", "note"], cells)
    table(
        f"{(plan.source or plan.graph).name} on {plan.machine.name}: {plan.status}",
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


def _share(amount: float | None, base: float | None) -> str:
    return "-" if amount is None or not base else f"{amount / base:.1%}"


def _percent(fraction: float | None) -> str:
    return "-" if fraction is None or fraction == float("inf") else f"{fraction:.2%}"
