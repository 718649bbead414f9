"""Whole sweeps on real engines: the same rows everywhere, nothing twice, nothing lost."""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import pebbler as pb
from pebbler.errors import InputError
from pebbler.jobs.engine import EngineLost
from pebbler.jobs.job_runner import Faults
from pebbler.sweeps.result_folder import ResultFolder
from pebbler.sweeps.sweep_table import TIMES, load_table
from worker_processes import children_of, has_ended, wait_for

SMALL = {"graphs": "chain:length=4|6", "capacity": {"fast": "3..5"}, "time_limit": 20}
# Two hundred runs of graphs that are solved in milliseconds, and some that no plan fits.
LARGE = {"graphs": "chain:length=2..21", "capacity": {"fast": "1..10"}, "time_limit": 60}


def without_times(folder: Path) -> list[dict[str, str]]:
    with (folder / "table.csv").open() as file:
        return [{name: value for name, value in row.items() if name not in TIMES} for row in csv.DictReader(file)]


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Return when and as which file every row was written: a run that is done again writes another."""
    found = {path.name: path.stat() for path in (folder / "rows").rglob("*.json")}
    return {name: (about.st_mtime_ns, about.st_ino) for name, about in found.items()}


def require_whole(folder: Path, runs: int) -> None:
    """Fail unless every run has one row and a plan that the referee finds as cheap as the row says."""
    rows = load_table(folder).rows
    assert len(rows) == runs
    for row in rows:
        assert row["status"] in ("optimal", "impossible"), row
        if row["status"] == "optimal":
            plan = pb.Plan.load(folder / "plans" / row["key"][:2] / f"{row['key']}.json")
            assert pb.check(plan).energy == row["energy"]


@pytest.fixture(scope="module")
def swept(tmp_path_factory) -> Path:
    """The folder of a small sweep, for tests that only look at it."""
    folder = tmp_path_factory.mktemp("swept")
    pb.sweep(folder=folder, workers=2, **SMALL)
    return folder


@pytest.fixture
def small(swept, tmp_path) -> Path:
    """The same as a folder of one's own."""
    return Path(shutil.copytree(swept, tmp_path / "small"))


def test_a_second_start_does_nothing_and_a_larger_sweep_only_what_is_new(small):
    before = stamps(small)
    text = (small / "table.csv").read_bytes()
    found = pb.sweep(folder=small, **SMALL)
    assert [row["key"] for row in found.rows] == [row["key"] for row in load_table(small).rows]
    assert (small / "table.csv").read_bytes() == text
    pb.sweep(folder=small, workers=1, **SMALL | {"capacity": {"fast": "3..6"}})
    after = stamps(small)
    assert len(after) == 8
    assert {name: after[name] for name in before} == before
    require_whole(small, 8)


def test_rows_are_what_solve_says(swept):
    found = load_table(swept)
    for row in found.rows:
        levels = pb.machine("red-blue")
        sized = pb.Machine("red-blue", "pebble", (pb.Level("fast", 0, 0, row["capacity"]), levels.level[1]))
        plan = pb.solve(row["graph"], sized, time_limit=20)
        assert (row["energy"], row["bound"], row["status"]) == (plan.energy, plan.bound, plan.status)
    assert found.columns == json.loads((swept / "table.json").read_text())["columns"]


def test_what_cannot_be_planned_is_a_row_too(tmp_path):
    found = pb.sweep("chain:length=5", tmp_path, capacity={"fast": "1..3"}, workers=1)
    assert [row["status"] for row in found.rows] == ["impossible", "optimal", "optimal"]
    assert "needs 2 units at once" in found.rows[0]["error"]
    assert not (tmp_path / "plans" / found.rows[0]["key"][:2] / f"{found.rows[0]['key']}.json").exists()


