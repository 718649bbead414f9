"""Notes 003 and 004: batch size and hidden size as levers for energy, measured where it counts, in µJ to accuracy."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from pebbler.files import write_bytes
from pebbler.notes.accuracy_grid import BEST, FULL, PROGRAM, QUICK, SCHEDULES, Measurements, measure
from pebbler.notes.accuracy_map import RESAMPLES, CellEnergy, EnergyMap, TrainedCell, energy_map, trained_cells
from pebbler.notes.batch_sgd import GOALS, LOOK
from pebbler.notes.experiment import (
    ClaimVerdict,
    Experiment,
    NoteFigure,
    Plot,
    Question,
    Series,
    Value,
    show,
    table,
)
from pebbler.notes.parity import Config

__all__ = ["experiment", "run"]

MEASURED, RUNS = "measured.json", "runs"
_GUESSED = (16, 32)  # note 004's batch sizes: "plateaus around BS=16-32"
_FEWER_WRITES = 16  # note 004: "16x fewer parameter writes ... a proportional energy saving"
_NOTE_BATCH, _NOTE_HIDDEN = 32, 1000
_CONVENTIONS = (
    "Network, hinge loss, data, initial parameters and weight decay (0.01, biases too) are the notes': 20 bits, 3 of them secret, "
    "500 training and 200 test samples per seed, float64. Steps pass through the data in its order, again and again. A step "
    "averages the gradients over the batch and updates every parameter, whether or not a sample made a gradient, like note 000's "
    "trainer and the planned graph. All cells share one grid of learning rates; the rate of a cell and accuracy is the one at "
    f"which the median seed succeeds first. Test accuracy is evaluated every {LOOK} samples, and the first success "
    "counts. Energy is that of moving floats, as the machine prices it, for one step of an endless loop with the parameters where "
    "the plan keeps them. On a machine with caches, a step finds its inputs where the previous step left its own; in explicit "
    "memory they arrive in the slowest level, like new samples. Evaluation on the test samples costs nothing."
)
Maps = dict[tuple[float, str, str], EnergyMap]  # by accuracy, machine and schedule


def run(
    folder: Path | None = None, full: bool = False, report: Callable[[str, float], None] | None = None
) -> Experiment:
    """Train and plan what is missing in a folder, write what was measured there, and return what it shows."""
    if folder is None:
        with tempfile.TemporaryDirectory() as place:
            return run(Path(place), full, report)
    found = measure(FULL if full else QUICK, folder / RUNS, report)
    write_bytes(folder / MEASURED, msgspec.json.encode(found) + b"\n")
    return experiment(found)


def experiment(found: Measurements) -> Experiment:
    """Return the results of the measurements."""
    maps: Maps = {}
    for goal in found.goals:
        cells = trained_cells(found, goal)
        for machine in found.grid.machines:
            maps |= {(goal, machine, kind): energy_map(found, cells, machine, kind) for kind in SCHEDULES}
    machine = found.grid.machines[0]
    return Experiment(
        name="accuracy",
        note="003 and 004",
        question=(
            "How much energy does it take to train to 90 % and to 100 % test accuracy, and how does it depend on the sizes "
            "of the batch and of the hidden layer?"
        ),
        config=msgspec.to_builtins(found.grid) | {"goals": found.goals, "training": _convention_config()},
        seeds=found.grid.seeds,
        rows=_rows(found, maps),
        verdicts=_verdicts(found, maps),
        questions=(
            _best_question(found, maps),
            _schedule_question(found, maps),
            _batch_question(found, maps, machine),
            _hidden_question(found, maps, machine),
            _sure_question(found, maps),
            _training_question(found, maps[0.9, machine, BEST], maps[1.0, machine, BEST]),
        ),
        plots=(
            *(_heat(maps[goal, name, BEST], goal) for name in found.grid.machines for goal in found.goals),
            _heat(maps[0.9, machine, PROGRAM], 0.9),
            _to_accuracy_plot(found, maps, machine),
            _per_sample_plot(found, maps, machine),
        ),
    )


def _convention_config() -> dict[str, Value]:
    config = Config(always_update=True)
    names = ("n", "k", "wd", "n_train", "n_test", "always_update")
    return {name: getattr(config, name) for name in names} | {"look": LOOK}


def _shown_hidden(found: Measurements) -> int:
    """Return the hidden size of the notes, or the largest that was measured."""
    return _NOTE_HIDDEN if _NOTE_HIDDEN in found.grid.hidden else max(found.grid.hidden)


def _percent(goal: float) -> str:
    return f"{100 * goal:.0f} %"


def _cell(found: EnergyMap) -> str:
    return f"batch {found.best.cell.batch}, {show(found.best.cell.hidden)} hidden"


def _rows(found: Measurements, maps: Maps) -> tuple[NoteFigure, ...]:
    rows = []
    for (goal, machine, kind), one in maps.items():
        if kind == BEST:
            batch = one.best.cell.batch
            fits = _GUESSED[0] <= batch <= _GUESSED[1]
            rows.append(
                NoteFigure(
                    name=f"best batch, {_percent(goal)}, {machine}",
                    published=f"{_GUESSED[0]} to {_GUESSED[1]}",
                    measured=batch,
                    match=fits,
                    wrong=not fits,
                    corrected=None if fits else batch,
                    why=""
                    if fits
                    else "Floats per sample do not decide: samples to accuracy and the levels of the floats do.",
                )
            )
    for machine in found.grid.machines:
        cells = maps[0.9, machine, BEST].cells
        if {(1, _NOTE_HIDDEN), (_NOTE_BATCH, _NOTE_HIDDEN)} <= cells.keys():
            saved = cells[1, _NOTE_HIDDEN].per_sample / cells[_NOTE_BATCH, _NOTE_HIDDEN].per_sample
            fits = abs(saved - _FEWER_WRITES) < 0.5
            rows.append(
                NoteFigure(
                    name=f"batch {_NOTE_BATCH} saves, {machine}",
                    published=str(_FEWER_WRITES),
                    decimals=1,
                    measured=saved,
                    match=fits,
                    wrong=not fits,
                    corrected=None if fits else saved,
                    unit="x",
                    why=(
                        f"Energy per sample at batch 1 over that at batch {_NOTE_BATCH}, {show(_NOTE_HIDDEN)} hidden units: "
                        "parameters are written 16 times less; activations and gradients are not."
                    ),
                )
            )
    return tuple(rows)


def _verdicts(found: Measurements, maps: Maps) -> tuple[ClaimVerdict, ...]:
    machine = found.grid.machines[0]
    one = maps[0.9, machine, BEST]
    best, alone = one.best, one.best_of_batch(found.grid.batches[0])
    batches = sorted({maps[goal, name, BEST].best.cell.batch for goal in found.goals for name in found.grid.machines})
    least_sure = min(
        maps[goal, name, BEST].sure_of_batches(*_GUESSED) for goal in found.goals for name in found.grid.machines
    )
    inside = all(_GUESSED[0] <= batch <= _GUESSED[1] for batch in batches)
    larger = max(found.grid.batches) > _GUESSED[1]  # otherwise nothing says that these are no better
    hidden = sorted({maps[goal, name, BEST].best.cell.hidden for goal in found.goals for name in found.grid.machines})
    smallest = min(found.grid.hidden)
    only_smallest = hidden == [smallest]
    large = _shown_hidden(found)
    theirs = one.best_of_hidden(large)
    least = min(one.cells[batch, large].bound for batch in found.grid.batches)
    evidence = (
        f"{len(found.grid.cells)} cells, {len(found.grid.rates)} learning rates, {len(found.grid.seeds)} seeds; energy per step of "
        f"the best plan found. The cell is the best in {_percent(one.sure)} of bootstrap resamples."
    )
    return (
        ClaimVerdict(
            claim="Batch size is a lever for energy (note 004).",
            truth=(
                f"Yes: to {_percent(0.9)} on {machine}, batch 1 needs {_micro(alone.energy)} at its best hidden size, {_cell(one)} "
                f"{_micro(best.energy)}, {alone.energy / best.energy:.1f}x cheaper."
            ),
            evidence=evidence,
        ),
        ClaimVerdict(
            claim="The best batch size is 16 to 32: larger ones see diminishing returns (note 004).",
            truth=(
                f"{('Right' if larger else 'Open') if inside else 'Not everywhere'}: on {_listed(found.grid.machines)}, for both "
                f"accuracies, the best cells have batches of {_listed(batches)}{'' if larger else ', and none larger was tried'}."
            ),
            evidence=(
                f"The same cells: in at least {_percent(least_sure)} of bootstrap resamples, on every machine and for both "
                "accuracies, the best cell has such a batch."
            ),
        ),
        ClaimVerdict(
            claim="Smaller models would help: reduce the hidden dimension (note 003).",
            truth=(
                f"{'Right' if only_smallest else 'Up to a point'}: the best cells have {_listed(hidden)} hidden units, where the "
                f"smallest tried is {smallest}. On {machine}, {show(large)} hidden units need {_micro(theirs.energy)} to 90 % at "
                f"their best batch, and at least {_micro(least)} with any plan and batch tried; {best.cell.hidden} need "
                f"{_micro(best.energy)}."
            ),
            evidence=evidence,
        ),
    )


def _listed(values: Sequence[int | str]) -> str:
    words = [show(value) for value in values]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _micro(energy: float) -> str:
    return f"{show(energy, 0 if energy >= 1000 else 1)} µJ" if math.isfinite(energy) else "never reaches it"


def _best_question(found: Measurements, maps: Maps) -> Question:
    rows: list[tuple[Value, ...]] = []
    for goal in found.goals:
        for machine in found.grid.machines:
            one = maps[goal, machine, BEST]
            best = one.best
            low, high = best.interval
            rows.append(
                (
                    _percent(goal), machine, best.cell.batch, best.cell.hidden, best.cell.lr, best.cell.samples, best.energy,
                    f"{show(low)} to {show(high)}", best.bound, f"{100 * one.sure:.0f} %",
                )
            )  # fmt: skip
    first = maps[found.goals[0], found.grid.machines[0], BEST]
    return Question(
        question="Which batch and hidden size reach the accuracy with the least energy?",
        answer=(
            f"On {found.grid.machines[0]} to {_percent(found.goals[0])}: {_cell(first)}, {_micro(first.best.energy)}, and no plan "
            f"of these steps needs less than {_micro(first.best.bound)}."
        ),
        tables=(
            table(
                "The best cell by accuracy and machine: median seed, 90 % of resampled medians, bound, how often it is the best",
                ["accuracy", "machine", "batch", "hidden", "lr", "samples", "µJ", "interval", "bound µJ", "best in"],
                rows,
            ),
        ),
    )


def _schedule_question(found: Measurements, maps: Maps) -> Question:
    rows: list[tuple[Value, ...]] = []
    for goal in found.goals:
        for machine in found.grid.machines:
            for kind in SCHEDULES:
                one = maps[goal, machine, kind]
                cell = one.best.cell
                share = f"{100 * one.sure:.0f} %"
                rows.append(
                    (_percent(goal), machine, kind, cell.batch, cell.hidden, one.best.energy, one.best.bound, share)
                )
    machine = found.grid.machines[0]
    plain, best = (maps[0.9, machine, kind].best for kind in (PROGRAM, BEST))
    moved = [
        f"{name} ({_percent(goal)})"
        for goal in found.goals
        for name in found.grid.machines
        if len({maps[goal, name, kind].best.cell.batch for kind in SCHEDULES}) > 1
    ]
    by_hidden: list[tuple[Value, ...]] = [
        (hidden, *(_batch_and_energy(maps[0.9, machine, kind].best_of_hidden(hidden)) for kind in SCHEDULES))
        for hidden in found.grid.hidden
    ]
    large = _shown_hidden(found)
    theirs, ours = (maps[0.9, machine, kind].best_of_hidden(large) for kind in (PROGRAM, BEST))
    line = (maps[0.9, machine, BEST].cells[batch, large] for batch in found.grid.batches)
    unsettled = [one.cell.batch for one in line if one is not ours and one.bound < ours.energy]
    by_bounds = f"; by their bounds batches of {_listed(unsettled)} may be cheaper" if unsettled else ""
    return Question(
        question="Does the best batch size depend on the schedule?",
        answer=(
            f"On {machine} to 90 %, program order is cheapest at batch {plain.cell.batch} ({plain.cell.hidden} hidden, "
            f"{_micro(plain.energy)}), the best plan at batch {best.cell.batch} ({best.cell.hidden} hidden, "
            f"{_micro(best.energy)}). "
            + (f"The best cell's batch depends on the schedule on {', '.join(moved)}. " if moved else "")
            + f"With {show(large)} hidden units, program order is cheapest at batch {theirs.cell.batch} ({_micro(theirs.energy)}), "
            f"the best plan at batch {ours.cell.batch} ({_micro(ours.energy)}){by_bounds}."
        ),
        tables=(
            table(
                "The best cell by schedule",
                ["accuracy", "machine", "schedule", "batch", "hidden", "µJ", "bound µJ", "best in"],
                rows,
            ),
            table(
                f"The best batch of every hidden size, and its µJ to 90 % on {machine}",
                ["hidden", *SCHEDULES],
                by_hidden,
            ),
        ),
    )


def _batch_and_energy(one: CellEnergy) -> str:
    return f"{one.cell.batch} ({_micro(one.energy)})" if math.isfinite(one.energy) else "never"


def _batch_question(found: Measurements, maps: Maps, machine: str) -> Question:
    best, tables = maps[0.9, machine, BEST].best.cell.hidden, []
    for hidden in sorted({best, _NOTE_HIDDEN} & {*found.grid.hidden}):
        rows: list[tuple[Value, ...]] = []
        for batch in found.grid.batches:
            cells = [maps[0.9, machine, kind].cells[batch, hidden] for kind in SCHEDULES]
            energies = [show(one.per_sample, 4) for one in cells]
            rows.append((batch, *energies, show(cells[-1].per_sample_bound, 4), _never(cells[-1].cell.samples)))
        title = f"µJ per sample on {machine}, {show(hidden)} hidden units, and samples to 90 %"
        tables.append(table(title, ["batch", *SCHEDULES, "bound", "samples"], rows))
    line = [maps[0.9, machine, BEST].cells[batch, best] for batch in found.grid.batches]
    least = min(line, key=lambda one: one.per_sample)
    return Question(
        question="How does the energy per sample depend on the batch size?",
        answer=(
            f"With {show(best)} hidden units on {machine} it falls from {show(line[0].per_sample, 4)} µJ at batch "
            f"{line[0].cell.batch} to {show(least.per_sample, 4)} µJ at batch {least.cell.batch}, its minimum; but "
            f"{_samples(line[0].cell)} become {_samples(least.cell)}."
        ),
        tables=tuple(tables),
    )


def _samples(cell: TrainedCell) -> str:
    return f"{show(cell.samples, 0)} samples" if math.isfinite(cell.samples) else "endlessly many samples"


def _hidden_question(found: Measurements, maps: Maps, machine: str) -> Question:
    tables = []
    for goal in found.goals:
        one = maps[goal, machine, BEST]
        rows = [
            (hidden, *(_never(one.cells[batch, hidden].energy) for batch in found.grid.batches))
            for hidden in found.grid.hidden
        ]
        title = f"µJ to {_percent(goal)} on {machine}, best plan"
        tables.append(table(title, ["hidden", *(f"batch {batch}" for batch in found.grid.batches)], rows))
    best = maps[0.9, machine, BEST].best
    column = [maps[0.9, machine, BEST].cells[best.cell.batch, hidden] for hidden in found.grid.hidden]
    small, large = column[0], column[-1]
    return Question(
        question="Do smaller hidden layers save energy, or do they fail to learn?",
        answer=(
            f"At batch {best.cell.batch} the median seed needs {show(small.cell.samples, 0)} samples with {small.cell.hidden} "
            f"hidden units, at {show(small.per_sample, 3)} µJ each, and {show(large.cell.samples, 0)} with "
            f"{show(large.cell.hidden)}, at {show(large.per_sample, 3)} µJ (at least "
            f"{show(large.per_sample_bound, 3)} µJ)."
        ),
        tables=tuple(tables),
    )


def _never(energy: float) -> Value:
    return energy if math.isfinite(energy) else "never"


def _sure_question(found: Measurements, maps: Maps) -> Question:
    rows: list[tuple[Value, ...]] = []
    open_cells = 0
    for goal in found.goals:
        for machine in found.grid.machines:
            one = maps[goal, machine, BEST]
            others = one.might_win()
            open_cells += bool(others)
            named = ", ".join(
                f"{batch}x{hidden} {100 * share:.0f} %" for (batch, hidden), share in list(one.shares.items())[:4]
            )
            could = ", ".join(f"{other.cell.batch}x{other.cell.hidden}" for other in others) or "none"
            rows.append((_percent(goal), machine, named, could))
    return Question(
        question="How sure is the best cell?",
        answer=(
            f"Chance: seeds are resampled {show(RESAMPLES)} times, and rates and cells chosen again each time. Plans: in "
            f"{open_cells} of {len(rows)} rows another cell would win if its plan came down to its bound while the best cell's "
            "stayed. Choosing the best of several rates on the same seeds favours every cell a little."
        ),
        tables=(
            table(
                "Batch x hidden: how often each cell is the best, and the cells that a better plan might make the best",
                ["accuracy", "machine", "best in", "open by bounds"],
                rows,
            ),
        ),
    )


def _training_question(found: Measurements, *maps: EnergyMap) -> Question:
    tables = []
    limit = found.grid.looks * LOOK
    for goal, one in zip(GOALS, maps, strict=True):
        rows: list[tuple[Value, ...]] = [
            (
                hidden,
                *(
                    f"{show(cell.samples, 0)} at {cell.lr:g} ({cell.learned})"
                    if math.isfinite(cell.samples)
                    else f"never ({cell.learned})"
                    for cell in (one.cells[batch, hidden].cell for batch in found.grid.batches)
                ),
            )
            for hidden in found.grid.hidden
        ]
        title = f"Samples of the median seed to {_percent(goal)} at the best rate (seeds of {len(found.grid.seeds)} that succeed)"
        tables.append(table(title, ["hidden", *(f"batch {batch}" for batch in found.grid.batches)], rows))
    rates = f"{found.grid.rates[0]:g} to {found.grid.rates[-1]:g}, {len(found.grid.rates)} of them"
    return Question(
        question="Which network is trained, and for how many samples?",
        answer=f"{_CONVENTIONS} Learning rates: {rates}. A run without success after {show(limit)} samples counts as never.",
        tables=tuple(tables),
    )


def _heat(one: EnergyMap, goal: float) -> Plot:
    batches = tuple(sorted({batch for batch, _ in one.cells}))
    hidden = sorted({size for _, size in one.cells})
    best = one.best.cell
    return Plot(
        name=f"map-{round(100 * goal)}-{one.machine}-{one.schedule.replace(' ', '-')}",
        title=(
            f"µJ to {_percent(goal)} accuracy on {one.machine}, {one.schedule}\n"
            f"least: {_micro(one.best.energy)} at batch {best.batch}, {show(best.hidden)} hidden units"
        ),
        x_label="batch size",
        y_label="hidden units",
        kind="heat",
        series=tuple(
            Series(label=show(size), x=batches, y=tuple(one.cells[batch, size].energy for batch in batches))
            for size in hidden
        ),
    )


def _to_accuracy_plot(found: Measurements, maps: Maps, machine: str) -> Plot:
    def line(label: str, kind: str, bound: bool = False) -> Series:
        cells = [maps[0.9, machine, kind].best_of_batch(batch) for batch in found.grid.batches]
        reached = [one for one in cells if math.isfinite(one.energy)]
        energies = tuple(one.bound if bound else one.energy for one in reached)
        return Series(label=label, x=tuple(one.cell.batch for one in reached), y=energies)

    return Plot(
        name="to-accuracy",
        title=f"Energy to 90 % at the best hidden size, {machine}",
        x_label="batch size",
        y_label="µJ",
        log_x=True,
        log_y=True,
        series=(*(line(kind, kind) for kind in SCHEDULES), line("bound", BEST, bound=True)),
    )


def _per_sample_plot(found: Measurements, maps: Maps, machine: str) -> Plot:
    hidden, batches = maps[0.9, machine, BEST].best.cell.hidden, found.grid.batches

    def line(label: str, kind: str, bound: bool = False) -> Series:
        cells = [maps[0.9, machine, kind].cells[batch, hidden] for batch in batches]
        return Series(
            label=label, x=batches, y=tuple(one.per_sample_bound if bound else one.per_sample for one in cells)
        )

    return Plot(
        name="per-sample",
        title=f"Energy per sample, {show(hidden)} hidden units, {machine}",
        x_label="batch size",
        y_label="µJ per sample",
        log_x=True,
        log_y=True,
        series=(*(line(kind, kind) for kind in SCHEDULES), line("bound", BEST, bound=True)),
    )
