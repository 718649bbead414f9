"""The data for energy to accuracy: training runs and plans of steps, both as resumable sweeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from pebbler.errors import PebblerError
from pebbler.game.graph import Graph
from pebbler.game.machine import machine
from pebbler.notes.batch_sgd import GOALS, TrainTask
from pebbler.notes.note000_pebble_game import computed_once
from pebbler.sweeps.result_folder import ResultFolder, Row
from pebbler.sweeps.sweep import SweepProgress, SweepRunner, sweep
from pebbler.sweeps.sweep_row import is_sweep_row
from pebbler.sweeps.sweep_spec import SweepSpec
from pebbler.sweeps.swept_run import SweptRun
from pebbler.workloads import mlp

__all__ = [
    "BEST",
    "FULL",
    "ONCE",
    "PROGRAM",
    "QUICK",
    "SCHEDULES",
    "UNTILED",
    "AccuracyGrid",
    "Measurements",
    "StepPrice",
    "TrainedRuns",
    "closed_prices",
    "measure",
    "plan_runs",
    "step_graph",
    "training_runs",
]

# What a plan may do: nothing but follow the program, all but split tensors and fuse ops, all but compute again, all.
PROGRAM, UNTILED, ONCE, BEST = SCHEDULES = ("program order", "no tilings", "no recomputation", "best plan")
_TRAINING, _PLANS = "training", "plans"
_WIDE = 0.25  # the gap of a plan that is looked for again


class AccuracyGrid(msgspec.Struct, frozen=True, kw_only=True):
    """Cells (batch x hidden) with the learning rates and seeds that each is trained with, and the machines that price its step."""

    batches: tuple[int, ...]
    hidden: tuple[int, ...]
    rates: tuple[float, ...]
    seeds: tuple[int, ...]
    machines: tuple[str, ...]
    looks: int = 128
    seconds: float = 6.0  # for a plan in explicit memory
    patient: bool = False  # whether plans far above their bounds are searched for longer

    @property
    def cells(self) -> list[tuple[int, int]]:
        """Every batch with every hidden size."""
        return list(product(self.batches, self.hidden))


def _rates(low: float, high: float) -> tuple[float, ...]:
    """Return rates that double from the first to the last: batches double, too, so that none is nearer to its best than another."""
    found = [low]
    while found[-1] < high:
        found.append(2 * found[-1])
    return tuple(found)


QUICK = AccuracyGrid(
    batches=(1, 8, 32, 128), hidden=(10, 50, 200), rates=_rates(0.025, 6.4), seeds=(42, 43, 44), machines=("notes",)
)
FULL = AccuracyGrid(
    batches=tuple(2**i for i in range(8)),
    hidden=(5, 10, 20, 50, 100, 200, 500, 1000, 2000),
    rates=_rates(0.0125, 6.4),
    seeds=tuple(range(42, 53)),
    machines=("notes", "h200-measured", "notes-explicit"),
    patient=True,
)


class TrainedRuns(msgspec.Struct, frozen=True):
    """The samples that each seed needed for each of `GOALS`, at one learning rate; None: more than were allowed."""

    batch: int
    hidden: int
    lr: float
    samples: tuple[tuple[int | None, ...], ...]


class StepPrice(msgspec.Struct, frozen=True):
    """The cost of one step on a machine under a schedule, in pJ, and a lower bound for plans of that kind."""

    batch: int
    hidden: int
    machine: str
    schedule: str
    energy: float
    bound: float


class Measurements(msgspec.Struct, frozen=True):
    """Everything that was measured on a grid; the figures of the experiment follow from it."""

    grid: AccuracyGrid
    goals: tuple[float, ...]
    trained: tuple[TrainedRuns, ...]
    prices: tuple[StepPrice, ...]
    versions: dict[str, str] = {}


def step_graph(batch: int, hidden: int, n: int = 20) -> Graph:
    """Return the training step of a cell.

    >>> step_graph(1, 50).name, step_graph(8, 50).name
    ('mlp:n=20,hidden=50', 'mlp:n=20,hidden=50,batch=8')
    """
    return mlp(n=n, hidden=hidden, batch=None if batch == 1 else batch)


def training_runs(grid: AccuracyGrid) -> list[SweptRun]:
    """Return the training runs of a grid, the seeds of a cell and rate together.

    >>> len(training_runs(QUICK))
    108
    """
    return [
        SweptRun(
            {"batch": batch, "hidden": hidden, "lr": lr},
            "pebbler.notes.batch_sgd:train_task",
            TrainTask(hidden, batch, lr, grid.seeds, grid.looks),
            None,
        )
        for (batch, hidden), lr in product(grid.cells, grid.rates)
    ]


def plan_runs(grid: AccuracyGrid, *, patient: bool = False) -> dict[str, list[SweptRun]]:
    """Return the plans that a grid asks for, by what they may do; with `patient`, the same with more time, for caches.

    On caches the first are the same every time, after a small and fixed amount of work; whole tensors in explicit memory know none.

    >>> {schedule: len(runs) for schedule, runs in plan_runs(QUICK).items()}
    {'best plan': 12, 'no recomputation': 12, 'no tilings': 12}
    """
    steps = [step_graph(*cell) for cell in grid.cells]
    once = [computed_once(step) for step in steps]
    kinds = {BEST: (steps, "auto"), ONCE: (once, "auto"), UNTILED: (steps, "none")}
    caches = [name for name in grid.machines if machine(name).management != "explicit"]
    explicit = [name for name in grid.machines if name not in caches]
    efforts: list[tuple[list[str], dict[str, Any]]] = [
        (caches, {"quick": True}),
        (explicit, {"time_limit": grid.seconds}),
    ]
    if patient:
        efforts = [(caches, {"time_limit": 2 * grid.seconds})]
    return {
        kind: [
            run
            for names, effort in efforts
            if names
            for run in sweep.runs(SweepSpec(graphs=graphs, machines=names, tile=tile, steady=True, **effort))
        ]
        for kind, (graphs, tile) in kinds.items()
    }


def measure(grid: AccuracyGrid, folder: Path, report: Callable[[str, float], None] | None = None) -> Measurements:
    """Do what is missing in a folder, and return everything; `report` is told what is going on and how far it is."""
    tell = report or (lambda _what, _part: None)
    training, plans = training_runs(grid), plan_runs(grid)
    trained = _swept(training, ResultFolder(folder / _TRAINING), lambda part: tell("training", 0.3 * part))
    results = ResultFolder(folder / _PLANS, is_row=is_sweep_row)
    planned = _swept(_together(plans), results, lambda part: tell("plans", 0.3 + 0.4 * part))
    if grid.patient:
        # A plan far above its bound is searched for again, and longer.
        far = [run for run in plans[BEST] if planned[run.key]["energy"] > (1 + _WIDE) * planned[run.key]["bound"]]
        wide = {(run.columns["graph"], run.columns["machine"]) for run in far}
        again = {
            kind: [run for run in runs if (run.columns["graph"], run.columns["machine"]) in wide]
            for kind, runs in plan_runs(grid, patient=True).items()
        }
        planned |= _swept(_together(again), results, lambda part: tell("plans with large gaps", 0.7 + 0.3 * part))
        plans = {kind: runs + again[kind] for kind, runs in plans.items()}
    steps = {step_graph(*cell).name: cell for cell in grid.cells}
    prices = []
    for schedule, runs in plans.items():
        for run in runs:
            batch, hidden = steps[run.columns["graph"]]
            row = planned[run.key]
            prices.append(StepPrice(batch, hidden, row["machine"], schedule, row["energy"], row["bound"]))
            program = row["program_order"]
            prices.append(StepPrice(batch, hidden, row["machine"], PROGRAM, program, program))
    from pebbler.notes.findings import versions  # it draws plots, too

    return Measurements(
        grid,
        GOALS,
        tuple(msgspec.convert(trained[run.key], TrainedRuns) for run in training),
        tuple(closed_prices(prices)),
        versions(),
    )


def _together(plans: dict[str, list[SweptRun]]) -> list[SweptRun]:
    return [run for runs in plans.values() for run in runs]


def _swept(runs: list[SweptRun], folder: ResultFolder, report: Callable[[float], None]) -> dict[str, Row]:
    """Do the runs that a folder does not have, and return all rows by key; one that failed ends it."""

    def tell(progress: SweepProgress) -> None:
        report(progress.finished / progress.runs)

    SweepRunner(runs, folder).run(report=tell)
    rows = {run.key: folder.row(run.key) or {} for run in runs}
    for run in runs:
        if rows[run.key].get("status") not in ("done", "optimal", "bounded", "heuristic"):
            why = rows[run.key].get("error", "its row is damaged")
            raise PebblerError(f"{folder.path}: {msgspec.json.encode(dict(run.columns)).decode()}: {why}")
    return rows


def closed_prices(prices: Iterable[StepPrice]) -> Iterator[StepPrice]:
    """Yield one price for each step, machine and schedule, with what they say about each other.

    A plan that may do less is one that may do more, too; a bound for plans that may do more holds for those that may do less.
    """
    kinds: dict[tuple[tuple[int, int, str], str], StepPrice] = {}
    for one in prices:
        where = (one.batch, one.hidden, one.machine), one.schedule
        other = kinds.setdefault(where, one)
        energy, bound = min(one.energy, other.energy), max(one.bound, other.bound)
        kinds[where] = msgspec.structs.replace(one, energy=energy, bound=bound)
    less = {PROGRAM: (), UNTILED: (PROGRAM,), ONCE: (PROGRAM,), BEST: (PROGRAM, UNTILED, ONCE)}
    for (step, schedule), one in kinds.items():
        energy = min([one.energy, *(kinds[step, kind].energy for kind in less[schedule])])
        bound = one.bound if schedule == PROGRAM else max(one.bound, kinds[step, BEST].bound)
        yield msgspec.structs.replace(one, energy=energy, bound=bound)
