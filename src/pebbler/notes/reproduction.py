"""Running the notes' experiments by name, and writing their results."""

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

__all__ = ["EXPERIMENTS", "REPORT", "SWEEPS", "experiment_task", "plan_quickly", "reproduce"]

# Each experiment's module, in the order of the notes.
EXPERIMENTS = {
    "pebble-game": "note000_pebble_game",
    "chain": "note001_chain",
    "tiling": "note002_tiling",
    "ard": "note003_ard",
    "minibatch": "note004_minibatch",
    "accuracy": "note004_accuracy",
}
SWEEPS = ("accuracy",)  # on all cores themselves, and resumable
REPORT = "report.html"
_SOLVING = ("pebble-game",)  # those whose open questions want a solver

Progress = Callable[[str, float], None]


def reproduce(
    names: Sequence[str] = (),
    out: str | Path | None = None,
    progress: Progress | None = None,
    solve: Solver | None = None,
    finished: Callable[[str, Experiment], None] | None = None,
    full: bool = False,
) -> dict[str, Experiment]:
    """Run experiments, all of them by default, and return what each found; `out` is a folder for their files.

    `progress` is told the experiment that begins and the fraction done so far. `solve` finds plans for the questions that need
    a solver (`plan_quickly` by default); it must give the same plan every time, or the files differ from run to run. `finished` is
    given every experiment as soon as it is done and its files are written. `full` is for the experiment `accuracy`: the whole grid,
    which takes hours of CPU. Its results so far stay in `out`, and another call continues from there.

    >>> found = reproduce(["ard"])
    >>> found["ard"].ok
    True
    """
    chosen = list(dict.fromkeys(names)) or list(EXPERIMENTS)
    for name in chosen:
        if name not in EXPERIMENTS:
            raise InputError(f"no experiment is called {quoted(name)}{near_matches(name, EXPERIMENTS)}")
    if full and not set(SWEEPS) & set(chosen):
        raise InputError(f"full: is for {', '.join(SWEEPS)}, and only {', '.join(chosen)} was asked for")
    folder = None if out is None else Path(out)
    if folder is not None:
        require_writable(folder / REPORT)
        _sweep(folder)
    found: dict[str, Experiment] = {}
    tell = progress or (lambda _name, _part: None)
    tell(chosen[0], 0.0)

    def sweep_one(name: str) -> Experiment:
        def told(what: str, part: float) -> None:
            tell(f"{name}: {what}", (len(found) + part) / len(chosen))

        run = import_module(f"pebbler.notes.{EXPERIMENTS[name]}").run
        made: Experiment = run(None if folder is None else folder / name, full, told)
        return made

    for name, one, seconds in _run(chosen, solve, sweep_one):
        found[name] = one
        if folder is not None:
            # Here, so that figures without files do not wait for the plotting library.
            from pebbler.notes.findings import write_findings

            write_findings(one, folder / name, seconds)
        if finished is not None:
            finished(name, one)
        tell(next((other for other in chosen if other not in found), name), len(found) / len(chosen))
    found = {name: found[name] for name in chosen}
    if folder is not None:
        from pebbler.notes.notes_page import page

        if progress is not None:
            progress(REPORT, 1.0)
        write_text(folder / REPORT, page(list(found.values())))
    return found


def _run(
    chosen: Sequence[str], solve: Solver | None, sweep_one: Callable[[str], Experiment]
) -> Iterator[tuple[str, Experiment, float]]:
    """Yield experiments and the seconds they took: side by side in processes of their own, but here with a solver of one's own.

    Sweeps come last, one after the other: each takes all cores.
    """
    single = [name for name in chosen if name not in SWEEPS]
    if solve is None:
        for number, answer in run_all(experiment_task, [name.encode() for name in single]):
            yield single[number], *msgspec.msgpack.decode(answer, type=tuple[Experiment, float])
    for name in chosen if solve is not None else [name for name in chosen if name in SWEEPS]:
        began = time.perf_counter()
        made = _experiment(name, solve) if solve is not None and name not in SWEEPS else sweep_one(name)
        yield name, made, time.perf_counter() - began


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
