"""`pebbler solve`: the best plan for a graph on a machine."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pebbler.cli.options import GraphName, Json, PlanOutput, complete_machine, grouped

if TYPE_CHECKING:
    from pebbler.game.plan import Plan
    from pebbler.solver.ablation import AblationRow
    from pebbler.solver.problem import Search

__all__ = ["solve"]

_SOLVING_SHARE = 0.5  # of the time, when the rest is for what the plan is compared with
_LARGE_GAP = 0.5
_LARGE_GAP_WORDS = " (so large a gap leaves open how good the plan is; more time may narrow it)"
_PAGE, _PLOT = 3.0, 1.0  # seconds that are kept for a page and for a plot, of half of the time at the most


@dataclass(frozen=True)
class SolveOptions:
    """The problem and the time limit: arguments of `pebbler.solve` with the same names."""

    machine: Annotated[
        str | None,
        typer.Option(
            help="A built-in machine or a TOML file; notes, or red-blue for pebbles.",
            show_default=False,
            autocompletion=complete_machine,
        ),
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
    resume: Annotated[
        Path | None, typer.Option(help="A plan of the same problem to continue from (JSON).", show_default=False)
    ] = None


@grouped
def solve(
    graph: GraphName,
    options: SolveOptions,
    output: PlanOutput = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Show what each kind of optimisation saves; takes half of the time.")
    ] = False,
    least_capacity: Annotated[
        bool,
        typer.Option("--least-capacity", help="Find the least fast memory for which there is a plan, and that plan."),
    ] = False,
    report: Annotated[Path | None, typer.Option(help="Write a page about the plan (HTML).", show_default=False)] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw the energies, with --compare step by step (.png, .svg, .pdf).", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Find the cheapest plan of a graph on a machine, and say how good it is.

    Exit status 0: a plan was found; 1: there is none, and the message says why; 2: wrong input; 130: Ctrl-C, and the best
    plan so far is printed and saved. `-o -` writes the plan to stdout.

    Example: pebbler solve mlp:n=20,hidden=1000 --machine notes --time-limit 60 -o plan.json
    """
    from pebbler.cli.interruption import hold
    from pebbler.cli.written_files import WrittenFiles, require_apart, require_json, require_page, require_plot
    from pebbler.errors import InputError

    require_apart(graph, output, report, plot)
    require_json(output, json)
    require_page(report)
    require_plot(plot)
    if least_capacity:
        if compare or plot is not None or options.resume is not None:
            raise InputError("--least-capacity goes without --compare, --plot and --resume")
        _solve_least_capacity(graph, options, output, report, json)
        return
    kept = min(0.5 * max(0.0, options.time_limit), _PAGE * (report is not None) + _PLOT * (plot is not None))
    work = _Solving(graph, options, compare, options.time_limit - kept)
    files = WrittenFiles()

    def keep() -> bool:
        if work.search is None or work.search.best is None:
            return False
        answer = work.answer()
        files.write(output, answer.plan.save)
        answer.show(json, output)
        return files.name_kept("the best plan so far", report, plot)

    with hold(keep, work.interrupt):
        work.run(json)
        answer = work.answer()
        if not work.interrupted:
            files.write(report, lambda path: _write_page(answer.plan, path))
            files.write(plot, answer.draw)
    files.write(output, answer.plan.save)
    answer.show(json, output)
    files.name()


def _solve_least_capacity(
    graph: str, options: SolveOptions, output: Path | None, report: Path | None, json: bool
) -> None:
    """Find the least fast memory with a plan; print what is found and what is proven, and write the plan."""
    from pebbler.cli.output import emit_json, energy, progress, say, tell
    from pebbler.cli.written_files import WrittenFiles, goes_to_stdout
    from pebbler.game.amounts import memory_text
    from pebbler.game.machine import machine as find_machine
    from pebbler.game.plan import SCOPES
    from pebbler.solver import find_least_capacity
    from pebbler.solver.problem import Problem
    from pebbler.workloads import load

    loaded, files = load(graph), WrittenFiles()
    with progress("looking for the least fast memory"):
        found = find_least_capacity(
            loaded,
            options.machine,
            steady=options.steady,
            tile=options.tile,  # type: ignore[arg-type]
            time_limit=options.time_limit,
        )
        files.write(report, lambda path: _write_page(found.plan, path))
    files.write(output, found.plan.save)
    plan, name = found.plan, options.machine or Problem.of(loaded).machine.name
    asked = find_machine(name)
    least, bound = (asked.amount_of(units, loaded.unit) for units in (found.least, found.bound))
    if json:
        figures = {"least": least, "bound": bound, "unit": asked.unit, "reason": found.reason, "covers": found.covers}
        of_plan = {"energy": plan.energy, "status": plan.status, "moves": len(plan.moves), "graph": plan.graph.name}
        emit_json(figures | of_plan)
    else:
        put = tell if goes_to_stdout(output) else say
        put(f"found: a plan with {memory_text(least, asked.unit)} of {plan.machine.names[0]}, of {plan.graph.name}")
        put(
            f"proven for {SCOPES[found.covers]}: none works with less than {memory_text(bound, asked.unit)}; {found.reason}"
            + ("" if asked.unit == loaded.unit else f" (a unit is a {loaded.unit})")
        )
        put(f"the plan costs {energy(plan.energy, plan.energy_unit)} in {len(plan.moves):,} moves ({plan.status})")
        if least > bound:
            put("whether less works is open; more time may find such a plan (--time-limit)")
    files.name()


