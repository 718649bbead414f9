"""`pebbler sweep`: plans for many combinations of settings, in one resumable command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pebbler.cli.options import Json, complete_machine, complete_workload, grouped

if TYPE_CHECKING:
    from pebbler.sweeps.result_folder import Row
    from pebbler.sweeps.sweep import SweepProgress, SweepRunner
    from pebbler.sweeps.swept_run import SweptRun

__all__ = ["sweep"]

_SHOWN = 30  # rows of a table; the files have all of them
_TOLD = 30.0  # seconds between lines about progress where there is no terminal


@dataclass(frozen=True)
class AxisOptions:
    """The settings of a sweep without a file. Commas separate list items."""

    machine: Annotated[
        list[str] | None,
        typer.Option(
            help="A built-in machine or a TOML file; repeatable.",
            show_default=False,
            autocompletion=complete_machine,
        ),
    ] = None
    capacity: Annotated[
        list[str] | None,
        typer.Option(help="LEVEL=1024..65536x2, LEVEL=64KiB,25%; repeatable.", show_default=False),
    ] = None
    budget: Annotated[
        str | None, typer.Option(help="Budgets of PyTorch steps: 4MiB..16MiBx2, 70%.", show_default=False)
    ] = None
    device: Annotated[
        str | None,
        typer.Option(help="Device whose prices the ops of PyTorch steps get: h200, a100, cpu.", show_default=False),
    ] = None
    objective: Annotated[
        str | None, typer.Option(help="Objectives of PyTorch steps: time,energy.", show_default=False)
    ] = None
    tile: Annotated[str | None, typer.Option(help="Tilings: auto,none.", show_default=False)] = None
    time_limit: Annotated[str | None, typer.Option(help="Seconds per run; 30 by default.", show_default=False)] = None
    quick: Annotated[
        bool, typer.Option("--quick", help="A small, fixed amount of work per run: the same plans on every machine.")
    ] = False
    seed: Annotated[str | None, typer.Option(help="Seeds, such as 0,1,2.", show_default=False)] = None

    def axes(self) -> dict[str, Any]:
        """Return the axes of a spec that were given."""
        from pebbler.errors import InputError, quoted
        from pebbler.sweeps.value_ranges import whole_numbers_of

        capacity: dict[str, str] = {}
        for text in self.capacity or ():
            level, equals, amounts = text.partition("=")
            if not equals or level in capacity:
                raise InputError(f"--capacity {quoted(text)}: expected LEVEL=AMOUNTS, each level once")
            capacity[level] = amounts
        limits = self.time_limit.split(",") if self.time_limit else None
        try:
            seconds = None if limits is None else [float(text) for text in limits]
        except ValueError:
            raise InputError(f"--time-limit: expected seconds such as 5,60, got {quoted(self.time_limit)}") from None
        given = {
            "machines": self.machine, "capacity": capacity or None, "budget": self.budget, "device": self.device,
            "objective": self.objective.split(",") if self.objective else None,
            "tile": self.tile.split(",") if self.tile else None, "time_limit": seconds, "quick": self.quick or None,
            "seed": None if self.seed is None else whole_numbers_of(self.seed, "--seed"),
        }  # fmt: skip
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class EngineOptions:
    """The engine of the runs, and the handling of faults."""

    engine: Annotated[str, typer.Option(help="local: processes here; dask: a Dask cluster.")] = "local"
    scheduler: Annotated[
        str | None,
        typer.Option(help="Address of a Dask scheduler; none: a cluster on this machine.", show_default=False),
    ] = None
    workers: Annotated[
        int | None, typer.Option(help="Runs at a time; one per core by default.", show_default=False)
    ] = None
    retries: Annotated[int, typer.Option(help="Retries of a run whose process died or hung.")] = 2
    kill_after: Annotated[
        float | None,
        typer.Option(
            help="Seconds after which a run counts as hung; default: 3 times its time limit plus 300.",
            show_default=False,
        ),
    ] = None
    memory: Annotated[
        str | None, typer.Option(help="Memory limit of one run, such as 4GiB; none by default.", show_default=False)
    ] = None
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Repeat runs that are recorded as failed.")] = (
        False
    )

    def arguments(self) -> dict[str, Any]:
        """Return them as a runner takes them."""
        from pebbler.errors import InputError
        from pebbler.jobs.engine import ENGINES
        from pebbler.jobs.job_runner import Faults
        from pebbler.sweeps.value_ranges import amounts_of

        if self.engine not in ENGINES:
            raise InputError(f"--engine must be {' or '.join(ENGINES)}, got {self.engine}")
        if self.workers is not None and self.workers < 1:
            raise InputError(f"workers must be at least 1, got {self.workers}")
        if self.scheduler is not None and self.engine != "dask":
            raise InputError("a scheduler's address is for the engine dask")
        if self.kill_after is not None and not self.kill_after > 0:
            raise InputError(f"--kill-after must be a number of seconds above 0, got {self.kill_after}")
        memory = None if self.memory is None else amounts_of(self.memory, "--memory")
        if memory is not None and (len(memory) != 1 or memory[0].kind == "share"):
            raise InputError(f"--memory: expected bytes such as 4GiB, got {self.memory}")
        faults = Faults(self.retries, None if memory is None else int(memory[0].value))
        return {"engine": self.engine, "scheduler": self.scheduler, "workers": self.workers, "faults": faults}


@grouped
def sweep(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="SPEC.toml|GRAPH...",
            help="A sweep's spec, or graphs: files, workloads such as mlp:n=10|20, PyTorch steps.",
            show_default=False,
            autocompletion=complete_workload,
        ),
    ],
    axes: AxisOptions,
    engine: EngineOptions,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the results.")] = Path("sweep"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the runs and which of them are done; run nothing.")
    ] = False,
    reports: Annotated[
        int, typer.Option(help="Write pages of at most this many plans, the cheapest of each curve first.")
    ] = 20,
    allow_code: Annotated[
        bool, typer.Option("--allow-code", help="Let SPEC.toml name PyTorch steps: their Python code is run.")
    ] = False,
    json: Json = False,
) -> None:
    """Plan every combination of graphs, machines, capacities and options, and keep each run as it is done.

    A second start with the same folder does only what is missing; so does one on another machine, or beside the first. The
    folder then holds table.csv, table.json, the plans, and index.html with the curves. Exit status 0: all runs are done; 1: some
    failed, and the table says why; 2: wrong input; 130: Ctrl-C, and the runs that were done are kept.

    Example: pebbler sweep mlp:n=20,hidden=1000 --machine notes-explicit --capacity L1=1024..65536x2 -o sweep
    """
    from pebbler.cli.interruption import hold
    from pebbler.cli.output import progress, tell
    from pebbler.errors import InputError
    from pebbler.sweeps.curves_page import write_page
    from pebbler.sweeps.result_folder import ResultFolder
    from pebbler.sweeps.sweep import SweepRunner
    from pebbler.sweeps.sweep import sweep as sweeper
    from pebbler.sweeps.sweep_row import is_sweep_row
    from pebbler.sweeps.sweep_table import write_tables

    if len(what) > 1 and any(name.endswith(".toml") for name in what):
        raise InputError("a spec file stands alone: graphs are written in it")
    if reports < 0:
        raise InputError(f"--reports must be 0 or more, got {reports}")
    arguments = engine.arguments()
    runs = sweeper.runs(
        what[0] if len(what) == 1 else None,
        allow_code=allow_code,
        **({} if len(what) == 1 else {"graphs": what}),
        **axes.axes(),
    )
    folder = ResultFolder(output, is_row=is_sweep_row)
    if dry_run:
        _list(runs, folder, json)
        return
    runner = SweepRunner(runs, folder, retry_failed=engine.retry_failed, kill_after=engine.kill_after)

    written: list[Path] = []

    def keep() -> bool:
        _show(runner, json, write_tables(folder))
        done = f"{runner.progress.finished:,} of {len(runs):,} runs are done and kept"
        tell(f"interrupted: {done}; the same command continues from there")
        return True

    with hold(keep, runner.stop), progress("sweeping") as update:
        runner.run(**arguments, report=_Lines(update))
        written += write_tables(folder)
        if not runner.stopped:
            written.append(write_page(folder, reports, runner.stopping, lambda text: update(text, None)))
    failed = _show(runner, json, written)
    raise typer.Exit(1 if failed else 0)


class _Lines:
    """Says how far a sweep has come: on the terminal's bar, or in a line now and then where there is none."""

    def __init__(self, update: Any) -> None:
        from time import monotonic

        self._update, self._clock, self._told = update, monotonic, monotonic()

    def __call__(self, progress: SweepProgress) -> None:
        import sys

        left = progress.seconds_left
        failed = f", {progress.failed:,} failed" if progress.failed else ""
        elsewhere = f", {progress.elsewhere:,} in another sweep" if progress.elsewhere else ""
        text = f"{progress.finished:,} of {progress.runs:,} runs, {progress.running:,} on their way{elsewhere}{failed}"
        text += "" if left is None else f", about {_duration(left)} left"
        self._update(text, progress.finished / progress.runs)
        if not sys.stderr.isatty() and self._clock() - self._told >= _TOLD:
            self._told = self._clock()
            sys.stderr.write(f"{text}\n")