def test_a_run_that_always_dies_is_failed_and_can_be_tried_again(tmp_path):
    starved = Faults(retries=1, memory=2**20)
    found = pb.sweep("chain:length=4", tmp_path, capacity={"fast": 3}, workers=1, faults=starved)
    (row,) = found.rows
    assert (row["status"], row["attempts"]) == ("failed", 2)
    assert row["error"]
    before = stamps(tmp_path)
    assert pb.sweep("chain:length=4", tmp_path, capacity={"fast": 3}, workers=1).rows == [row]
    assert stamps(tmp_path) == before
    (row,) = pb.sweep("chain:length=4", tmp_path, capacity={"fast": 3}, workers=1, retry_failed=True).rows
    assert (row["status"], row["attempts"]) == ("optimal", 1)


def test_a_run_that_hangs_is_ended_and_the_sweep_ends(tmp_path):
    found = pb.sweep(
        "deep-mlp:n=10,hidden=60,layers=4",
        tmp_path,
        seed=[0, 1],
        time_limit=300,
        kill_after=2,
        faults=Faults(retries=0),
    )
    assert [row["status"] for row in found.rows] == ["failed", "failed"]
    assert "it ran past its limit of 2 s" in found.rows[-1]["error"]


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, pytest.param(ProcessPoolExecutor, marks=pytest.mark.slow)])
def test_any_executor_will_do(tmp_path, swept, pool):
    with pool(1) as executor:
        pb.sweep(folder=tmp_path, engine=executor, **SMALL)
        executor.submit(int).result()  # it is still its owner's
    assert without_times(tmp_path) == without_times(swept)


def test_load_gives_a_frame_or_rows(swept, monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    monkeypatch.setitem(sys.modules, "pandas", None)
    rows = pb.sweep.load(swept)
    assert [row["capacity"] for row in rows] == [3, 4, 5, 3, 4, 5]
    assert {len(row) for row in rows} == {len(rows[0])}
    with pytest.raises(InputError, match="there is no sweep"):
        pb.sweep.load(swept / "rows")


@pytest.mark.parametrize("library", ["polars", "pandas"])
def test_frames(swept, monkeypatch, library):
    """What is installed is used, polars first; here a library that only remembers what it is given stands for each."""

    class Library:
        @staticmethod
        def DataFrame(columns):
            return library, columns

    monkeypatch.setitem(sys.modules, "polars", None)
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, library, Library)
    name, columns = pb.sweep.load(swept)
    assert name == library
    assert columns == {column: [row[column] for row in load_table(swept).filled()] for column in columns}
    assert all(len({type(value) for value in values} - {type(None)}) <= 1 for values in columns.values())


def test_rows_of_this_version_come_before_others_in_the_table(small):
    mine = load_table(small).rows[0]
    kept = {name: value for name, value in mine.items() if not name.startswith("best_")}
    other = kept | {"key": "ff" * 16, "versions": "sources=other", "energy": -1, "finished": "9"}
    ResultFolder(small).put("ff" * 16, other, None)
    assert load_table(small).rows[0] == mine
    assert len(load_table(small).rows) == 6
    # Of others the latest counts.
    late = other | {"key": "fe" * 16, "run": "e1" * 16, "finished": "2026-02"}
    ResultFolder(small).put("fe" * 16, late, None)
    ResultFolder(small).put("fd" * 16, late | {"key": "fd" * 16, "finished": "2026-01"}, None)
    assert [row["key"] for row in load_table(small).rows if row["run"] == "e1" * 16] == ["fe" * 16]


def test_what_another_sweep_does_is_waited_for_and_not_done_again(small, monkeypatch):
    (missing,) = pb.sweep.runs("chain:length=9", capacity={"fast": 3})
    folder, told = ResultFolder(small), []
    monkeypatch.setattr(ResultFolder, "claim", lambda self, key: self.row(key) is not None)

    def report(progress):
        told.append(progress.elsewhere)
        folder.put(
            missing.key,
            {
                "key": missing.key,
                "run": missing.run,
                "graph": "chain:length=9",
                "machine": "red-blue",
                "status": "optimal",
                "versions": "",
                "pebbler": "",
                "finished": "",
            },
            None,
        )

    found = pb.sweep("chain:length=9", small, capacity={"fast": 3}, report=report)
    assert told == [1]
    assert [row["status"] for row in found.rows] == ["optimal"]


