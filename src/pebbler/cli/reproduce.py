"""`pebbler reproduce`: the notes' experiments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pebbler.cli.options import Json, complete_experiment

if TYPE_CHECKING:
    from pebbler.notes.experiment import Experiment

__all__ = ["reproduce"]


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="pebble-game, chain, tiling, ard, minibatch, accuracy; all by default.",
            show_default=False,
            autocompletion=complete_experiment,
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for results, findings, plots and the report.")] = Path(
        "out/notes"
    ),
    full: Annotated[
        bool, typer.Option("--full", help="The whole grid of accuracy: hours of CPU, on all cores, resumable in --out.")
    ] = False,
    json: Json = False,
) -> None:
    """Reproduce the notes' figures, and show the corrected ones beside them.

    Exit status 0: every published figure that can reproduce does; 1: one does not; 2: no such experiment; 130: Ctrl-C,
    and the experiments that were finished are shown and kept.

    Example: pebbler reproduce ard tiling --out out/notes
    """
    from pebbler.cli.interruption import hold
    from pebbler.cli.output import progress, tell
    from pebbler.notes.reproduction import EXPERIMENTS, REPORT, SWEEPS
    from pebbler.notes.reproduction import reproduce as run

    done: dict[str, Experiment] = {}

    def keep() -> bool:
        missing = [name for name in names or EXPERIMENTS if name not in done]
        kept = [name for name in missing if name in SWEEPS and (out / name).exists()]
        if done:
            _show(done, out, json, cut_off=True)
            tell(f"interrupted: {', '.join(missing) or 'the report'} was not finished; {out / REPORT} was not written")
        for name in kept:
            tell(f"interrupted; the same command continues {name} from {out / name}")
        return bool(done or kept)

    with hold(keep), progress("reproducing") as update:
        found = run(
            names or (),
            out,
            lambda name, part: update(f"reproducing {name}", part),
            finished=done.__setitem__,
            full=full,
        )
    failed = _show(found, out, json)
    for one in failed:
        tell(f"does not reproduce: {one}")
    tell(f"wrote {out / REPORT}")
    raise typer.Exit(1 if failed else 0)


def _show(found: dict[str, Experiment], out: Path, json: bool, cut_off: bool = False) -> list[str]:
    """Print what was found and name the files; return the figures that do not reproduce."""
    from pebbler.cli.output import emit_json, tell
    from pebbler.notes.findings import finding_files

    if json:
        figures = {name: {"rows": [row.summary() for row in one.rows]} for name, one in found.items()}
        emit_json({"experiments": figures} | ({"cut_off": True} if cut_off else {}))
    else:
        for name, experiment in found.items():
            _print_tables(name, experiment)
    for name, experiment in found.items():
        tell(f"wrote {', '.join(map(str, finding_files(experiment, out / name)))}")
    return [f"{name}: {row.name}" for name, experiment in found.items() for row in experiment.rows if not row.ok]


def _print_tables(name: str, experiment: Experiment) -> None:
    from textwrap import wrap

    from pebbler.cli.output import say, table
    from pebbler.notes.experiment import show

    # What the note never printed is in results.json; here it shows only when something is wrong with it.
    told = [row for row in experiment.rows if row.published is not None or row.corrected is not None or not row.ok]
    rows = [
        (
            row.name if row.unit in ("", "floats") else f"{row.name} ({row.unit})",
            show(row.published, row.decimals),
            show(row.measured, row.decimals),
            show(row.corrected, row.decimals),
            "yes" if row.match else "note wrong" if row.wrong else "NO",
        )
        for row in told
    ]
    table(f"{name} (note {experiment.note})", ["figure", "published", "measured", "corrected", "match"], rows)
    for verdict in experiment.verdicts:
        say(*wrap(f"Claim: {verdict.claim}", 79))
        say(*wrap(f"Truth: {verdict.truth}", 79), "")
    if len(told) < len(experiment.rows):
        say(f"{len(experiment.rows) - len(told)} further figures equal the original program's in full.", "")
