"""Kernels are compiled before the clock starts, once."""

from __future__ import annotations

import pytest

import pebbler as pb
from pebbler.game.machine import builtin_machines
from pebbler.solver import problem, solve_search, warm_up


@pytest.fixture
def cold(tmp_path, monkeypatch):
    """A machine on which nothing has been compiled yet, and tasks that only say that they ran."""
    ran: list[tuple[str, str]] = []
    tasks = {
        kind: {task: lambda kind, task=task: ran.append((kind, task)) for task in found}
        for kind, found in TASKS.items()
    }
    monkeypatch.setattr(warm_up, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(warm_up, "_TASKS", tasks)
    monkeypatch.setattr(warm_up.sys, "executable", "/bin/false")  # processes fail, so that the tasks run here
    return ran


TASKS = dict(warm_up._TASKS)


def test_it_is_said_and_done_once(cold, capsys):
    assert warm_up.warm_up("lru")
    assert [task for _, task in cold] == list(TASKS["lru"])
    assert "compiling kernels, once" in capsys.readouterr().err
    assert not warm_up.warm_up("lru")
    assert len(cold) == len(TASKS["lru"])
    assert capsys.readouterr().err == ""
    assert warm_up.warm_up("recency")


def test_the_clock_starts_when_the_kernels_are_ready(cold, monkeypatch):
    began = []
    monkeypatch.setattr(
        problem.time, "monotonic", lambda: float(len(cold))
    )  # time passes while tasks run, and only then
    search = solve_search("note-mlp", "notes-recency", report=lambda search: began.append(search.elapsed))
    assert len(cold) == len(TASKS["recency"])
    assert began
    assert set(began) == {0.0}
    assert search.best is not None


def test_program_order_needs_no_kernels_of_the_search(cold):
    pb.solve("note-mlp", "notes-recency", time_limit=0)
    assert cold == []


@pytest.mark.parametrize("kind", sorted(TASKS))
def test_every_task_runs(kind):
    for task in TASKS[kind].values():
        task(kind)


@pytest.mark.parametrize("name", builtin_machines())
def test_every_machine_has_a_kind(name):
    assert warm_up.kind_of(pb.machine(name)) in TASKS