class _Solving:
    """A search and what is compared with it, as far as they have come."""

    def __init__(self, graph: str, options: SolveOptions, compare: bool, seconds: float) -> None:
        self.graph, self.options, self.compare, self.seconds = graph, options, compare, seconds
        self.search: Search | None = None
        self.rows: list[AblationRow] = []
        self.interrupted = False

    def interrupt(self) -> None:
        """End the search with the best plan so far."""
        self.interrupted = True
        if self.search is not None:
            self.search.interrupt()

    def run(self, json: bool) -> None:
        """Search, show how it goes, and compare."""
        from pebbler.cli.output import emit_json, energy, progress
        from pebbler.errors import blamed_on
        from pebbler.game.machine import energy_unit
        from pebbler.solver import finish, new_search
        from pebbler.solver.methods import run
        from pebbler.solver.problem import Impossible
        from pebbler.solver.program_order import program_order_energy

        with progress(f"solving {self.graph}") as update:

            def show(search: Search) -> None:
                unit = energy_unit(search.problem.graph.unit, search.problem.machine)
                best = "no plan yet" if search.best is None else f"best {energy(search.energy, unit)}"
                update(f"{best}, bound {energy(search.bound, unit)}, gap {_percent(search.gap)}", search.fraction)

            arguments = asdict(self.options)
            arguments["time_limit"] = self.seconds * (_SOLVING_SHARE if self.compare else 1.0)
            try:
                self.search = new_search(self.graph, **arguments, report=show)
                with blamed_on(f"{self.graph} on {self.options.machine or self.search.problem.machine.name}"):
                    run(self.search)
                    finish(self.search)
            except Impossible as error:
                if json and not self.interrupted:
                    emit_json({"status": "impossible", "error": str(error)})
                raise
        if not self.interrupted:
            program_order_energy(self.search)
        if self.compare and not self.interrupted:
            self._compare(self.search)

    def _compare(self, search: Search) -> None:
        from pebbler.cli.output import progress
        from pebbler.notes.reference_orders import compared_orders
        from pebbler.solver.ablation import compare

        left = max(0.0, self.seconds - search.elapsed)
        with progress("comparing") as update:
            self.rows = compare(search, compared_orders(), lambda name: update(f"comparing: {name}", None), left)

    def answer(self) -> _Answer:
        """Return the best plan so far and what is known about it."""
        from pebbler.solver import finish

        assert self.search is not None
        return _Answer(finish(self.search), self.search.program_order, self.rows, self.search.elapsed)


@dataclass(frozen=True)
class _Answer:
    """A plan and what it is compared with."""

    plan: Plan
    base: float | None  # program order, where it fits
    rows: list[AblationRow]
    seconds: float

    def draw(self, path: Path) -> None:
        """Draw the energies: of every row, or of program order and the plan."""
        from pebbler.show.plots import draw_steps

        steps = [(row.name, row.energy) for row in self.rows[:-1]]
        draw_steps(self.plan, steps or [("program order", self.base), ("pebbler", self.plan.energy)], path)

    def show(self, json: bool, output: Path | None) -> None:
        """Print the answer; on stderr if the plan itself goes to stdout."""
        from pebbler.cli.written_files import goes_to_stdout

        if json:
            self._print_json()
        else:
            self._print_tables(goes_to_stdout(output))

    def _print_json(self) -> None:
        from pebbler.cli.output import emit_json

        plan = self.plan
        figures = {
            "energy": plan.energy,
            "bound": plan.bound,
            "gap": plan.gap,
            "status": plan.status,
            "program_order_energy": self.base,
            "seconds": round(self.seconds, 3),
            "moves": len(plan.moves),
            "proof": plan.proof,
            "covers": plan.covers,
            "graph": plan.graph.name,
        }
        cut_off = {"cut_off": True} if plan.meta.get("cut_off") else {}
        emit_json(figures | cut_off | ({"compare": self.rows} if self.rows else {}))

    def _print_tables(self, on_stderr: bool) -> None:
        from pebbler.cli.output import energy, number, table
        from pebbler.game.plan import SCOPES
        from pebbler.show.report.saving_steps import form_words
        from pebbler.solver.program_order import program_order_words

        plan, base, unit = self.plan, self.base, self.plan.energy_unit
        if self.rows:
            cells = [[row.name, energy(row.energy, unit), _share(row.energy, base), row.note] for row in self.rows]
            table("What each step saves", ["schedule", "energy", "of program order", "note"], cells, stderr=on_stderr)
        program_order = energy(base, unit) if base is not None else "does not fit"
        words = program_order_words(plan.machine)
        program_order += f" ({words})" if words else ""
        table(
            f"{(plan.source or plan.graph).name} on {plan.machine.name}: {plan.status}",
            ["figure", "value"],
            [
                ["energy", energy(plan.energy, unit)],
                ["lower bound", energy(plan.bound, unit)],
                ["gap", _percent(plan.gap) + (_LARGE_GAP_WORDS if (plan.gap or 0.0) > _LARGE_GAP else "")],
                ["program order", program_order],
                ["cheaper by", f"{base / plan.energy:.2f}x" if base and plan.energy else "-"],
                ["moves", number(len(plan.moves))],
                ["graph", form_words(plan.graph, plan.source)],
                ["bound from", plan.proof],
                ["holds for", "-" if plan.covers is None else SCOPES[plan.covers]],
                ["seconds", f"{self.seconds:.1f}"],
            ],
            stderr=on_stderr,
        )


def _write_page(plan: Plan, path: Path) -> None:
    from pebbler.cli.output import progress
    from pebbler.notes.reference_orders import marked_orders
    from pebbler.show.report import report

    with progress("gathering what the page shows"):
        report(plan, path, references=marked_orders())


def _share(amount: float | None, base: float | None) -> str:
    return "-" if amount is None or not base else f"{amount / base:.1%}"


def _percent(fraction: float | None) -> str:
    return "-" if fraction is None or fraction == float("inf") else f"{fraction:.2%}"
