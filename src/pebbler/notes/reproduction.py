"""Running the notes' experiments by name, and writing what they found."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path

import msgspec

from pebbler.errors import InputError, near_matches, quoted
from pebbler.files import require_writable, write_text
from pebbler.game.graph import Graph
from pebbler.game.machine import Machine
from pebbler.game.plan import Plan
from pebbler.jobs.run_all import run_all
from pebbler.notes.experiment import Experiment
from pebbler.notes.note000_savings import Solver
from pebbler.solver import solve as solve_graph

__all__ = ["EXPERIMENTS", "REPORT", "experiment_task", "plan_quickly", "reproduce"]

# Each experiment's module, in the order of the notes.
EXPERIMENTS = {
    "pebble-game": "note000_pebble_game",
    "chain": "note001_chain",
    "tiling": "note002_tiling",
    "ard": "note003_ard",
    "minibatch": "note004_minibatch",
}
REPORT = "report.html"
_SOLVING = ("pebble-game",)  # those whose open questions want a solver

Progress = Callable[[str, float], None]


def reproduce(
    names: Sequence[str] = (),
    out: str | Path | None = None,
    progress: Progress | None = None,
    solve: Solver | None = None,
    finished: Callable[[str, Experiment], None] | None = None,
) -> dict[str, Experiment]:
    """Run experiments, all of them by default, and return what each found; `out` is a folder for their files.

    `progress` is told the experiment that begins and the fraction done so far. `solve` finds plans for the questions that need
    a solver (`plan_quickly` by default); it must give the same plan every time, or the files differ from run to run. `finished` is
    given every experiment as soon as it is done and its files are written.

    >>> found = reproduce(["ard"])
    >>> found["ard"].ok
    True
    """
    chosen = list(dict.fromkeys(names)) or list(EXPERIMENTS)
    for name in chosen:
        if name not in EXPERIMENTS:
            raise InputError(f"no experiment is called {quoted(name)}{near_matches(name, EXPERIMENTS)}")
    folder = None if out is None else Path(out)
    if folder is not None:
        require_writable(folder / REPORT)
        _sweep(folder)
    found: dict[str, Experiment] = {}
    if progress is not None:
        progress(chosen[0], 0.0)
    for name, one, seconds in _run(chosen, solve):
        found[name] = one
        if folder is not None:
            # Here, so that figures without files do not wait for the plotting library.
            from pebbler.notes.findings import write_findings

            write_findings(one, folder / name, seconds)
        if finished is not None:
            finished(name, one)
        if progress is not None:
            progress(next((other for other in chosen if other not in found), name), len(found) / len(chosen))
    found = {name: found[name] for name in chosen}
    if folder is not None:
        from pebbler.notes.notes_page import page

        if progress is not None:
            progress(REPORT, 1.0)
        write_text(folder / REPORT, page(list(found.values())))
    return found


def _run(chosen: Sequence[str], solve: Solver | None) -> Iterator[tuple[str, Experiment, float]]:
    """Yield experiments and the seconds they took: side by side in processes of their own, but here with a solver of one's own."""
    if solve is not None:
        for name in chosen:
            began = time.perf_counter()
            yield name, _experiment(name, solve), time.perf_counter() - began
        return
    for number, answer in run_all(experiment_task, [name.encode() for name in chosen]):
        yield chosen[number], *msgspec.msgpack.decode(answer, type=tuple[Experiment, float])


def experiment_task(name: bytes) -> bytes:
    """Run one experiment, as a process of its own is asked for it; return it with the seconds that it took."""
    began = time.perf_counter()
    found = _experiment(name.decode(), plan_quickly)
    return msgspec.msgpack.encode((found, time.perf_counter() - began))


def _experiment(name: str, solve: Solver) -> Experiment:
    run = import_module(f"pebbler.notes.{EXPERIMENTS[name]}").run
    found: Experiment = run(solve) if name in _SOLVING else run()
    return found


def plan_quickly(graph: Graph, machine: Machine) -> Plan:
    """Return a good plan after a fixed amount of work, so that it is the same on every machine."""
    plan = solve_graph(graph, machine, time_limit=None, threads=1, quick=True)
    if plan.meta.get("cut_off"):
        raise KeyboardInterrupt  # without a time limit nothing else cuts it off, and figures of half a search are none
    return plan


def _sweep(folder: Path) -> None:
    """Remove what a run that was killed in the middle of a write has left beside our files."""
    for place in (folder, *(folder / name for name in EXPERIMENTS)):
        for left in place.glob(".pebbler.*.part"):
            with contextlib.suppress(OSError):
                left.unlink()
