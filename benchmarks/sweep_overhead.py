"""What a run of a sweep takes apart from its own work, part by part, and what follows for many runs on many workers.

    python -m benchmarks.sweep_overhead [--jobs 300]

Nothing is solved here: the jobs give back what they are given. CPU seconds are those of this process alone (the driver), with its
threads; the limit of a scheduler is how many jobs it passes on in a second.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec

from pebbler.jobs.engine import Engine, open_engine
from pebbler.jobs.job_runner import Job, run_jobs
from pebbler.sweeps.result_folder import ResultFolder
from pebbler.sweeps.sweep import sweep

RUNS, WORKERS = 100_000, 100  # what is estimated
LINE = "{:<58} {:>9.2f} ms wall {:>9.2f} ms CPU of the driver"


def timed(count: int, work: Callable[[], object]) -> tuple[float, float]:
    """Return wall and CPU milliseconds per piece of work."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return 1e3 * (time.perf_counter() - wall) / count, 1e3 * (time.process_time() - cpu) / count


def through(engine: Engine, count: int, size: int) -> tuple[float, float]:
    """Return what a job costs that gives back `size` bytes, with all children started before."""
    payload = bytes(size)

    def jobs(number: int) -> list[Job]:
        return [Job(str(i), "pebbler.jobs.child:echo", lambda: payload) for i in range(number)]

    list(run_jobs(iter(jobs(8 * engine.workers())), engine))
    return timed(count, lambda: list(run_jobs(iter(jobs(count)), engine)))


def main() -> None:
    """Print the table and the estimate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=300)
    jobs = parser.parse_args().jobs
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {jobs} jobs each", flush=True)
    runs = sweep.runs("mlp:n=20,hidden=1000", machines="notes-explicit", capacity={"L1": f"1000..{999 + jobs}"})
    parts = {"a run's key, and its request": timed(jobs, lambda: [(run.key, run.payload()) for run in runs])}
    size = len(runs[0].payload())
    with tempfile.TemporaryDirectory() as place:
        (row,) = sweep("mlp:n=20,hidden=1000", place, machines="notes-explicit", quick=True, workers=1).rows
        folder = ResultFolder(place)
        plan = folder.plan_path(row["key"]).read_bytes()
        parts["a row and a plan written, on the disk"] = timed(
            jobs, lambda: [folder.put(run.key, row, plan) for run in runs]
        )
        parts["a result read back and checked at the next start"] = timed(jobs, folder.done)
        about = f"request {size:,} bytes, row {folder.row_path(row['key']).stat().st_size:,}, plan {len(plan):,}"
    engines = ["local"] + (["dask"] if find_spec("distributed") else [])
    for name in engines:
        engine = open_engine(name, workers=2)
        try:
            parts[f"a job through {name}, 2 workers, {size:,} bytes"] = through(engine, jobs, size)
            parts[f"a job through {name}, 2 workers, 1 MiB"] = through(engine, max(20, jobs // 10), 2**20)
        finally:
            engine.end()
    for name, cost in parts.items():
        print(LINE.format(name, *cost), flush=True)
    print(f"mlp:n=20,hidden=1000 on notes-explicit: {about}")
    _estimate(parts, engines[-1], size, len(plan))


def _estimate(parts: dict[str, tuple[float, float]], engine: str, size: int, plan: int) -> None:
    """Print what `RUNS` runs on `WORKERS` workers take, from the driver's CPU time alone."""
    written = parts["a row and a plan written, on the disk"][0]
    each = sum(
        cost[1]
        for name, cost in parts.items()
        if name.startswith(("a run's key", f"a job through {engine}, 2 workers, {size:,}"))
    )
    driver = (each + written) / 1e3
    print(
        f"{RUNS:,} runs: {RUNS * driver / 60:.0f} min of the driver in all, {RUNS * plan / 2**30:.1f} GiB of plans. "
        f"It hands over {1 / driver:.0f} runs/s, so {WORKERS} workers are busy as long as a run takes {WORKERS * driver:.1f} s "
        f"or more; with runs of 30 s the sweep takes {RUNS * 30 / WORKERS / 3600:.1f} h, "
        f"and the driver works {100 * WORKERS * driver / 30:.0f} % of the time."
    )


if __name__ == "__main__":
    main()