# Separate processes -----------------------------------------------------------------------------------------------------

SWEEP = """
import json, sys
import pebbler as pb
if __name__ == "__main__":
    axes, more = json.loads(sys.argv[2]), json.loads(sys.argv[3])
    pb.sweep(folder=sys.argv[1], **axes, **more)
"""


@contextmanager
def started(folder: Path, axes: dict[str, object], **more: object) -> Iterator[subprocess.Popen[bytes]]:
    arguments = [sys.executable, "-c", SWEEP, str(folder), json.dumps(axes), json.dumps(more)]
    with subprocess.Popen(arguments, start_new_session=True, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def finish(process: subprocess.Popen[bytes]) -> None:
    error = process.communicate(timeout=300)[1].decode()
    assert process.returncode == 0, error


def kill(pid: int) -> None:
    with suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def rows_in(folder: Path) -> int:
    return sum(1 for _ in (folder / "rows").rglob("*.json"))


def wait_for_rows(folder: Path, count: int, process: subprocess.Popen[bytes]) -> None:
    wait_for(lambda: rows_in(folder) >= count or process.poll() is not None)


def wait_for_end(pids: list[int]) -> None:
    wait_for(lambda: all(map(has_ended, pids)))


def kill_at_random(folder: Path, axes: dict[str, object], runs: int, rng: random.Random, **more: object) -> None:
    """Start a sweep again and again, kill a child or all of it at random moments, and let it end: nothing is done twice."""
    seen: dict[str, tuple[int, int]] = {}
    for _ in range(6 if runs > 50 else 1):
        with started(folder, axes, **more) as process:
            wait_for_rows(folder, min(runs - 1, rows_in(folder) + rng.randrange(1, max(2, runs // 6))), process)
            time.sleep(rng.random() * 0.05)
            children = children_of(process.pid)
            if children and rng.random() < 0.5:
                kill(rng.choice(children))
                time.sleep(rng.random() * 0.5)
            kill(process.pid)
        wait_for_end(children)
        now = stamps(folder)
        assert {name: now.get(name) for name in seen} == seen
        seen = now
    with started(folder, axes, **more) as process:
        finish(process)
    now = stamps(folder)
    assert {name: now[name] for name in seen} == seen
    require_whole(folder, runs)


def test_killed_at_random_moments_it_goes_on(tmp_path):
    axes = {"graphs": "chain:length=2..13", "capacity": {"fast": 3}}
    kill_at_random(tmp_path / "sweep", axes, 12, random.Random(1), workers=1)


@pytest.mark.slow
def test_two_sweeps_share_a_folder_and_do_nothing_twice(tmp_path):
    axes = {"graphs": "chain:length=2..11", "capacity": {"fast": "3..6"}}
    with started(tmp_path, axes, workers=1) as one, started(tmp_path, axes, workers=1) as other:
        seen: dict[str, tuple[int, int]] = {}
        while one.poll() is None or other.poll() is None:
            now = stamps(tmp_path)
            assert {name: now[name] for name in seen} == seen
            seen = now
            time.sleep(0.01)
        finish(one)
        finish(other)
    require_whole(tmp_path, 40)
    assert {row["attempts"] for row in load_table(tmp_path).rows} == {1}


# Dask -------------------------------------------------------------------------------------------------------------------


@contextmanager
def cluster(workers: int = 2) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A scheduler and workers as processes of their own on the loopback address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    python = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", address, "--no-dashboard"]
    started = [subprocess.Popen(python, **quiet)]
    worker = [
        sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard",
        "--host", "127.0.0.1", "--death-timeout", "60",
    ]  # fmt: skip
    started += [subprocess.Popen(worker, **quiet) for _ in range(workers)]
    try:
        yield address, started
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_dask_gives_the_same_rows(tmp_path, swept):
    pytest.importorskip("distributed")
    pb.sweep(folder=tmp_path, engine="dask", workers=2, **SMALL)
    assert without_times(tmp_path) == without_times(swept)


def test_no_scheduler_there_is_said(tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("pebbler.jobs.engine._CONNECT", "1s")
    with pytest.raises(InputError, match="no Dask scheduler answers at"):
        pb.sweep(folder=tmp_path, engine="dask", scheduler="tcp://127.0.0.1:9", **SMALL)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"pip install 'pebbler\[dask\]'"):
        pb.sweep(folder=tmp_path, engine="dask", **SMALL)


@pytest.mark.slow
def test_two_hundred_runs_are_the_same_on_every_engine(tmp_path):
    pytest.importorskip("distributed")
    pb.sweep(folder=tmp_path / "pool", workers=2, **LARGE)
    pb.sweep(folder=tmp_path / "local", engine="dask", workers=2, **LARGE)
    with cluster() as (address, _):
        pb.sweep(folder=tmp_path / "apart", engine="dask", scheduler=address, **LARGE)
    pool = without_times(tmp_path / "pool")
    assert len(pool) == 200
    assert {row["status"] for row in pool} == {"optimal", "impossible"}
    assert pool == without_times(tmp_path / "local") == without_times(tmp_path / "apart")
    require_whole(tmp_path / "apart", 200)


@pytest.mark.slow
def test_rows_on_every_kind_of_machine_are_what_solve_says(tmp_path):
    machines = ["notes", "notes-explicit", "notes-recency", "laptop"]
    graphs = ["note-mlp", "mlp:n=3|4,hidden=8", "attention:tokens=4,width=4,heads=1"]
    found = pb.sweep(folder=tmp_path, graphs=graphs, machines=machines, capacity={"fastest": "50%,100%"}, quick=True)
    assert len(found.rows) == 4 * 4 * 2
    for row in found.rows:
        plan = pb.Plan.load(ResultFolder(tmp_path).plan_path(row["key"]))
        again = pb.solve(row["graph"], plan.machine, quick=True, time_limit=None, threads=1)
        judged = pb.check(plan)
        assert judged.legal
        assert judged.energy == pytest.approx(row["energy"], rel=1e-12)
        assert (again.energy, again.bound, again.status) == (row["energy"], row["bound"], row["status"])
        assert plan.machine.level[0].capacity == row["capacity"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_two_hundred_runs_killed_at_random(tmp_path, seed):
    kill_at_random(tmp_path / "sweep", LARGE, 200, random.Random(seed), workers=2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_dask_workers_and_clients_are_killed(tmp_path, seed):
    pytest.importorskip("distributed")
    rng, folder = random.Random(seed), tmp_path / "sweep"
    with cluster(3) as (address, processes):
        for _ in range(3):
            with started(folder, LARGE, engine="dask", scheduler=address) as client:
                wait_for_rows(folder, min(190, rows_in(folder) + rng.randrange(5, 40)), client)
                if len(processes) > 2 and rng.random() < 0.6:
                    victim = processes.pop(1)
                    victim.kill()
                    victim.wait()
                    time.sleep(rng.random())
                for pid in rng.sample(found := children_of(processes[-1].pid), min(1, len(found))):
                    kill(pid)
                kill(client.pid)
            seen = stamps(folder)
        with started(folder, LARGE, engine="dask", scheduler=address) as client:
            finish(client)
        now = stamps(folder)
        assert {name: now[name] for name in seen} == seen
    require_whole(folder, 200)


@pytest.mark.slow
def test_a_scheduler_that_dies_fails_no_run(tmp_path):
    pytest.importorskip("distributed")
    with cluster() as (address, processes), started(tmp_path, LARGE, engine="dask", scheduler=address) as client:
        wait_for(lambda: rows_in(tmp_path) >= 5)
        processes[0].kill()
        error = client.communicate(timeout=300)[1].decode()
        assert client.returncode != 0
        assert EngineLost.__name__ in error
    assert all(row["status"] != "failed" for row in load_table(tmp_path).rows)
    pb.sweep(folder=tmp_path, workers=2, **LARGE)
    require_whole(tmp_path, 200)
