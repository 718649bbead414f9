"""The page of a sweep: curves, the Pareto front of PyTorch steps, a table of all runs, and separate pages for chosen plans."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from pebbler.errors import InputError
from pebbler.files import write_bytes, write_text
from pebbler.game.plan import Plan
from pebbler.jobs.engine import open_engine
from pebbler.jobs.job_runner import Faults, Job, run_jobs
from pebbler.show.report import report
from pebbler.show.report.report_page import filled_page, json_element
from pebbler.sweeps.result_folder import ResultFolder, Row
from pebbler.sweeps.sweep_table import SweepTable, load_table
from pebbler.version import VERSION

__all__ = ["PAGE", "chosen_for_reports", "curves_page", "write_page"]

PAGE = "index.html"
REPORTS = "reports"
_TASK = "pebbler.sweeps.curves_page:report_task"
_LIBRARIES = ("d3-7.9.2", "plot-0.6.17")


def write_page(
    folder: ResultFolder,
    reports: int = 0,
    stop: threading.Event | None = None,
    tell: Callable[[str], None] | None = None,
) -> Path:
    """Write the page of a folder's runs and the pages of at most `reports` plans, on all cores; return the first."""
    table = load_table(folder.path)
    missing = [row for row in chosen_for_reports(table.rows, reports) if not _report(folder, row).exists()]
    engine = open_engine("local")
    try:
        for count, outcome in enumerate(run_jobs(_jobs(folder, missing), engine, Faults(retries=0), stop), start=1):
            if outcome.body is not None:  # a page that cannot be made is no reason to be without the others
                write_bytes(folder.path / REPORTS / f"{outcome.key}.html", outcome.body)
            if tell is not None:
                tell(f"pages of plans: {count} of {len(missing)}")
    finally:
        engine.end()
    write_text(folder.path / PAGE, curves_page(table, folder, _title(table, folder)))
    return folder.path / PAGE


def _title(table: SweepTable, folder: ResultFolder) -> str:
    """Return the title: the graph and machine if there is only one of each, otherwise the folder's name."""
    graphs, machines = ({str(row.get(name)) for row in table.rows} for name in ("graph", "machine"))
    if len(graphs) == len(machines) == 1:
        return f"Sweep: {graphs.pop()} on {machines.pop()}"
    return f"Sweep: {folder.path.absolute().name}"


class ReportTask(msgspec.Struct, frozen=True):
    """A plan file whose page is wanted, and what it is called there."""

    plan: bytes
    name: str


def report_task(payload: bytes) -> bytes:
    """Return the page of a plan."""
    task = msgspec.msgpack.decode(payload, type=ReportTask)
    with tempfile.TemporaryDirectory() as place:
        plan, page = Path(place, "plan.json"), Path(place, "page.html")
        plan.write_bytes(task.plan)
        report(Plan.load(plan), page, names=[task.name], title=task.name)
        return page.read_bytes()


def _jobs(folder: ResultFolder, rows: Iterable[Row]) -> Iterator[Job]:
    for row in rows:
        try:
            plan = folder.plan(row["key"])
        except InputError:
            continue  # it is gone, or no ordinary file
        name = f"{row['graph']} on {row['machine']}, {row.get('capacities') or ''}"
        request = msgspec.msgpack.encode(ReportTask(plan, name))
        yield Job(row["key"], _TASK, partial(bytes, request))


def chosen_for_reports(rows: Sequence[Row], most: int) -> list[Row]:
    """Return the runs whose plans get pages: in turn the cheapest, second cheapest, ... of every graph on every machine.

    >>> rows = [{"graph": g, "machine": "m", "energy": e} for g in "ab" for e in (3, 1, 2)]
    >>> [(row["graph"], row["energy"]) for row in chosen_for_reports(rows, 3)]
    [('a', 1), ('b', 1), ('a', 2)]
    """
    lines: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.get("energy") is not None:
            lines.setdefault((row["graph"], row["machine"]), []).append(row)
    ranked = [
        (rank, place, row)
        for place, line in enumerate(lines.values())
        for rank, row in enumerate(sorted(line, key=lambda row: float(row["energy"])))
    ]
    return [row for _, _, row in sorted(ranked, key=lambda item: item[:2])][:most]


def curves_page(table: SweepTable, folder: ResultFolder, title: str) -> str:
    """Return the page as HTML; names from graphs and machines go in as data only."""
    rows = [
        row | {"plan": _link(folder, folder.plan_path(row["key"])), "report": _link(folder, _report(folder, row))}
        for row in table.filled()
    ]
    return filled_page(
        "curves.html",
        title=title,
        styles=("report.css",),
        libraries=_LIBRARIES,
        scripts=("dom", "download", "charts", "curves"),
        data=json_element(msgspec.json.encode({"columns": table.columns, "rows": rows})),
        version=VERSION,
    )


def _report(folder: ResultFolder, row: Row) -> Path:
    return folder.path / REPORTS / f"{row['key']}.html"


def _link(folder: ResultFolder, path: Path) -> str | None:
    return path.relative_to(folder.path).as_posix() if path.exists() else None
