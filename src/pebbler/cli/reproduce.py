"""`pebbler reproduce`: the notes' experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pebbler.cli.options import Json

__all__ = ["reproduce"]


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...", help="pebble-game, chain, tiling, ard, minibatch; all by default.", show_default=False
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for results, findings, plots and the report.")] = Path(
        "out/notes"
    ),
    json: Json = False,
) -> None:
    """Reproduce the notes' figures, and show the corrected ones beside them.

    Exit status 0: every published figure that can reproduce does; 1: one does not; 2: no such experiment.

    Example: pebbler reproduce ard tiling --out out/notes
    """
    from textwrap import fill

    from pebbler.cli.output import emit_json, progress, say, table, tell
    from pebbler.notes.experiment import show
    from pebbler.notes.reproduction import REPORT
    from pebbler.notes.reproduction import reproduce as run

    with progress("reproducing") as update:
        found = run(names or (), out, lambda name, done: update(f"reproducing {name}", done))
    if json:
        emit_json({"experiments": {n: {"rows": [row.summary() for row in e.rows]} for n, e in found.items()}})
    else:
        for name, experiment in found.items():
            # What the note never printed is in results.json; here it shows only when something is wrong with it.
            told = [
                row for row in experiment.rows if row.published is not None or row.corrected is not None or not row.ok
            ]
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
                say(fill(f"Claim: {verdict.claim}", 79))
                say(fill(f"Truth: {verdict.truth}", 79) + "\n")
            if len(told) < len(experiment.rows):
                say(f"{len(experiment.rows) - len(told)} further figures equal the original program's in full.\n")
    failed = [f"{name}: {row.name}" for name, experiment in found.items() for row in experiment.rows if not row.ok]
    for one in failed:
        tell(f"does not reproduce: {one}")
    tell(f"report: {out / REPORT}")
    raise typer.Exit(1 if failed else 0)
