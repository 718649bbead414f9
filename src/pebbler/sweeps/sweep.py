"""`pb.sweep(...)`: many plans in one resumable call, with every run stored as soon as it is done."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from pebbler.errors import blamed_on
from pebbler.files import require_writable
from pebbler.jobs.engine import EngineChoice, open_engine
from pebbler.jobs.job_runner import Faults, Job, JobOutcome, run_jobs
from pebbler.jobs.request import current_versions
from pebbler.sweeps.known_elsewhere import with_best_known
from pebbler.sweeps.result_folder import ResultFolder, Row
from pebbler.sweeps.solve_task import TaskResult
from pebbler.sweeps.sweep_row import is_sweep_row
from pebbler.sweeps.sweep_spec import SweepSpec, is_spec_file, read_spec
from pebbler.sweeps.sweep_table import TABLE, SweepTable, in_order, load_table, write_tables
from pebbler.sweeps.swept_run import SweptRun
from pebbler.sweeps.swept_runs import list_runs

__all__ = ["SweepProgress", "SweepRunner", "Sweeper", "sweep"]

_SLACK, _COMPILING = 3.0, 300.0  # a run hangs after so many times its limit, and what kernels may take to compile


@dataclass
class SweepProgress:
    """The progress of a sweep."""

    runs: int
    kept: int = 0  # done before it began
    done: int = 0
    failed: int = 0
    running: int = 0
    elsewhere: int = 0  # being done by another sweep in the same folder
    began: float = field(default_factory=time.monotonic)

    @property
    def finished(self) -> int:
        """Runs that need no more work."""
        return self.kept + self.done + self.failed

    @property
    def seconds_left(self) -> float | None:
        """The estimated remaining seconds; None before the first run is done."""
        here = self.done + self.failed
        return (time.monotonic() - self.began) / here * (self.runs - self.finished) if here else None


class SweepRunner:
    """A running sweep: another thread may stop it, and finished runs are in the folder."""

    def __init__(
        self, runs: list[SweptRun], folder: ResultFolder, *, retry_failed: bool = False, kill_after: float | None = None
    ) -> None:
        self.runs, self.folder, self.retry_failed, self.kill_after = runs, folder, retry_failed, kill_after
        self.progress = SweepProgress(len(runs))
        self.stopping = threading.Event()
        self._by_key = {run.key: run for run in runs}

    def stop(self) -> None:
        """End the sweep soon; runs that are not done will be done by the next one."""
        self.stopping.set()

    @property
    def stopped(self) -> bool:
        """Whether it was told to stop."""
        return self.stopping.is_set()

    def run(
        self,
        engine: EngineChoice = "local",
        *,
        workers: int | None = None,
        scheduler: str | None = None,
        faults: Faults | None = None,
        report: Callable[[SweepProgress], None] | None = None,
    ) -> None:
        """Do what is missing."""
        require_writable(self.folder.path / TABLE)
        self.folder.remove_left_behind()
        missing = deque(self._missing())
        self.progress.kept = len(self.runs) - len(missing)
        if not missing:
            return
        here = open_engine(engine, workers=workers, scheduler=scheduler)
        try:
            jobs = self._jobs(missing, report or (lambda _: None))
            for outcome in run_jobs(jobs, here, faults, self.stopping):
                self._keep(outcome)
                if report is not None:
                    report(self.progress)
        finally:
            here.end()
            self.folder.close()

    def _missing(self) -> list[SweptRun]:
        done = self.folder.done()
        return [run for run in self.runs if run.key not in done or (self.retry_failed and self._failed(run.key))]

    def _failed(self, key: str) -> bool:
        row = self.folder.row(key)
        return row is not None and row.get("status") == "failed"

    def _jobs(self, missing: deque[SweptRun], report: Callable[[SweepProgress], None]) -> Iterator[Job | None]:
        """Yield what is to be done; None while all that is left is being done by another sweep in the same folder."""
        refused = 0
        while missing:
            run = missing.popleft()
            if not self.folder.claim(run.key):
                missing.append(run)
                refused += 1
                if refused >= len(missing):
                    refused, self.progress.elsewhere = 0, len(missing)
                    report(self.progress)
                    yield None
                continue
            refused = self.progress.elsewhere = 0
            # Looked at with the claim in hand: whoever had it before may have written the row just now.
            if self.folder.row(run.key) is not None and not (self.retry_failed and self._failed(run.key)):
                self.folder.release(run.key)
                self.progress.kept += 1
                continue
            self.progress.running += 1
            yield Job(run.key, run.function, run.payload, self._limit(run))

    def _limit(self, run: SweptRun) -> float | None:
        if self.kill_after is not None:
            return self.kill_after
        return None if run.seconds is None else _SLACK * run.seconds + _COMPILING

    def _keep(self, outcome: JobOutcome) -> None:
        run = self._by_key[outcome.key]
        if outcome.body is None:
            figures, plan = {"status": "failed", "error": outcome.reason}, None
        else:
            result = msgspec.msgpack.decode(outcome.body, type=TaskResult)
            figures, plan = result.figures, result.plan
        versions = current_versions()
        row: Row = {
            "key": run.key, "run": run.run, **run.columns, **figures, "pebbler": versions["pebbler"],
            "versions": " ".join(f"{name}={version}" for name, version in sorted(versions.items()) if name != "pebbler"),
            "attempts": outcome.attempts, "host": outcome.host,
            "finished": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }  # fmt: skip
        self.folder.put(run.key, row, plan)
        self.folder.release(run.key)
        self.progress.running -= 1
        if row["status"] == "failed":
            self.progress.failed += 1
        else:
            self.progress.done += 1


class Sweeper:
    """The type of `pb.sweep`: a call runs a sweep, `pb.sweep.load` reads results, `pb.sweep.runs` lists the runs."""

    def __call__(
        self,
        spec: str | Path | SweepSpec | None = None,
        folder: str | Path = "sweep",
        *,
        engine: EngineChoice = "local",
        workers: int | None = None,
        scheduler: str | None = None,
        faults: Faults | None = None,
        retry_failed: bool = False,
        kill_after: float | None = None,
        report: Callable[[SweepProgress], None] | None = None,
        allow_code: bool = False,
        **axes: Any,
    ) -> SweepTable:
        """Plan every combination of graphs, machines, capacities and options, and return the table of all rows.

        `spec` is a TOML file, or a graph with the rest given by name (see `SweepSpec`). Every finished run is kept in `folder`; a
        second call does only what is missing there. `engine` is `local` (processes here), `dask`, or any
        `concurrent.futures.Executor`; a function that makes one lets a broken one be replaced. `faults` says how often a run is
        tried again whose process died, and how much memory it may take; one that takes more than `kill_after` seconds has hung.
        A TOML file may name PyTorch steps, which are Python code, only with `allow_code`.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as place:
        ...     found = sweep("chain:length=9", place, capacity={"fast": "3..5"}, time_limit=10, workers=1)
        >>> [(row["capacity"], row["energy"]) for row in found.rows]
        [(3, 153), (4, 129), (5, 124)]
        """
        runs = self.runs(spec, allow_code=allow_code, **axes)
        results = ResultFolder(folder, is_row=is_sweep_row)
        going_on = SweepRunner(runs, results, retry_failed=retry_failed, kill_after=kill_after)
        try:
            going_on.run(engine, workers=workers, scheduler=scheduler, faults=faults, report=report)
        finally:
            write_tables(results)
        rows = in_order(row for run in runs if (row := results.row(run.key)) is not None)
        return SweepTable(with_best_known(rows))

    @staticmethod
    def runs(spec: str | Path | SweepSpec | None = None, *, allow_code: bool = False, **axes: Any) -> list[SweptRun]:
        """Return the runs that a sweep would do, in order.

        >>> [run.columns["capacity"] for run in sweep.runs("chain:length=9", capacity={"fast": "3..5"})]
        [3, 4, 5]
        """
        found, folder = read_spec(spec, axes)
        if not is_spec_file(spec):
            return list_runs(found, folder)
        with blamed_on(str(spec)):
            return list_runs(found, folder, allow_code=allow_code)

    @staticmethod
    def load(folder: str | Path) -> Any:
        """Return everything in a sweep's folder: a data frame of polars or pandas if one is installed, else a list of rows."""
        return load_table(folder).frame()


sweep = Sweeper()