def _duration(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )


def _list(runs: Sequence[SweptRun], folder: Any, json: bool) -> None:
    from pebbler.cli.output import emit_json, say, table

    done = folder.done() if folder.path.is_dir() else set()
    if json:
        emit_json({"runs": [{"key": run.key, **run.columns, "done": run.key in done} for run in runs]})
        return
    names = [
        name
        for name in ("graph", "machine", "capacities", "objective", "tile", "seed", "time_limit")
        if _varies(runs, name)
    ]
    rows = [
        [*(_cell(run.columns.get(name)) for name in names), "yes" if run.key in done else "no"] for run in runs[:_SHOWN]
    ]
    table("", [*(name.replace("_", " ") for name in names), "done"], rows)
    more = f"; the first {_SHOWN} are shown" if len(runs) > _SHOWN else ""
    say(f"{len(runs):,} run{'s' if len(runs) > 1 else ''}, {sum(run.key in done for run in runs):,} done{more}")


def _varies(runs: Sequence[SweptRun], name: str) -> bool:
    return name in ("graph", "machine") or len({str(run.columns.get(name)) for run in runs}) > 1


def _cell(value: Any) -> Any:
    return "-" if value is None else value


def _show(runner: SweepRunner, json: bool, written: Sequence[Path]) -> int:
    """Print the rows of this sweep, name the files, and return how many runs failed."""
    from pebbler.cli.output import emit_json, tell
    from pebbler.sweeps.sweep_table import in_order

    rows = in_order(row for run in runner.runs if (row := runner.folder.row(run.key)) is not None)
    if json:
        emit_json({"folder": str(runner.folder.path), "runs": len(runner.runs), "rows": rows})
    else:
        _print(rows)
    if written:
        tell(f"wrote {', '.join(map(str, written))}")
    return sum(row["status"] == "failed" for row in rows)


def _print(rows: Sequence[Row]) -> None:
    from pebbler.cli.output import energy, say, table

    machines = {row["machine"] for row in rows}
    several = len(machines) != 1  # of one machine the name is said once: the table has little room
    cells = []
    for row in rows[:_SHOWN]:
        gap = row.get("gap")
        cells.append([
            row["graph"], *([row["machine"]] if several else []), _cell(row.get("capacity")),
            energy(row.get("energy"), row.get("energy_unit") or ""), "-" if gap is None else f"{gap:.2%}", row["status"],
        ])  # fmt: skip
    columns = ["graph", *(["machine"] if several else []), "capacity", "energy", "gap", "status"]
    table("" if several else f"on {machines.pop()}", columns, cells)
    if len(rows) > _SHOWN:
        say(f"{len(rows) - _SHOWN:,} more rows are in the table")
    for row in [row for row in rows if row["status"] == "failed"][:_SHOWN]:
        say(f"failed: {row['graph']} on {row['machine']}: {row['error']}")
